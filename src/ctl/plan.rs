//! `ctl plan`: simulates a rollout on the live fleet without writing to the cluster.
//!
//! ```text
//! typed ─change─┐
//!               ├─► planned ─► core::forecast ─► row ─► table, JSON, YAML
//! API ─index────┘                ▲
//!         └─measure──────────────┘
//! ```
//!
//! The simulation calls the controller's own `decide` in virtual time. It takes the duration of pod starts from the current pods,
//! node by node.

mod change;
mod measure;
mod planned;
mod print;
mod row;
#[cfg(test)]
mod tests;
mod without_nodes;

use k8s_openapi::jiff::SignedDuration;

use super::code::Code;
use super::context::Context;
use super::error::CliError;
use super::lookup;
use super::screen::Screen;
use crate::cli::Output;
use crate::cli::ctl::PlanArgs;
use crate::core::forecast::{ForecastTerms, forecast};
use crate::core::instant::later;
use crate::ctl::snapshot::RolloutSnapshot;
use change::PlannedChange;
use measure::{Measured, PULL};
use planned::{PlannedRollout, width};
use row::PlanRow;

pub(crate) use row::FIELDS;

pub(super) async fn plan(
    context: &Context,
    args: &PlanArgs,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let key = lookup::target(context, &args.daemonset).await?;
    let change = PlannedChange::typed(args)?;
    let (access, now) = (&context.access, context.clock.now());
    let is_document = matches!(args.output, Output::Json | Output::Yaml);
    let (text, code) = match PlannedRollout::read(access, &key, &change, now).await? {
        Ok(planned) => {
            let (row, code) = answer(planned, &change, args);
            let text = if is_document {
                super::print::document(&row, args.output)?
            } else {
                print::plan(&row, args.output == Output::Wide, screen.colour)
            };
            (text, code)
        }
        Err(plan) if is_document => (
            super::print::document(&plan, args.output)?,
            Code::Unreachable,
        ),
        Err(plan) => (plan.text(), Code::Unreachable),
    };
    let _ = screen.print(&text);
    Ok(code)
}

/// Simulates the rollout, and returns the plan with its exit code.
fn answer(planned: PlannedRollout, change: &PlannedChange, args: &PlanArgs) -> (PlanRow, Code) {
    let PlannedRollout {
        snapshot,
        revisions,
        new_pod,
        scaling,
        budgets,
        pods,
        last,
        template,
    } = planned;
    let (began, strategy) = (snapshot.now, &snapshot.strategy);
    let width = width(strategy, pods.len());
    let returns = snapshot.fleet.nodes.iter().filter_map(measure::returned);
    let returns = returns.collect();
    let measured = Measured::new(
        &pods,
        &returns,
        &template,
        args.ends_in,
        width,
        last.as_ref(),
    );
    let pace = measured.by_node(&snapshot.fleet);
    let horizon = SignedDuration::try_from(args.horizon).unwrap_or(SignedDuration::MAX);
    let namespace = snapshot.key.namespace.clone();
    let refusal = |fleet: &_, pod: &_| budgets.planned_refusal(&namespace, fleet, pod);
    let terms = ForecastTerms {
        strategy,
        pace: &pace,
        pull: PULL,
        new_pod,
        broken: measured.broken(&pods, began),
        breaks: args.break_,
        refusal: &refusal,
        scaling,
        horizon: began.saturating_add(horizon).unwrap_or(later(began, PULL)),
    };
    let sentence = |fleet: &_, plan: &_| snapshot.sentence_of(fleet, plan);
    let forecast = forecast(snapshot.fleet.clone(), &terms, began, sentence);
    let end = RolloutSnapshot {
        fleet: forecast.fleet.clone(),
        plan: forecast.plan.clone(),
        now: forecast.ended,
        ..snapshot.clone()
    };
    let row = PlanRow::new(
        &forecast,
        &end,
        change.descriptions(),
        revisions,
        measured.pace(),
    );
    let code = Code::from_phase(end.phase(), false);
    (row, code)
}
