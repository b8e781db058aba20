//! State machine of one pod on its node: bound, running, stopped, gone. Each step may be delayed.
//!
//! The state machine has no I/O and no clock. The engine calls it with events and the node's time. It returns the next steps and
//! marks the status for writing. [`super::status`] builds the status object.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::behaviour::{Behaviour, Rules};
use crate::backoff;
use crate::core::images::ImageKey;
use crate::k8s::ContainerStatus;
use crate::sim::pod_view::{PodView, runs};
use crate::sim::watched::version;

/// First back-off of a failing pull or container. The back-off doubles up to [`BACK_OFF_MAX`], as in the kubelet.
const BACK_OFF: Duration = Duration::from_secs(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(300);
/// Running time after which a container's back-off is reset, as in the kubelet.
const BACK_OFF_RESET: Duration = Duration::from_secs(600);
/// Time for which the status shows a failure before it shows the back-off.
const FAILURE_SHOWN: Duration = Duration::from_secs(1);

/// Pod as its fake kubelet knows it.
pub(super) struct KubeletPod {
    /// Newest version of the pod that the watch delivered.
    pub(super) seen: PodView,
    pub(super) stage: PodStage,
    pub(super) containers: Vec<KubeletContainer>,
    /// Time at which the kubelet accepted the pod.
    pub(super) started: Option<Timestamp>,
    pub(super) ip: String,
    pub(super) initialized: Flag,
    pub(super) containers_ready: Flag,
    pub(super) ready: Flag,
    /// True if the status must be written.
    pub(super) dirty: bool,
    /// True while a write of the status is in flight. There is at most one.
    pub(super) writing: bool,
    /// resourceVersion of the last status write. Older versions from the watch are ignored.
    pub(super) written: u64,
    /// Generation that the kubelet last observed. Kubelets report it since Kubernetes 1.34.
    pub(super) observed: Option<i64>,
    pub(super) evicted: bool,
}

/// Stage of a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodStage {
    /// The pod is bound, but the kubelet has not processed it yet.
    New,
    /// The pod was started. Its containers start, run or have ended on their own.
    Live,
    /// The pod was deleted, and its containers are ending.
    Stopping,
    /// All containers have ended. The pod object must be removed.
    Stopped,
    /// The pod object was removed, so the kubelet is done.
    Gone,
}

/// Status of a condition and the time of its last transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    pub(super) is: bool,
    pub(super) since: Timestamp,
}

impl Flag {
    fn set(&mut self, is: bool, now: Timestamp) -> bool {
        let changed = self.is != is;
        if changed {
            *self = Self { is, since: now };
        }
        changed
    }
}

/// Container of a pod as its fake kubelet knows it.
#[derive(Clone, Debug)]
pub(super) struct KubeletContainer {
    pub(super) name: String,
    /// Image that the container runs or will run next.
    pub(super) image: String,
    /// Image that the container runs or ran last; `None` before the first start.
    ///
    /// After the image of a container was changed in place, this field differs from `image` until the container is replaced.
    pub(super) ran_image: Option<String>,
    /// `imageID` for `ran_image` that an earlier kubelet reported, before this kubelet took over the pod.
    ///
    /// This kubelet reports the same ID as long as the image stays the same.
    pub(super) reported_id: Option<String>,
    pub(super) state: PodState,
    pub(super) last: Option<PodExit>,
    pub(super) restarts: i64,
    pub(super) ready: bool,
    /// True if the container ran at least once.
    pub(super) ran: bool,
    /// Cause of the last pull, if it failed.
    pub(super) pull_error: Option<PullError>,
    /// Number of consecutive failures, from which the back-off is computed.
    failures: u32,
    /// Number that grows each time the container ends or is replaced. Steps that were planned for an earlier life are ignored.
    life: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PullError {
    NotFound,
    Denied,
    Unreachable,
}

/// Exit code of a container that the runtime could not start.
pub(super) const START_ERROR: i32 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    Waiting(&'static str),
    Running { since: Timestamp },
    Terminated(PodExit),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodExit {
    pub(super) code: i32,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

/// Step of a pod that is planned for a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PodStep {
    /// Action of the container with this index. The second number is the container's life for which the action was planned. In a
    /// later life, the action is ignored.
    Container(usize, u32, PodAct),
    /// End of all containers after the pod was deleted.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PodAct {
    Pulled,
    Start,
    BecomeReady,
    Fail,
    Complete,
    /// Change of the reported state from the failure to the back-off.
    BackOff,
    PullAgain,
    /// End of the old container after its image was changed in place.
    Replaced,
    /// Crash of the whole node, caused by the container.
    KillNode,
}

/// Steps and actions that the pod requests from the engine.
#[derive(Default)]
pub(super) struct NextStep {
    pub(super) steps: Vec<(Duration, PodStep)>,
    /// Delay until the container crashes the node; `None` if it doesn't.
    pub(super) node_dies: Option<Duration>,
}

/// Node of a pod, reduced to what the pod needs.
pub(super) struct NodeHandle<'a> {
    pub(super) name: &'a str,
    pub(super) rules: &'a Rules,
    pub(super) images: &'a mut BTreeSet<String>,
    pub(super) terminate: Duration,
    /// Current time according to the node's clock.
    pub(super) now: Timestamp,
    pub(super) next: &'a mut NextStep,
}

impl NodeHandle<'_> {
    fn behaviour(&self, image: &str) -> Behaviour {
        self.rules.for_container(self.name, image).clone()
    }

    fn after(&mut self, delay: Duration, step: PodStep) {
        self.next.steps.push((delay, step));
    }
}

impl KubeletContainer {
    fn new(name: &str, image: &str) -> Self {
        Self {
            name: name.to_owned(),
            image: image.to_owned(),
            ran_image: None,
            reported_id: None,
            state: PodState::Waiting("ContainerCreating"),
            last: None,
            restarts: 0,
            ready: false,
            ran: false,
            pull_error: None,
            failures: 0,
            life: 0,
        }
    }

    fn is_running(&self) -> bool {
        matches!(self.state, PodState::Running { .. })
    }

    /// Ends the current life of the container. If the container runs, it exits with `code`.
    fn end(&mut self, code: i32, now: Timestamp) {
        self.life += 1;
        self.ready = false;
        if let PodState::Running { since } = self.state {
            let exit = PodExit {
                code,
                started: since,
                finished: now,
            };
            self.state = PodState::Terminated(exit);
        }
    }

    fn back_off(&self) -> Duration {
        backoff::pause(BACK_OFF, self.failures, BACK_OFF_MAX)
    }
}

impl KubeletPod {
    pub(super) fn new(seen: PodView, ip: String, now: Timestamp) -> Self {
        let flag = Flag {
            is: false,
            since: now,
        };
        Self {
            seen,
            stage: PodStage::New,
            containers: Vec::new(),
            started: None,
            ip,
            initialized: flag,
            containers_ready: flag,
            ready: flag,
            dirty: false,
            writing: false,
            written: 0,
            observed: None,
            evicted: false,
        }
    }

    /// Reacts to the current version of the pod object. Called for every new version and when the node returns.
    pub(super) fn sync(&mut self, host: &mut NodeHandle<'_>) {
        let observed = std::mem::replace(&mut self.observed, self.seen.metadata.generation);
        if self.stage == PodStage::Live && !self.seen.is_deleted() {
            self.dirty |= self.observed != observed;
        }
        match (self.stage, self.seen.is_deleted()) {
            (PodStage::New, _) if self.seen.is_finished() && !self.seen.is_deleted() => {}
            (PodStage::New, false) => self.admit(host),
            (PodStage::New | PodStage::Live, true) => self.stop(host),
            (PodStage::Live, false) if self.evicted => {}
            (PodStage::Live, false) => self.follow(host),
            (PodStage::Stopping | PodStage::Stopped | PodStage::Gone, _) => {}
        }
    }

    fn admit(&mut self, host: &mut NodeHandle<'_>) {
        self.stage = PodStage::Live;
        self.started = Some(host.now);
        self.initialized.set(true, host.now);
        if self.adopt(host) {
            return;
        }
        let mut wanted = self.seen.spec.containers.iter();
        if wanted.any(|container| host.behaviour(&container.image).evicted) {
            (self.evicted, self.dirty) = (true, true);
            return;
        }
        self.begin(host);
    }

    /// Starts every container.
    fn begin(&mut self, host: &mut NodeHandle<'_>) {
        for index in 0..self.seen.spec.containers.len() {
            let wanted = &self.seen.spec.containers[index];
            self.containers
                .push(KubeletContainer::new(&wanted.name, &wanted.image));
            self.pull(index, host);
        }
    }

    /// Takes over the running containers of a pod that an earlier kubelet started. Returns false unless all of them run.
    fn adopt(&mut self, host: &mut NodeHandle<'_>) -> bool {
        let status = &self.seen.status;
        let running = |c: &&ContainerStatus| c.state.running.is_some();
        if status.container_statuses.iter().filter(running).count()
            != self.seen.spec.containers.len()
        {
            return false;
        }
        for old in &status.container_statuses {
            let since = old
                .state
                .running
                .as_ref()
                .and_then(|r| r.started_at.as_ref());
            let mut wanted = self.seen.spec.containers.iter();
            let wanted = wanted.find(|wanted| wanted.name == old.name && runs(old, &wanted.image));
            let image = wanted.map_or(&old.image, |wanted| &wanted.image);
            host.images.insert(image.clone());
            self.containers.push(KubeletContainer {
                state: PodState::Running {
                    since: since.map_or(host.now, |time| time.0),
                },
                restarts: old.restart_count,
                ready: old.ready,
                ran: true,
                ran_image: Some(old.image.clone()),
                reported_id: Some(old.image_id.clone()).filter(|id| !id.is_empty()),
                ..KubeletContainer::new(&old.name, image)
            });
        }
        self.started = status.start_time.as_ref().map(|time| time.0);
        self.ip = status.pod_ip.clone().unwrap_or_else(|| self.ip.clone());
        self.initialized = self.flag_seen("Initialized", host.now);
        self.containers_ready = self.flag_seen("ContainersReady", host.now);
        self.ready = self.flag_seen("Ready", host.now);
        self.follow(host);
        true
    }

    fn flag_seen(&self, kind: &str, now: Timestamp) -> Flag {
        let seen = self.seen.condition(kind);
        let since = seen.and_then(|c| c.last_transition.as_ref());
        Flag {
            is: self.seen.is_true(kind),
            since: since.map_or(now, |time| time.0),
        }
    }

    /// Reacts to changes of a running pod's object: images, readiness gates, and a Ready condition that another client overwrote.
    fn follow(&mut self, host: &mut NodeHandle<'_>) {
        if self.containers.is_empty() && self.seen.has_other_images() {
            self.begin(host);
        }
        for index in 0..self.containers.len() {
            let wanted = &self.seen.spec.containers;
            let Some(wanted) = wanted
                .iter()
                .find(|c| c.name == self.containers[index].name)
            else {
                continue;
            };
            if wanted.image != self.containers[index].image {
                let image = wanted.image.clone();
                self.replace(index, image, host);
            }
        }
        self.update_readiness(host.now);
        let overwritten = version(&self.seen) > self.written
            && self.seen.condition("Ready").is_some()
            && self.seen.is_true("Ready") != self.ready.is;
        if overwritten && !self.dirty {
            self.ready.since = host.now;
            self.dirty = true;
        }
    }

    fn replace(&mut self, index: usize, image: String, host: &mut NodeHandle<'_>) {
        let container = &mut self.containers[index];
        container.image = image;
        container.failures = 0;
        container.life += 1;
        let step = PodStep::Container(index, container.life, PodAct::Replaced);
        if container.is_running() {
            host.after(host.terminate, step);
        } else {
            self.pull(index, host);
        }
    }

    fn stop(&mut self, host: &mut NodeHandle<'_>) {
        let runs = self.containers.iter().any(KubeletContainer::is_running);
        let kills = |container: &KubeletContainer| {
            let behaviour = host.rules.for_container(host.name, &container.image);
            container.is_running() && behaviour.kills_node_when_stopped
        };
        if self.containers.iter().any(kills) {
            host.next.node_dies = Some(Duration::ZERO);
        }
        self.stage = PodStage::Stopping;
        let grace = self.seen.metadata.deletion_grace_period_seconds;
        let grace = Duration::from_secs(grace.and_then(|s| s.try_into().ok()).unwrap_or(30));
        let delay = if runs {
            host.terminate.min(grace)
        } else {
            Duration::ZERO
        };
        host.after(delay, PodStep::End);
    }

    /// Executes a planned step. Steps that were planned for an earlier life of the container do nothing.
    pub(super) fn step(&mut self, step: PodStep, host: &mut NodeHandle<'_>) {
        match step {
            PodStep::End => self.end(host.now),
            PodStep::Container(index, life, act) => {
                let current = self.containers.get(index).map(|c| c.life);
                if self.stage == PodStage::Live && current == Some(life) {
                    self.act(index, act, host);
                    self.update_readiness(host.now);
                }
            }
        }
    }

    fn act(&mut self, index: usize, act: PodAct, host: &mut NodeHandle<'_>) {
        match act {
            PodAct::Pulled => self.pulled(index, host),
            PodAct::PullAgain => self.pull(index, host),
            PodAct::Start => self.start(index, host),
            PodAct::BecomeReady => self.containers[index].ready = true,
            PodAct::Fail => self.fail(index, host),
            PodAct::Complete => {
                self.containers[index].end(0, host.now);
                if self.restarts_always() {
                    self.restart_later(index, host);
                }
            }
            PodAct::BackOff => self.back_off(index),
            PodAct::KillNode => host.next.node_dies = Some(Duration::ZERO),
            PodAct::Replaced => {
                self.containers[index].end(0, host.now);
                self.pull(index, host);
            }
        }
        self.dirty |= ![PodAct::PullAgain, PodAct::KillNode].contains(&act);
    }

    /// Pulls the image of a container if the node doesn't have it, then starts the container.
    fn pull(&mut self, index: usize, host: &mut NodeHandle<'_>) {
        let container = &mut self.containers[index];
        let behaviour = host.behaviour(&container.image);
        let life = container.life;
        if host.images.contains(&container.image) && !behaviour.image_error {
            container.pull_error = None;
            let start = behaviour.start;
            return host.after(start, PodStep::Container(index, life, PodAct::Start));
        }
        if behaviour.pull > Duration::ZERO || self.pull_error(&behaviour).is_some() {
            self.dirty = true;
            host.after(
                behaviour.pull,
                PodStep::Container(index, life, PodAct::Pulled),
            );
        } else {
            self.pulled(index, host);
        }
    }

    /// Returns the error that pulling an image causes with the pod's pull secrets; `None` if the pull succeeds.
    fn pull_error(&self, behaviour: &Behaviour) -> Option<PullError> {
        let secrets = &self.seen.spec.image_pull_secrets;
        let has = |name: &String| secrets.iter().any(|secret| secret.name == *name);
        if behaviour.registry_down {
            Some(PullError::Unreachable)
        } else if behaviour
            .needs_secret
            .as_ref()
            .is_some_and(|name| !has(name))
        {
            Some(PullError::Denied)
        } else {
            behaviour.image_error.then_some(PullError::NotFound)
        }
    }

    fn pulled(&mut self, index: usize, host: &mut NodeHandle<'_>) {
        let behaviour = host.behaviour(&self.containers[index].image);
        let error = self.pull_error(&behaviour);
        let container = &mut self.containers[index];
        let life = container.life;
        container.pull_error = error;
        if error.is_some() {
            container.failures += 1;
            set_waiting(container, "ErrImagePull");
            host.after(
                FAILURE_SHOWN,
                PodStep::Container(index, life, PodAct::BackOff),
            );
            let again = container.back_off();
            return host.after(again, PodStep::Container(index, life, PodAct::PullAgain));
        }
        host.images.insert(container.image.clone());
        if container.failures > 0 {
            container.failures = 0;
            set_waiting(container, "ContainerCreating");
        }
        let start = behaviour.start;
        host.after(start, PodStep::Container(index, life, PodAct::Start));
    }

    /// Returns true if the command of a container runs a program that is not in its image.
    fn lacks_program(&self, index: usize, behaviour: &Behaviour) -> bool {
        let name = &self.containers[index].name;
        let mut wanted = self.seen.spec.containers.iter();
        let wanted = wanted.find(|container| container.name == *name);
        behaviour.no_shell
            && wanted.is_some_and(|container| {
                let program = container.command.first().map(String::as_str);
                matches!(program, Some("true" | "sh" | "/bin/true" | "/bin/sh"))
            })
    }

    fn start(&mut self, index: usize, host: &mut NodeHandle<'_>) {
        let always = self.restarts_always();
        let behaviour = host.behaviour(&self.containers[index].image);
        let container = &mut self.containers[index];
        let ran = container.ran_image.as_deref();
        // Compare normalized names. The same image may be written differently, and its reported ID must then be kept.
        if ran.is_none_or(|ran| {
            ImageKey::from_reference(ran) != ImageKey::from_reference(&container.image)
        }) {
            container.ran_image = Some(container.image.clone());
            container.reported_id = None;
        }
        if self.lacks_program(index, &behaviour) {
            let container = &mut self.containers[index];
            container.life += 1;
            container.state = PodState::Terminated(PodExit {
                code: START_ERROR,
                started: Timestamp::UNIX_EPOCH,
                finished: host.now,
            });
            if self.seen.spec.restart_policy.as_deref() != Some("Never") {
                self.restart_later(index, host);
            }
            return;
        }
        let container = &mut self.containers[index];
        if let PodState::Terminated(exit) = &container.state {
            container.last = Some(exit.clone());
        }
        container.restarts += i64::from(container.ran);
        container.ran = true;
        container.state = PodState::Running { since: host.now };
        container.ready = behaviour.ready_after.is_zero() && !behaviour.never_ready;
        let life = container.life;
        let plan = |delay, act| (delay, PodStep::Container(index, life, act));
        if !container.ready && !behaviour.never_ready {
            let step = plan(behaviour.ready_after, PodAct::BecomeReady);
            host.next.steps.push(step);
        }
        let end = match (behaviour.crash_after, behaviour.completes_after) {
            (Some(delay), _) => Some(plan(delay, PodAct::Fail)),
            (None, Some(delay)) => Some(plan(delay, PodAct::Complete)),
            (None, None) if !always => Some(plan(Duration::ZERO, PodAct::Complete)),
            (None, None) => None,
        };
        // The crash belongs to this run of the container. If the image changes before the delay ends, the crash doesn't happen.
        let kills = behaviour.kills_node_after;
        let kills = kills.map(|delay| plan(delay, PodAct::KillNode));
        host.next.steps.extend(end.into_iter().chain(kills));
    }

    fn fail(&mut self, index: usize, host: &mut NodeHandle<'_>) {
        self.containers[index].end(1, host.now);
        if self.seen.spec.restart_policy.as_deref() != Some("Never") {
            self.restart_later(index, host);
        }
    }

    /// Plans the restart of a container that ended: immediately after the first failure, then with a growing back-off.
    fn restart_later(&mut self, index: usize, host: &mut NodeHandle<'_>) {
        let container = &mut self.containers[index];
        let lasted = match &container.state {
            PodState::Terminated(exit) => exit.finished.duration_since(exit.started),
            PodState::Waiting(_) | PodState::Running { .. } => return,
        };
        if lasted.unsigned_abs() >= BACK_OFF_RESET {
            container.failures = 0;
        }
        let start = host.rules.for_container(host.name, &container.image).start;
        let life = container.life;
        let wait = if container.failures == 0 {
            Duration::ZERO
        } else {
            host.after(
                FAILURE_SHOWN,
                PodStep::Container(index, life, PodAct::BackOff),
            );
            container.back_off()
        };
        container.failures += 1;
        host.after(wait + start, PodStep::Container(index, life, PodAct::Start));
    }

    fn back_off(&mut self, index: usize) {
        let container = &mut self.containers[index];
        match container.state.clone() {
            PodState::Terminated(exit) => {
                container.last = Some(exit);
                container.state = PodState::Waiting("CrashLoopBackOff");
            }
            PodState::Waiting("ErrImagePull") => set_waiting(container, "ImagePullBackOff"),
            PodState::Waiting(_) | PodState::Running { .. } => {}
        }
    }

    /// Restarts all containers after the node has restarted.
    pub(super) fn reboot(&mut self, host: &mut NodeHandle<'_>) {
        if self.stage != PodStage::Live {
            return;
        }
        for index in 0..self.containers.len() {
            self.containers[index].end(255, host.now);
            let ended = matches!(self.containers[index].state, PodState::Terminated(_));
            if ended && !self.restarts_always() {
                continue;
            }
            self.pull(index, host);
        }
        self.dirty = true;
        self.update_readiness(host.now);
    }

    fn end(&mut self, now: Timestamp) {
        for container in &mut self.containers {
            container.end(0, now);
        }
        self.stage = PodStage::Stopped;
        self.update_readiness(now);
    }

    /// Updates the readiness conditions from the containers and the readiness gates.
    fn update_readiness(&mut self, now: Timestamp) {
        let all = !self.containers.is_empty() && self.containers.iter().all(|c| c.ready);
        self.dirty |= self.containers_ready.set(all, now);
        let ready = all && self.closed_gates().next().is_none();
        self.dirty |= self.ready.set(ready, now);
    }

    /// Returns the readiness gates whose condition is not `True`, which keep the pod from being Ready.
    pub(super) fn closed_gates(&self) -> impl Iterator<Item = &str> {
        let gates = self.seen.spec.readiness_gates.iter();
        gates
            .map(|gate| gate.condition_type.as_str())
            .filter(|gate| !self.seen.is_true(gate))
    }

    fn restarts_always(&self) -> bool {
        matches!(
            self.seen.spec.restart_policy.as_deref(),
            None | Some("Always")
        )
    }

    /// Returns the phase of the pod, computed from its containers as in the kubelet.
    pub(super) fn phase(&self) -> &'static str {
        if self.evicted {
            return "Failed";
        }
        let codes: Vec<Option<i32>> = self.containers.iter().map(exit_code).collect();
        let ended = !codes.is_empty() && codes.iter().all(Option::is_some);
        let failed = codes.iter().flatten().any(|&code| code != 0);
        let stopped = self.stage == PodStage::Stopped;
        let final_failure = stopped || self.seen.spec.restart_policy.as_deref() == Some("Never");
        if ended && (stopped || !self.restarts_always()) && (!failed || final_failure) {
            return if failed { "Failed" } else { "Succeeded" };
        }
        if stopped {
            return "Failed";
        }
        if self.containers.iter().all(|c| c.ran) && !self.containers.is_empty() {
            "Running"
        } else {
            "Pending"
        }
    }
}

fn exit_code(container: &KubeletContainer) -> Option<i32> {
    match &container.state {
        PodState::Terminated(exit) => Some(exit.code),
        PodState::Waiting(_) | PodState::Running { .. } => None,
    }
}

/// Changes a container's state to waiting, for the given reason. Its last exit is kept.
fn set_waiting(container: &mut KubeletContainer, reason: &'static str) {
    if let PodState::Terminated(exit) = &container.state {
        container.last = Some(exit.clone());
    }
    container.state = PodState::Waiting(reason);
}
