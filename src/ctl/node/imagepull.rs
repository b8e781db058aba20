//! `ctl imagepull`: pulls the images of a pod's new revision while the old pod runs.

use super::act::{ActOutcome, NodeAct, accepted};
use super::answer::{Pods, one_line};
use super::client::NodeClient;
use super::find::find;
use super::follow::{Follow, FollowStep};
use super::list::{Intent, upgradable};
use super::pull::{AwaitedPull, PullProgress};
use super::row::NodePodRow;
use crate::cli::Output;
use crate::cli::node::ImagepullArgs;
use crate::core::messages::is_about_jobs;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::print;
use crate::ctl::screen::Screen;

/// Pulls images for a pod. Without a pod, lists the pods that have new images.
pub(super) async fn imagepull(
    client: &NodeClient,
    args: &ImagepullArgs,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let output = args.wait.output;
    let Some(typed) = &args.pod else {
        return upgradable(client, Intent::Pull, output, screen).await;
    };
    let mut pods = client.get_pods().await?;
    let pod = find(client, typed, &pods)?.clone();
    let pull = AwaitedPull::from_pod(&pod);
    let reply = client.image_pull(&pod).await?;
    NodeAct::ImagePull.agreed(client, &pod, &reply)?;
    if !args.wait.wait {
        return accepted(NodeAct::ImagePull, &pod, &reply, output, screen);
    }
    let is_document = matches!(output, Output::Json | Output::Yaml);
    if !is_document {
        let _ = screen.print(&format!("{}\n", reply.text));
    }
    let mut follow = Follow::begin(client, screen, &args.wait);
    let outcome = wait(&mut follow, &pull, &mut pods).await?;
    follow.end(&outcome);
    if is_document {
        let row = NodeAct::ImagePull.row(&pod, &reply, &outcome);
        let _ = screen.print(&print::document(&row, output)?);
    }
    Ok(outcome.code)
}

/// Waits until the images are on the node, or the pull has failed.
async fn wait(
    follow: &mut Follow<'_, '_>,
    pull: &AwaitedPull,
    pods: &mut Pods,
) -> Result<ActOutcome, CliError> {
    let stage = pull.stage(pods, follow.passed());
    follow.show(&pull.describe(&stage), pods);
    loop {
        if follow.next(pods).await? == FollowStep::TooLate {
            let stage = pull.stage(pods, follow.passed());
            return Ok(follow.too_late(&pull.describe(&stage)));
        }
        let stage = pull.stage(pods, follow.passed());
        match ended(pull, &stage, pods, &follow.after()) {
            Some(outcome) => return Ok(outcome),
            None => follow.show(&pull.describe(&stage), pods),
        }
    }
}

fn ended(
    pull: &AwaitedPull,
    stage: &PullProgress<'_>,
    pods: &Pods,
    after: &str,
) -> Option<ActOutcome> {
    let key = pull.key();
    let (code, word, message, pod) = match stage {
        PullProgress::Asked | PullProgress::Pulling => return None,
        PullProgress::Pulled(pod) => (
            Code::Complete,
            "Pulled",
            format!(
                "The images for {key} are on this node, {after} after the request. To replace the pod: yurt-ds ctl \
                 upgrade {key} --wait"
            ),
            Some(*pod),
        ),
        PullProgress::Failed(pod, why) => (
            Code::PullFailed,
            "PullFailed",
            format!(
                "The images for {key} could not be pulled: {}. {}, and then try again: yurt-ds ctl imagepull {key} \
                 --wait. To replace the pod without them: yurt-ds ctl upgrade {key} --force",
                one_line(why),
                if is_about_jobs(why) {
                    "Ask an operator to allow the controller to create the Job that pulls them"
                } else {
                    "Check that the image exists and that this node reaches its registry"
                }
            ),
            Some(*pod),
        ),
        PullProgress::Withdrawn => (
            Code::Failed,
            "Withdrawn",
            format!("There is no newer version for {key} any more: it was rolled back."),
            None,
        ),
        PullProgress::Gone => (
            Code::Failed,
            "Gone",
            format!(
                "{key} is gone or is being deleted, so its images are not needed. List the pods of this node: \
                 yurt-ds ctl pods"
            ),
            None,
        ),
    };
    Some(ActOutcome {
        code,
        word,
        message,
        pod: pod.map(|pod| NodePodRow::new(pod, pods, None)),
    })
}
