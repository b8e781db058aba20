//! `ctl check`: checks that yurt-ds is installed and working, or can be installed (`--pre`).
//!
//! ```text
//! API server ──► Lease, pods, DaemonSets, nodes, policies ──► one Finding per check ──► report, exit code
//! ```
//!
//! Each check has a stable name and reads only the objects that it needs. If an object cannot be read, the checks that need it are
//! skipped with the error as the reason, and all others continue. If the API server does not answer, nothing else is checked.

mod advanced;
mod agents;
mod api;
mod controller;
mod daemonsets;
mod finding;
mod install;
mod permissions;
mod policies;
mod reader;
mod report;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod version;

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::code::Code;
use super::context::Context;
use super::daemonset_api::is_advanced_served;
use super::error::CliError;
use super::liveness::{ControllerLeases, controller_leases};
use super::lookup;
use super::screen::Screen;
use crate::cli::ctl::CheckArgs;
use crate::controller::Kinds;
use agents::Agents;
use api::ApiProbe;
use controller::ControllerPods;
use daemonsets::ManagedDaemonSets;
use finding::Finding;
use permissions::ReviewedController;
use policies::AdmissionPolicies;
use reader::Unread;
use report::CheckReport;

pub(super) use report::FIELDS;

/// Interval between two rounds of checks with `--wait`.
const AGAIN: Duration = Duration::from_secs(5);
/// Minimum time for a round, even if `--timeout` ends sooner.
const ONE_ROUND: Duration = Duration::from_secs(1);

/// Checks the installation, prints the report, and returns the exit code.
///
/// # Errors
/// Fails if the named namespace is invalid or does not exist, or if the report cannot be rendered. A failed check is not an error.
pub(super) async fn check(
    context: &Context,
    args: &CheckArgs,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    if let Some(namespace) = &context.namespace {
        lookup::may_be_a_name("namespace", namespace)?;
    }
    let report = if args.wait {
        Box::pin(until_passed(context, args, screen)).await?
    } else {
        Box::pin(round(context, args)).await
    };
    if let Some(namespace) = &context.namespace
        && report.is_reachable()
        && !args.pre
    {
        lookup::namespace(&context.access, namespace).await?;
    }
    // Ignore a closed output pipe, as with `| head`. It must not change the exit code.
    let _ = screen.print(&report.render(args.output, screen.colour)?);
    Ok(report.code())
}

/// Prints the report for a cluster that is not configured, and returns the exit code. `error` is that of the configuration.
///
/// # Errors
/// Fails if the report cannot be rendered.
pub(super) fn unconfigured(
    args: &CheckArgs,
    error: &CliError,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let report = CheckReport::unreachable(api::unconfigured(error));
    // Ignore a closed output pipe, as above.
    let _ = screen.print(&report.render(args.output, screen.colour)?);
    Ok(report.code())
}

/// Repeats the checks until none fails, or until the timeout. Returns the last report.
async fn until_passed(
    context: &Context,
    args: &CheckArgs,
    screen: &mut Screen<'_>,
) -> Result<CheckReport, CliError> {
    let begun = Instant::now();
    let deadline = args.timeout.map(|timeout| begun + timeout);
    let mut told = Vec::new();
    let mut last: Option<CheckReport> = None;
    loop {
        let started = Instant::now();
        let making = Box::pin(round(context, args));
        let report = match deadline {
            None => making.await,
            Some(deadline) => match timeout_at(deadline.max(started + ONE_ROUND), making).await {
                Ok(report) => report,
                Err(_) => return last.ok_or_else(|| unanswered(context, begun.elapsed())),
            },
        };
        let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        if report.code() == Code::Complete || is_late {
            return Ok(report);
        }
        if told != report.failed() {
            told = report.failed();
            screen.warn(&format!("Waiting for: {}", told.join(", ")));
        }
        last = Some(report);
        let next = started + AGAIN;
        sleep_until(deadline.map_or(next, |deadline| deadline.min(next))).await;
    }
}

/// Returns the error for a timeout within the first round of checks.
fn unanswered(context: &Context, passed: Duration) -> CliError {
    CliError::new(Code::Unreachable, context.access.unanswered(passed))
}

/// Makes all checks once.
async fn round(context: &Context, args: &CheckArgs) -> CheckReport {
    let access = &context.access;
    let probe = match ApiProbe::take(access, &context.clock).await {
        Ok(probe) => probe,
        Err(error) => return CheckReport::unreachable(api::unreachable(access, &error)),
    };
    let mut findings = probe.findings(access);
    findings.extend(if args.pre {
        Box::pin(before_installation(context)).await
    } else {
        Box::pin(after_installation(context)).await
    });
    CheckReport::new(probe.kubernetes(), findings)
}

async fn before_installation(context: &Context) -> Vec<Finding> {
    let (access, now) = (&context.access, context.clock.now());
    let is_served = is_advanced_served(access).await;
    let (mut findings, advanced) = tokio::join!(
        Box::pin(install::findings(access)),
        Box::pin(advanced::findings(access, now, is_served))
    );
    findings.extend(advanced);
    findings
}

async fn after_installation(context: &Context) -> Vec<Finding> {
    let (access, now) = (&context.access, context.clock.now());
    let namespace = context.namespace.as_deref();
    let (leases, mut sets, agents, policies, is_served) = tokio::join!(
        controller_leases(access, now),
        Box::pin(ManagedDaemonSets::read(access, namespace, now)),
        Box::pin(Agents::read(access, now)),
        Box::pin(AdmissionPolicies::read(access)),
        is_advanced_served(access)
    );
    let (pods, advanced) = tokio::join!(
        Box::pin(ControllerPods::read(access, &leases)),
        Box::pin(advanced::findings(access, now, is_served))
    );
    let account = pods.as_ref().ok().and_then(ControllerPods::account);
    let mut findings = controller::lease_findings(&leases, &pods);
    findings.extend(controller::pod_findings(&pods));
    findings.extend(rights(context, &leases, &pods, &sets, is_served).await);
    findings.extend(match &sets {
        Ok(sets) => sets.findings(&leases.liveness),
        Err(unread) => daemonsets::skipped(unread),
    });
    findings.extend(advanced);
    findings.extend(agents::findings(access, &agents, &mut sets).await);
    let has_agents = agents.as_ref().map_or(true, |agents| agents.set.is_some());
    findings.extend(policies::findings(&policies, account.as_ref(), has_agents));
    findings
}

/// Returns the findings about the rights of the controller. Its service account is taken from its pods.
async fn rights(
    context: &Context,
    leases: &ControllerLeases,
    pods: &Result<ControllerPods, Unread>,
    sets: &Result<ManagedDaemonSets, Unread>,
    is_advanced_served: bool,
) -> Vec<Finding> {
    let account = match pods {
        Ok(pods) => pods.account(),
        Err(unread) => return permissions::skipped(&unread.0),
    };
    let Some(account) = account else {
        return permissions::skipped(
            "The controller has no pod, so its service account is not known.",
        );
    };
    // Check the right to the Lease in the namespace of the controller's pods. If that namespace has no Lease, use the first one.
    let mut all = leases.leases.iter();
    let own = all.find(|lease| lease.namespace == account.namespace);
    let lease = own.or_else(|| leases.leases.first());
    let controller = ReviewedController {
        lease_namespace: lease.map_or_else(
            || account.namespace.clone(),
            |lease| lease.namespace.clone(),
        ),
        kinds: lease.map_or(Kinds::BOTH, |lease| lease.kinds),
        account,
        is_advanced_served,
    };
    permissions::findings(&context.access, &controller, sets).await
}
