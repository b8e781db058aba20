//! Notifications about rollouts: CloudEvents to a webhook, at the points at which the controller writes its Events.
//!
//! A notification describes a step from one reported state to the next. Its ID is derived from the state in the API server before
//! the step. So a new leader that reports the same step again sends the same ID.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::metrics::Metrics;
use super::outbox::{self, Delivery, Endpoint, Limits, Message, Outbox, Receiver, Signer};
use super::report::{RolloutEvent, RolloutFacts};
use super::step::Step;
use crate::cli::NotifyArgs;
use crate::clock::Clock;
use crate::core::Revision;
use crate::core::foreign::{cut, shown};
use crate::index::SetRecord;
use crate::k8s::Condition;

/// Prefix of the attribute `type`: the prefix of the annotations, as a reversed domain name.
const TYPE_PREFIX: &str = "io.openyurt.apps.rollout.";

/// Maximum number of waiting notifications, and size of one. A large cluster has about as many DaemonSets, which may all change
/// state at once. Many receivers accept no larger CloudEvents.
const LIMITS: Limits = Limits {
    queue: 256,
    size: 64 << 10,
};

/// Length limit of a message in characters, like that of an Event.
const MESSAGE_LIMIT: usize = 1024;

/// Receiver of notifications, and the name of the cluster.
pub struct Notifications {
    pub(super) endpoint: Endpoint,
    pub(super) signer: Option<Signer>,
    pub(super) cluster: Option<String>,
}

impl Notifications {
    /// Returns the receiver that the flags name; `None` without `--notify-url`.
    ///
    /// # Errors
    /// If the URL is unusable.
    pub fn from_args(args: &NotifyArgs) -> Result<Option<Self>> {
        let Some(url) = &args.notify_url else {
            return Ok(None);
        };
        Ok(Some(Self {
            endpoint: Endpoint::parse("--notify-url", url)?,
            signer: args.notify_secret_file.clone().map(Signer::new),
            cluster: args.notify_cluster.clone(),
        }))
    }

    /// Starts the task that sends notifications.
    pub(super) fn start(self, clock: &Clock, metrics: &Arc<Metrics>) -> (Notifier, Delivery) {
        let receiver = Receiver {
            content: "notification",
            media_type: "application/cloudevents+json",
            limits: LIMITS,
            endpoint: self.endpoint,
            signer: self.signer,
            clock: clock.clone(),
        };
        let (outbox, delivery) = outbox::start(receiver, metrics.notifications());
        let notifier = Notifier {
            outbox,
            cluster: self.cluster,
            clock: clock.clone(),
        };
        (notifier, delivery)
    }
}

/// Sender of notifications.
pub(super) struct Notifier {
    outbox: Outbox,
    cluster: Option<String>,
    clock: Clock,
}

impl Notifier {
    /// Queues a notification about an Event; does nothing if the Event is none of a rollout's main steps.
    ///
    /// `set` is the DaemonSet before the status is written, and `facts` are those of the report with the Event.
    pub(super) fn notify(&self, set: &SetRecord, event: &RolloutEvent, facts: &RolloutFacts) {
        let Some(step) = Step::of_event(event, &set.state.reported, facts) else {
            return;
        };
        let (id, content) = self.cloud_event(set, step, event, facts);
        let body = content.to_string().into();
        self.outbox.send(Message { id, body });
    }

    fn cloud_event(
        &self,
        set: &SetRecord,
        step: Step,
        event: &RolloutEvent,
        facts: &RolloutFacts,
    ) -> (String, Value) {
        let key = set.key();
        let (api_version, word) = (key.kind.api_version(), step.word());
        let (namespace, name) = (&key.namespace, &key.name);
        let revision = facts.revision.as_ref().map(Revision::as_str);
        let id = format!(
            "{}-{}-{word}-{}",
            set.uid,
            revision.unwrap_or("unknown"),
            last_transition(&set.conditions)
        );
        let mut content = json!({
            "specversion": "1.0",
            "id": id,
            "type": format!("{TYPE_PREFIX}{word}"),
            "source": format!("/apis/{api_version}/namespaces/{namespace}/daemonsets/{name}"),
            "time": self.clock.now().to_string(),
            "datacontenttype": "application/json",
            "data": {
                "apiVersion": api_version,
                "kind": "DaemonSet",
                "namespace": namespace,
                "name": name,
                "uid": set.uid,
                "revision": revision,
                "reason": event.reason,
                "message": cut(&shown(&event.note), MESSAGE_LIMIT),
                "counts": facts.counts,
                "nodes": facts.nodes,
                "nodesOmitted": facts.nodes_omitted,
            },
        });
        // CloudEvents have no empty attributes.
        let optional = [("subject", revision), ("cluster", self.cluster.as_deref())];
        for (attribute, value) in optional {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                content[attribute] = json!(value);
            }
        }
        (id, content)
    }
}

/// Returns the time of the last change of the rollout's state that the API server has stored, in Unix seconds; 0: none.
///
/// Every replica reads the same time. A second stall of the same revision has a later one.
fn last_transition(conditions: &[Condition]) -> i64 {
    let times = conditions
        .iter()
        .filter_map(|condition| condition.last_transition.as_ref());
    let last = times.map(|time| time.0).max();
    last.map_or(0, Timestamp::as_second)
}

#[cfg(test)]
pub(super) mod tests;
