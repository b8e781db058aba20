//! `ctl plan`: what a rollout would do on the live fleet, without writing anything to it.
//!
//! ```text
//! typed ─change─┐
//!               ├─► fleet ─► play (own thread, virtual time) ─► row ─► table, JSON, YAML
//! API ──live────┘              ▲
//!        └─measure─────────────┘
//! ```
//!
//! The engine is the controller itself, on an embedded cluster that begins as the live one is now. What is simulated is
//! what the engine does not decide: how long pods take, which is measured on the present ones, node by node.

mod change;
mod fleet;
mod live;
mod log;
mod measure;
mod play;
mod played;
mod print;
mod row;
mod slim;
#[cfg(test)]
mod tests;
mod unplayed;

use std::io::{IsTerminal as _, Write as _};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::access::Access;
use super::code::Code;
use super::context::Context;
use super::error::CliError;
use super::lookup;
use super::screen::Screen;
use crate::cli::Output;
use crate::cli::ctl::PlanArgs;
use crate::clock::Clock;
use crate::core::{Disruption, Reading, Revision, Strategy, instant};
use crate::index::{Index, SetKey};
use crate::k8s::DaemonSet;
use change::PlannedChange;
use fleet::PlannedFleet;
use live::LiveFleet;
use measure::{LastRollout, Measured, MeasuredPace};
use play::{PlayInput, Progressed};
use played::Played;
use row::PlanRow;
use unplayed::UnplayedPlan;

pub(crate) use row::FIELDS;

/// A larger fleet would need more memory than a person's machine can be assumed to have.
const LIMIT: usize = 20_000;

/// Plans.
pub(super) async fn plan(
    context: &Context,
    args: &PlanArgs,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let access = &context.access;
    let key = lookup::target(context, &args.daemonset).await?;
    let asked = PlanRequest {
        key,
        change: PlannedChange::typed(args)?,
        access: access.clone(),
        clock: context.clock.clone(),
        args: args.clone(),
    };
    let is_document = matches!(args.output, Output::Json | Output::Yaml);
    let (text, code) = match answered(asked).await? {
        PlanAnswer::Played(row, code) if is_document => {
            (super::print::document(&*row, args.output)?, code)
        }
        PlanAnswer::Played(row, code) => {
            let wide = args.output == Output::Wide;
            (print::plan(&row, wide, screen.colour), code)
        }
        PlanAnswer::Unplayed(plan) if is_document => (
            super::print::document(&plan, args.output)?,
            Code::Unreachable,
        ),
        PlanAnswer::Unplayed(plan) => (plan.words(), Code::Unreachable),
    };
    let _ = screen.print(&text);
    Ok(code)
}

/// The answer to `ctl plan`.
enum PlanAnswer {
    /// The plan, and the exit code of the state in which it ends.
    Played(Box<PlanRow>, Code),
    /// What is known without nodes.
    Unplayed(UnplayedPlan),
}

/// What was typed, and where.
struct PlanRequest {
    key: SetKey,
    change: PlannedChange,
    access: Access,
    clock: Clock,
    args: PlanArgs,
}

/// What is to be played, and what is told of it besides.
struct PreparedPlan {
    question: PlayInput,
    revisions: (Option<String>, Option<String>),
    pace: MeasuredPace,
    /// Objects that the plan leaves out, in sentences.
    notes: Vec<String>,
}

/// Reads the fleet as it is now; `Err` in `Ok` where nodes may not be listed.
async fn prepare(asked: &PlanRequest) -> Result<Result<PreparedPlan, UnplayedPlan>, CliError> {
    let PlanRequest {
        key,
        change,
        access,
        clock,
        args,
    } = asked;
    let live = LiveFleet::read(access, key, || clock.now()).await?;
    if live.nodes.len() > LIMIT {
        let text = format!(
            "This cluster has {} nodes; a plan is made for at most {LIMIT}.",
            live.nodes.len()
        );
        return Err(CliError::new(Code::Failed, text));
    }
    let mut fleet = PlannedFleet::of(&live, change)?;
    let strategy = strategy(fleet.changed())?;
    if strategy.disruption == Disruption::Evict {
        fleet.guarded_by(live::budgets(access, key).await?);
    }
    let mut template = live.template().clone();
    change.to_template(&mut template)?;
    let told = |revision: Option<&Revision>| revision.map(Revision::to_string);
    let to = live.revision_of(&template);
    let revisions = (told(live.current.as_ref()), told(to.as_ref()));
    if live.unlisted_nodes.is_some() {
        return Ok(Err(UnplayedPlan::of(&live, change.words(), revisions)));
    }
    let width = width(&strategy, &live);
    let last = last(&fleet, &live);
    let (pods, nodes) = (&live.pods, &live.nodes);
    let measured = Measured::of(pods, nodes, &template, args.ends_in, width, last.as_ref());
    let pace = measured.pace();
    let horizon = SignedDuration::try_from(*args.horizon).unwrap_or(SignedDuration::MAX);
    let left_out = |what: &String| format!("{what} cannot be read and is left out");
    let notes = live.unreadable.iter().map(left_out).collect();
    let broken = measured.broken(&live.pods, live.at);
    let nodes = live.nodes.len();
    fleet.inhabited_by(live.nodes, live.pods, strategy.pre_delete.as_deref());
    let question = PlayInput {
        key: key.clone(),
        selector: live.selector,
        broken,
        fleet,
        nodes,
        measured,
        breaks: args.break_,
        min_ready: strategy.min_ready,
        begins: live.at,
        horizon: live.at.saturating_add(horizon).unwrap_or(Timestamp::MAX),
    };
    Ok(Ok(PreparedPlan {
        question,
        revisions,
        pace,
        notes,
    }))
}

/// How it will be rolled out; if not at all, in the same sentence as the controller's.
fn strategy(set: Option<DaemonSet>) -> Result<Strategy, CliError> {
    let mut index = Index::default();
    let key = set.as_ref().and_then(SetKey::of_set);
    if let Some(set) = &set {
        index.apply_set(set);
    }
    let reading = key.as_ref().and_then(|key| index.reading(key));
    match reading.as_deref() {
        Some(Reading::Strategy { strategy, .. }) => Ok(strategy.clone()),
        Some(Reading::Invalid(invalid, _)) => {
            Err(CliError::new(Code::Invalid, format!("{invalid}.")))
        }
        Some(Reading::NotOurs) | None => Err(CliError::new(
            Code::NotFound,
            "Without the annotation update-strategy it would not be managed by yurt-ds: there is nothing to plan.",
        )),
    }
}

/// How the present revision was rolled out, if it was by yurt-ds.
fn last(fleet: &PlannedFleet, live: &LiveFleet) -> Option<LastRollout> {
    let mut set = fleet.present()?;
    set.metadata.annotations = Some(live.settings_of_last()?.clone());
    let strategy = strategy(Some(set)).ok()?;
    Some(LastRollout {
        revision: live.current.as_ref()?.to_string(),
        width: width(&strategy, live),
        min_ready: strategy.min_ready,
    })
}

/// How many nodes are under way at once, as long as nothing but the budget holds them back.
fn width(strategy: &Strategy, live: &LiveFleet) -> usize {
    let shares = [strategy.max_unavailable, strategy.max_surge];
    let widths = shares.map(|share| share.resolve(live.pods.len()));
    widths.into_iter().max().unwrap_or(1)
}

/// Answers on a thread of its own, where time is virtual; tells a terminal how far it is.
async fn answered(asked: PlanRequest) -> Result<PlanAnswer, CliError> {
    let (told, mut tells) = watch::channel(None);
    let reading = Handle::current();
    let mut answering = tokio::task::spawn_blocking(move || answer(&asked, &reading, &told));
    let terminal = std::io::stderr().is_terminal();
    let result = loop {
        tokio::select! {
            result = &mut answering => break result,
            Ok(()) = tells.changed(), if terminal => tell(*tells.borrow_and_update()),
        }
    };
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    result.unwrap_or_else(|ended| Err(unplayed(&ended.into())))
}

/// Reads and plays on this thread, both: an allocator gives memory back to the thread that had it, and what was read
/// is not needed any more when most is played.
fn answer(
    asked: &PlanRequest,
    reading: &Handle,
    told: &watch::Sender<Progressed>,
) -> Result<PlanAnswer, CliError> {
    let prepared = reading.block_on(async {
        tokio::select! {
            biased;
            () = told.closed() => Err(unplayed(&anyhow::anyhow!("nobody waits for it"))),
            prepared = prepare(asked) => prepared,
        }
    })?;
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(plan) => return Ok(PlanAnswer::Unplayed(plan)),
    };
    let played = play_now(prepared.question, told).map_err(|error| unplayed(&error))?;
    let (revisions, pace) = (prepared.revisions, prepared.pace);
    let mut row = PlanRow::of(&played, asked.change.words(), revisions, pace);
    row.notes.extend(prepared.notes);
    Ok(PlanAnswer::Played(row.into(), row::code(&played)))
}

/// Plays in virtual time.
fn play_now(question: PlayInput, told: &watch::Sender<Progressed>) -> anyhow::Result<Played> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build()?;
    runtime.block_on(play::play(question, told))
}

fn unplayed(error: &anyhow::Error) -> CliError {
    if let Some(kube::Error::Api(refusal)) = error.downcast_ref()
        && refusal.is_invalid()
    {
        let text = format!("The API server would refuse that: {}.", refusal.message);
        return CliError::new(Code::Invalid, text);
    }
    let text = format!("The plan could not be played to its end: {error:#}.");
    CliError::new(Code::Failed, text)
}

fn tell(progressed: Progressed) {
    if let Some((steps, nodes, at)) = progressed {
        let at = instant::words(at);
        let _ = write!(
            std::io::stderr(),
            "\rPlanning: {steps} of {nodes} nodes, {at}\x1b[K"
        );
    }
}
