//! `ctl upgrade`: replaces one pod of this node at the node owner's request.

use std::time::Duration;

use super::act::{ActOutcome, NodeAct, accepted};
use super::answer::{Pods, one_line};
use super::client::NodeClient;
use super::find::find;
use super::follow::{Follow, FollowStep};
use super::list::{Intent, upgradable};
use super::row::NodePodRow;
use super::succession::{PodSuccession, SuccessionStage, SuccessorRevision};
use crate::cli::Output;
use crate::cli::node::UpgradeArgs;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::print;
use crate::ctl::screen::Screen;
use crate::k8s::Pod;

/// Time for a controller to set the update condition of the new pod. After it, a new pod without the condition is assumed to have
/// the old revision.
const SETTLE: Duration = Duration::from_secs(10);

/// Replaces a pod. Without a pod, lists the available upgrades.
pub(super) async fn upgrade(
    client: &NodeClient,
    args: &UpgradeArgs,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let output = args.wait.output;
    let Some(typed) = &args.pod else {
        return upgradable(client, Intent::Upgrade, output, screen).await;
    };
    let mut pods = client.get_pods().await?;
    let pod = find(client, typed, &pods)?.clone();
    let succession = PodSuccession::new(&pod, &pods);
    let act = NodeAct::Upgrade(args.force);
    let reply = client.upgrade(&pod, args.force).await?;
    act.agreed(client, &pod, &reply)?;
    if !args.wait.wait {
        return accepted(act, &pod, &reply, output, screen);
    }
    let is_document = matches!(output, Output::Json | Output::Yaml);
    if !is_document {
        let _ = screen.print(&format!("{}\n", reply.text));
    }
    let mut follow = Follow::begin(client, screen, &args.wait);
    let outcome = wait(&mut follow, &succession, &mut pods).await?;
    follow.end(&outcome);
    if is_document {
        let row = act.row(&pod, &reply, &outcome);
        let _ = screen.print(&print::document(&row, output)?);
    }
    Ok(outcome.code)
}

/// Waits until the new pod is Ready.
async fn wait(
    follow: &mut Follow<'_, '_>,
    succession: &PodSuccession,
    pods: &mut Pods,
) -> Result<ActOutcome, CliError> {
    let mut ready_for = Duration::ZERO;
    let mut looked = Duration::ZERO;
    let mut shown = 0;
    show(follow, succession, pods, &mut shown);
    loop {
        if follow.next(pods).await? == FollowStep::TooLate {
            let stage = succession.stage(pods);
            let mut outcome = follow.too_late(&succession.describe(&stage).to_string());
            if let SuccessionStage::Coming(new) | SuccessionStage::Ready(new) = stage {
                outcome.pod = Some(NodePodRow::new(new, pods, None));
            }
            return Ok(outcome);
        }
        let stage = succession.stage(pods);
        let passed = follow.passed();
        ready_for = match stage {
            SuccessionStage::Ready(_) => ready_for + (passed - looked),
            _ => Duration::ZERO,
        };
        looked = passed;
        if let SuccessionStage::Ready(new) = stage {
            let result = match succession.result(new) {
                SuccessorRevision::Unknown if ready_for >= SETTLE => SuccessorRevision::Old,
                result => result,
            };
            if result != SuccessorRevision::Unknown {
                if shown < stage.step() {
                    show(follow, succession, pods, &mut shown);
                }
                return Ok(ended(succession, result, new, pods, &follow.after()));
            }
        }
        show(follow, succession, pods, &mut shown);
    }
}

/// Shows the current step. First shows the steps completed since the last poll, so that no step number is missing.
fn show(follow: &mut Follow<'_, '_>, succession: &PodSuccession, pods: &Pods, shown: &mut usize) {
    let stage = succession.stage(pods);
    let step = stage.step();
    for passed in *shown + 1..step {
        follow.show(&succession.passed(passed), pods);
    }
    *shown = step.max(*shown);
    follow.show(&succession.describe(&stage).to_string(), pods);
}

fn ended(
    succession: &PodSuccession,
    result: SuccessorRevision,
    new: &Pod,
    pods: &Pods,
    after: &str,
) -> ActOutcome {
    let key = one_line(&new.key());
    let now = one_line(new.revision().unwrap_or("unknown"));
    let before = one_line(succession.revision().unwrap_or("unknown"));
    let (code, word, message) = match result {
        SuccessorRevision::New => (
            Code::Complete,
            "Upgraded",
            format!(
                "{key} is Ready with revision {now} (before: {before}), {after} after the request."
            ),
        ),
        SuccessorRevision::Back => (
            Code::Complete,
            "Upgraded",
            format!(
                "{key} is Ready with revision {now}, {after} after the request. The revision is the same as before, \
                 because the newer one was rolled back in the meantime."
            ),
        ),
        SuccessorRevision::Old | SuccessorRevision::Unknown => (
            Code::Failed,
            "OldRevision",
            format!(
                "{key} is Ready, but has the old revision {now} again: Kubernetes created the pod before it had \
                 processed the new revision. Try again: yurt-ds ctl upgrade {key} --wait"
            ),
        ),
    };
    ActOutcome {
        code,
        word,
        message,
        pod: Some(NodePodRow::new(new, pods, None)),
    }
}
