//! Scenarios as data: the initial objects, the steps, the expectations.
//!
//! A [`Scenario`] is one sentence of the specification. It has one or more stories, one per value that the sentence names. The
//! same stories are played on the embedded cluster and on a real control plane. [`Pace`] selects shorter times for the latter.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use yurt_ds::sim::kubelet::{Behaviour, Outage};

use super::asking::Ask;
use super::checks::Check;
use super::objects::{Daemon, annotation_patch, image_patch};
use super::player::Stage;

/// Reason why scenarios with faults in single requests are not played on a real cluster.
pub(crate) const NO_FAULT_POINTS: &str = "there is nothing between a real API server and the controller that could delay or break single requests";

/// Seconds after which the controller has seen what the story has seen. Watches of pods and DaemonSets have no common order. A
/// story that changes both waits in between if the change of the pod must come first.
pub(crate) const SEEN: u64 = 2;

/// Speed of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Virtual time: minutes take milliseconds.
    Virtual,
    /// Real time.
    Real,
}

impl Pace {
    /// Returns the first value on the embedded cluster, the second on a real one.
    pub(crate) fn pick<T>(self, embedded: T, real: T) -> T {
        match self {
            Self::Virtual => embedded,
            Self::Real => real,
        }
    }
}

/// Returns a duration in seconds.
pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One sentence of the specification.
pub(crate) struct Scenario {
    /// Its stories, played in parallel.
    pub(crate) stories: Vec<Story>,
    /// Reason why it is not played on a real control plane.
    pub(crate) only_embedded: Option<&'static str>,
    /// Reason why it is not played on the embedded cluster.
    pub(crate) only_real: Option<&'static str>,
    /// Oldest minor version of Kubernetes that can play it.
    pub(crate) since: u32,
    /// True if it affects the whole cluster or the controller, so that nothing may run in parallel.
    pub(crate) alone: bool,
}

impl From<Vec<Story>> for Scenario {
    fn from(stories: Vec<Story>) -> Self {
        Self {
            stories,
            only_embedded: None,
            only_real: None,
            since: 0,
            alone: false,
        }
    }
}

impl From<Story> for Scenario {
    fn from(story: Story) -> Self {
        vec![story].into()
    }
}

impl Scenario {
    /// Excludes it from real control planes, for this reason.
    pub(crate) fn only_embedded(mut self, why: &'static str) -> Self {
        self.only_embedded = Some(why);
        self
    }

    /// Excludes it from the embedded cluster, for this reason.
    pub(crate) fn only_real(mut self, why: &'static str) -> Self {
        self.only_real = Some(why);
        self
    }

    /// Excludes it from Kubernetes before 1.`minor`.
    pub(crate) fn since(mut self, minor: u32) -> Self {
        self.since = minor;
        self
    }

    /// Excludes other scenarios while it is played.
    pub(crate) fn alone(mut self) -> Self {
        self.alone = true;
        self
    }
}

/// Writes to pods that a story allows the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Only deletions that replaced a pod.
    Deletions,
    /// Also failed deletions (races, faults).
    Attempts,
    /// Only evictions, some of which may fail.
    Evictions,
    /// Also conditions (OTA).
    Conditions,
    /// Also conditions and the marks of pods that wait for lifecycle hooks.
    Marks,
    /// Also creation, ownership transfer, adoption and release of pods.
    Surges,
}

/// One story of a scenario.
pub(crate) struct Story {
    pub(crate) nodes: usize,
    pub(crate) daemon: Daemon,
    pub(crate) allowed: usize,
    pub(crate) writes: Writes,
    /// True if a pod may only be deleted after a request to its agent.
    pub(crate) only_wished: bool,
    /// True if a Ready node that has an available pod must never be without one.
    pub(crate) always_served: bool,
    pub(crate) steps: Vec<Step>,
}

/// Action of a single story.
pub(crate) type Deed = Arc<dyn Fn(Stage) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>;

/// Step of a story.
#[derive(Clone)]
pub(crate) enum Step {
    /// Takes nodes offline.
    Offline(Vec<usize>, Outage),
    /// Brings nodes back.
    Online(Vec<usize>),
    /// Makes a node go up and down repeatedly.
    Flap(usize, Duration, Duration),
    /// Removes a node from the cluster permanently.
    RemoveNode(usize),
    /// Changes the behavior of containers: image, node (0: all), behavior.
    Behave(String, usize, Box<Behaviour>),
    /// Sets the time that containers on a node take to end.
    TerminateIn(usize, Duration),
    /// Patches the DaemonSet: strategic merge for a native one, merge for an Advanced one.
    Patch(Value),
    /// Patches a Node (merge).
    PatchNode(usize, Value),
    /// Patches a pod (merge).
    PatchPod(usize, Value),
    /// Deletes the pod on a node as a user.
    DeletePod(usize),
    /// Rejects new pods of the native controller, or stops that.
    RefusePods(bool),
    /// Starts or stops an admission policy that denies the controller this write to the pod on a node (0: to all pods).
    Policy(&'static str, usize, bool),
    /// Performs another action.
    Does(&'static str, Deed),
    /// Excludes deletions of pods on this node from now on: they are not the controller's.
    Excuse(usize),
    /// Makes "replaced" and "untouched" refer to this moment, and resets all counters.
    Remember,
    /// Waits until the check holds, within the usual time limit.
    Until(Check),
    /// Verifies that the check holds all this time.
    Throughout(Check, Duration),
    /// Waits until the check holds, within this time.
    UntilWithin(Check, Duration),
    /// Waits without an expectation.
    Wait(Duration),
    /// Stops the native DaemonSet controller, or resumes it.
    Native(bool),
    /// Checks that the controller sends no request for this time, except watches and its Lease.
    Quiet(Duration, Duration),
    /// Checks how many writes to pods the controller has made since the last `remember`.
    PodWrites(usize),
    /// Kills all replicas of the controller, or starts it again.
    Controller(bool),
    /// Performs an action on a node's agent.
    Ask(Ask),
}

impl Step {
    /// Returns true if the step changes a Node.
    pub(crate) fn changes_nodes(&self) -> bool {
        matches!(
            self,
            Self::Offline(..)
                | Self::Online(_)
                | Self::Flap(..)
                | Self::RemoveNode(_)
                | Self::PatchNode(..)
        )
    }

    /// Returns true if the step waits for a check or for some time.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Until(_) | Self::UntilWithin(..) | Self::Wait(_) | Self::Quiet(..) => true,
            Self::Throughout(_, time) => !time.is_zero(),
            _ => false,
        }
    }
}

impl Story {
    /// Begins a story on this many Ready nodes with the usual DaemonSet. One node may be unavailable.
    pub(crate) fn on(nodes: usize) -> Self {
        Self {
            nodes,
            daemon: Daemon::new(),
            allowed: 1,
            writes: Writes::Deletions,
            only_wished: false,
            always_served: false,
            steps: Vec::new(),
        }
    }

    /// Sets the DaemonSet. For an Advanced one the controller also creates pods.
    pub(crate) fn with(mut self, daemon: Daemon) -> Self {
        if daemon.is_advanced() {
            self.writes = Writes::Surges;
        }
        self.daemon = daemon;
        self
    }

    /// Sets the number of nodes that may be unavailable.
    pub(crate) fn allowed(mut self, nodes: usize) -> Self {
        self.allowed = nodes;
        self
    }

    /// Sets the writes to pods that are allowed.
    pub(crate) fn writing(mut self, writes: Writes) -> Self {
        self.writes = writes;
        self
    }

    /// Requires that a pod is only deleted after a request to its agent.
    pub(crate) fn only_wished(mut self) -> Self {
        self.only_wished = true;
        self
    }

    /// Requires that a Ready node that has an available pod is never without one.
    pub(crate) fn always_served(mut self) -> Self {
        self.always_served = true;
        self
    }

    /// Adds a step.
    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Takes nodes offline. They and their pods are marked as the node lifecycle controller does.
    pub(crate) fn offline(self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.step(Step::Offline(nodes.into_iter().collect(), Outage::MARKED))
    }

    /// Takes nodes offline. Their pods are not marked.
    pub(crate) fn offline_autonomous(self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.step(Step::Offline(
            nodes.into_iter().collect(),
            Outage::AUTONOMOUS,
        ))
    }

    /// Brings nodes back.
    pub(crate) fn online(self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.step(Step::Online(nodes.into_iter().collect()))
    }

    /// Changes the image of the template.
    pub(crate) fn image(self, image: &str) -> Self {
        self.patch(image_patch(image))
    }

    /// Patches the DaemonSet.
    pub(crate) fn patch(self, patch: Value) -> Self {
        self.step(Step::Patch(patch))
    }

    /// Patches a Node.
    pub(crate) fn patch_node(self, node: usize, patch: Value) -> Self {
        self.step(Step::PatchNode(node, patch))
    }

    /// Sets an annotation with the project's prefix.
    pub(crate) fn annotate(self, name: &str, value: &str) -> Self {
        self.patch(annotation_patch(name, Some(value)))
    }

    /// Removes an annotation with the project's prefix.
    pub(crate) fn unannotate(self, name: &str) -> Self {
        self.patch(annotation_patch(name, None))
    }

    /// Sets the behavior of containers of this image on every node of the story.
    pub(crate) fn behave(self, image: &str, behaviour: Behaviour) -> Self {
        self.behave_on(0, image, behaviour)
    }

    /// Sets the behavior of containers of this image on one node. A crashing pod changes on its own, so a write to it may
    /// conflict and be repeated.
    pub(crate) fn behave_on(mut self, node: usize, image: &str, behaviour: Behaviour) -> Self {
        if behaviour.crash_after.is_some() && self.writes == Writes::Deletions {
            self.writes = Writes::Attempts;
        }
        self.step(Step::Behave(image.into(), node, Box::new(behaviour)))
    }

    /// Performs an action of this story only.
    pub(crate) fn does<F>(
        self,
        what: &'static str,
        deed: impl Fn(Stage) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.step(Step::Does(
            what,
            Arc::new(move |stage| Box::pin(deed(stage))),
        ))
    }

    /// Denies the controller this write to the pod on a node (0: to all pods) by an admission policy. Verbs are `delete`,
    /// `patch`, `create` and `status`, a patch of the status.
    pub(crate) fn deny(self, verb: &'static str, node: usize) -> Self {
        self.step(Step::Policy(verb, node, true))
    }

    /// Removes that policy.
    pub(crate) fn allow(self, verb: &'static str) -> Self {
        self.step(Step::Policy(verb, 0, false))
    }

    /// Deletes the pod on a node as a user.
    pub(crate) fn delete_pod(self, node: usize) -> Self {
        self.step(Step::DeletePod(node))
    }

    /// Excludes deletions of pods on this node from now on: they are not the controller's.
    pub(crate) fn excuse(self, node: usize) -> Self {
        self.step(Step::Excuse(node))
    }

    /// Stops the native DaemonSet controller, or resumes it.
    pub(crate) fn native(self, runs: bool) -> Self {
        self.step(Step::Native(runs))
    }

    /// Kills all replicas of the controller, or starts it again. Its requests may then be repeated, and fail the second time.
    pub(crate) fn controller(mut self, runs: bool) -> Self {
        if self.writes == Writes::Deletions {
            self.writes = Writes::Attempts;
        }
        self.step(Step::Controller(runs))
    }

    /// Waits this many seconds without an expectation.
    pub(crate) fn wait(self, seconds: u64) -> Self {
        self.step(Step::Wait(secs(seconds)))
    }

    /// Checks that the controller sends no request for this many seconds (on the embedded cluster, on a real one).
    pub(crate) fn quiet(self, embedded: u64, real: u64) -> Self {
        self.step(Step::Quiet(secs(embedded), secs(real)))
    }

    /// Waits until the check holds, within this many seconds.
    pub(crate) fn until_within(self, check: Check, seconds: u64) -> Self {
        self.step(Step::UntilWithin(check, secs(seconds)))
    }

    /// Waits until the check holds, within the usual time limit.
    pub(crate) fn until(self, check: Check) -> Self {
        self.step(Step::Until(check))
    }

    /// Verifies that the check holds for this many seconds.
    pub(crate) fn throughout(self, check: Check, seconds: u64) -> Self {
        self.step(Step::Throughout(check, secs(seconds)))
    }

    /// Verifies that the check holds now.
    pub(crate) fn expect(self, check: Check) -> Self {
        self.throughout(check, 0)
    }

    /// Makes "replaced" and "untouched" refer to this moment, and resets all counters.
    pub(crate) fn remember(self) -> Self {
        self.step(Step::Remember)
    }

    /// Checks how many writes to pods the controller has made since the last `remember`.
    pub(crate) fn pod_writes(self, count: usize) -> Self {
        self.step(Step::PodWrites(count))
    }
}
