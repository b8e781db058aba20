//! Complete lists, page by page.

use std::fmt::Debug;

use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::access::Access;
use super::error::CliError;

/// Objects per page of a list; the API server's own clients use it.
const PAGE: u32 = 500;

/// Lists everything, page by page, and the version of the list. A list that expires on the way begins again as a whole.
pub(super) async fn list<K>(
    access: &Access,
    doing: &str,
    api: &Api<K>,
    params: ListParams,
) -> Result<(Vec<K>, String), CliError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut page = params.clone().limit(PAGE);
    let mut items = Vec::new();
    loop {
        let Some(mut found) = access.find(doing, api.list(&page)).await? else {
            let all = access.call(doing, api.list(&params)).await?;
            return Ok((all.items, all.metadata.resource_version.unwrap_or_default()));
        };
        items.append(&mut found.items);
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => {
                return Ok((items, found.metadata.resource_version.unwrap_or_default()));
            }
        }
    }
}
