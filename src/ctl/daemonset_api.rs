//! The two kinds of DaemonSets, native and Advanced: their names on the command line, and requests for them.

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::WatchEvent;
use kube::{Api, Client, Resource};
use serde_json::Value;

use super::access::Access;
use super::error::CliError;
use super::list::{list, list_where_served};
use crate::core::SetKind;
use crate::core::names::KRUISE_GROUP;
use crate::index::SetKey;
use crate::k8s::{AdvancedDaemonSet, DaemonSet, Listed};

/// Returns the kind that a word such as `ds` or `daemonsets.apps` names, as in kubectl; `None` if it names neither kind.
pub(super) fn kind_of(word: &str) -> Option<SetKind> {
    let word = word.to_ascii_lowercase();
    let (name, group) = match word.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (&*word, None),
    };
    // Accept a version between name and group, as in `daemonsets.v1.apps`.
    let is_of = |group: &str, wanted: &str| {
        let rest = group.strip_suffix(wanted);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('v') && rest.ends_with('.'))
    };
    match (name, group) {
        ("ds" | "daemonset" | "daemonsets", None) => Some(SetKind::Native),
        ("ads" | "daemon", None) => Some(SetKind::Advanced),
        ("ds" | "daemonset" | "daemonsets", Some(group)) if is_of(group, "apps") => {
            Some(SetKind::Native)
        }
        ("ads" | "daemon" | "daemonset" | "daemonsets", Some(group))
            if is_of(group, KRUISE_GROUP) =>
        {
            Some(SetKind::Advanced)
        }
        _ => None,
    }
}

/// Returns the name of a DaemonSet with its kind, as in `ds/shop/web`, so that it is unambiguous.
pub(super) fn qualified_name(key: &SetKey) -> String {
    match key.kind {
        SetKind::Native => format!("ds/{key}"),
        SetKind::Advanced => format!("ads/{key}"),
    }
}

/// Returns the API for the kind and namespace of a DaemonSet. The objects keep all fields, including fields that the typed structs
/// lack.
pub(super) fn whole(client: &Client, key: &SetKey) -> Api<DynamicObject> {
    let kind = match key.kind {
        SetKind::Native => ApiResource::erase::<DaemonSet>(&()),
        SetKind::Advanced => ApiResource::erase::<AdvancedDaemonSet>(&()),
    };
    Api::namespaced_with(client.clone(), &key.namespace, &kind)
}

/// Decodes a DaemonSet of either kind into the common type; `None` if it cannot be decoded.
pub(super) fn decode(kind: SetKind, whole: Value) -> Option<DaemonSet> {
    match kind {
        SetKind::Native => serde_json::from_value(whole).ok(),
        SetKind::Advanced => {
            let set: AdvancedDaemonSet = serde_json::from_value(whole).ok()?;
            Some(set.into())
        }
    }
}

/// Returns the API for the objects of a namespace, or of all namespaces.
pub(super) fn api_in<K>(access: &Access, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    let client = access.client.clone();
    match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    }
}

/// Reads one DaemonSet by a list request, which also gives a resource version for a watch. The list is empty if the cluster does
/// not serve the kind.
///
/// # Errors
/// Fails if the caller may not read the DaemonSet or the API server does not answer.
pub(super) async fn list_one(
    access: &Access,
    key: &SetKey,
) -> Result<(Vec<DaemonSet>, String), CliError> {
    let doing = format!("read DaemonSet {key}");
    let only = ListParams::default().fields(&format!("metadata.name={}", key.name));
    match key.kind {
        SetKind::Native => {
            let api: Api<Listed<DaemonSet>> = api_in(access, Some(&key.namespace));
            Ok(readable(list(access, &doing, &api, only).await?))
        }
        SetKind::Advanced => {
            let api = api_in(access, Some(&key.namespace));
            let found =
                list_where_served::<Listed<AdvancedDaemonSet>>(access, &doing, &api, only, false);
            Ok(readable(found.await?.unwrap_or_default()))
        }
    }
}

/// Lists Advanced DaemonSets.
///
/// `None` if the cluster does not serve the kind or the caller may not list it ([`is_advanced_served`]).
///
/// # Errors
/// Fails if the API server does not answer.
pub(super) async fn list_advanced(
    access: &Access,
    namespace: Option<&str>,
) -> Result<Option<(Vec<DaemonSet>, String)>, CliError> {
    let (doing, all) = ("list Advanced DaemonSets", ListParams::default());
    let api = api_in(access, namespace);
    let found = list_where_served::<Listed<AdvancedDaemonSet>>(access, doing, &api, all, true);
    Ok(found.await?.map(readable))
}

/// Returns true if the cluster serves Advanced DaemonSets. Returns false, too, if the caller may not ask for that.
pub(super) async fn is_advanced_served(access: &Access) -> bool {
    let version = SetKind::Advanced.api_version();
    let asked = access.client.list_api_group_resources(version);
    let found = access
        .find_allowed("look for Advanced DaemonSets", asked)
        .await;
    matches!(found, Ok(Some(_)))
}

/// Lists native DaemonSets.
///
/// # Errors
/// Fails if the caller may not list DaemonSets or the API server does not answer.
pub(super) async fn list_native(
    access: &Access,
    namespace: Option<&str>,
    doing: &str,
) -> Result<(Vec<DaemonSet>, String), CliError> {
    let api: Api<Listed<DaemonSet>> = api_in(access, namespace);
    Ok(readable(
        list(access, doing, &api, ListParams::default()).await?,
    ))
}

/// Returns the DaemonSets of a list, without the DaemonSets whose metadata cannot be decoded.
fn readable<K: Into<DaemonSet>>(
    (sets, version): (Vec<Listed<K>>, String),
) -> (Vec<DaemonSet>, String) {
    let sets = sets.into_iter().filter_map(|set| set.item.ok());
    (sets.map(Into::into).collect(), version)
}

/// Converts a watch event of either kind; `None` if the metadata of its DaemonSet cannot be decoded.
pub(super) fn of_set<K: Into<DaemonSet>>(
    event: WatchEvent<Listed<K>>,
) -> Option<WatchEvent<DaemonSet>> {
    let set = |set: Listed<K>| set.item.ok().map(Into::into);
    Some(match event {
        WatchEvent::Added(listed) => WatchEvent::Added(set(listed)?),
        WatchEvent::Modified(listed) => WatchEvent::Modified(set(listed)?),
        WatchEvent::Deleted(listed) => WatchEvent::Deleted(set(listed)?),
        WatchEvent::Bookmark(mark) => WatchEvent::Bookmark(mark),
        WatchEvent::Error(error) => WatchEvent::Error(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_accepted_in_every_form_of_kubectl() {
        use SetKind::{Advanced, Native};
        #[track_caller]
        fn case(word: &str, expected: Option<SetKind>) {
            assert_eq!(kind_of(word), expected, "{word}");
        }
        for word in [
            "ds",
            "DaemonSet",
            "daemonsets",
            "daemonset.apps",
            "ds.v1.apps",
        ] {
            case(word, Some(Native));
        }
        for word in [
            "ads",
            "daemon",
            "daemonset.apps.kruise.io",
            "daemonsets.v1beta1.apps.kruise.io",
            "ads.apps.kruise.io",
        ] {
            case(word, Some(Advanced));
        }
        for word in [
            "",
            "default",
            "deployment",
            "daemonset.",
            "daemonset.xapps",
            "ads.apps",
        ] {
            case(word, None);
        }
    }
}
