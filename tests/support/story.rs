//! Scenarios as data: what stands there at first, what happens, what is expected.
//!
//! A [`Scenario`] is one sentence of the specification, told by one or more stories (one per value that it names). The
//! same stories are played on the embedded cluster and on a real control plane; [`Pace`] says which, for those numbers
//! that would make a real run long.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use yurt_ds::sim::kubelet::{Behaviour, Outage};

use super::asking::Ask;
use super::checks::Check;
use super::objects::{Daemon, annotation_patch, image_patch};
use super::player::Stage;

/// Why faults in single requests are no part of a run on a real cluster.
pub(crate) const NO_FAULT_POINTS: &str = "there is nothing between a real API server and the controller that could delay or break single requests";

/// After so many seconds the controller has seen what the story has seen. Watches of pods and of DaemonSets are in no
/// common order: a story that changes both, and expects that the pod counts, waits in between.
pub(crate) const SEEN: u64 = 2;

/// How fast time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Minutes cost milliseconds.
    Virtual,
    /// Minutes cost minutes.
    Real,
}

impl Pace {
    /// The first on the embedded cluster, the second on a real one.
    pub(crate) fn pick<T>(self, embedded: T, real: T) -> T {
        match self {
            Self::Virtual => embedded,
            Self::Real => real,
        }
    }
}

/// So many seconds.
pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One sentence of the specification.
pub(crate) struct Scenario {
    /// Its stories, played side by side.
    pub(crate) stories: Vec<Story>,
    /// Why it is not played on a real control plane.
    pub(crate) only_embedded: Option<&'static str>,
    /// Why it is not played on the embedded cluster.
    pub(crate) only_real: Option<&'static str>,
    /// The oldest Kubernetes (minor version) that can play it.
    pub(crate) since: u32,
    /// It does something to the whole cluster or to the controller: nothing else runs beside it.
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
    /// Not on a real control plane, because.
    pub(crate) fn only_embedded(mut self, why: &'static str) -> Self {
        self.only_embedded = Some(why);
        self
    }

    /// Not on the embedded cluster, because.
    pub(crate) fn only_real(mut self, why: &'static str) -> Self {
        self.only_real = Some(why);
        self
    }

    /// Not with Kubernetes before 1.`minor`.
    pub(crate) fn since(mut self, minor: u32) -> Self {
        self.since = minor;
        self
    }

    /// Not beside others.
    pub(crate) fn alone(mut self) -> Self {
        self.alone = true;
        self
    }
}

/// What the controller may write to pods in a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Deletions that replaced a pod, nothing else.
    Deletions,
    /// Also refused deletions (races, faults).
    Attempts,
    /// Evictions, some of which may be refused, and no deletion.
    Evictions,
    /// Also conditions (OTA).
    Conditions,
    /// Also these and the marks of pods that wait for their hooks.
    Marks,
    /// Also pods that are made, handed over, adopted or let go.
    Surges,
}

/// A story.
pub(crate) struct Story {
    pub(crate) nodes: usize,
    pub(crate) daemon: Daemon,
    pub(crate) allowed: usize,
    pub(crate) writes: Writes,
    /// A pod may go only if an agent was asked to replace it.
    pub(crate) only_wished: bool,
    /// A node that has an available pod has one at every moment, as long as it is Ready.
    pub(crate) always_served: bool,
    pub(crate) steps: Vec<Step>,
}

/// Something that only one story does.
pub(crate) type Deed = Arc<dyn Fn(Stage) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>;

/// What happens next.
#[derive(Clone)]
pub(crate) enum Step {
    /// Nodes fall silent.
    Offline(Vec<usize>, Outage),
    /// Nodes return.
    Online(Vec<usize>),
    /// A node goes up and down by itself.
    Flap(usize, Duration, Duration),
    /// A node leaves the cluster for good.
    RemoveNode(usize),
    /// Containers behave differently: image, node (0: all), behaviour.
    Behave(String, usize, Box<Behaviour>),
    /// Containers on a node take this long to end.
    TerminateIn(usize, Duration),
    /// The DaemonSet is patched (strategic merge; an Advanced one: merge).
    Patch(Value),
    /// A Node is patched (merge).
    PatchNode(usize, Value),
    /// A pod is patched (merge).
    PatchPod(usize, Value),
    /// A user deletes the pod on a node.
    DeletePod(usize),
    /// The native controller's new pods are refused, or no longer.
    RefusePods(bool),
    /// An admission policy that denies the controller this write to the pod on a node (0: to all) begins, or ends.
    Policy(&'static str, usize, bool),
    /// Something else.
    Does(&'static str, Deed),
    /// Whoever deletes pods on this node now, it is not the controller.
    Excuse(usize),
    /// "Replaced" and "untouched" refer to this moment; counting begins anew.
    Remember,
    /// Has to come true before long.
    Until(Check),
    /// Has to hold all this time.
    Throughout(Check, Duration),
    /// The same, within this time.
    UntilWithin(Check, Duration),
    /// Nothing is expected for a while.
    Wait(Duration),
    /// The native DaemonSet controller stops, or goes on.
    Native(bool),
    /// The controller sends no request for this time, except watches and its Lease.
    Quiet(Duration, Duration),
    /// The controller wrote so often to pods since the story remembered.
    PodWrites(usize),
    /// All replicas of the controller die, or it runs again.
    Controller(bool),
    /// Something about the nodes' agents.
    Ask(Ask),
}

impl Step {
    /// Whether a Node is another one afterwards.
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

    /// Whether it ends when something has come true, or some time has passed.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Until(_) | Self::UntilWithin(..) | Self::Wait(_) | Self::Quiet(..) => true,
            Self::Throughout(_, time) => !time.is_zero(),
            _ => false,
        }
    }
}

impl Story {
    /// So many Ready nodes with the usual DaemonSet, one of which may be down.
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

    /// With this DaemonSet. The pods of an Advanced one are made by the controller, too.
    pub(crate) fn with(mut self, daemon: Daemon) -> Self {
        if daemon.is_advanced() {
            self.writes = Writes::Surges;
        }
        self.daemon = daemon;
        self
    }

    /// So many nodes may be down.
    pub(crate) fn allowed(mut self, nodes: usize) -> Self {
        self.allowed = nodes;
        self
    }

    /// What the controller may write to pods.
    pub(crate) fn writing(mut self, writes: Writes) -> Self {
        self.writes = writes;
        self
    }

    /// A pod may go only if an agent was asked to replace it.
    pub(crate) fn only_wished(mut self) -> Self {
        self.only_wished = true;
        self
    }

    /// A node that has an available pod has one at every moment, as long as it is Ready.
    pub(crate) fn always_served(mut self) -> Self {
        self.always_served = true;
        self
    }

    /// Does this next.
    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Nodes fall silent; they and their pods are marked as the node lifecycle controller does.
    pub(crate) fn offline(self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.step(Step::Offline(nodes.into_iter().collect(), Outage::MARKED))
    }

    /// Nodes fall silent; their pods are not marked.
    pub(crate) fn offline_autonomous(self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.step(Step::Offline(
            nodes.into_iter().collect(),
            Outage::AUTONOMOUS,
        ))
    }

    /// Nodes return.
    pub(crate) fn online(self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.step(Step::Online(nodes.into_iter().collect()))
    }

    /// The image of the template changes.
    pub(crate) fn image(self, image: &str) -> Self {
        self.patch(image_patch(image))
    }

    /// The DaemonSet is patched.
    pub(crate) fn patch(self, patch: Value) -> Self {
        self.step(Step::Patch(patch))
    }

    /// A Node is patched.
    pub(crate) fn patch_node(self, node: usize, patch: Value) -> Self {
        self.step(Step::PatchNode(node, patch))
    }

    /// An annotation of our family is set.
    pub(crate) fn annotate(self, name: &str, value: &str) -> Self {
        self.patch(annotation_patch(name, Some(value)))
    }

    /// An annotation of our family is removed.
    pub(crate) fn unannotate(self, name: &str) -> Self {
        self.patch(annotation_patch(name, None))
    }

    /// Containers of this image behave so, on every node of the story.
    pub(crate) fn behave(self, image: &str, behaviour: Behaviour) -> Self {
        self.behave_on(0, image, behaviour)
    }

    /// The same on one node. A pod that crashes changes by itself: a write to it may be refused, and asked for once more.
    pub(crate) fn behave_on(mut self, node: usize, image: &str, behaviour: Behaviour) -> Self {
        if behaviour.crash_after.is_some() && self.writes == Writes::Deletions {
            self.writes = Writes::Attempts;
        }
        self.step(Step::Behave(image.into(), node, Box::new(behaviour)))
    }

    /// Only this story does that.
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

    /// An admission policy denies the controller this write (`delete`, `patch`, `create`, or `status`: a patch of the status) to the
    /// pod on a node; 0: to all.
    pub(crate) fn deny(self, verb: &'static str, node: usize) -> Self {
        self.step(Step::Policy(verb, node, true))
    }

    /// That policy is taken away.
    pub(crate) fn allow(self, verb: &'static str) -> Self {
        self.step(Step::Policy(verb, 0, false))
    }

    /// A user deletes the pod on a node.
    pub(crate) fn delete_pod(self, node: usize) -> Self {
        self.step(Step::DeletePod(node))
    }

    /// Whoever deletes the pods on this node from now on, it is not the controller.
    pub(crate) fn excuse(self, node: usize) -> Self {
        self.step(Step::Excuse(node))
    }

    /// The native DaemonSet controller stops, or goes on.
    pub(crate) fn native(self, runs: bool) -> Self {
        self.step(Step::Native(runs))
    }

    /// All replicas of the controller die, or it runs again. What it had asked for may be asked for, and refused, once more.
    pub(crate) fn controller(mut self, runs: bool) -> Self {
        if self.writes == Writes::Deletions {
            self.writes = Writes::Attempts;
        }
        self.step(Step::Controller(runs))
    }

    /// Nothing is expected for so many seconds.
    pub(crate) fn wait(self, seconds: u64) -> Self {
        self.step(Step::Wait(secs(seconds)))
    }

    /// The controller sends no request for so many seconds (on the embedded cluster, on a real one).
    pub(crate) fn quiet(self, embedded: u64, real: u64) -> Self {
        self.step(Step::Quiet(secs(embedded), secs(real)))
    }

    /// Has to come true within so many seconds.
    pub(crate) fn until_within(self, check: Check, seconds: u64) -> Self {
        self.step(Step::UntilWithin(check, secs(seconds)))
    }

    /// Has to come true before long.
    pub(crate) fn until(self, check: Check) -> Self {
        self.step(Step::Until(check))
    }

    /// Has to hold for so many seconds.
    pub(crate) fn throughout(self, check: Check, seconds: u64) -> Self {
        self.step(Step::Throughout(check, secs(seconds)))
    }

    /// Has to hold now.
    pub(crate) fn expect(self, check: Check) -> Self {
        self.throughout(check, 0)
    }

    /// "Replaced" and "untouched" refer to this moment; counting begins anew.
    pub(crate) fn remember(self) -> Self {
        self.step(Step::Remember)
    }

    /// The controller wrote so often to pods since the story remembered.
    pub(crate) fn pod_writes(self, count: usize) -> Self {
        self.step(Step::PodWrites(count))
    }
}
