//! From what was typed to an object; where there is none, to a sentence that helps.

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;

use super::access::{Access, Trouble};
use super::code::Code;
use super::near::{near, suggestion};
use super::view::{Scope, View, list};
use crate::api::DaemonSet;
use crate::core::NodeName;
use crate::core::names::UPDATE_STRATEGY;
use crate::index::SetKey;

/// The DaemonSet that `typed` means: `NAMESPACE/NAME`, or a name in the namespace of `-n` or of the context.
pub(super) fn target(
    access: &Access,
    namespace: Option<&str>,
    typed: &str,
) -> Result<SetKey, Trouble> {
    if !typed.contains('/') && !typed.is_empty() {
        return Ok(SetKey::new(namespace.unwrap_or(&access.namespace), typed));
    }
    let key: SetKey = typed
        .parse()
        .map_err(|error: String| Trouble::new(Code::Usage, format!("{error}.")))?;
    match namespace {
        Some(other) if other != &*key.namespace => Err(Trouble::new(
            Code::Usage,
            format!(
                "{typed} is in namespace {}, but -n says {other}: drop one of them.",
                key.namespace
            ),
        )),
        _ => Ok(key),
    }
}

/// Loads one managed DaemonSet.
///
/// # Errors
/// When it does not exist or is not managed; says which names are near, and how a DaemonSet becomes managed.
pub(super) async fn load(access: &Access, key: &SetKey, now: Timestamp) -> Result<View, Trouble> {
    let view = View::load(access, &Scope::One(key.clone()), now).await?;
    match view.present.get(key) {
        None => Err(missing(access, key).await),
        Some(true) => Err(Trouble::new(
            Code::NotFound,
            format!("DaemonSet {key} is being deleted: nothing is rolled out any more."),
        )),
        Some(false) if view.managed().next().is_none() => Err(unmanaged(key)),
        Some(false) => Ok(view),
    }
}

/// What to say of a DaemonSet without the annotation.
pub(super) fn unmanaged(key: &SetKey) -> Trouble {
    let text = format!(
        "DaemonSet {key} is not managed by yurt-ds: it lacks the annotation {UPDATE_STRATEGY}. To hand it over, set \
         its spec.updateStrategy.type to OnDelete and: kubectl -n {} annotate daemonset {} \
         {UPDATE_STRATEGY}=AdvancedRollingUpdate",
        key.namespace, key.name
    );
    Trouble::new(Code::NotFound, text)
}

/// What to say of a DaemonSet that does not exist.
async fn missing(access: &Access, key: &SetKey) -> Trouble {
    let api: Api<DaemonSet> = Api::all(access.client.clone());
    let everywhere = list(access, "list DaemonSets", &api, ListParams::default()).await;
    let everywhere = match everywhere {
        Ok((sets, _)) => sets,
        // Names of one namespace are better than none.
        Err(_) => {
            let api: Api<DaemonSet> = Api::namespaced(access.client.clone(), &key.namespace);
            let list = list(access, "list DaemonSets", &api, ListParams::default()).await;
            list.map(|(sets, _)| sets).unwrap_or_default()
        }
    };
    let keys: Vec<SetKey> = everywhere
        .iter()
        .filter_map(|set| SetKey::of(&set.metadata))
        .collect();
    Trouble::new(
        Code::NotFound,
        format!(
            "There is no DaemonSet {} in namespace {}.{}",
            key.name,
            key.namespace,
            suggestion(&alike(key, &keys))
        ),
    )
}

/// Near names: in the same namespace, else in namespaces that look alike, else anywhere.
fn alike(key: &SetKey, keys: &[SetKey]) -> Vec<String> {
    let names = |wanted: &dyn Fn(&SetKey) -> bool| {
        let of = keys.iter().filter(|key| wanted(key));
        of.map(|key| (*key.name).to_owned()).collect::<Vec<_>>()
    };
    let here = names(&|other| other.namespace == key.namespace);
    let found = near(&key.name, here.iter().map(String::as_str));
    if !found.is_empty() {
        let full = |name: &&str| format!("{}/{name}", key.namespace);
        return found.iter().map(full).collect();
    }
    let same = keys.iter().filter(|other| other.name == key.name);
    let same: Vec<String> = same.map(ToString::to_string).collect();
    if !same.is_empty() {
        let namespaces = same.iter().map(String::as_str);
        let nearest = near(&key.to_string(), namespaces.clone());
        let nearest: Vec<String> = nearest.into_iter().map(Into::into).collect();
        return match nearest.is_empty() {
            false => nearest,
            true => same.into_iter().take(3).collect(),
        };
    }
    let all: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let found = near(&key.to_string(), all.iter().map(String::as_str));
    found.into_iter().map(Into::into).collect()
}

/// What to say of a node that does not exist.
pub(super) fn missing_node(view: &View, key: &SetKey, typed: &str) -> Trouble {
    let pods = view.index.set(key).into_iter().flat_map(|set| set.pods());
    let on = pods
        .filter(|(_, pod)| pod.name.as_str() == typed)
        .map(|(node, _)| node)
        .next();
    let help = match on {
        Some(node) => {
            format!(" It is the name of a pod on node {node}: yurt-ds ctl why {key} {node}")
        }
        None => suggestion(&near(typed, view.index.node_names().map(NodeName::as_str))),
    };
    Trouble::new(Code::NotFound, format!("There is no node {typed}.{help}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_prefer_the_same_namespace_then_the_same_name() {
        #[track_caller]
        fn case(typed: &str, expected: &[&str]) {
            let keys = [
                "default/nginx",
                "edge/nginx",
                "edge/fluent-bit",
                "kube-system/proxy",
            ];
            let keys: Vec<SetKey> = keys.iter().map(|key| key.parse().unwrap()).collect();
            assert_eq!(alike(&typed.parse().unwrap(), &keys), expected, "{typed}");
        }
        case("default/ngnix", &["default/nginx"]);
        case("edge/fluentbit", &["edge/fluent-bit"]);
        case("edeg/nginx", &["edge/nginx"]);
        case("other-place/proxy", &["kube-system/proxy"]);
        case("kube-sytem/prox", &["kube-system/proxy"]);
        case("edge/postgres", &[]);
    }
}
