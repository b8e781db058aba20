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
mod print;
mod row;
mod slim;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use super::Context;
use super::access::Trouble;
use super::code::Code;
use super::lookup;
use super::screen::Screen;
use crate::api::DaemonSet;
use crate::cli::ctl::{Output, PlanArgs};
use crate::core::{Disruption, Reading, Strategy};
use crate::index::Index;
use change::Change;
use fleet::Fleet;
use live::Live;
use measure::{Last, Measured};
use play::{Played, Progressed, Question};
use row::PlanRow;

pub(crate) use row::FIELDS;

/// A larger fleet would need more memory than a person's machine can be assumed to have.
const LIMIT: usize = 20_000;

/// Plans.
pub(super) async fn plan(
    context: &Context,
    args: &PlanArgs,
    screen: &mut Screen<'_>,
) -> Result<Code, Trouble> {
    let access = &context.access;
    let key = lookup::target(access, context.namespace.as_deref(), &args.daemonset)?;
    let change = Change::typed(args)?;
    let live = Live::read(access, &key, || context.clock.now()).await?;
    if live.nodes.len() > LIMIT {
        let text = format!(
            "This cluster has {} nodes; a plan is made for at most {LIMIT}.",
            live.nodes.len()
        );
        return Err(Trouble::new(Code::Failed, text));
    }
    let mut fleet = Fleet::of(&live, &change)?;
    let strategy = strategy(fleet.settings())?;
    if strategy.disruption == Disruption::Evict {
        fleet.guarded_by(live::budgets(access, &key).await?);
    }
    let mut template = live.template().clone();
    change.to_template(&mut template)?;
    let revisions = (live.current.to_string(), live.revision_of(&template));
    let width = width(&strategy, &live);
    let last = last(&fleet, &live);
    let (pods, nodes) = (&live.pods, &live.nodes);
    let measured = Measured::of(pods, nodes, &template, args.ends_in, width, last.as_ref());
    let pace = measured.pace();
    let horizon = SignedDuration::try_from(*args.horizon).unwrap_or(SignedDuration::MAX);
    let broken = measured.broken(&live.pods, live.at);
    let nodes = live.nodes.len();
    fleet.inhabited_by(live.nodes, live.pods);
    let question = Question {
        key,
        selector: live.selector,
        broken,
        fleet,
        measured,
        breaks: args.break_,
        min_ready: strategy.min_ready,
        begins: live.at,
        horizon: live.at.saturating_add(horizon).unwrap_or(Timestamp::MAX),
    };
    let played = played(question, nodes).await?;
    let row = PlanRow::of(&played, change.words(), revisions, pace);
    let text = match args.output {
        Output::Json | Output::Yaml => super::print::document(&row, args.output)?,
        output => print::plan(&row, output == Output::Wide, screen.colour),
    };
    let _ = screen.print(&text);
    Ok(row::code(&played))
}

/// How it will be rolled out; if not at all, in the same sentence as the controller's.
fn strategy(set: Option<DaemonSet>) -> Result<Strategy, Trouble> {
    let mut index = Index::default();
    let key = set
        .as_ref()
        .and_then(|set| crate::index::SetKey::of(&set.metadata));
    if let Some(set) = &set {
        index.apply_set(set);
    }
    match key.as_ref().and_then(|key| index.reading(key)) {
        Some(Reading::Strategy { strategy, .. }) => Ok(strategy.clone()),
        Some(Reading::Invalid(invalid)) => Err(Trouble::new(Code::Invalid, format!("{invalid}."))),
        Some(Reading::NotOurs) | None => Err(Trouble::new(
            Code::NotFound,
            "Without the annotation update-strategy it would not be managed by yurt-ds: there is nothing to plan.",
        )),
    }
}

/// How the present revision was rolled out, if it was by yurt-ds.
fn last(fleet: &Fleet, live: &Live) -> Option<Last> {
    let mut set = fleet.settings()?;
    set.metadata.annotations = Some(live.settings_of_last()?.clone());
    let strategy = strategy(Some(set)).ok()?;
    Some(Last {
        revision: live.current.to_string(),
        width: width(&strategy, live),
        min_ready: strategy.min_ready,
    })
}

/// How many nodes are under way at once, as long as nothing but the budget holds them back.
fn width(strategy: &Strategy, live: &Live) -> usize {
    let shares = [strategy.max_unavailable, strategy.max_surge];
    let widths = shares.map(|share| share.resolve(live.pods.len()));
    widths.into_iter().max().unwrap_or(1)
}

/// Plays on a thread of its own, where time is virtual; tells a terminal how far it is.
async fn played(question: Question, nodes: usize) -> Result<Played, Trouble> {
    let (told, mut tells) = watch::channel(None);
    let gone = Arc::new(AtomicBool::new(false));
    let _ends = Ends(gone.clone());
    let mut playing = tokio::task::spawn_blocking(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build()?;
        runtime.block_on(play::play(question, told, gone))
    });
    let terminal = std::io::stderr().is_terminal();
    let result = loop {
        tokio::select! {
            result = &mut playing => break result,
            Ok(()) = tells.changed(), if terminal => tell(*tells.borrow_and_update(), nodes),
        }
    };
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let result = result.unwrap_or_else(|ended| Err(anyhow::anyhow!("it ended early: {ended}")));
    result.map_err(|error| {
        let text = format!("The plan could not be played to its end: {error:#}.");
        Trouble::new(Code::Failed, text)
    })
}

/// Ends the play when nobody waits for it any more.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn tell(progressed: Progressed, nodes: usize) {
    if let Some((steps, at)) = progressed {
        let at = super::age::instant(at);
        let _ = write!(
            std::io::stderr(),
            "\rPlanning: {steps} of {nodes} nodes, {at}\x1b[K"
        );
    }
}
