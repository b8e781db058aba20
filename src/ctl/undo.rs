//! `ctl undo`: restores an older template from the ControllerRevisions of the DaemonSet.
//!
//! ```text
//! look (GET, LIST ControllerRevisions) ─choose─► report what it restores ──► ONE conditional write of spec.template
//!    ▲                                                                        │ the DaemonSet changed meanwhile
//!    └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Waves, budgets and windows apply to a rollback as to every rollout. The write also removes the annotations `resume` and
//! `start-now`, and approvals of waves for other revisions. It needs only the rights to read the DaemonSet and its
//! ControllerRevisions, and to patch the DaemonSet.
//!
//! The guard is the part of the controller that stops a revision on which too many nodes fail. By default, `undo` skips such a
//! revision.

mod held;

use std::collections::BTreeMap;
use std::sync::Arc;

use json_patch::PatchOperation;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::{Value, json};

use self::held::HeldBack;
use super::code::Code;
use super::context::Context;
use super::daemonset_api::whole;
use super::error::CliError;
use super::list::list;
use super::look::Look;
use super::lookup;
use super::pause::look_again;
use super::print::document;
use super::row::api_version;
use super::screen::Screen;
use super::write::{FIELD_MANAGER, remove, set, write_if_unchanged};
use crate::cli::Output;
use crate::cli::ctl::UndoArgs;
use crate::core::fleet::in_place::Shape;
use crate::core::foreign::{WORD, one_line};
use crate::core::messages::behind_remedy;
use crate::core::names::{REVISION_HASH_LABEL, ROLLED_BACK_FROM};
use crate::core::revision::{
    RevisionFacts, RollbackCandidates, RollbackMark, TemplateFingerprint, TemplateWriter, adopted,
    current, hash_of, template_in,
};
use crate::core::settings::approved_waves::APPROVED_WAVES;
use crate::core::settings::resume::RESUME;
use crate::core::settings::start_now::START_NOW;
use crate::core::{
    FailureRecord, Mode, ParsedSettings, Pause, Revision, RevisionState, RevisionUnknown, SetKind,
    Strategy, instant,
};
use crate::index::{SetKey, SetRecord};

/// Maximum number of attempts to write a DaemonSet that changes between the read and the write.
const ATTEMPTS: usize = 5;
/// Placeholder for the image of a container that only one of the templates has.
const ABSENT: &str = "(none)";

/// Output of `undo`. Field names are stable for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct UndoAnswer {
    /// Kind of the DaemonSet, serialized as its API version.
    #[serde(serialize_with = "api_version")]
    kind: SetKind,
    namespace: String,
    name: String,
    /// True if the template was written.
    changed: bool,
    /// Revision before the rollback; `null` if Kubernetes has not created the revision of the current template yet.
    from: Option<RevisionRow>,
    /// Restored revision.
    to: RevisionRow,
    /// Containers whose image changes.
    images: Vec<ImageChange>,
    /// Newer revisions that the rollback skips because the guard stopped them.
    passed_over: Vec<RevisionRow>,
    /// Revision in the annotation `resume`, which the rollback removes; `null` without the annotation.
    resume_ended: Option<String>,
    /// Revision in the annotation `start-now`, which the rollback removes; `null` without the annotation.
    start_now_ended: Option<String>,
    /// Approvals of waves for other revisions, which the rollback removes.
    approvals_ended: Vec<String>,
    /// Nodes that the rollback does not update yet, grouped by reason.
    held_back: Vec<HeldBack>,
    /// Notes on the restored revision: the guard stopped it earlier, or another revision is recommended.
    notes: Vec<String>,
}

/// Revision in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RevisionRow {
    /// Number of the revision. Kubernetes gives a new number to a restored revision.
    number: i64,
    /// Hash of the revision, as in the label of its pods.
    hash: String,
    /// Time when the revision was created.
    made: Option<String>,
    /// Time when the revision last became the current one.
    last_rolled_out: Option<String>,
}

/// Change of a container's image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImageChange {
    container: String,
    /// Image before; `null` if the container is new.
    from: Option<String>,
    /// Image after; `null` if the container is removed.
    to: Option<String>,
}

/// Restores the template of an older revision.
pub(super) async fn undo(
    context: &Context,
    args: &UndoArgs,
    screen: &mut Screen<'_>,
) -> Result<(), CliError> {
    let key = lookup::target(context, &args.daemonset).await?;
    let mut first: Option<Value> = None;
    for _ in 0..ATTEMPTS {
        let history = RevisionHistory::read(context, &key).await?;
        if *first.get_or_insert_with(|| history.template.clone()) != history.template {
            return Err(history.overtaken());
        }
        let chosen = history.choose(args.to_revision)?;
        let is_current = history.current.as_ref() == Some(&chosen.facts.hash);
        let changed = !is_current && !args.dry_run;
        if changed && !history.restore(context, chosen).await? {
            continue;
        }
        let look = if is_current {
            None
        } else {
            look_again(context, &key).await
        };
        let mut answer = history.answer(chosen, args.to_revision, changed);
        answer.held_back = look
            .iter()
            .flat_map(|look| history.held_back(look, chosen))
            .collect();
        let text = match args.output {
            Output::Json | Output::Yaml => document(&answer, args.output)?,
            Output::Table | Output::Wide if is_current => format!(
                "{key} already has the template of revision {}; nothing was changed.\n",
                answer.to
            ),
            Output::Table | Output::Wide => answer.text(context.clock.now(), look.as_ref()),
        };
        let _ = screen.print(&text);
        return Ok(());
    }
    Err(CliError::new(
        Code::Failed,
        format!("{key} was not rolled back, because it changed during every attempt. Try again."),
    ))
}

/// A DaemonSet and its ControllerRevisions.
struct RevisionHistory {
    key: SetKey,
    seen: ObjectMeta,
    template: Value,
    /// Settings of the DaemonSet; `None` if they are invalid.
    settings: Option<Strategy>,
    revisions: Vec<KeptRevision>,
    /// Revision of the current template; `None` if the revision does not exist yet.
    current: Option<Revision>,
    /// Number of the revision that the DaemonSet's conditions recommend for a rollback.
    advised: Option<i64>,
    /// Revisions other than the current one that the guard stopped, according to its record.
    stopped: Vec<Revision>,
    /// True if pods are still being updated to the current revision and its rollout is not stalled.
    is_under_way: bool,
}

/// A revision in the history.
struct KeptRevision {
    facts: RevisionFacts,
    /// Data of the ControllerRevision: a patch that restores its template.
    data: Value,
}

impl RevisionHistory {
    async fn read(context: &Context, key: &SetKey) -> Result<Self, CliError> {
        let access = &context.access;
        // For a missing or unmanaged DaemonSet, return the same error as `status`.
        let found = lookup::find(access, key, context.clock.now()).await?;
        let known = found.index.set(key);
        let selector = known.map(|set| set.selector.clone());
        let record = known.and_then(SetRecord::reported_record);
        let settings = found.index.reading(key);
        let settings = settings
            .as_deref()
            .and_then(ParsedSettings::usable)
            .cloned();
        let sets = whole(&access.client, key);
        let doing = format!("read DaemonSet {key}");
        let set = access.call(&doing, sets.get(&key.name)).await?;
        let api: Api<ControllerRevision> = Api::namespaced(access.client.clone(), &key.namespace);
        let doing = format!("list controllerrevisions in namespace {}", key.namespace);
        let params = ListParams::default().labels(&selector.unwrap_or_default());
        let (revisions, _) = list(access, &doing, &api, params).await?;
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let own = |revision: &ControllerRevision| {
            let owners = revision.metadata.owner_references.iter().flatten();
            let mut controllers = owners.filter(|owner| owner.controller == Some(true));
            controllers.any(|owner| owner.uid == uid)
        };
        let mut revisions: Vec<KeptRevision> = revisions
            .into_iter()
            .filter(own)
            .map(|revision| KeptRevision::new(revision, &key.name))
            .collect();
        revisions.sort_by_key(|kept| kept.facts.number);
        let template = set.data["spec"]["template"].clone();
        let observed = set.data["status"]["observedGeneration"].as_i64();
        let state = current(
            &facts(&revisions),
            &TemplateFingerprint::from_template(&template),
            observed.is_some() && observed >= set.metadata.generation,
            false,
        );
        let current = match state {
            RevisionState::Current(current) => Some(current),
            RevisionState::Unknown(_) => None,
        };
        // Ignore a stall of another revision. Right after a change, the condition is still about the previous one.
        let reported = known.map(|set| &set.state.reported);
        let stalled =
            reported.filter(|state| state.stalled_since.is_some() && state.revision == current);
        let stopped = current
            .as_ref()
            .map(|current| FailureRecord::stopped_besides(record.as_ref(), current));
        let number = |field: &str| set.data["status"][field].as_i64().unwrap_or_default();
        let is_updated = number("updatedNumberScheduled") >= number("desiredNumberScheduled");
        Ok(Self {
            key: key.clone(),
            is_under_way: !is_updated && stalled.is_none(),
            advised: stalled.and_then(|state| state.advised),
            seen: set.metadata,
            template,
            settings,
            revisions,
            current,
            stopped: stopped.unwrap_or_default(),
        })
    }

    fn is_stopped(&self, kept: &KeptRevision) -> bool {
        self.stopped.contains(&kept.facts.hash)
    }

    /// Returns the candidates for a rollback from `current`, the most recent first. The second value is true if a rollback made
    /// `current` the current revision.
    fn earlier(&self, current: &Revision) -> (Vec<&KeptRevision>, bool) {
        let facts = facts(&self.revisions);
        let find = |wanted: &RevisionFacts| {
            let mut kept = self.revisions.iter();
            kept.find(|kept| kept.facts.number == wanted.number && kept.facts.hash == wanted.hash)
        };
        let mark = RollbackMark::from_meta(&self.seen);
        let candidates = RollbackCandidates::new(&facts, current, &mark);
        let revisions = candidates.revisions.into_iter().filter_map(find);
        (revisions.collect(), candidates.is_rolled_back)
    }

    /// Returns the error for a DaemonSet whose template changed between the read and the write.
    fn overtaken(&self) -> CliError {
        let key = &self.key;
        let what = match TemplateWriter::from_meta(&self.seen) {
            Some(writer) if writer.manager == FIELD_MANAGER => {
                format!("{key} was already rolled back by {writer}")
            }
            Some(writer) => format!("{writer} changed the template of {key} in the meantime"),
            None => format!("the template of {key} changed in the meantime"),
        };
        let text = format!(
            "Nothing was changed: {what}. Check the rollout before you run undo again: yurt-ds ctl status {key}"
        );
        CliError::new(Code::Refused, text)
    }

    /// Returns the revisions between the current one and `chosen` that the rollback skips because the guard stopped them.
    fn passed_over(&self, chosen: &KeptRevision) -> Vec<RevisionRow> {
        let current = self.current.as_ref();
        let earlier = current.map(|current| self.earlier(current).0);
        let newer = (earlier.into_iter().flatten())
            .take_while(|kept| kept.facts.number != chosen.facts.number);
        newer.map(KeptRevision::which).collect()
    }

    /// Returns the revision with the given number. Without a number, returns the last earlier revision that the guard did not stop.
    fn choose(&self, number: Option<i64>) -> Result<&KeptRevision, CliError> {
        match (number, &self.current) {
            (Some(number), _) => {
                let mut kept = self.revisions.iter();
                let found = kept.find(|kept| kept.facts.number == number);
                found.ok_or_else(|| {
                    let text = format!("{} has no revision {number}.{}", self.key, self.choices());
                    CliError::new(Code::NotFound, text)
                })
            }
            (None, None) => Err(CliError::new(
                Code::Refused,
                format!(
                    "{} was not rolled back: {} has not processed its latest change, so its current revision is not \
                     known. Try again in a moment; if that persists, {}. Or select a revision with --to-revision.{}",
                    self.key,
                    self.key.kind.controller(),
                    behind_remedy(self.key.kind, RevisionUnknown::NotObserved),
                    self.choices()
                ),
            )),
            (None, Some(current)) => {
                let (earlier, is_rolled_back) = self.earlier(current);
                if is_rolled_back && self.is_under_way {
                    let text = format!(
                        "{} was already rolled back to revision {current}, and that rollout is in progress. To go \
                         further back, select a revision with --to-revision.{}",
                        self.key,
                        self.choices()
                    );
                    return Err(CliError::new(Code::Refused, text));
                }
                let found = earlier.iter().find(|kept| !self.is_stopped(kept));
                found.copied().ok_or_else(|| {
                    let text = if earlier.is_empty() {
                        self.nothing_earlier(current)
                    } else {
                        self.nothing_good(current)
                    };
                    CliError::new(Code::Refused, text)
                })
            }
        }
    }

    /// Returns the message for a DaemonSet without an earlier revision, with the next steps.
    fn nothing_earlier(&self, current: &Revision) -> String {
        let key = &self.key;
        match self.revisions.len() {
            0 | 1 => format!(
                "{key} was not rolled back: the only revision that is kept is the current one ({current}). Roll out \
                 another template: kubectl -n {} {}",
                key.namespace,
                match key.kind {
                    SetKind::Native => format!("set image daemonset/{} CONTAINER=IMAGE", key.name),
                    // Use `kubectl edit`, because `kubectl set image` does not support custom resources.
                    SetKind::Advanced => format!("edit {}/{}", key.kind.resource(), key.name),
                }
            ),
            _ => format!(
                "{key} was not rolled back: no kept revision is older than the current one ({current}), which was \
                 restored by a rollback. Repair the nodes, roll out another template, or select a revision with \
                 --to-revision.{}",
                self.choices()
            ),
        }
    }

    /// Returns the message for a DaemonSet whose earlier revisions were all stopped by the guard, with the next steps.
    fn nothing_good(&self, current: &Revision) -> String {
        format!(
            "{} was not rolled back: the guard stopped all kept revisions that are older than the current one \
             ({current}). Repair the nodes, roll out another template, or select a revision with --to-revision.{}",
            self.key,
            self.choices()
        )
    }

    /// Returns a note on the `chosen` revision. `typed` is its number if the caller named one.
    fn note(&self, chosen: &KeptRevision, typed: Option<i64>) -> Option<String> {
        if let Some(number) = typed {
            let note =
                format!("the guard stopped revision {number} when it was rolled out before.");
            return self.is_stopped(chosen).then_some(note);
        }
        let advised = self.advised.filter(|number| *number != chosen.facts.number);
        advised.map(|number| {
            format!(
                "its condition Stalled recommends revision {number} instead: yurt-ds ctl undo {} --to-revision \
                 {number}",
                self.key
            )
        })
    }

    /// Returns a list of the revisions, one per line, the newest first.
    fn choices(&self) -> String {
        let line = |kept: &KeptRevision| {
            let here = match self.current.as_ref() == Some(&kept.facts.hash) {
                true => " (current)",
                false if self.is_stopped(kept) => " (stopped by the guard)",
                false => "",
            };
            let images = images(&kept.data["spec"]["template"]);
            let images: Vec<&str> = images.values().copied().collect();
            format!("\n  {} {}{here}", kept.which(), images.join(", "))
        };
        match self.revisions.is_empty() {
            true => " No revision is kept.".to_owned(),
            false => {
                let lines: String = self.revisions.iter().rev().map(line).collect();
                format!(" Kept revisions:{lines}")
            }
        }
    }

    /// Writes the template of a revision. Returns false if the DaemonSet has changed since it was read.
    async fn restore(&self, context: &Context, kept: &KeptRevision) -> Result<bool, CliError> {
        let template = template_in(&kept.data).ok_or_else(|| {
            let text = format!(
                "Revision {} of {} contains no template.",
                kept.which(),
                self.key
            );
            CliError::new(Code::Failed, text)
        })?;
        let doing = format!("roll back DaemonSet {}", self.key);
        let mut changes = vec![set(&["spec", "template"], template)];
        changes.extend(self.current.as_ref().map(|left| self.mark(left)));
        if self.resumed_besides(kept).is_some() {
            changes.push(remove(&["metadata", "annotations", RESUME]));
        }
        // Remove `start-now`: it was set for the revision that is rolled back. Without it, the maintenance window applies to the
        // rollback.
        if self.started().is_some() {
            changes.push(remove(&["metadata", "annotations", START_NOW]));
        }
        let (ended, left) = self.approvals(kept);
        let approvals = ["metadata", "annotations", APPROVED_WAVES];
        if !ended.is_empty() {
            changes.push(if left.is_empty() {
                remove(&approvals)
            } else {
                set(&approvals, left.join(",").into())
            });
        }
        write_if_unchanged(context, &doing, &self.key, &self.seen, changes).await
    }

    /// Returns the change that marks the DaemonSet as rolled back from `left`.
    fn mark(&self, left: &Revision) -> PatchOperation {
        match self.seen.annotations {
            Some(_) => set(
                &["metadata", "annotations", ROLLED_BACK_FROM],
                left.as_str().into(),
            ),
            None => set(
                &["metadata", "annotations"],
                json!({ ROLLED_BACK_FROM: left.as_str() }),
            ),
        }
    }

    fn started(&self) -> Option<&str> {
        let annotations = self.seen.annotations.as_ref()?;
        annotations.get(START_NOW).map(String::as_str)
    }

    /// Returns the revision in the annotation `resume` if it is not `kept`.
    ///
    /// Undo removes such an annotation. Otherwise the guard would ignore failed nodes if that revision were rolled out again.
    fn resumed_besides(&self, kept: &KeptRevision) -> Option<&str> {
        let named = self.seen.annotations.as_ref()?.get(RESUME)?;
        (named != kept.facts.hash.as_str()).then_some(named.as_str())
    }

    /// Splits the annotation `approved-waves` into approvals of revisions other than `kept` and the rest. Undo removes the former.
    ///
    /// If one of the other revisions is rolled out again, its waves wait for a new approval.
    fn approvals(&self, kept: &KeptRevision) -> (Vec<&str>, Vec<&str>) {
        let annotations = self.seen.annotations.as_ref();
        let written = annotations.and_then(|annotations| annotations.get(APPROVED_WAVES));
        let entries = written.into_iter().flat_map(|list| list.split(','));
        let entries = entries.map(str::trim).filter(|entry| !entry.is_empty());
        entries.partition(|entry| {
            let approved = entry.split_once('@').map(|(_, hash)| hash);
            approved.is_some_and(|hash| hash != kept.facts.hash.as_str())
        })
    }

    /// Returns the nodes that the rollback to `chosen` does not update yet, by reason.
    fn held_back(&self, look: &Look, chosen: &KeptRevision) -> Vec<HeldBack> {
        let mut kept = self.revisions.iter();
        let from = kept.find(|kept| Some(&kept.facts.hash) == self.current.as_ref());
        let newest = self.revisions.iter().map(|kept| kept.facts.number).max();
        HeldBack::all(
            look,
            self.settings.as_ref(),
            &chosen.facts,
            from.map(|kept| kept.facts.number),
            newest.unwrap_or(i64::MAX),
        )
    }

    fn answer(&self, chosen: &KeptRevision, typed: Option<i64>, changed: bool) -> UndoAnswer {
        let current = self.current.as_ref();
        let mut kept = self.revisions.iter();
        let from = kept.find(|kept| Some(&kept.facts.hash) == current);
        let (before, after) = (
            images(&self.template),
            images(&chosen.data["spec"]["template"]),
        );
        let names: std::collections::BTreeSet<&str> =
            before.keys().chain(after.keys()).copied().collect();
        let change = |name: &str| ImageChange {
            container: name.to_owned(),
            from: before.get(name).map(|image| (*image).to_owned()),
            to: after.get(name).map(|image| (*image).to_owned()),
        };
        let images = names.into_iter().map(change);
        UndoAnswer {
            kind: self.key.kind,
            namespace: self.key.namespace.to_string(),
            name: self.key.name.to_string(),
            changed,
            from: from.map(KeptRevision::which),
            to: chosen.which(),
            images: images.filter(|change| change.from != change.to).collect(),
            passed_over: match typed {
                Some(_) => Vec::new(),
                None => self.passed_over(chosen),
            },
            held_back: Vec::new(),
            notes: self.note(chosen, typed).into_iter().collect(),
            resume_ended: self.resumed_besides(chosen).map(str::to_owned),
            start_now_ended: self.started().map(str::to_owned),
            approvals_ended: (self.approvals(chosen).0.into_iter())
                .map(str::to_owned)
                .collect(),
        }
    }
}

impl KeptRevision {
    fn new(revision: ControllerRevision, set: &str) -> Self {
        let meta = revision.metadata;
        let data = revision.data.map(|data| data.0).unwrap_or_default();
        let template = &data["spec"]["template"];
        let label = meta.labels.as_ref();
        let label = label.and_then(|labels| labels.get(REVISION_HASH_LABEL));
        let name = meta.name.as_deref().unwrap_or_default();
        let facts = RevisionFacts {
            number: revision.revision,
            hash: hash_of(label.map(String::as_str), name, set),
            made: meta.creation_timestamp.as_ref().map(|time| time.0),
            adopted: adopted(&meta),
            template: TemplateFingerprint::from_template(template),
            shape: Arc::new(Shape::from_template(template)),
            images: Arc::new([]),
        };
        Self { facts, data }
    }

    fn which(&self) -> RevisionRow {
        RevisionRow {
            number: self.facts.number,
            hash: self.facts.hash.to_string(),
            made: self.facts.made.map(instant::words),
            last_rolled_out: self.facts.adopted.map(instant::words),
        }
    }
}

impl std::fmt::Display for RevisionRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}", self.number, self.hash)?;
        if let Some(at) = &self.last_rolled_out {
            write!(f, ", last rolled out {at}")?;
        }
        f.write_str(")")
    }
}

impl UndoAnswer {
    fn text(&self, now: Timestamp, look: Option<&Look>) -> String {
        let key = SetKey::of_kind(self.kind, &self.namespace, &self.name);
        let to = &self.to;
        let from = self.from.as_ref();
        let from = from.map_or_else(String::new, |from| format!(" from revision {from}"));
        let head = match self.changed {
            true => format!("{key} is rolled back{from} to revision {to}.\n"),
            false => {
                format!("{key} would be rolled back{from} to revision {to}; nothing was written.\n")
            }
        };
        let line = |change: &ImageChange| {
            let named = |image: &Option<String>| image.clone().unwrap_or(ABSENT.to_owned());
            let (from, to) = (named(&change.from), named(&change.to));
            format!("  {}: {from} -> {to}\n", change.container)
        };
        let images = if self.images.is_empty() {
            "No image changes; other parts of the template do.\n".to_owned()
        } else {
            self.images.iter().map(line).collect()
        };
        let follows = match look {
            Some(look) if self.changed => follows(look, now),
            _ => String::new(),
        };
        let held = self.held_back.iter();
        let held = held.filter(|held| !(self.changed && held.is_for_all));
        let held: String = held.map(|held| held.text(self.changed)).collect();
        let passed = |which: &RevisionRow| {
            format!(
                "Revision {which} is skipped, because the guard stopped it. To roll back to it anyway: yurt-ds ctl \
                 undo {key} --to-revision {}\n",
                which.number
            )
        };
        let passed: String = self.passed_over.iter().map(passed).collect();
        let manifest = "Change the manifest in the same way, or the next apply reverts this.\n";
        let resumed = self.resume_ended.as_ref();
        let resumed = resumed.map_or_else(String::new, |revision| {
            let revision = one_line(revision, WORD);
            let goes = if self.changed { "is" } else { "would be" };
            format!("The annotation {RESUME} for revision {revision} {goes} removed: the guard applies again.\n")
        });
        let started = self.start_now_ended.as_ref();
        let started = started.map_or_else(String::new, |revision| {
            let revision = one_line(revision, WORD);
            let goes = if self.changed { "is" } else { "would be" };
            format!("The annotation {START_NOW} for revision {revision} {goes} removed: windows and min-interval \
                apply again.\n")
        });
        let ended: Vec<_> = (self.approvals_ended.iter())
            .map(|approval| one_line(approval, WORD))
            .collect();
        let ended = match (ended.is_empty(), self.changed) {
            (true, _) => String::new(),
            (false, true) => format!(
                "Removed approvals of other revisions: {}\n",
                ended.join(", ")
            ),
            (false, false) => format!(
                "Would remove approvals of other revisions: {}\n",
                ended.join(", ")
            ),
        };
        let notes = self.notes.iter().map(|note| format!("Note: {note}\n"));
        let notes: String = notes.collect();
        format!("{head}{images}{passed}{resumed}{started}{ended}{held}{follows}{manifest}{notes}")
    }
}

/// Returns a sentence about what prevents the rollback from starting. If nothing prevents it, says how to follow the rollback.
fn follows(look: &Look, now: Timestamp) -> String {
    let key = look.key();
    let pause = match look {
        Look::Judged(snapshot) => snapshot.rollout().pause().map(|pause| pause.until),
        Look::Reported(reported) => reported.pause().map(|pause| match pause {
            Pause::Indefinite => None,
            Pause::Until(until) => Some(until),
        }),
    };
    let mode = look.strategy().map(|strategy| strategy.mode);
    match (pause, look.invalid(), mode) {
        (Some(None), ..) => {
            format!("It is paused, so no pod is replaced. To resume: yurt-ds ctl resume {key}\n")
        }
        (Some(Some(until)), ..) => format!(
            "It is paused, so no pod is replaced for {}. To resume now: yurt-ds ctl resume {key}\n",
            instant::between(now, until)
        ),
        (None, Some(invalid), _) => {
            format!("But no pod is replaced, because its settings are invalid: {invalid}.\n")
        }
        (_, _, Some(Mode::OnDelete)) => format!(
            "No pod is replaced until it is deleted (updateStrategy.type: OnDelete). Follow it: yurt-ds ctl status \
             {key}\n"
        ),
        (_, _, Some(Mode::Ota)) => {
            format!(
                "No pod is replaced until the node owner upgrades it. Follow it: yurt-ds ctl status {key} --watch\n"
            )
        }
        _ => format!("Follow it: yurt-ds ctl status {key} --watch\n"),
    }
}

fn facts(revisions: &[KeptRevision]) -> Vec<RevisionFacts> {
    revisions.iter().map(|kept| kept.facts.clone()).collect()
}

/// Returns the images of a template by container name.
fn images(template: &Value) -> BTreeMap<&str, &str> {
    let of = |kind: &str| template["spec"][kind].as_array().into_iter().flatten();
    let containers = of("initContainers").chain(of("containers"));
    containers
        .filter_map(|container| Some((container["name"].as_str()?, container["image"].as_str()?)))
        .collect()
}

#[cfg(test)]
mod tests;
