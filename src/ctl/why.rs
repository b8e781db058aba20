//! `ctl why`: explains the verdict on one node (its state in the rollout), since when it applies, and what would change it.

use std::iter;

use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

use super::access::Access;
use super::brief::{COLUMNS, wrapped};
use super::code::Code;
use super::context::Context;
use super::error::CliError;
use super::liveness::liveness_of;
use super::look::Look;
use super::reported::ReportedRollout;
use super::row::{
    NO_CONTROLLER, NodeRow, PodRow, ReversalRow, api_version, liveness_notes, reported_notes,
    unknown,
};
use super::screen::Screen;
use super::snapshot::RolloutSnapshot;
use super::table::CellStyle;
use super::view::ClusterView;
use super::{lookup, print};
use crate::cli::Output;
use crate::cli::ctl::WhyArgs;
use crate::core::messages::gone;
use crate::core::messages::node::{not_targeted, refused_aside, remedy, remedy_repelled, repelled};
use crate::core::messages::pages::page;
use crate::core::messages::pulls::unbegun;
use crate::core::names::PRE_PULL_POD;
use crate::core::verdict::PullStage;
use crate::core::words::joined;
use crate::core::{NodeName, Pod, SetKind, Verdict, instant};

/// Width in columns of the labels, including two spaces.
const LABEL: usize = 10;
/// Maximum number of lines of the text.
const LINES: usize = 12;

/// Output of `why`. Field names are stable for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyAnswer {
    /// Kind of the DaemonSet, serialized as its API version.
    #[serde(serialize_with = "api_version")]
    pub kind: SetKind,
    /// Namespace of the DaemonSet.
    pub namespace: String,
    /// Name of the DaemonSet.
    pub name: String,
    /// Phase of the rollout.
    pub phase: &'static str,
    /// Sentence about the phase.
    pub phase_message: String,
    /// Progress of the automatic rollback of a revision that the guard stopped; `null` if there is none.
    pub reversal: Option<ReversalRow>,
    /// Row of the node, as in `ctl status`.
    #[serde(flatten)]
    pub node: NodeRow,
    /// Event or action that would change the verdict.
    pub next: String,
    /// Documentation page about the verdict; `null` if there is none.
    pub docs: Option<&'static str>,
    /// Resources that affect the answer and that the caller may not read.
    pub unknown: Vec<&'static str>,
    /// Notes about a missing controller or permission, and its effect.
    pub notes: Vec<String>,
}

/// Explains the state of a node and prints it.
pub(super) async fn why(
    context: &Context,
    args: &WhyArgs,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let (access, now) = (&context.access, context.clock.now());
    let key = lookup::target(context, &args.daemonset).await?;
    let (loaded, liveness) =
        tokio::join!(lookup::look(access, &key, now), liveness_of(access, now));
    let (view, mut look) = loaded?;
    look.note_liveness(liveness);
    let name = NodeName::from(args.node.strip_prefix("node/").unwrap_or(&args.node));
    let answer = match &look {
        Look::Judged(snapshot) => {
            let is_unbegun = is_pull_unbegun(access, snapshot, &name).await;
            let mut answer = answer(&view, snapshot, name)?;
            if is_unbegun {
                (answer.node.message, answer.next) = unbegun(&key.namespace);
            }
            answer
        }
        Look::Reported(reported) => reported_answer(&view, reported, &name)?,
    };
    let text = match args.output {
        Output::Json | Output::Yaml => print::document(&answer, args.output)?,
        Output::Table | Output::Wide => sentences(&answer, screen.colour),
    };
    // Ignore a closed output pipe, as with `| head`.
    let _ = screen.print(&text);
    Ok(match look.code(false) {
        Code::Silent => Code::Silent,
        _ => Code::Complete,
    })
}

/// Returns true if an image pull was requested for the node, but its Job has no pod yet. If the caller may not list the pods,
/// returns false.
async fn is_pull_unbegun(access: &Access, snapshot: &RolloutSnapshot, name: &NodeName) -> bool {
    let nodes = snapshot.fleet.nodes.iter().zip(&snapshot.plan.verdicts);
    let mut asked = nodes.filter_map(|(node, verdict)| match verdict {
        Verdict::PullPending(PullStage::UnderWay { .. }) if node.name == *name => node.outdated(),
        _ => None,
    });
    let Some(pod) = asked.next() else {
        return false;
    };
    let pulls = format!("{PRE_PULL_POD}={}", pod.uid);
    let pulls = ListParams::default().labels(&pulls).limit(1);
    let api: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(access.client.clone(), &snapshot.key.namespace);
    let found = access.find("list pods", api.list_metadata(&pulls)).await;
    matches!(found, Ok(Some(pods)) if pods.items.is_empty())
}

fn answer(
    view: &ClusterView,
    snapshot: &RolloutSnapshot,
    name: NodeName,
) -> Result<WhyAnswer, CliError> {
    let rollout = snapshot.rollout();
    let controller = snapshot.fleet.kind.controller();
    let obstacle = || view.index.obstacle(&snapshot.key, &name);
    let position = snapshot
        .fleet
        .nodes
        .iter()
        .position(|node| node.name == name);
    let (node, next) = match position {
        Some(position) if snapshot.plan.verdicts[position] == Verdict::NotTargeted => {
            let mut row = NodeRow::new(&rollout, position);
            let (because, next) = not_targeted(obstacle().as_ref());
            let refused = refused_aside(&rollout, position);
            let pod = format!("{controller} decides if its pod is removed");
            row.message = joined([Some(because), Some(pod), refused].into_iter().flatten());
            (row, next)
        }
        Some(position) if snapshot.plan.verdicts[position] == Verdict::UntoleratedTaint => {
            let (mut row, obstacle) = (NodeRow::new(&rollout, position), obstacle());
            row.message = repelled(&snapshot.fleet.nodes[position], obstacle.as_ref());
            (row, remedy_repelled(&rollout, position, obstacle.as_ref()))
        }
        Some(position) => (NodeRow::new(&rollout, position), remedy(&rollout, position)),
        None if view.index.node_names().any(|known| *known == name) => {
            let (message, next) = not_targeted(obstacle().as_ref());
            let row = NodeRow::outside(&name, Verdict::NotTargeted.word(), message);
            (row, next)
        }
        None if let Some(gone) = gone(&rollout, &name) => {
            let row = NodeRow {
                reason: Some("NoNode".into()),
                since: gone.since.map(instant::words),
                needs_attention: true,
                age: gone
                    .since
                    .map(|since| instant::between(since, snapshot.now)),
                ..NodeRow::outside(&name, gone.verdict, gone.because)
            };
            (row, gone.next)
        }
        None => {
            return Err(lookup::missing_node(view, &snapshot.key, name.as_str()));
        }
    };
    let silence = snapshot.silence();
    let next = match silence {
        Some(_) => format!("Start the controller first. Then: {next}"),
        None => next,
    };
    Ok(WhyAnswer {
        kind: snapshot.key.kind,
        namespace: snapshot.key.namespace.to_string(),
        name: snapshot.key.name.to_string(),
        phase: silence
            .as_ref()
            .map_or(rollout.phase.word(), |_| NO_CONTROLLER),
        phase_message: silence.unwrap_or_else(|| snapshot.message()),
        reversal: ReversalRow::from_snapshot(snapshot),
        node,
        next,
        docs: position.map(|position| page(&snapshot.plan.verdicts[position])),
        unknown: unknown(&snapshot.liveness, snapshot.unread.as_ref()),
        notes: liveness_notes(snapshot),
    })
}

/// Returns the answer for a caller without the right to list nodes: the pods on the node, and the controller's report.
fn reported_answer(
    view: &ClusterView,
    reported: &ReportedRollout,
    name: &NodeName,
) -> Result<WhyAnswer, CliError> {
    let key = &reported.key;
    let pods = reported.pods.get(name);
    let is_pod = |pod: &Pod| pod.name.as_str() == name.as_str();
    if pods.is_none() && reported.pods.values().flatten().any(is_pod) {
        return Err(lookup::missing_node(view, key, name.as_str()));
    }
    let mut node = NodeRow::of_pods(name, pods.map_or(&[][..], Vec::as_slice));
    let record = reported.record.as_ref();
    if record.is_some_and(|record| record.failed.contains(name)) {
        node.message += "; the controller reported that the node failed with this revision";
    } else if pods.is_none() {
        node.message += "; it is not known if this node exists";
    }
    let phase = reported.phase();
    let silence = reported.liveness.silence(reported.code(false));
    Ok(WhyAnswer {
        kind: key.kind,
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        phase: silence.as_ref().map_or(phase.word, |_| NO_CONTROLLER),
        phase_message: silence.unwrap_or(phase.message),
        reversal: None,
        node,
        next: format!(
            "not known, because you may not list nodes; with the ClusterRole yurt-ds-viewer, run: yurt-ds ctl why \
             {key} {name}"
        ),
        docs: None,
        unknown: iter::once("nodes")
            .chain(unknown(&reported.liveness, reported.unread.as_ref()))
            .collect(),
        notes: reported_notes(reported),
    })
}

/// Renders the answer in at most [`LINES`] lines of 80 columns, if the next step and the notes leave room for the rest.
///
/// The next step and the notes are never cut off, because they may contain commands. `-o json` has all details.
fn sentences(answer: &WhyAnswer, colour: bool) -> String {
    let node = &answer.node;
    let since = match (&node.since, &node.age) {
        (Some(since), Some(age)) => format!(" for {age} (since {since})"),
        _ => String::new(),
    };
    let pods: Vec<String> = node.pods.iter().map(PodRow::text).collect();
    let pods = if pods.is_empty() {
        "none".to_owned()
    } else {
        pods.join(", ")
    };
    let verdict = CellStyle::for_word(node.verdict).on(node.verdict, colour);
    let rollout = format!(
        "{}/{} {}: {}",
        answer.namespace,
        answer.name,
        answer.phase,
        match answer.phase {
            "Invalid" => "yurt-ds replaces no pods",
            _ => &answer.phase_message,
        }
    );
    let label =
        |name: &str| CellStyle::Bold.on(&format!("{name:<width$}", width = LABEL - 2), colour);
    let labelled = |name: &str, text: &str, lines: usize| {
        // Remove the indentation of the first line: the label is printed there.
        let wrapped = wrapped(text, LABEL, lines).split_off(LABEL);
        format!("{}  {wrapped}", label(name))
    };
    let next = labelled("Next", &answer.next, usize::MAX);
    let docs = answer
        .docs
        .map_or_else(String::new, |page| format!("{}  {page}\n", label("Docs")));
    let notes = answer.notes.iter();
    let notes = notes.filter(|note| **note != answer.phase_message);
    let notes: String = notes
        .map(|note| labelled("Note", note, usize::MAX))
        .collect();
    let end = next + &docs + &notes;
    // A blank line, the verdict and the pods take three lines.
    let room = LINES.saturating_sub(end.lines().count() + 3);
    let rollout = labelled("Rollout", &rollout, room.div_ceil(2).clamp(1, 2));
    let reason = format!("Node {} {}.", node.node, node.message);
    // Never cut the name of the node.
    let name = 1 + node.node.chars().count() / COLUMNS;
    let left = room.saturating_sub(rollout.lines().count());
    let reason = wrapped(&reason, 0, left.max(name + 1));
    format!(
        "{reason}\n{}  {verdict}{since}\n{}{rollout}{end}",
        label("Verdict"),
        labelled("Pod", &pods, 1),
    )
}
