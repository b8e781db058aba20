//! Finds the DaemonSet that the user named. If there is none, returns an error that suggests similar names.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;

use super::access::Access;
use super::code::Code;
use super::context::Context;
use super::daemonset_api::{
    is_advanced_served, kind_of, list_advanced, list_native, qualified_name, whole,
};
use super::error::CliError;
use super::look::Look;
use super::snapshot::RolloutSnapshot;
use super::suggest::{OFFERED, likeness, near, suggestion};
use super::view::{ClusterView, ListScope};
use crate::core::settings::update_strategy::UPDATE_STRATEGY;
use crate::core::suggest::distance;
use crate::core::{NodeName, SetKind};
use crate::index::SetKey;

/// Name of a DaemonSet as the user entered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypedName {
    /// Namespace and name.
    key: SetKey,
    /// Kind before the name; `None` if the user entered none.
    kind: Option<SetKind>,
    /// Second possible meaning of `A/B`, where A may be a kind or a namespace.
    or: Option<SetKey>,
}

impl TypedName {
    /// Parses `NAMESPACE/NAME` or `NAME`, optionally after `KIND/` as in kubectl. A name without a namespace is in the namespace of
    /// `-n` or of the kubeconfig context.
    ///
    /// # Errors
    /// Fails if the text is not a valid name.
    pub(super) fn read(context: &Context, typed: &str) -> Result<Self, CliError> {
        let namespace = context.namespace.as_deref();
        let home = namespace.unwrap_or(&context.access.namespace);
        let before = typed.split_once('/');
        let kind = before.and_then(|(word, rest)| Some((kind_of(word)?, word, rest)));
        let read = |text: &str| match text.contains('/') || text.is_empty() {
            false => Ok(SetKey::new(home, text)),
            true => {
                let parsed = text.parse::<SetKey>();
                parsed.map_err(|error| CliError::new(Code::Usage, format!("{error}.")))
            }
        };
        let name = match kind {
            None => Self {
                key: read(typed)?,
                kind: None,
                or: None,
            },
            Some((kind, word, rest)) => {
                let can_be = namespace.is_none() && !word.contains('.') && !rest.contains('/');
                Self {
                    key: read(rest)?,
                    kind: Some(kind),
                    or: can_be.then(|| SetKey::new(word, rest)),
                }
            }
        };
        let key = &name.key;
        may_be_a_name("namespace", &key.namespace)?;
        may_be_a_name("DaemonSet", &key.name)?;
        match namespace {
            Some(other) if other != &*key.namespace => Err(CliError::new(
                Code::Usage,
                format!(
                    "{typed} is in namespace {}, but -n is {other}. Remove one of them.",
                    key.namespace
                ),
            )),
            _ => Ok(name),
        }
    }

    pub(super) fn key(&self) -> &SetKey {
        &self.key
    }

    /// Returns the key with the kind that the user entered; `None` if the user entered none.
    pub(super) fn with_kind(&self) -> Option<SetKey> {
        self.kind.map(|kind| self.key.as_kind(kind))
    }

    /// Returns the key of the DaemonSet that the user named. A name without a kind means the native DaemonSet, or the Advanced
    /// DaemonSet if there is no native one.
    ///
    /// # Errors
    /// Fails if the name is ambiguous. The message says how to choose.
    pub(super) async fn resolve(&self, access: &Access) -> Result<SetKey, CliError> {
        match (self.kind, &self.or) {
            (Some(kind), None) => Ok(self.key.as_kind(kind)),
            (Some(kind), Some(other)) => {
                let key = self.key.as_kind(kind);
                self.resolve_word(access, key, other).await
            }
            (None, _) => one_of(access, &self.key).await,
        }
    }

    /// Resolves `A/B` where A is the name of a kind, and may also be a namespace.
    async fn resolve_word(
        &self,
        access: &Access,
        key: SetKey,
        other: &SetKey,
    ) -> Result<SetKey, CliError> {
        let other = one_of(access, other).await;
        match other {
            Ok(other) if !is_there(access, &other).await? => Ok(key),
            other if !is_there(access, &key).await? => other,
            Ok(other) => Err(CliError::new(
                Code::Usage,
                format!(
                    "{other} is ambiguous: it may be DaemonSet {} in namespace {} or in namespace {}. Write {} or \
                     {}.",
                    key.name,
                    other.namespace,
                    key.namespace,
                    qualified_name(&other),
                    qualified_name(&key),
                ),
            )),
            error => error,
        }
    }
}

/// Returns the only DaemonSet with the given name, of either kind.
async fn one_of(access: &Access, name: &SetKey) -> Result<SetKey, CliError> {
    let (native, advanced) = (
        name.as_kind(SetKind::Native),
        name.as_kind(SetKind::Advanced),
    );
    let is_advanced = match is_there(access, &advanced).await {
        Ok(false) => return Ok(native),
        other => other,
    };
    // If Advanced DaemonSets cannot be read, for example while their CRD is replaced, use the native DaemonSet.
    match (is_there(access, &native).await?, is_advanced) {
        (false, is_advanced) => is_advanced.map(|_| advanced),
        (true, Err(_)) => Ok(native),
        (true, Ok(_)) => Err(CliError::new(
            Code::Usage,
            format!(
                "There are two DaemonSets {name}, a native one (apps/v1) and an Advanced one (apps.kruise.io). Write \
                 {} or {}.",
                qualified_name(&native),
                qualified_name(&advanced)
            ),
        )),
    }
}

/// Returns true if the DaemonSet exists and the caller may read it.
async fn is_there(access: &Access, key: &SetKey) -> Result<bool, CliError> {
    let doing = format!("read DaemonSet {key}");
    let api = whole(&access.client, key);
    let found = access.find_allowed(&doing, api.get_metadata(&key.name));
    Ok(found.await?.is_some())
}

/// Returns the DaemonSet that the user named as `typed`.
///
/// # Errors
/// Fails like [`TypedName::read`] and [`TypedName::resolve`].
pub(super) async fn target(context: &Context, typed: &str) -> Result<SetKey, CliError> {
    let name = TypedName::read(context, typed)?;
    name.resolve(&context.access).await
}

/// Rejects characters that a name cannot have and that have a special meaning in a request: a space, `?`, `=`, `,`, a line break.
///
/// # Errors
/// Fails if the name has such a character.
pub(super) fn may_be_a_name(kind: &str, typed: &str) -> Result<(), CliError> {
    let odd = |one: char| one.is_ascii() && !one.is_ascii_alphanumeric() && !"-._".contains(one);
    match typed.chars().find(|one| odd(*one)) {
        None if ["", ".", ".."].contains(&typed) => Err(CliError::new(
            Code::Usage,
            format!("{typed:?} is not the name of a {kind}."),
        )),
        None => Ok(()),
        Some(odd) => Err(CliError::new(
            Code::Usage,
            format!(
                "{typed:?} is not the name of a {kind}: it contains {odd:?}, but only letters, digits, \"-\" and \
                 \".\" are allowed."
            ),
        )),
    }
}

/// Loads a managed DaemonSet.
///
/// # Errors
/// Fails if it does not exist or is not managed. The message suggests similar names, or says how to let yurt-ds manage it.
pub(super) async fn load(
    access: &Access,
    key: &SetKey,
    now: Timestamp,
) -> Result<ClusterView, CliError> {
    let mut view = find(access, key, now).await?;
    view.load_rest(access).await?;
    Ok(view)
}

/// Loads a managed DaemonSet and evaluates its rollout, or uses the controller's report if the caller may not list nodes.
///
/// # Errors
/// Fails like [`load`].
pub(super) async fn look(
    access: &Access,
    key: &SetKey,
    now: Timestamp,
) -> Result<(ClusterView, Look), CliError> {
    let mut view = load(access, key, now).await?;
    let look = Look::take(&mut view, key, now).ok_or_else(|| unmanaged(key))?;
    Ok((view, look))
}

/// Loads a managed DaemonSet and evaluates its rollout.
///
/// # Errors
/// Fails like [`load`], and if nodes may not be listed.
pub(super) async fn snapshot(
    access: &Access,
    key: &SetKey,
    now: Timestamp,
) -> Result<(ClusterView, RolloutSnapshot), CliError> {
    let (view, look) = look(access, key, now).await?;
    match look {
        Look::Judged(snapshot) => Ok((view, *snapshot)),
        Look::Reported(_) => Err(view.unlisted_nodes.unwrap_or_else(|| unmanaged(key))),
    }
}

/// Reads only the settings of a managed DaemonSet.
///
/// # Errors
/// Fails like [`load`].
pub(super) async fn find(
    access: &Access,
    key: &SetKey,
    now: Timestamp,
) -> Result<ClusterView, CliError> {
    let view = ClusterView::load_settings(access, &ListScope::One(key.clone()), now).await?;
    match view.present.get(key) {
        None => Err(missing(access, key).await),
        Some(present) if present.deleting => {
            let kept = view.index.unmanaged().next().map(|(_, stray)| &*stray.text);
            let what = kept.unwrap_or("it is being deleted, and pods are no longer updated");
            Err(CliError::new(
                Code::NotFound,
                format!("DaemonSet {key}: {what}."),
            ))
        }
        Some(present) if view.managed().next().is_none() => {
            let mut error = to_hand_over(key, present.on_delete);
            if let Some((_, stray)) = view.index.unmanaged().next() {
                error.text = format!("{}. ({})", error.text, stray.text);
            }
            Err(error)
        }
        Some(_) => Ok(view),
    }
}

/// Returns the error for a DaemonSet without the annotation that makes yurt-ds manage it.
pub(super) fn unmanaged(key: &SetKey) -> CliError {
    to_hand_over(key, false)
}

fn to_hand_over(key: &SetKey, on_delete: bool) -> CliError {
    let first = if on_delete {
        ""
    } else {
        " set its spec.updateStrategy.type to OnDelete and"
    };
    let text = format!(
        "DaemonSet {key} is not managed by yurt-ds: it lacks the annotation {UPDATE_STRATEGY}. To let yurt-ds manage \
         it,{first} run: kubectl -n {} annotate daemonset {} {UPDATE_STRATEGY}=AdvancedRollingUpdate",
        key.namespace, key.name
    );
    CliError::new(Code::NotFound, text)
}

/// Returns the error for a DaemonSet that does not exist.
async fn missing(access: &Access, key: &SetKey) -> CliError {
    let native = async |namespace: Option<&str>| {
        let list = list_native(access, namespace, "list DaemonSets").await;
        list.map(|(sets, _)| sets).ok()
    };
    let advanced = async |namespace: Option<&str>| {
        let list = list_advanced(access, namespace).await.ok().flatten();
        list.map(|(sets, _)| sets)
    };
    // Search all namespaces for similar names. If the caller may not list all of them, search only this namespace.
    let home = Some(&*key.namespace);
    let mut known = match native(None).await {
        Some(everywhere) => everywhere,
        None => native(home).await.unwrap_or_default(),
    };
    let listed = match advanced(None).await {
        None => advanced(home).await,
        everywhere => everywhere,
    };
    let is_advanced_listed = listed.is_some();
    known.extend(listed.unwrap_or_default());
    let keys: Vec<SetKey> = known.iter().filter_map(SetKey::of_set).collect();
    if !key.is_advanced() && !is_advanced_listed && is_advanced_served(access).await {
        let text = format!(
            "There is no native DaemonSet {} in namespace {}, and these credentials may not read Advanced DaemonSets \
             (needed: ClusterRole yurt-ds-viewer-advanced).",
            key.name, key.namespace
        );
        return CliError::new(Code::Unreachable, text);
    }
    CliError::new(
        Code::NotFound,
        format!(
            "There is no DaemonSet {} in namespace {}.{}",
            key.name,
            key.namespace,
            suggestion(&alike(key, &keys))
        ),
    )
}

/// Returns similar names, the most similar first. The name, the namespace or both may be spelled differently, or the same name
/// exists in another namespace.
fn alike(key: &SetKey, keys: &[SetKey]) -> Vec<String> {
    let score = |other: &SetKey| {
        let namespace = distance(&key.namespace, &other.namespace).min(ELSEWHERE);
        Some(likeness(&key.name, &other.name)? + namespace)
    };
    let scored = keys.iter().filter_map(|other| Some((score(other)?, other)));
    let mut scored: Vec<(usize, &SetKey)> = scored.collect();
    scored.sort();
    let best = scored.first().map_or(0, |(score, _)| *score);
    let near = scored.iter().filter(|(score, _)| *score < best + ELSEWHERE);
    let is_both = |key: &SetKey| {
        let others = keys.iter().filter(|other| other.kind != key.kind);
        let mut others = others.map(|other| (&other.namespace, &other.name));
        others.any(|other| other == (&key.namespace, &key.name))
    };
    let named = near.take(OFFERED).map(|(_, other)| {
        if other.kind == key.kind && !is_both(other) {
            other.to_string()
        } else {
            qualified_name(other)
        }
    });
    named.collect()
}

/// Maximum distance that a different namespace adds, in edits of the name.
const ELSEWHERE: usize = 4;

/// Checks that a namespace without DaemonSets exists.
///
/// # Errors
/// Fails if the namespace does not exist; the message suggests similar names. Without the right to read it, there is no error.
pub(super) async fn namespace(access: &Access, name: &str) -> Result<(), CliError> {
    let api: Api<Namespace> = Api::all(access.client.clone());
    // Only "not found" is an error here: the caller may lack the right to read namespaces.
    let Ok(None) = access
        .find("read the namespace", api.get_metadata(name))
        .await
    else {
        return Ok(());
    };
    let params = ListParams::default();
    let known = access.find("list namespaces", api.list_metadata(&params));
    let known = known.await.ok().flatten().map(|list| list.items);
    let names = known.iter().flatten();
    let names = names.filter_map(|known| known.metadata.name.as_deref());
    let text = format!(
        "There is no namespace {name}.{}",
        suggestion(&near(name, names))
    );
    Err(CliError::new(Code::NotFound, text))
}

/// Returns the error for a node that does not exist.
pub(super) fn missing_node(view: &ClusterView, key: &SetKey, typed: &str) -> CliError {
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
    let help = if help.is_empty() {
        format!(" List the nodes: yurt-ds ctl status {key} -o wide")
    } else {
        help
    };
    CliError::new(Code::NotFound, format!("There is no node {typed}.{help}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_prefer_the_same_namespace_then_the_same_name() {
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
        case("default/fluent", &["edge/fluent-bit"]);
        case("edge/fluentbit", &["edge/fluent-bit"]);
        case("edeg/nginx", &["edge/nginx", "default/nginx"]);
        case("other-place/proxy", &["kube-system/proxy"]);
        case("kube-sytem/prox", &["kube-system/proxy"]);
        case("default/plain", &[]);
        case("edge/postgres", &[]);
        let advanced = SetKey::of_kind(SetKind::Advanced, "edge", "nginx");
        let native: SetKey = "edge/nginx".parse().unwrap();
        let typed = SetKey::of_kind(SetKind::Advanced, "edge", "ngnix");
        let alone = |key: &SetKey| alike(&typed, std::slice::from_ref(key));
        assert_eq!(alone(&native), ["ds/edge/nginx"]);
        assert_eq!(alone(&advanced), ["edge/nginx"]);
        assert_eq!(
            alike(&typed, &[native, advanced]),
            ["ds/edge/nginx", "ads/edge/nginx"]
        );
    }
}
