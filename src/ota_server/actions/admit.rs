//! Checks of the cached pod before a request reaches the API server. They reject nearly all requests that cannot succeed.

use std::time::Duration;

use super::Actions;
use super::pod_lookups::{PodLookup, could_be_named, is_name};
use super::precheck::{PodOwner, precheck};
use super::reason::Reason;
use super::text::{self, ActionVerb};
use crate::k8s::client::{CallError, Failure};
use crate::ota_server::answer::Answer;
use crate::ota_server::cloud::is_silent;
use crate::ota_server::pod::{NodePod, PodKey};

/// Time to wait until the cache shows a change that the caller may already have seen.
const LAG: Duration = Duration::from_millis(100);

/// A pod that passed checks 3 to 9 (docs/reference/node-api.md), and its owner.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) pod: NodePod,
    pub(super) owner: PodOwner,
}

impl Actions {
    /// Runs checks 1 to 9 (docs/reference/node-api.md) on the cached pod, and returns the pod with its owner. If the cache doesn't
    /// suffice, reads the pod once from the API server.
    pub(super) async fn admit(&self, verb: ActionVerb, key: &PodKey) -> Result<Admitted, Answer> {
        let known = self.setup.pod_cache.pod(key);
        if self.setup.cloud.is_throttled() {
            return Err(text::disconnected(Reason::Throttled));
        }
        if self.setup.cloud.is_lost() {
            if known.is_none() {
                return Err(text::disconnected(Reason::Disconnected));
            }
            self.seek_cloud(key).await?;
        }
        match (self.setup.pod_cache.is_live(), known) {
            (true, Some(pod)) => self.admit_known(verb, pod).await,
            (true, None) => {
                let pods = self.setup.pod_cache.pods().unwrap_or_default();
                if !could_be_named(key, &pods) {
                    return Err(text::not_found(key));
                }
                self.admit_unknown(verb, key).await
            }
            // Without a live watch, the cache may be stale, so read the pod from the API server.
            (false, Some(_)) => {
                let pod = self.live.pod(key).await;
                self.admit_read(verb, pod.map_err(|error| text::not_read(&error))?)
            }
            (false, None) if is_name(&key.name) && is_name(&key.namespace) => {
                self.admit_unknown(verb, key).await
            }
            (false, None) => Err(text::not_found(key)),
        }
    }

    async fn admit_known(&self, verb: ActionVerb, pod: NodePod) -> Result<Admitted, Answer> {
        let refusal = match precheck(verb, &self.setup.node, &pod) {
            Ok(owner) => return Ok(Admitted { pod, owner }),
            Err(refusal) => refusal,
        };
        // The pod's condition may have changed just now, so wait briefly for the cache. If the pod is being deleted, or its owner
        // is no DaemonSet, waiting would not change the answer.
        let has_daemonset = pod
            .controller()
            .is_some_and(|owner| owner.kind == "DaemonSet");
        if pod.facts().deleting || !has_daemonset {
            return Err(refusal);
        }
        let (pod_cache, node) = (&self.setup.pod_cache, &self.setup.node);
        let is_met =
            |pod: Option<&NodePod>| pod.is_none_or(|pod| precheck(verb, node, pod).is_ok());
        if !pod_cache.until(pod.key(), LAG, is_met).await {
            return Err(refusal);
        }
        let pod = pod_cache.pod(pod.key());
        self.admit_read(verb, pod.ok_or(refusal)?)
    }

    /// Looks up a pod that is not in the cache, within the limit of such look-ups.
    async fn admit_unknown(&self, verb: ActionVerb, key: &PodKey) -> Result<Admitted, Answer> {
        let look = async || {
            if self.setup.cloud.is_lost() {
                return Err(text::disconnected(Reason::Disconnected)); // The previous look-up got no answer.
            }
            match self.live.pod(key).await {
                Ok(pod) => Ok(Some(pod)),
                Err(error) if error.failure() == Failure::Gone => Ok(None),
                Err(error) => Err(text::not_read(&error)),
            }
        };
        match self
            .pod_lookups
            .look_up(&self.setup.node, key, look)
            .await?
        {
            PodLookup::Found(pod) => self.admit_read(verb, pod),
            // The limit of look-ups is reached. With a live watch, a pod that is not cached is not on this node. Without a live
            // watch, the pod may be on this node.
            PodLookup::Refused if self.setup.pod_cache.is_live() && !self.setup.cloud.is_lost() => {
                Err(text::not_found(key))
            }
            PodLookup::Refused => Err(text::disconnected(Reason::Disconnected)),
            PodLookup::Absent => Err(text::not_found(key)),
        }
    }

    fn admit_read(&self, verb: ActionVerb, pod: NodePod) -> Result<Admitted, Answer> {
        let owner = precheck(verb, &self.setup.node, &pod)?;
        Ok(Admitted { pod, owner })
    }

    /// Checks whether the API server answers again after an outage. One call sends a request, at most every five seconds.
    /// Concurrent calls wait for the result of that request.
    async fn seek_cloud(&self, key: &PodKey) -> Result<(), Answer> {
        let result = match self.probe.try_lock() {
            Ok(_turn) if self.setup.cloud.may_be_sought() => self.live.pod(key).await.map(drop),
            Ok(_turn) => Ok(()),
            Err(_) => {
                let _turn = self.probe.lock().await;
                Ok(())
            }
        };
        let silent = |error: &CallError| is_silent(error);
        if result.as_ref().is_err_and(silent) || self.setup.cloud.is_lost() {
            return Err(text::disconnected(Reason::Disconnected));
        }
        Ok(())
    }
}
