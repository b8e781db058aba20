//! LIST requests that read all objects, page by page.
//!
//! [`read`] is the only function of `ctl` that decodes the objects of a LIST response.

use std::fmt::Debug;

use kube::api::{ListParams, ObjectList};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::access::Access;
use super::error::CliError;

/// Number of objects per page, as in Kubernetes' own clients.
const PAGE: u32 = 500;

/// Lists all objects page by page, and returns the resource version of the list. If the list expires between two pages, all objects
/// are read again with one request.
pub(super) async fn list<K>(
    access: &Access,
    doing: &str,
    api: &Api<K>,
    params: ListParams,
) -> Result<(Vec<K>, String), CliError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let page = params.clone().limit(PAGE);
    let first = access.find(doing, read(api, &page)).await?;
    follow(access, doing, api, params, first).await
}

/// Lists a kind that the cluster may not serve. Returns `None` if the cluster does not serve it, or if `is_optional` is true and
/// the caller may not list it.
pub(super) async fn list_where_served<K>(
    access: &Access,
    doing: &str,
    api: &Api<K>,
    params: ListParams,
    is_optional: bool,
) -> Result<Option<(Vec<K>, String)>, CliError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let page = params.clone().limit(PAGE);
    let first = if is_optional {
        access.find_allowed(doing, read(api, &page)).await?
    } else {
        access.find(doing, read(api, &page)).await?
    };
    match first {
        None => Ok(None),
        first => follow(access, doing, api, params, first).await.map(Some),
    }
}

/// Reads the pages after `found`. A page that is `None` means that the list has expired. Then all objects are read again with one
/// request.
async fn follow<K>(
    access: &Access,
    doing: &str,
    api: &Api<K>,
    params: ListParams,
    mut found: Option<ObjectList<K>>,
) -> Result<(Vec<K>, String), CliError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut page = params.clone().limit(PAGE);
    let mut items = Vec::new();
    loop {
        let Some(mut part) = found else {
            let all = access.call(doing, read(api, &params)).await?;
            return Ok((all.items, all.metadata.resource_version.unwrap_or_default()));
        };
        items.append(&mut part.items);
        match part.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => {
                return Ok((items, part.metadata.resource_version.unwrap_or_default()));
            }
        }
        found = access.find(doing, read(api, &page)).await?;
    }
}

/// Requests one page and decodes its objects.
async fn read<K>(api: &Api<K>, page: &ListParams) -> kube::Result<ObjectList<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    api.list(page).await
}
