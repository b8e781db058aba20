//! Notifications about rollouts: CloudEvents to a webhook, one for each main step.
//!
//! A notification describes a step from one reported state to the next. Its ID is derived from the state in the API server before
//! the step. So a new leader that reports the same step again sends the same ID.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::metrics::Metrics;
use super::outbox::{self, Delivery, Endpoint, Limits, Message, Outbox, Receiver, Signer};
use super::report::RolloutFacts;
use super::trace::hash;
use crate::cli::NotifyArgs;
use crate::clock::Clock;
use crate::core::Revision;
use crate::core::foreign::{cut, shown};
use crate::index::SetRecord;

/// Prefix of the attribute `type`: the prefix of the annotations, as a reversed domain name.
const TYPE_PREFIX: &str = "io.openyurt.apps.rollout.";

/// Maximum number of waiting notifications, and size of one. A large cluster has about as many DaemonSets, which may all change
/// state at once. Many receivers accept no larger CloudEvents.
const LIMITS: Limits = Limits {
    queue: 256,
    size: 64 << 10,
};

/// Length limit of the name of the cluster in bytes.
const CLUSTER_LIMIT: usize = 253;

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
    /// If the URL or the name of the cluster is unusable.
    pub fn from_args(args: &NotifyArgs) -> Result<Option<Self>> {
        // An empty variable is the usual way to switch something off.
        let Some(url) = args.notify_url.as_ref().filter(|url| !url.is_empty()) else {
            return Ok(None);
        };
        let cluster = args.notify_cluster.as_deref().unwrap_or_default();
        ensure!(
            cluster.len() <= CLUSTER_LIMIT && !cluster.contains(char::is_control),
            "--notify-cluster must have at most {CLUSTER_LIMIT} bytes and no control characters"
        );
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
    /// Queues a notification about a step of a rollout. `id` is [`step_id`].
    pub(super) fn notify(&self, set: &SetRecord, id: String, facts: &RolloutFacts) {
        let body = self.cloud_event(set, &id, facts).to_string().into();
        self.outbox.send(Message { id, body });
    }

    fn cloud_event(&self, set: &SetRecord, id: &str, facts: &RolloutFacts) -> Value {
        let key = set.key();
        let (api_version, word) = (key.kind.api_version(), facts.step.word());
        let (namespace, name) = (&key.namespace, &key.name);
        let revision = facts.revision.as_ref().map(Revision::as_str);
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
                "reason": facts.reason,
                "message": cut(&shown(&facts.message), MESSAGE_LIMIT),
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
        content
    }
}

/// Returns the ID of a step. `set` is the DaemonSet before the status with the step is written.
///
/// Every replica reads the same conditions and generation, so a new leader that repeats the step uses the same ID. Each report
/// changes the conditions, so another step has another ID.
pub(super) fn step_id(set: &SetRecord, facts: &RolloutFacts) -> String {
    let mut stored = String::new();
    for condition in &set.conditions {
        let at = condition.last_transition.as_ref();
        let at = at.map_or(0, |time| time.0.as_second());
        for part in [
            &*condition.kind,
            &*condition.status,
            &*condition.reason,
            &*condition.message,
            &at.to_string(),
        ] {
            stored.push_str(part);
            stored.push('\n');
        }
    }
    format!(
        "{}-{}-{}-{}-{}",
        set.uid,
        facts.revision.as_ref().map_or("unknown", Revision::as_str),
        facts.step.word(),
        set.generation,
        hash::<8>(&stored)
    )
}

#[cfg(test)]
pub(super) mod tests;
