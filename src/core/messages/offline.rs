//! Messages about offline nodes.

use super::guarded::gone;
use super::pods::{Answer, NodeView};
use crate::core::eligibility::CUT_OFF_TAINT;
use crate::core::engine::revert::is_due;
use crate::core::fleet::Readiness;
use crate::core::instant;
use crate::core::plan::Phase;
use crate::core::settings::Mode;
use crate::core::verdict::Offline;
use crate::core::words::joined;

impl<'a> NodeView<'a> {
    pub(super) fn is_offline(self, offline: Offline) -> Answer<'a> {
        let (rollout, node, pod) = (self.rollout, self.node, self.pod());
        let (word, down) = if node.cut_off {
            ("CutOff", format!("is cut off (taint {CUT_OFF_TAINT})"))
        } else {
            ("NotReady", "is NotReady".to_owned())
        };
        let (reason, because) = match offline {
            _ if node.readiness == Readiness::Unreadable => (
                "Unreadable",
                "cannot be read, or a pod on it cannot: see Warning Events with reason Unreadable"
                    .to_owned(),
            ),
            Offline::NotReady { .. } if node.pods.is_empty() => {
                (word, format!("{down} and has no pod"))
            }
            Offline::NotReady { .. } => (word, format!("{down} and outdated")),
            Offline::Terminating { .. } => (
                "Terminating",
                format!("{down}; its pod{pod} cannot finish terminating before the node returns"),
            ),
            Offline::NoNode => (
                "NoNode",
                format!("has pod{pod}, but its Node object does not exist"),
            ),
            Offline::Settling { until } => (
                "Settling",
                format!(
                    "is outdated and reconnected recently; it counts as online in {}",
                    instant::between(rollout.now, until)
                ),
            ),
            Offline::Updated { .. } if self.is_rolled_back() => (
                word,
                format!(
                    "{down}; its pod{pod} has the revision that the guard stopped and is rolled back in place{} after the node returns",
                    rollout.to_revision()
                ),
            ),
            Offline::Updated { .. } => (word, format!("{down} and has the current revision")),
        };
        let because = joined(Some(because).into_iter().chain(self.loss()));
        Answer::new(because, move || self.after_return(offline)).reason(reason)
    }

    fn is_rolled_back(&self) -> bool {
        is_due(self.rollout.strategy, self.rollout.fleet, self.node)
    }

    /// Returns the conditions under which the node is updated after its return, such as a window.
    fn turn(&self) -> String {
        let strategy = self.rollout.strategy;
        let has_window = strategy.window.is_some() || self.node.window.is_some();
        let wave = strategy.waves.is_some().then_some(" and its wave is open");
        let window = has_window.then_some(" and its maintenance window is open");
        let more: String = wave.into_iter().chain(window).collect();
        format!(", when a slot is free{more}")
    }

    fn after_return(&self, offline: Offline) -> String {
        let (rollout, node) = (self.rollout, self.node);
        let settle = humantime::format_duration(rollout.strategy.ready_settle);
        let returns = if node.cut_off {
            format!("loses the taint {CUT_OFF_TAINT}")
        } else {
            "is Ready".to_owned()
        };
        let next = match offline {
            _ if node.readiness == Readiness::Unreadable => {
                return "correct or delete the object that cannot be read; the node is not updated until then".to_owned();
            }
            Offline::Updated { .. } if !self.is_rolled_back() => {
                return "no action needed".to_owned();
            }
            Offline::NoNode => match gone(rollout, &node.name) {
                Some(gone) => return gone.next,
                None => {
                    return format!(
                        "if the Node will not return, delete its pod: kubectl -n {} delete pod{}",
                        rollout.key.namespace,
                        self.pod()
                    );
                }
            },
            Offline::NotReady { .. } if node.pods.is_empty() => {
                format!("gets a pod of the current revision when it {returns}")
            }
            Offline::Settling { .. } => {
                format!(
                    "updated automatically after {settle} of Ready (annotation ready-settle){}",
                    self.turn()
                )
            }
            _ if rollout.strategy.mode == Mode::Ota => {
                format!("its owner can upgrade it when it {returns}")
            }
            _ => format!(
                "updated automatically {settle} after it {returns}{}",
                self.turn()
            ),
        };
        let paused = matches!(rollout.phase, Phase::Paused { .. });
        let paused = paused.then(|| {
            format!(
                "the rollout has to be resumed first: yurt-ds ctl resume {}",
                rollout.key
            )
        });
        let stopped = rollout.is_stopped() && !self.is_rolled_back();
        let stopped = stopped.then(|| {
            "the guard stopped this revision, so it is updated with the next one".to_owned()
        });
        let others = Some("it blocks no other node".to_owned());
        joined([Some(next), others, stopped, paused].into_iter().flatten())
    }
}
