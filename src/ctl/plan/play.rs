//! The plan is played: the real controller on an embedded cluster that begins as the live one is now, in virtual time.
//!
//! ```text
//! PlannedFleet ─restore─► Cluster ◄── native controllers, fake kubelets (measured pace)
//!                    ▲ ▲
//!            patch ──┘ └── the controller, once the change is known ──► pods ──watch──► ReplacementLog ──► steps
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio::sync::watch;
use tokio::time::{advance, timeout};

use super::fleet::PlannedFleet;
use super::log::ReplacementLog;
use super::measure::Measured;
use super::played::{Played, RolloutWait};
use crate::clock::Clock;
use crate::core::{Phase, Verdict};
use crate::ctl::budgets::Budgets;
use crate::ctl::kinds::whole;
use crate::ctl::snapshot::RolloutSnapshot;
use crate::index::SetKey;
use crate::k8s::Pod;
use crate::k8s::client::Role;
use crate::sim::cluster::Cluster;
use crate::sim::cluster::resources::Storage;
use crate::sim::kubelet::{self, Behaviour, Kubelets, Rule};
use crate::sim::picture::ClusterPicture as Follower;
use crate::sim::watched::{WatchEvents, events};
use crate::sim::world::{World, WorldSetup, start_controller};

/// One seed for all plans: the same fleet gives the same plan. No other cluster of ours has it, so that what is made for a plan
/// gets no UID that a copied object has.
const SEED: u64 = 0x706c_616e;
/// Every watcher is in this process and reads at once: few events have to be kept for one that starts again.
const HISTORY: usize = 8;
/// The native controller answers a change within this time.
const SETTLING: Duration = Duration::from_secs(60);
/// A burst of changes is over after this long.
const QUIET: Duration = Duration::from_secs(1);
/// A rollout in which nothing has changed for so long stands still: longer than yurt-ds waits before it says so itself.
const STUCK: Duration = Duration::from_secs(660);
/// A longer time in which nothing is on its way is left out.
const JUMP: Duration = Duration::from_secs(180);
/// A shorter wait is part of the pace, and not worth a line.
const WAIT: SignedDuration = SignedDuration::from_secs(60);

/// What is to be played.
pub(super) struct PlayInput {
    pub(super) key: SetKey,
    /// Which pods are its own, as a query for labels.
    pub(super) selector: String,
    pub(super) fleet: PlannedFleet,
    /// How many nodes it has.
    pub(super) nodes: usize,
    pub(super) measured: Measured,
    /// UIDs of pods that do not recover by themselves.
    pub(super) broken: BTreeSet<String>,
    /// How many nodes break with the new revision.
    pub(super) breaks: usize,
    /// How long a pod has to be Ready to be available.
    pub(super) min_ready: Duration,
    /// When it begins, and when nobody looks any more.
    pub(super) begins: Timestamp,
    pub(super) horizon: Timestamp,
}

/// How far it is: nodes begun, of how many, and the virtual time.
pub(super) type Progressed = Option<(usize, usize, Timestamp)>;

/// Plays; it ends early when nobody listens any more to how far it is.
///
/// # Errors
/// When the embedded cluster does not do what it should.
pub(super) async fn play(
    mut question: PlayInput,
    told: &watch::Sender<Progressed>,
) -> Result<Played> {
    let clock = Clock::starting_at(question.begins);
    let measured = &question.measured;
    let world = World::start(WorldSetup {
        clock: clock.clone(),
        seed: SEED,
        kubelets: kubelet::KubeletOptions {
            behaviour: behaviour(measured),
            terminate: measured.end(),
            broken: Arc::new(std::mem::take(&mut question.broken)),
            ..kubelet::KubeletOptions::default()
        },
        controller: false,
        advanced: false,
    });
    world.cluster.remember(HISTORY);
    world.cluster.keep_none(Storage::Events);
    question.fleet.restore(&world.cluster);
    let (online, offline) = (&mut question.fleet.online, &mut question.fleet.offline);
    question.measured.tell(online);
    world.kubelets.adopt(std::mem::take(online), true).await?;
    world.kubelets.adopt(std::mem::take(offline), false).await?;
    let pods: Api<Pod> = Api::namespaced(world.client(), &question.key.namespace);
    let mut player = Player {
        cluster: world.cluster.clone(),
        follower: Follower::start(
            world.client(),
            clock.clone(),
            question.key.clone(),
            &question.selector,
        ),
        events: events(pods, ""),
        log: ReplacementLog::default(),
        woken: None,
        waits: Vec::new(),
        broke: Vec::new(),
        kubelets: world.kubelets.clone(),
        clock: clock.clone(),
        question,
    };
    player.change(&world).await?;
    let target = match player.question.fleet.target.take() {
        Some(target) => {
            player.listen(QUIET).await?;
            target
        }
        None => player.settle().await?,
    };
    player.log.begin(&target);
    let began = clock.now();
    let client = world.cluster.client(&Role::Controller.user_agent());
    let kind = player.question.key.kind;
    let (_end, _controller) = start_controller(client, clock, kind);
    let cut = player.run(told).await?;
    let end = player.snapshot().context("the planned DaemonSet is gone")?;
    Ok(Played {
        began,
        steps: player.log.steps,
        waits: player.waits.into_iter().map(|(wait, _)| wait).collect(),
        broke: player.broke,
        last: player.log.last,
        min_ready: player.question.min_ready,
        end,
        cut,
    })
}

fn behaviour(measured: &Measured) -> Behaviour {
    Behaviour {
        start: measured.start(),
        ..Behaviour::default()
    }
}

struct Player {
    cluster: Cluster,
    follower: Follower,
    events: WatchEvents<Pod>,
    log: ReplacementLog,
    /// When time alone last made something possible: who has waited until then does not stand still.
    woken: Option<Timestamp>,
    /// With the number of steps before each.
    waits: Vec<(RolloutWait, usize)>,
    broke: Vec<String>,
    kubelets: Kubelets,
    clock: Clock,
    question: PlayInput,
}

impl Player {
    fn snapshot(&self) -> Option<RolloutSnapshot> {
        let (key, now) = (&self.question.key, self.clock.now());
        let mut index = self.follower.index();
        if let Some(set) = index.set_mut(key) {
            let mut budgets = Budgets::default();
            for budget in self.cluster.objects(Storage::PodDisruptionBudgets) {
                budgets.apply(serde_json::from_value(budget).ok()?);
            }
            budgets.weigh(&key.namespace, set, |since| since, now);
        }
        RolloutSnapshot::of(&mut index, key, self.question.begins, now)
    }

    /// Makes the change, as a person would.
    async fn change(&self, world: &World) -> Result<()> {
        let Some(patch) = &self.question.fleet.patch else {
            return Ok(());
        };
        let key = &self.question.key;
        let sets = whole(&world.client(), key);
        let patch = Patch::Merge(patch);
        let changed = sets.patch(&key.name, &PatchParams::default(), &patch).await;
        changed.map(drop).context("change the planned DaemonSet")
    }

    /// Waits until the native controller has made the revision; its hash.
    async fn settle(&mut self) -> Result<String> {
        let end = self.clock.now().checked_add(SETTLING)?;
        // What the watches told before the change is history after this.
        loop {
            self.listen(QUIET).await?;
            let snapshot = self.snapshot();
            if let Some(revision) = snapshot.as_ref().and_then(RolloutSnapshot::revision) {
                return Ok(revision.to_string());
            }
            if self.clock.now() > end {
                let phase = snapshot.map(|snapshot| snapshot.plan.phase);
                bail!("the planned template does not become a revision ({phase:?})");
            }
        }
    }

    /// Takes in what happens until nothing has happened for that long.
    async fn listen(&mut self, quiet: Duration) -> Result<()> {
        while let Ok(Some(event)) = timeout(quiet, self.events.next()).await {
            self.log.take(event, self.clock.now());
            self.break_next().await?;
        }
        Ok(())
    }

    /// The first nodes that are begun get a revision that takes them down before its pod is Ready.
    async fn break_next(&mut self) -> Result<()> {
        while self.broke.len() < self.question.breaks
            && let Some(step) = self.log.steps.get(self.broke.len())
        {
            let behaviour = Behaviour {
                kills_node_after: Some(Duration::ZERO),
                never_ready: true,
                ..behaviour(&self.question.measured)
            };
            let rule = Rule {
                image: "*".to_owned(),
                node: step.node.clone(),
                behaviour,
            };
            self.broke.push(step.node.clone());
            self.kubelets.rule(rule).await?;
        }
        Ok(())
    }

    /// Plays until it is over; whether nobody looks any more before that.
    async fn run(&mut self, told: &watch::Sender<Progressed>) -> Result<bool> {
        loop {
            self.listen(QUIET).await?;
            if told.is_closed() {
                bail!("nobody waits for the plan any more");
            }
            let now = self.clock.now();
            told.send_replace(Some((self.log.steps.len(), self.question.nodes, now)));
            let snapshot = self.snapshot().context("the planned DaemonSet is gone")?;
            let Some(until) = self.next(&snapshot, now) else {
                return Ok(false);
            };
            if until > self.question.horizon {
                return Ok(true);
            }
            let patience = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            let is_wake = snapshot.plan.next_wake == Some(until);
            self.woken = Some(until).filter(|_| is_wake).or(self.woken);
            if !is_moving(&snapshot) && patience > JUMP {
                // Nothing happens but heartbeats: these need not be played, one by one, for days.
                advance(patience - QUIET).await;
                continue;
            }
            match timeout(patience, self.events.next()).await {
                Ok(Some(event)) => self.log.take(event, self.clock.now()),
                Ok(None) => bail!("the watch of the planned pods ended"),
                Err(_) => {} // the controller looks at the same instant
            }
            self.break_next().await?;
        }
    }

    /// When to look again if nothing happens before; `None`: it is over.
    fn next(&mut self, snapshot: &RolloutSnapshot, now: Timestamp) -> Option<Timestamp> {
        let plan = &snapshot.plan;
        let wake = plan.next_wake.filter(|wake| *wake > now);
        if is_moving(snapshot) {
            let woken = self.woken.filter(|woken| *woken <= now);
            let last = self.log.last.max(woken).unwrap_or(self.question.begins);
            let stuck = last.saturating_add(STUCK).unwrap_or(Timestamp::MAX);
            let over = now >= stuck && (wake.is_none() || matches!(plan.phase, Phase::Stalled(_)));
            let stuck = Some(stuck).filter(|stuck| *stuck > now);
            return wake.into_iter().chain(stuck).min().filter(|_| !over);
        }
        let phase = snapshot.phase();
        let wake = wake.filter(|_| !phase.needs_a_person());
        if wake.is_none_or(|wake| wake.duration_since(now) > WAIT) {
            self.wait(RolloutWait {
                from: now,
                until: wake,
                phase,
                awaited: snapshot.said(),
            });
        }
        wake
    }

    /// Notes a wait; what goes on for the same reason is one.
    fn wait(&mut self, wait: RolloutWait) {
        let steps = self.log.steps.len();
        match self.waits.last_mut() {
            Some((last, before))
                if *before == steps && last.awaited.reason == wait.awaited.reason =>
            {
                last.until = wait.until;
                last.awaited = wait.awaited;
            }
            _ => self.waits.push((wait, steps)),
        }
    }
}

/// Whether a node is on its way, or somebody is at work for it: pulls its images, answers its hook.
fn is_moving(snapshot: &RolloutSnapshot) -> bool {
    let mut words = snapshot.plan.verdicts.iter().map(Verdict::word);
    words.any(|word| ["InProgress", "PullPending", "HookPending"].contains(&word))
}
