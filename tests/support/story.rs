//! Test cases as data: initial objects, steps and expectations.
//!
//! A [`Scenario`] tests one sentence of the specification. It consists of stories: one [`Story`] for each value that the sentence
//! names, and at least one. The same stories run on the embedded cluster and on a real control plane. [`Pace`] lets them use
//! shorter times on a real control plane.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use yurt_ds::sim::kubelet::{Behaviour, Outage};

use super::asking::Ask;
use super::checks::Check;
use super::objects::{Daemon, annotation_patch, image_patch};
use super::player::Stage;

/// Reason why scenarios with faults in single requests don't run on a real cluster.
pub(crate) const NO_FAULT_POINTS: &str = "there is nothing between a real API server and the controller that could delay or break single requests";

/// Number of seconds after which the controller has certainly seen a change.
///
/// The controller watches pods and DaemonSets separately, so their changes may arrive in any order. If the order matters, a story
/// must wait this long between a change of a pod and a change of the DaemonSet.
pub(crate) const SEEN: u64 = 2;

/// Kind of time in which a story runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Virtual time of the embedded cluster, where minutes take milliseconds.
    Virtual,
    /// Real time of a real cluster.
    Real,
}

impl Pace {
    /// Returns the first value on the embedded cluster, and the second value on a real one.
    pub(crate) fn pick<T>(self, embedded: T, real: T) -> T {
        match self {
            Self::Virtual => embedded,
            Self::Real => real,
        }
    }
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Test of one sentence of the specification, with its stories.
pub(crate) struct Scenario {
    /// Stories of the scenario. They run in parallel.
    pub(crate) stories: Vec<Story>,
    /// Reason why the scenario doesn't run on a real control plane; `None` if it does.
    pub(crate) only_embedded: Option<&'static str>,
    /// Reason why the scenario doesn't run on the embedded cluster; `None` if it does.
    pub(crate) only_real: Option<&'static str>,
    /// Oldest minor version of Kubernetes on which the scenario can run.
    pub(crate) since: u32,
    /// True if the scenario affects the whole cluster or the controller, so that no other scenario may run in parallel.
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
    /// Excludes the scenario from real control planes, for this reason.
    pub(crate) fn only_embedded(mut self, why: &'static str) -> Self {
        self.only_embedded = Some(why);
        self
    }

    /// Excludes the scenario from the embedded cluster, for this reason.
    pub(crate) fn only_real(mut self, why: &'static str) -> Self {
        self.only_real = Some(why);
        self
    }

    /// Excludes the scenario from Kubernetes versions before 1.`minor`.
    pub(crate) fn since(mut self, minor: u32) -> Self {
        self.since = minor;
        self
    }

    /// Prevents other scenarios from running in parallel.
    pub(crate) fn alone(mut self) -> Self {
        self.alone = true;
        self
    }
}

/// Writes to pods that the controller may make in a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Deletions and in-place updates, none of which may fail.
    Deletions,
    /// Deletions and in-place updates, some of which may fail because of races or faults.
    Attempts,
    /// Evictions, some of which may fail.
    Evictions,
    /// All writes of `Attempts`, and patches of pod conditions (OTA mode, pre-pulls).
    Conditions,
    /// All writes of `Conditions`, and marks of pods that wait for a lifecycle hook.
    Marks,
    /// All writes of `Marks`, and creation, ownership transfer, adoption and release of pods.
    Surges,
}

/// Test case of a scenario: a DaemonSet, its nodes, and the steps.
pub(crate) struct Story {
    pub(crate) nodes: usize,
    pub(crate) daemon: Daemon,
    pub(crate) allowed: usize,
    pub(crate) writes: Writes,
    /// True if a pod may only be deleted after a node owner has requested it from the agent.
    pub(crate) only_wished: bool,
    /// True if a Ready node must never lose its last available pod.
    pub(crate) always_served: bool,
    pub(crate) steps: Vec<Step>,
}

/// Function that performs an action of a story.
pub(crate) type Deed = Arc<dyn Fn(Stage) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Step {
    /// Takes nodes offline.
    Offline(Vec<usize>, Outage),
    /// Brings nodes back online.
    Online(Vec<usize>),
    /// Takes a node offline and back online repeatedly. The first duration is the time online, the second the time offline.
    Flap(usize, Duration, Duration),
    /// Deletes a Node permanently.
    RemoveNode(usize),
    /// Changes the behavior of containers with this image on a node (0: on all nodes).
    Behave(String, usize, Box<Behaviour>),
    /// Sets the time that containers on a node take to terminate.
    TerminateIn(usize, Duration),
    /// Patches the DaemonSet: with a strategic merge patch if it is native, with a merge patch if it is Advanced.
    Patch(Value),
    /// Applies a merge patch to a Node.
    PatchNode(usize, Value),
    /// Applies a merge patch to the pod on a node.
    PatchPod(usize, Value),
    /// Deletes the pod on a node, as a user might.
    DeletePod(usize),
    /// Starts or stops a policy that rejects the pods that the native controller creates.
    RefusePods(bool),
    /// Starts or stops an admission policy that rejects this write of the controller to the pod on a node (0: to all pods).
    Policy(&'static str, usize, bool),
    /// Performs an action that the story defines. The text describes it.
    Does(&'static str, Deed),
    /// Excludes deletions of this node's pods from the checks, because from now on other clients may cause them.
    Excuse(usize),
    /// Remembers the current pods for checks such as "replaced" and "untouched", and sets all counts to zero.
    Remember,
    /// Waits until a check succeeds, within the usual time limit.
    Until(Check),
    /// Repeats a check for this time. The check must always succeed.
    Throughout(Check, Duration),
    /// Waits until a check succeeds, within this time.
    UntilWithin(Check, Duration),
    /// Waits for this time without a check.
    Wait(Duration),
    /// Stops the native DaemonSet controller, or resumes it.
    Native(bool),
    /// Checks that the controller sends no request for this time, except watches and requests for its Lease. The first time is for
    /// the embedded cluster, the second for a real one.
    Quiet(Duration, Duration),
    /// Checks the number of the controller's writes to pods since [`Self::Remember`].
    PodWrites(usize),
    /// Kills all replicas of the controller (false), or starts one (true).
    Controller(bool),
    /// Performs an action on a node's agent, or sends a request to the agent.
    Ask(Ask),
}

impl Step {
    /// Returns true if the step changes a Node object.
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

    /// Returns true if the step takes time, because it waits for a check or repeats a check.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Until(_) | Self::UntilWithin(..) | Self::Wait(_) | Self::Quiet(..) => true,
            Self::Throughout(_, time) => !time.is_zero(),
            _ => false,
        }
    }
}

impl Story {
    /// Returns a story on this many Ready nodes with [`Daemon::new`]. One node may be unavailable.
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

    /// Sets the DaemonSet of the story. If it is an Advanced DaemonSet, the controller may also create pods.
    pub(crate) fn with(mut self, daemon: Daemon) -> Self {
        if daemon.is_advanced() {
            self.writes = Writes::Surges;
        }
        self.daemon = daemon;
        self
    }

    /// Sets the number of nodes that may lack an available pod because of the controller.
    pub(crate) fn allowed(mut self, nodes: usize) -> Self {
        self.allowed = nodes;
        self
    }

    /// Sets the writes to pods that the controller may make.
    pub(crate) fn writing(mut self, writes: Writes) -> Self {
        self.writes = writes;
        self
    }

    /// Requires that the controller deletes a pod only after a node owner has requested it from the agent.
    pub(crate) fn only_wished(mut self) -> Self {
        self.only_wished = true;
        self
    }

    /// Requires that a Ready node never loses its last available pod.
    pub(crate) fn always_served(mut self) -> Self {
        self.always_served = true;
        self
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Takes nodes offline. The Nodes and their pods are marked as not Ready, as the node lifecycle controller does.
    pub(crate) fn offline(self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.step(Step::Offline(nodes.into_iter().collect(), Outage::MARKED))
    }

    /// Takes nodes offline. The Nodes are marked as not Ready, but their pods stay Ready.
    pub(crate) fn offline_autonomous(self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.step(Step::Offline(
            nodes.into_iter().collect(),
            Outage::AUTONOMOUS,
        ))
    }

    /// Brings nodes back online.
    pub(crate) fn online(self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.step(Step::Online(nodes.into_iter().collect()))
    }

    /// Changes the image in the DaemonSet's template.
    pub(crate) fn image(self, image: &str) -> Self {
        self.patch(image_patch(image))
    }

    /// Applies a patch to the DaemonSet.
    pub(crate) fn patch(self, patch: Value) -> Self {
        self.step(Step::Patch(patch))
    }

    /// Applies a merge patch to a Node.
    pub(crate) fn patch_node(self, node: usize, patch: Value) -> Self {
        self.step(Step::PatchNode(node, patch))
    }

    /// Sets a yurt-ds annotation of the DaemonSet.
    pub(crate) fn annotate(self, name: &str, value: &str) -> Self {
        self.patch(annotation_patch(name, Some(value)))
    }

    /// Removes a yurt-ds annotation of the DaemonSet.
    pub(crate) fn unannotate(self, name: &str) -> Self {
        self.patch(annotation_patch(name, None))
    }

    /// Sets the behavior of containers with this image on every node of the story.
    pub(crate) fn behave(self, image: &str, behaviour: Behaviour) -> Self {
        self.behave_on(0, image, behaviour)
    }

    /// Sets the behavior of containers with this image on one node. A crashing pod changes on its own, so writes to it may conflict
    /// and are allowed to fail.
    pub(crate) fn behave_on(mut self, node: usize, image: &str, behaviour: Behaviour) -> Self {
        if behaviour.crash_after.is_some() && self.writes == Writes::Deletions {
            self.writes = Writes::Attempts;
        }
        self.step(Step::Behave(image.into(), node, Box::new(behaviour)))
    }

    /// Performs an action that only this story needs. The text describes it.
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

    /// Adds an admission policy that rejects this write of the controller to the pod on a node (0: to all pods). Verbs are
    /// `delete`, `patch`, `create`, and `status` for a patch of the status.
    pub(crate) fn deny(self, verb: &'static str, node: usize) -> Self {
        self.step(Step::Policy(verb, node, true))
    }

    /// Removes the admission policy about this verb.
    pub(crate) fn allow(self, verb: &'static str) -> Self {
        self.step(Step::Policy(verb, 0, false))
    }

    /// Deletes the pod on a node, as a user might.
    pub(crate) fn delete_pod(self, node: usize) -> Self {
        self.step(Step::DeletePod(node))
    }

    /// Excludes deletions of this node's pods from the checks, because from now on other clients may cause them.
    pub(crate) fn excuse(self, node: usize) -> Self {
        self.step(Step::Excuse(node))
    }

    /// Stops the native DaemonSet controller, or resumes it.
    pub(crate) fn native(self, runs: bool) -> Self {
        self.step(Step::Native(runs))
    }

    /// Kills all replicas of the controller (false), or starts one (true). A restarted controller may repeat requests, so failed
    /// writes are allowed.
    pub(crate) fn controller(mut self, runs: bool) -> Self {
        if self.writes == Writes::Deletions {
            self.writes = Writes::Attempts;
        }
        self.step(Step::Controller(runs))
    }

    /// Waits this many seconds without a check.
    pub(crate) fn wait(self, seconds: u64) -> Self {
        self.step(Step::Wait(secs(seconds)))
    }

    /// Checks that the controller sends no request for this many seconds. The first number is for the embedded cluster, the second
    /// for a real one.
    pub(crate) fn quiet(self, embedded: u64, real: u64) -> Self {
        self.step(Step::Quiet(secs(embedded), secs(real)))
    }

    /// Waits until a check succeeds, within this many seconds.
    pub(crate) fn until_within(self, check: Check, seconds: u64) -> Self {
        self.step(Step::UntilWithin(check, secs(seconds)))
    }

    /// Waits until a check succeeds, within the usual time limit.
    pub(crate) fn until(self, check: Check) -> Self {
        self.step(Step::Until(check))
    }

    /// Repeats a check for this many seconds. The check must always succeed.
    pub(crate) fn throughout(self, check: Check, seconds: u64) -> Self {
        self.step(Step::Throughout(check, secs(seconds)))
    }

    /// Evaluates a check once, without waiting.
    pub(crate) fn expect(self, check: Check) -> Self {
        self.throughout(check, 0)
    }

    /// Remembers the current pods for checks such as "replaced" and "untouched", and sets all counts to zero.
    pub(crate) fn remember(self) -> Self {
        self.step(Step::Remember)
    }

    /// Checks the number of the controller's writes to pods since [`Self::remember`].
    pub(crate) fn pod_writes(self, count: usize) -> Self {
        self.step(Step::PodWrites(count))
    }
}
