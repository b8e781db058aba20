//! Finds the pod of this node that the user named. If there is none, returns an error that suggests similar names.

use super::answer::Pods;
use super::client::NodeClient;
use super::pod::daemonset;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::suggest::{near, suggestion};
use crate::k8s::Pod;

/// Returns the pod that the user named: `NAMESPACE/POD`, `POD`, or the name of a DaemonSet that has one pod on this node.
///
/// # Errors
/// Fails if there is no such pod or more than one. The message suggests pods.
pub(super) fn find<'a>(
    client: &NodeClient,
    typed: &str,
    pods: &'a Pods,
) -> Result<&'a Pod, CliError> {
    let (namespace, name) = split(client, typed)?;
    let within: Vec<&Pod> = pods
        .items
        .iter()
        .filter(|pod| namespace.is_none_or(|namespace| pod.namespace() == namespace))
        .collect();
    let named: Vec<&Pod> = within
        .iter()
        .copied()
        .filter(|pod| pod.name() == name)
        .collect();
    match named[..] {
        [pod] => return Ok(pod),
        [] => {}
        _ => {
            return Err(ambiguous(
                name,
                "is the name of several pods on this node",
                &named,
            ));
        }
    }
    let of_set: Vec<&Pod> = within
        .iter()
        .copied()
        .filter(|pod| daemonset(pod) == Some(name))
        .collect();
    let staying: Vec<&Pod> = of_set
        .iter()
        .copied()
        .filter(|pod| !pod.is_deleting())
        .collect();
    match (&staying[..], &of_set[..]) {
        ([pod], _) | ([], [pod]) => Ok(pod),
        ([], []) => Err(missing(typed, namespace, name, pods)),
        _ => Err(ambiguous(
            name,
            "is a DaemonSet with several pods on this node",
            &of_set,
        )),
    }
}

/// Splits the name that the user entered into namespace and name.
fn split<'a>(
    client: &'a NodeClient,
    typed: &'a str,
) -> Result<(Option<&'a str>, &'a str), CliError> {
    let usage = |text: String| Err(CliError::new(Code::Usage, text));
    let wanted = client.namespace.as_deref();
    match typed.split_once('/') {
        None if typed.is_empty() => usage("The name of the pod is empty.".into()),
        None => Ok((wanted, typed)),
        Some((namespace, name))
            if namespace.is_empty() || name.is_empty() || name.contains('/') =>
        {
            usage(format!(
                "{typed:?} is not a pod. Write NAMESPACE/POD, such as default/nginx-daemonset-bwzss."
            ))
        }
        Some((namespace, _)) if wanted.is_some_and(|wanted| wanted != namespace) => usage(format!(
            "{typed} is in namespace {namespace}, but -n is {}. Remove one of them.",
            wanted.unwrap_or_default()
        )),
        Some((namespace, name)) => Ok((Some(namespace), name)),
    }
}

fn ambiguous(name: &str, what: &str, pods: &[&Pod]) -> CliError {
    let keys: Vec<String> = pods.iter().map(|pod| pod.key()).collect();
    let text = format!(
        "{name} {what}: {}. Write NAMESPACE/POD.",
        keys.join(" and ")
    );
    CliError::new(Code::Usage, text)
}

fn missing(typed: &str, namespace: Option<&str>, name: &str, pods: &Pods) -> CliError {
    let place = match namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None => String::new(),
    };
    // Suggest similar names in the same namespace. If there are none, suggest names in other namespaces.
    let inside = |pod: &&Pod| namespace.is_none_or(|namespace| pod.namespace() == namespace);
    let mut found = alike(name, pods.items.iter().filter(inside));
    if found.is_empty() {
        found = alike(name, pods.items.iter());
    }
    let help = if found.is_empty() {
        " List all pods: yurt-ds ctl pods".to_owned()
    } else {
        suggestion(&found)
    };
    let stale = match pods.old() {
        Some(_) => {
            " The node is not connected to the cloud, so its list of pods may be out of date."
        }
        None => "",
    };
    let name = if namespace.is_some() { name } else { typed };
    let text = format!("There is no pod {name}{place} on this node.{stale}{help}");
    CliError::new(Code::NotFound, text)
}

/// Returns pods whose name is similar to `name`, or whose DaemonSet has a similar name.
fn alike<'a>(name: &str, pods: impl Iterator<Item = &'a Pod>) -> Vec<String> {
    let pods: Vec<&Pod> = pods.collect();
    let sets = pods.iter().filter_map(|pod| daemonset(pod));
    let names = near(name, pods.iter().map(|pod| pod.name()).chain(sets));
    let of = |name: &&str| {
        let is = |pod: &&&Pod| pod.name() == *name || daemonset(pod) == Some(*name);
        Some(pods.iter().find(is)?.key())
    };
    let mut keys: Vec<String> = Vec::new();
    for key in names.iter().filter_map(of) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}
