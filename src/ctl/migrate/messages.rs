//! Messages of `ctl migrate`: reasons for a refusal, results, and steps to finish an interrupted migration.

use serde_json::Value;

use super::Purpose;
use super::adoption::{Adoption, patience};
use super::journal::Journal;
use super::revisions::name;
use super::translation::Translation;
use crate::cli::Output;
use crate::core::settings::paused::PAUSED;
use crate::core::words::{named, plural};
use crate::core::{Invalid, SetKind};
use crate::ctl::daemonset_api::qualified_name;
use crate::ctl::error::CliError;
use crate::ctl::print::document;
use crate::index::SetKey;

/// Tools that apply manifests repeatedly. Each is recognized by a label or annotation that it sets.
const APPLIERS: [(&str, &str); 5] = [
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("meta.helm.sh/release-name", "Helm"),
];

fn kind_name(kind: SetKind) -> String {
    match kind {
        SetKind::Native => "a native DaemonSet (apps/v1)".to_owned(),
        SetKind::Advanced => format!("an Advanced DaemonSet ({})", kind.api_version()),
    }
}

fn flag(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Native => "native",
        SetKind::Advanced => "advanced",
    }
}

/// Returns the command that finishes the migration.
fn command(target: &SetKey, purpose: Purpose) -> String {
    match purpose {
        Purpose::GoOn => format!("yurt-ds ctl migrate {target} --to {}", flag(target.kind)),
        Purpose::Eject => format!("yurt-ds ctl eject {target}"),
    }
}

/// Says that the DaemonSet was not migrated and nothing was changed, and gives the reason.
pub(super) fn not_migrated(key: &SetKey, why: &str) -> String {
    format!("{key} was not migrated, and nothing was changed: {why}")
}

/// Says that the DaemonSet already has the requested kind.
pub(super) fn already(target: &SetKey) -> String {
    format!(
        "{target} is already {}; nothing was changed.\n",
        kind_name(target.kind)
    )
}

/// Says that a native and an Advanced DaemonSet have the same name.
pub(super) fn both_exist(target: &SetKey) -> String {
    let why = format!(
        "{} of the same name exists. Delete one of them. This also deletes its pods, except with --cascade=orphan.",
        kind_name(target.kind)
    );
    not_migrated(target, &why)
}

/// Says that a migration in the opposite direction, to `other`, is unfinished.
pub(super) fn other_way(other: &SetKey, purpose: Purpose) -> String {
    format!(
        "The migration of {other} to {} is not finished. Finish it first: {}",
        kind_name(other.kind),
        command(other, purpose)
    )
}

/// Says that a migration is unfinished. Shown instead of the result of a dry run.
pub(super) fn unfinished(target: &SetKey, purpose: Purpose) -> String {
    format!(
        "The migration of {target} to {} is not finished. Finish it: {}",
        kind_name(target.kind),
        command(target, purpose)
    )
}

/// Says that an unfinished migration continues.
pub(super) fn goes_on(target: &SetKey) -> String {
    format!(
        "The interrupted migration of {target} to {} continues.\n",
        kind_name(target.kind)
    )
}

/// Says that the target kind or its namespace does not exist.
pub(super) fn not_served(target: &SetKey) -> String {
    let why = format!(
        "the API server has no {}, or there is no namespace {}. Install the kind: kubectl apply -k \
         manifests/components/advanced",
        target.kind.api_version(),
        target.namespace
    );
    not_migrated(target, &why)
}

/// Says that the DaemonSet cannot be decoded.
pub(super) fn unreadable(source: &SetKey, error: &serde_json::Error) -> String {
    not_migrated(source, &format!("it cannot be decoded: {error}."))
}

pub(super) fn invalid(source: &SetKey, invalid: &Invalid) -> String {
    let why = format!("its settings are invalid: {invalid}. Correct or remove them first.");
    not_migrated(source, &why)
}

/// Says that finalizers would block the deletion.
pub(super) fn finalizers(finalizers: &[&str]) -> String {
    format!(
        "{} {} would block its deletion. Remove {} first, if the program that set {} does not need this.",
        plural(finalizers.len(), "the finalizer", "the finalizers"),
        finalizers.join(", "),
        plural(finalizers.len(), "it", "them"),
        plural(finalizers.len(), "it", "them"),
    )
}

/// Says that another object controls the DaemonSet.
pub(super) fn controlled(owner: &str) -> String {
    format!(
        "{owner} controls it, and would create it again. Configure its owner to create the other kind, or remove the \
         owner reference first."
    )
}

/// Says that the guard stopped the current revision. The new DaemonSet would have no record of this.
pub(super) fn stopped(source: &SetKey) -> String {
    format!(
        "the guard has stopped its revision, and the new DaemonSet would not know that. First roll back (yurt-ds ctl \
         undo {source}), or resume the revision (yurt-ds ctl resume {source})."
    )
}

/// Says that Kruise's manager is running and would take over the new DaemonSet.
pub(super) fn kruise_runs() -> String {
    "OpenKruise's manager is running (it renews its Lease kruise-system/kruise-manager). It would take over the \
     DaemonSet and replace pods of revisions that it does not know. Stop it first (docs/coming-from-kruise.md)."
        .to_owned()
}

/// Says that the partition keeps nodes without a pod, and that Kubernetes would create pods on them.
pub(super) fn partitioned() -> String {
    "because of partitionedScaling, its partition keeps nodes without a pod, but Kubernetes creates a pod on every \
     node immediately. First set partition to 0 and let the rollout finish, or set partitionedScaling to false."
        .to_owned()
}

/// Says that in-place updates are in progress, which only the current controller can finish.
pub(super) fn half_done(source: &SetKey, nodes: usize) -> String {
    format!(
        "on {nodes} {}, pods are being updated in place, and only the controller that started these updates can \
         finish them. Pause the rollout (yurt-ds ctl pause {source}), and try again in a moment.",
        plural(nodes, "node", "nodes")
    )
}

/// Says that the pods on these nodes are still terminating.
pub(super) fn ending(nodes: &[String]) -> String {
    format!(
        "the pod on {} is still terminating. Such a pod is not adopted, so the new DaemonSet would create a second \
         one. Pause a running rollout, and try again when the pod is gone (on an offline node, this is after its \
         return).",
        named(nodes.iter().map(String::as_str), 0)
    )
}

/// A pod and the node that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodPlace {
    pub(super) pod: String,
    pub(super) node: String,
}

impl std::fmt::Display for PodPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.pod, self.node)
    }
}

/// Says that there are surge pods. Only the current controller can end the surge.
pub(super) fn second(source: &SetKey, pods: &[PodPlace]) -> String {
    let pods: Vec<String> = pods.iter().map(PodPlace::to_string).collect();
    format!(
        "nodes still have a second pod because of maxSurge: {}. Wait until the rollout is complete (yurt-ds ctl \
         status {source} --wait; if it is paused, first yurt-ds ctl resume {source}), or roll back (yurt-ds ctl undo \
         {source}). Then try again.",
        named(pods.iter().map(String::as_str), 0)
    )
}

/// Says that another DaemonSet selects the pods and would adopt them.
pub(super) fn selected(other: &str) -> String {
    format!(
        "{other} selects its pods too, and would adopt them while they have no owner. First change the selector of \
         that DaemonSet, or delete it."
    )
}

/// Says that no pod is left for the new DaemonSet to adopt.
pub(super) fn abandoned(target: &SetKey) -> String {
    let journal = Journal::name(target);
    format!(
        "The interrupted migration of {target} to {} cannot continue, because no pod is left to adopt; nothing was \
         changed. To see the new manifest: kubectl -n {ns} get controllerrevision {journal} -o jsonpath='{{.data}}' \
         (to create it: | kubectl create -f -). To discard it: kubectl -n {ns} delete controllerrevision {journal}",
        kind_name(target.kind),
        ns = target.namespace,
    )
}

/// Says that another DaemonSet has been created with the name of the journal's DaemonSet.
pub(super) fn made_by_others(target: &SetKey) -> String {
    let journal = Journal::name(target);
    format!(
        "The interrupted migration of {target} to {} cannot continue, because another DaemonSet of that name was \
         created in the meantime; nothing was changed. To see the manifest of the migration: kubectl -n {ns} get \
         controllerrevision {journal} -o jsonpath='{{.data}}'. To discard it: kubectl -n {ns} delete \
         controllerrevision {journal}",
        kind_name(target.kind),
        ns = target.namespace,
    )
}

/// Returns one line for each setting that moved or was lost.
pub(super) fn translated(translation: &Translation) -> String {
    let moved = translation.moved.iter().map(|line| format!("  {line}\n"));
    let lost = translation
        .lost
        .iter()
        .map(|line| format!("  lost: {line}\n"));
    moved.chain(lost).collect()
}

/// Renders the output of `--dry-run`.
pub(super) fn would(
    to: &SetKey,
    source: &Value,
    translation: &Translation,
) -> Result<String, CliError> {
    let manifest = document(&translation.object, Output::Yaml)?;
    Ok(format!(
        "{to} would become {}; nothing was written. The API server accepts the change, and no pod would be \
         restarted.\n{}{}---\n{manifest}",
        kind_name(to.kind),
        translated(translation),
        to_change(source, to.kind),
    ))
}

/// Says that the manifest has to be changed, too. Names the tool that applies the manifest, if labels or annotations show the tool.
fn to_change(object: &Value, kind: SetKind) -> String {
    let meta = &object["metadata"];
    let has = |key: &str| !meta["annotations"][key].is_null() || !meta["labels"][key].is_null();
    let applier = APPLIERS
        .iter()
        .find(|(key, _)| has(key))
        .map(|(_, who)| *who);
    match applier {
        Some(who) => format!(
            "{who} manages this DaemonSet. Change its manifest there to {} before the next apply, which would \
             otherwise create a second DaemonSet with a second pod on every node.\n",
            kind.api_version()
        ),
        None => format!(
            "Change its manifest to {} before the next apply, which would otherwise create a second DaemonSet with a \
             second pod on every node.\n",
            kind.api_version()
        ),
    }
}

/// Says how to finish a migration after the old DaemonSet was deleted.
pub(super) fn to_finish(target: &SetKey, journal: &Journal, purpose: Purpose) -> String {
    let (ns, kept) = (&target.namespace, Journal::name(target));
    let names: Vec<&str> = journal.revisions.iter().map(name).collect();
    let names = names.join(" ");
    // Delete the revisions first. They may exist in the old form or in the new one.
    let delete = match names.is_empty() {
        true => String::new(),
        false => {
            format!("kubectl -n {ns} delete controllerrevision {names} --ignore-not-found; ")
        }
    };
    format!(
        "The old DaemonSet is being deleted, and its pods keep running. The new manifest is saved in the \
         ControllerRevision {kept}. To finish: {}\nWithout yurt-ds: {delete}kubectl -n {ns} get controllerrevision \
         {kept} -o jsonpath='{{.data}}' | kubectl -n {ns} create -f -{}",
        command(target, purpose),
        if journal.is_paused() {
            "\nThe DaemonSet that this creates is paused."
        } else {
            ""
        },
    )
}

/// Says that the old manifest was applied again before the new DaemonSet was created.
pub(super) fn applied_instead(source: &SetKey, target: &SetKey, purpose: Purpose) -> String {
    format!(
        "{source} was not migrated: its manifest ({}) was applied again right after the deletion, and the pods \
         belong to this DaemonSet now. Change the manifest to {}, or stop the tool that applies it. Then: {}",
        source.kind.api_version(),
        target.kind.api_version(),
        command(target, purpose)
    )
}

/// Says that the old manifest was applied again after the new DaemonSet was created, so both exist.
pub(super) fn applied_beside(source: &SetKey) -> String {
    format!(
        "The manifest of {source} ({}) was applied again: there are now two DaemonSets, each with a pod on every \
         node. Change the manifest, or stop the tool that applies it. Then delete the old DaemonSet; the new one \
         adopts its pods and deletes the surplus ones: kubectl -n {} delete {} {} --cascade=orphan.",
        source.kind.api_version(),
        source.namespace,
        source.kind.resource(),
        source.name
    )
}

/// Says how to continue when it is unknown if the old DaemonSet was deleted.
pub(super) fn perhaps_begun(target: &SetKey, purpose: Purpose) -> String {
    format!(
        "It is not known if the old DaemonSet was deleted. Its pods keep running in both cases. The new manifest is \
         saved in the ControllerRevision {}. To continue: {}",
        Journal::name(target),
        command(target, purpose)
    )
}

/// Says how to finish a migration after the new DaemonSet was created.
pub(super) fn to_conclude(target: &SetKey, purpose: Purpose, is_paused: bool) -> String {
    let paused = if is_paused {
        ", paused until the migration is finished"
    } else {
        ""
    };
    format!(
        "{target} is now {}{paused}. To finish: {}",
        kind_name(target.kind),
        command(target, purpose)
    )
}

/// Says that an interrupted `ctl eject` left the new DaemonSet paused.
pub(super) fn to_eject(target: &SetKey) -> String {
    format!(
        "An interrupted eject left it paused ({PAUSED}). To hand it back to Kubernetes: {}\nTo keep it managed by \
         yurt-ds: yurt-ds ctl resume {target}\n",
        command(target, Purpose::Eject)
    )
}

/// Says why the migration is not complete: the controller created a new revision or has not processed the DaemonSet, or the
/// DaemonSet was replaced.
pub(super) fn not_adopted(
    target: &SetKey,
    purpose: Purpose,
    adoption: &Adoption,
    is_paused: bool,
) -> String {
    let made = format!("{target} is now {}", kind_name(target.kind));
    let held = if is_paused {
        format!(" It stays paused ({PAUSED}).")
    } else {
        String::new()
    };
    match adoption {
        Adoption::Foreign { ours, theirs } => format!(
            "{made}, and no pod was restarted, but Kubernetes created a new revision ({theirs}) for the template of \
             revision {ours}, so pods of {ours} count as outdated.{held} To replace them within the budget: yurt-ds \
             ctl resume {target}"
        ),
        Adoption::Replaced => format!(
            "{target} became {}, but was then deleted or recreated by another program. Find that program. To \
             continue: {}",
            kind_name(target.kind),
            command(target, purpose)
        ),
        Adoption::Unseen | Adoption::Known => format!(
            "{made}, but {} has not processed it for {}. Check that {} is running.{held} To continue: {}",
            target.kind.controller(),
            humantime::format_duration(patience(target.kind)),
            target.kind.process(),
            command(target, purpose)
        ),
    }
}

/// Returns the message for a completed migration.
pub(super) fn done(target: &SetKey, journal: &Journal, adoption: &Adoption) -> String {
    let taken = match adoption {
        Adoption::Unseen => format!(
            "{} has not processed it yet, so new nodes get no pod. Check that it is running, with --controllers \
             native,advanced.\n",
            capital(target.kind.controller())
        ),
        Adoption::Replaced | Adoption::Foreign { .. } | Adoption::Known => String::new(),
    };
    format!(
        "{target} is now {}; no pod was restarted. Its name for ctl is now {}.\n{taken}{}",
        kind_name(target.kind),
        qualified_name(target),
        to_change(&journal.object, target.kind)
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Returns the text above the manifest that replaces an ExtendedDaemonSet.
///
/// `unchecked` is the reason why the API server could not check the manifest.
pub(super) fn of_extended(
    key: &SetKey,
    kind: SetKind,
    made: &Translation,
    unchecked: Option<&CliError>,
) -> String {
    let ns = &key.namespace;
    let unchecked = unchecked.map_or_else(String::new, |why| {
        format!("The API server has not checked this manifest: {why}\n")
    });
    format!(
        "ExtendedDaemonSet {key} as {}; nothing was written.\n{unchecked}{}To migrate it, run the commands below. \
         Its pods have no revision hash, so each is replaced once, within maxUnavailable.\n  kubectl -n {ns} delete \
         extendeddaemonset {name} --cascade=orphan\n  kubectl -n {ns} delete extendeddaemonsetreplicasets -l \
         extendeddaemonset.datadoghq.com/name={name} --cascade=orphan\n  kubectl create -f THIS\nThe selector must \
         match the labels of the running pods.\n",
        kind_name(kind),
        translated(made),
        name = key.name,
    )
}
