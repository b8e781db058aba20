//! Run of a scenario: performs its steps in a world, records the results, and detects the end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use tokio::time::{Instant, sleep_until};

use super::frame::{Frame, OwnersView, cells};
use super::monitor::{Measure, Monitor, MonitorRecord};
use super::report::{Line, LineKind, Time};
use super::scenario::{
    NAME, NAMESPACE, OwnerCommand, RolloutEngine, Scenario, ScenarioEvent, ScenarioStep,
};
use super::shell::{CommandRecord, Shell};
use crate::clock::Clock;
use crate::core::Phase;
use crate::demo::agents::{self, Agents};
use crate::index::SetKey;
use crate::sim::cluster::{Count, FaultGuard};
use crate::sim::kubelet::{self, FakeNodeSpec, Outage, Rule};
use crate::sim::picture::{RolloutObserver, RolloutSnapshot};
use crate::sim::world::{World, WorldSetup};

/// Start of virtual time. It is constant, so that every run has the same dates.
const EPOCH: &str = "2026-01-01T00:00:00Z";
/// Maximum time to create the nodes and start all pods.
const SETTING_UP: Duration = Duration::from_secs(120);
/// Time without a change after which a rollout counts as stuck. It is longer than the time after which yurt-ds reports a stall.
const STUCK: Duration = Duration::from_secs(660);
/// Time without a change after which a rollout by the native controller counts as stuck. It is shorter than [`STUCK`], because that
/// controller never reports a stall.
const NATIVE_STUCK: Duration = Duration::from_secs(180);
/// Time without a change after which a play ends once the controller reports the rollout as complete or stopped.
const SETTLED: Duration = Duration::from_secs(3);
/// Time for users to read a command's output before the next step.
const READING: Duration = Duration::from_secs(8);
/// Maximum random delay of each step of a pod. Real nodes don't act at the same time.
const JITTER: Duration = Duration::from_millis(1500);

/// Play in progress, with its world.
pub(super) struct DemoRun {
    pub(super) scenario: Scenario,
    pub(super) seed: u64,
    pub(super) world: World,
    pub(super) monitor: Monitor,
    picture: RolloutObserver,
    start: Instant,
    steps: std::vec::IntoIter<ScenarioStep>,
    next: Option<ScenarioStep>,
    /// Last line of the narration.
    pub(super) narration: String,
    /// Lines of the timeline so far.
    pub(super) timeline: Vec<Line>,
    /// Numbers of requests to the API server before the play. They are subtracted from later numbers.
    pub(super) before: Vec<Count>,
    /// Time at which the image was changed; `None` before that.
    pub(super) changed: Option<Duration>,
    /// Nodes that were offline when the image changed.
    pub(super) away: Vec<String>,
    /// Shells of the node owners; `None` if no owner types commands in the play.
    shell: Option<Shell>,
    /// Guard that keeps a node's agent disconnected from the API server while it exists.
    cut: Option<FaultGuard>,
    /// UID of each node's pod when the play began.
    pub(super) uids: BTreeMap<String, String>,
}

/// Reason why a play ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// The rollout is complete, except on this number of offline nodes.
    Complete(usize),
    /// The controller has stopped the rollout, with this message.
    Stopped(String),
    /// OTA: all node owners have been notified, and the rollout waits for them.
    Announced,
    /// Nothing has changed for a long time.
    Stuck,
    /// The play reached its time limit.
    TimeUp,
}

impl DemoRun {
    /// Creates the nodes and the DaemonSet with its old image, and waits until every pod is Ready.
    pub(super) async fn set_up(scenario: Scenario, seed: u64) -> Result<Self> {
        let epoch: Timestamp = EPOCH.parse().context("the epoch")?;
        let clock = Clock::starting_at(epoch);
        let world = World::start(WorldSetup {
            clock: clock.clone(),
            seed,
            kubelets: kubelet::KubeletOptions {
                behaviour: scenario.usual.clone(),
                jitter: JITTER,
                seed,
                ..kubelet::KubeletOptions::default()
            },
            controller: matches!(scenario.rollout.engine, RolloutEngine::YurtDs(_)),
            advanced: false,
        });
        let rule = Rule {
            image: scenario.rollout.new.clone(),
            node: "*".to_owned(),
            behaviour: scenario.new.clone(),
        };
        world.kubelets.rule(rule).await?;
        let nodes = scenario.nodes.iter().map(FakeNodeSpec::named).collect();
        world.kubelets.add_nodes(nodes).await?;
        create(&world, &scenario).await?;
        wait_until_all_run(&world, scenario.nodes.len()).await?;

        let labels = "app=nginx";
        let measure = Measure {
            namespace: NAMESPACE.to_owned(),
            selector: labels.to_owned(),
            image: scenario.rollout.new.clone(),
            min_ready: scenario.rollout.min_ready,
        };
        let key = SetKey::new(NAMESPACE, NAME);
        let mut steps = scenario.steps.clone().into_iter();
        let agents = match &scenario.owner {
            Some(_) => Some(Agents::start(&world.cluster, &clock, &scenario.nodes).await?),
            None => None,
        };
        let monitor = Monitor::start(world.client(), clock.clone(), measure);
        monitor.has_seen(scenario.nodes.len()).await;
        let start = Instant::now();
        let uids = monitor.record().uids();
        Ok(Self {
            seed,
            monitor,
            before: world.cluster.requests(),
            picture: RolloutObserver::start(world.client(), clock.clone(), key, labels),
            start,
            shell: agents.map(|agents| Shell::new(agents, world.cluster.clone(), clock, start)),
            cut: None,
            uids,
            next: steps.next(),
            steps,
            narration: String::new(),
            timeline: Vec::new(),
            changed: None,
            away: Vec::new(),
            scenario,
            world,
        })
    }

    /// Returns the time since the last change of a node or pod, or since the last line of the timeline if that is later.
    pub(super) fn quiet(&self) -> Duration {
        let last = self.monitor.record().last_change;
        let last = self
            .timeline
            .last()
            .map_or(last, |line| last.max(line.at.into()));
        self.now().saturating_sub(last)
    }

    /// Returns the time since the start of the play.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Continues the play until `to`, a time since its start.
    pub(super) async fn advance(&mut self, to: Duration) -> Result<()> {
        while let Some(due) = self.due().filter(|due| *due <= to) {
            let Some(step) = self.next.take() else { break };
            sleep_until(self.start + due).await;
            if !step.say.is_empty() {
                self.tell(step.say);
            }
            self.act(&step.event).await?;
            self.next = self.steps.next();
        }
        sleep_until(self.start + to).await;
        Ok(())
    }

    /// Returns the time at which the next step is due; `None` if there is no further step or a command is running.
    fn due(&self) -> Option<Duration> {
        let at = self.next.as_ref()?.at;
        match &self.shell {
            Some(shell) if shell.is_busy() => None,
            Some(shell) => Some(
                shell
                    .idle_since()
                    .map_or(at, |since| at.max(since + READING)),
            ),
            None => Some(at),
        }
    }

    /// Adds a line of narration to the timeline.
    fn tell(&mut self, text: String) {
        self.narration.clone_from(&text);
        let at = Time::from(self.now());
        let voice = LineKind::Story;
        self.timeline.push(Line { at, voice, text });
    }

    /// Adds the new observations of the monitor and the shells to the timeline, if the scenario asks for each node's events.
    pub(super) fn news(&mut self) {
        if !self.scenario.in_full {
            return;
        }
        if let Some(shell) = &mut self.shell {
            self.timeline.extend(shell.news());
        }
        let record = self.record();
        for (name, node) in &record.nodes {
            let mut add = |at: Option<Duration>, text: String| {
                let line = at.map(|at| Line {
                    at: at.into(),
                    voice: LineKind::Story,
                    text,
                });
                let new = line.filter(|line| !self.timeline.contains(line));
                self.timeline.extend(new);
            };
            add(node.taken, format!("{name}: its old pod is deleted"));
            let image = &self.scenario.rollout.new;
            add(node.updated, format!("{name} runs {image}"));
        }
    }

    async fn act(&mut self, event: &ScenarioEvent) -> Result<()> {
        let kubelets = &self.world.kubelets;
        match event {
            ScenarioEvent::Leave(names) => {
                for name in names {
                    kubelets.set_offline(name, Outage::MARKED).await?;
                }
            }
            ScenarioEvent::Return(names) => {
                for name in names {
                    kubelets.set_online(name).await?;
                }
            }
            ScenarioEvent::Flap(names, up, down) => {
                for name in names {
                    kubelets.flap(name, *up, *down).await?;
                }
            }
            ScenarioEvent::SetImage => {
                let sets: Api<DaemonSet> = Api::namespaced(self.world.client(), NAMESPACE);
                let patch = Patch::Strategic(self.scenario.rollout.change());
                sets.patch(NAME, &PatchParams::default(), &patch).await?;
                self.changed = Some(self.now());
                let record = self.monitor.record();
                let away = record.nodes.iter().filter(|(_, node)| !node.ready);
                self.away = away.map(|(name, _)| name.clone()).collect();
            }
            ScenarioEvent::Cut(node) => {
                self.cut = Some(agents::cut(&self.world.cluster, node));
            }
            ScenarioEvent::Mend => self.cut = None,
            ScenarioEvent::Type(typing) => self.type_in(typing)?,
            ScenarioEvent::Tell => {}
        }
        Ok(())
    }

    fn type_in(&mut self, typing: &OwnerCommand) -> Result<()> {
        let mut line = typing.line.clone();
        {
            let record = self.monitor.record();
            for node in &self.scenario.nodes {
                if let Some((_, pod)) = record.pod_on(node) {
                    line = line.replace(&format!("{{{node}}}"), &pod.name);
                }
            }
        }
        let shell = self
            .shell
            .as_mut()
            .context("this scenario has no node owner")?;
        shell.type_in(&typing.node, line, typing.aim)
    }

    pub(super) fn typed(&self) -> Vec<CommandRecord> {
        self.shell.as_ref().map(Shell::typed).unwrap_or_default()
    }

    /// Returns the plan with the verdict (the state in the rollout) of every node; `None` if the plan is not known yet.
    pub(super) fn look(&self) -> Option<RolloutSnapshot> {
        self.picture.look()
    }

    pub(super) fn record(&self) -> MonitorRecord {
        self.monitor.record().clone()
    }

    pub(super) fn frame(&self) -> Frame {
        let record = self.monitor.record();
        let rollout = &self.scenario.rollout;
        let changed = self.changed.is_some();
        Frame {
            title: self.scenario.title.clone(),
            now: self.now(),
            cells: cells(self.look().as_ref(), &record),
            down: record.down,
            peak: record.peak.0,
            allowed: self.allowed(),
            max_unavailable: rollout.max_unavailable.to_string(),
            narration: self.narration.clone(),
            changed,
            is_native: rollout.engine == RolloutEngine::Native,
            images: (rollout.old.clone(), rollout.new.clone()),
            owners: self.shell.is_some().then(|| self.owners(&record)),
        }
    }

    /// Returns the data for the view of node owners: their pods and the latest command.
    fn owners(&self, record: &MonitorRecord) -> OwnersView {
        let nodes = self.scenario.nodes.iter();
        let pod = |name: &String| Some((name.clone(), record.pod_on(name)?.1.clone()));
        let typed = self.typed().pop();
        let prompt = typed.iter().map(CommandRecord::prompt);
        let printed = typed.iter().flat_map(|typed| &typed.printed);
        let printed = printed.map(|(_, line)| line.clone());
        OwnersView {
            pods: nodes.filter_map(pod).collect(),
            session: prompt.chain(printed).collect(),
        }
    }

    /// Returns the reason why the play has ended; `None` if it has not.
    pub(super) fn ending(&self) -> Option<RunEnd> {
        let now = self.now();
        if now >= self.scenario.limit {
            return Some(RunEnd::TimeUp);
        }
        let busy = self.shell.as_ref().is_some_and(Shell::is_busy);
        let changed = self.changed.filter(|_| self.next.is_none() && !busy)?;
        let last = self.monitor.record().last_change.max(changed);
        let quiet = now.saturating_sub(last);
        if let Some(look) = self.look().filter(|_| quiet >= SETTLED)
            && let Some(ending) = settled(&look)
        {
            return Some(ending);
        }
        let stuck = match self.scenario.rollout.engine {
            RolloutEngine::YurtDs(_) => STUCK,
            RolloutEngine::Native => NATIVE_STUCK,
        };
        (quiet >= stuck).then_some(RunEnd::Stuck)
    }
}

fn settled(look: &RolloutSnapshot) -> Option<RunEnd> {
    let (complete, message) = look.complete.as_ref()?;
    match look.plan.phase {
        // Wait for nodes that have just returned, because they will be updated soon.
        _ if look.is_settling() => None,
        Phase::Complete { offline, .. } if *complete => Some(RunEnd::Complete(offline)),
        Phase::Stalled(_) | Phase::Invalid => Some(RunEnd::Stopped(message.clone())),
        Phase::AwaitingOwners | Phase::AwaitingDeletions => Some(RunEnd::Announced),
        _ => None,
    }
}

async fn create(world: &World, scenario: &Scenario) -> Result<()> {
    let sets: Api<DaemonSet> = Api::namespaced(world.client(), NAMESPACE);
    let object = serde_json::from_value(scenario.rollout.object()).context("the DaemonSet")?;
    let created = sets.create(&PostParams::default(), &object).await;
    created.map(drop).context("create the DaemonSet")
}

async fn wait_until_all_run(world: &World, nodes: usize) -> Result<()> {
    let sets: Api<DaemonSet> = Api::namespaced(world.client(), NAMESPACE);
    let ready = async {
        loop {
            let set = sets.get(NAME).await?;
            let ready = set.status.map_or(0, |status| status.number_ready);
            if usize::try_from(ready) == Ok(nodes) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let waited = tokio::time::timeout(SETTING_UP, ready).await;
    waited.context("the pods of the fleet did not become Ready")?
}
