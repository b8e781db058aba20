//! `ctl start-now`: starts the rollout of the current revision before its maintenance window opens.

use super::code::Code;
use super::context::Context;
use super::error::CliError;
use super::look::Look;
use super::screen::Screen;
use super::snapshot::RolloutSnapshot;
use super::write::Annotation;
use super::{lookup, write};
use crate::cli::ctl::StartNowArgs;
use crate::core::settings::maintenance_window::MAINTENANCE_WINDOW;
use crate::core::settings::min_interval::MIN_INTERVAL;
use crate::core::settings::start_now::START_NOW;
use crate::core::words::plural;
use crate::core::{Revision, Verdict};

/// Starts the rollout of the current revision: sets the annotation `start-now`.
pub(super) async fn start_now(
    context: &Context,
    args: &StartNowArgs,
    screen: &mut Screen<'_>,
) -> Result<(), CliError> {
    let key = lookup::target(context, &args.daemonset).await?;
    let text = write::annotate(context, &key, START_NOW, |view, look| {
        let revision = judge(look)?;
        let reading = view.index.reading(&key);
        let written = reading.as_deref().and_then(|reading| reading.usable());
        if written.and_then(|strategy| strategy.start_now.as_ref()) == Some(revision) {
            return Ok(Annotation::Kept(format!(
                "start-now is already set for revision {revision} of {key}; nothing was changed.\n{}",
                others(look)
            )));
        }
        if let Some(strategy) = written
            && strategy.window.is_none()
            && strategy.min_interval.is_zero()
        {
            return Err(CliError::new(
                Code::Refused,
                format!(
                    "{key} has no {MAINTENANCE_WINDOW} and no {MIN_INTERVAL} to skip; nothing was changed. Why it \
                     waits: yurt-ds ctl status {key}"
                ),
            ));
        }
        Ok(Annotation::Set {
            value: revision.to_string(),
            message: format!(
                "Revision {revision} of {key} no longer waits for the maintenance window or min-interval of the \
                 DaemonSet. Both apply again to the next revision.\n{}Follow it: yurt-ds ctl status {key} --watch\n",
                others(look)
            ),
        })
    });
    let _ = screen.print(&text.await?);
    Ok(())
}

/// Returns the current revision. Fails if it is not known, or if the controller does not replace pods.
fn judge(look: &Look) -> Result<&Revision, CliError> {
    if look.rolling_strategy()?.is_none() {
        let key = look.key();
        return Err(CliError::new(
            Code::Refused,
            format!(
                "The controller does not replace the pods of {key}, so no window delays it; nothing was changed."
            ),
        ));
    }
    look.known_revision()
}

/// Returns a line about nodes that wait for their own maintenance windows; empty if there are none.
fn others(look: &Look) -> String {
    let Look::Judged(snapshot) = look else {
        return String::new();
    };
    let nodes = snapshot.fleet.nodes.iter().zip(&snapshot.plan.verdicts);
    let waiting = nodes.filter(|(node, verdict)| {
        matches!(verdict, Verdict::OutOfWindow { .. }) && node.window.is_some()
    });
    match waiting.count() {
        0 if !is_held(snapshot) => format!(
            "Neither delays a node now. Why the rollout waits: yurt-ds ctl status {}\n",
            snapshot.key
        ),
        0 => String::new(),
        count => format!(
            "{count} {} for {} own window (annotation {MAINTENANCE_WINDOW} of the Node).\n",
            plural(count, "node waits", "nodes wait"),
            plural(count, "its", "their")
        ),
    }
}

/// Returns true if the rollout waits for a window or for `min-interval`, or a node for its window.
fn is_held(snapshot: &RolloutSnapshot) -> bool {
    let mut verdicts = snapshot.plan.verdicts.iter();
    snapshot.plan.opens.is_some()
        || verdicts.any(|verdict| matches!(verdict, Verdict::OutOfWindow { .. }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::ctl::Code;
    use crate::ctl::tests::{CtlWorld, assert_fits, flat};

    #[tokio::test(start_paused = true)]
    async fn start_now_opens_a_closed_window_for_one_revision() {
        let world = CtlWorld::with_nodes(2).await;
        let error = world.error("start-now web").await;
        assert_eq!(error.code, Code::Refused);
        // The clock starts on a Thursday, so the window on Saturday is closed.
        let window = "Sat 22:00-23:00 Europe/Berlin";
        world
            .patch(json!({ "metadata": { "annotations": { "apps.openyurt.io/maintenance-window": window } } }))
            .await;
        world.set_image("web:2").await;
        let status = world.json("status web").await;
        assert_eq!(status["verdicts"]["OutOfWindow"], 2, "{status}");
        assert_eq!(
            status["next"],
            json!(["to start now: yurt-ds ctl start-now default/web"])
        );
        let text = world.text("status web").await;
        assert!(
            flat(&text).contains("opens Sat 2026-01-03 22:00 Europe/Berlin (in 2d"),
            "{text}"
        );
        assert_fits(&text);
        let before = world.writes();
        let output = world.text("start-now web").await;
        assert!(output.contains("no longer waits for"), "{output}");
        assert_eq!(world.writes(), before + 1);
        let again = world.text("start-now web").await;
        assert!(again.contains("nothing was changed"), "{again}");
        assert_eq!(world.writes(), before + 1);
        let status = world.json("status web").await;
        assert_eq!(status["verdicts"]["OutOfWindow"], json!(null), "{status}");
        // The annotation `start-now` names the previous revision, so the next one waits for the window.
        world.set_image("web:3").await;
        let status = world.json("status web").await;
        assert_eq!(status["verdicts"]["OutOfWindow"], 2, "{status}");
    }
}
