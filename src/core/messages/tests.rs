use std::path::Path;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::core::fleet::evictions::Refusal;
use crate::core::fleet::record::FailureRecord;
use crate::core::fleet::write_failures::WriteVerb;
use crate::core::fleet::{Hold, Leaving, NodeWindow, PodProblem};
use crate::core::id::{RevisionState, RevisionUnknown};
use crate::core::lifecycle::{PreDelete, PreDeleteHook};
use crate::core::messages::node::{cause, explain, remedy};
use crate::core::messages::rollout::RolloutView;
use crate::core::plan::{Counts, Reversal, WaveStand, WaveState};
use crate::core::selector::Selector;
use crate::core::settings::Mode;
use crate::core::testing::{at, current, fleet, node, old, status};
use crate::core::verdict::{Cause, Obstruction, Offline, Progress, PullStage, Revert, WaveShut};
use crate::core::{Pod, Strategy, decide};

fn plan(phase: Phase, counts: Counts) -> Plan {
    let strategy = Strategy::with_mode(Mode::AdvancedRollingUpdate);
    let decided = decide(&strategy, &fleet(Vec::new()), Timestamp::UNIX_EPOCH);
    Plan {
        phase,
        counts,
        ..decided
    }
}

#[test]
fn a_rollout_without_nodes_is_complete() {
    let fleet = fleet(Vec::new());
    let phase = Phase::Complete {
        offline: 0,
        kept: 0,
    };
    let plan = plan(phase, Counts::default());
    assert_eq!(
        status(&fleet, &plan).sentence(),
        "complete: the template matches no node"
    );
}

#[test]
fn a_complete_rollout_stays_complete_without_outdated_or_lost_nodes() {
    let complete = |phase, counts| {
        let phase = plan(phase, counts).reported_phase(true);
        matches!(phase, Phase::Complete { .. })
    };
    let (none, outdated, lost) = (
        Counts::default(),
        Counts {
            outdated: 1,
            ..Counts::default()
        },
        Counts {
            lost: 1,
            ..Counts::default()
        },
    );
    assert!(complete(Phase::Progressing, none));
    assert!(complete(Phase::Stalled(Stall::NoProgress), none));
    assert!(!complete(Phase::Stalled(Stall::FailedByRevision), none));
    assert!(!complete(Phase::Progressing, outdated));
    assert!(!complete(Phase::Progressing, lost));
    let until = crate::core::testing::at(30);
    let evaluating = Plan {
        guarded: Some(Guarded::Inconclusive { until }),
        ..plan(Phase::Progressing, none)
    };
    assert_eq!(evaluating.reported_phase(true), Phase::Progressing);
    let fresh = plan(Phase::Progressing, none).reported_phase(false);
    assert_eq!(fresh, Phase::Progressing);
}

/// Examples of all messages. `YURT_DS_GOLDEN=1 cargo test --lib messages` updates the file.
const FILE: &str = "tests/golden/messages.txt";

/// Maximum length of a message in a condition, in characters.
const LONGEST: usize = 200;

/// Time that the examples treat as the present, in seconds since the epoch.
const NOW: i64 = 1_000;

const SET: SetName<'_> = SetName {
    namespace: "shop",
    name: "agent",
};

/// Example of a rollout with the nodes `n1` to `n4`. The messages about a node are those about the first one.
struct Example {
    strategy: Strategy,
    fleet: Fleet,
    plan: Plan,
}

impl Example {
    fn new(verdict: Verdict) -> Self {
        let hook = r#"{"preDelete": {"labelsHandler": {"drain": "true"}}}"#;
        let strategy = Strategy {
            pre_delete: PreDelete::read(hook).unwrap().map(Into::into),
            selector: Some(Selector::from_query("pool=field").unwrap()),
            ..Strategy::with_mode(Mode::AdvancedRollingUpdate)
        };
        let nodes = vec![
            node("n1", old(1)),
            node("n2", old(1)),
            node("n3", current(2)),
            node("n4", current(2)),
        ];
        let fleet = fleet(nodes);
        let mut plan = decide(&strategy, &fleet, at(NOW));
        plan.verdicts = vec![
            verdict,
            Verdict::Budget { broken: false },
            Verdict::Done,
            Verdict::Done,
        ];
        plan.counts.by_word = Default::default();
        for verdict in &plan.verdicts {
            plan.counts.by_word[verdict.index()] += 1;
        }
        plan.waves = ["canary", "rest"].map(wave).into();
        plan.domains = vec!["zone-a".to_owned()];
        Self {
            strategy,
            fleet,
            plan,
        }
    }

    /// Gives the pods of the first node a problem.
    fn failing(mut self, reason: &str, details: &str) -> Self {
        let problem = PodProblem {
            reason: reason.into(),
            detail: details.into(),
            restarts: 3,
            ended: 0,
        };
        let node = &mut self.fleet.nodes[0];
        node.pods[0] = Pod {
            name: "agent-x7k2p".into(),
            ready_since: None,
            problem: Some(problem.into()),
            ..current(2)
        };
        self
    }

    /// Adds a guard's record with this failed node.
    fn failed(mut self, name: &str) -> Self {
        self.plan.counts.failures = 1;
        let mut record = FailureRecord::new("new".into());
        record.failed.insert(name.into());
        record.before = Some("old".into());
        self.plan.record = Some(record);
        self
    }

    fn changed(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn phase(mut self, phase: Phase) -> Self {
        self.plan.phase = phase;
        self
    }

    fn view(&self) -> RolloutView<'_> {
        RolloutView {
            key: SET,
            strategy: &self.strategy,
            invalid: None,
            fleet: &self.fleet,
            plan: &self.plan,
            phase: self.plan.phase,
            phase_since: Some(at(900)),
            incomplete_since: Some(at(900)),
            asks_again: false,
            first_read: at(0),
            now: at(NOW),
        }
    }

    /// Renders the messages about the first node.
    fn node_lines(&self, lines: &mut Vec<String>) {
        let rollout = self.view();
        let found = explain(&rollout, 0);
        let word = self.plan.verdicts[0].word();
        let reason = match &found.reason {
            Some(reason) => format!("{word}/{reason}"),
            None => word.to_owned(),
        };
        lines.push(format!("{reason} · cause · {}", cause(&rollout, 0, false)));
        lines.push(format!("{reason} · why · Node n1 {}.", found.because));
        lines.push(format!("{reason} · next · {}", remedy(&rollout, 0)));
    }

    /// Renders the messages about the rollout.
    fn status_lines(&self, lines: &mut Vec<String>) {
        let about = RolloutStatus {
            set: SET,
            fleet: &self.fleet,
            plan: &self.plan,
            strategy: &self.strategy,
        };
        let status = about.describe(self.plan.phase);
        let reason = status.reason;
        let condition = format!(
            "revision new: {}",
            status.short(LONGEST - "revision new: ".len())
        );
        assert!(condition.chars().count() <= LONGEST, "{condition}");
        let rollout = self.view();
        lines.push(format!("{reason} · condition · {condition}"));
        lines.push(format!("{reason} · ctl · {}", message(&rollout, &status)));
        for step in next_steps(&rollout, &status) {
            lines.push(format!("{reason} · step · {step}"));
        }
    }
}

fn wave(name: &str) -> WaveStand {
    WaveStand {
        name: name.to_owned(),
        nodes: 2,
        done: 0,
        in_flight: 0,
        taken: 0,
        allowed: 1,
        state: WaveState::Open,
    }
}

/// Returns an example of every verdict, in each of its forms.
fn node_examples() -> Vec<Example> {
    let (since, until) = (at(900), at(1_500));
    let some_since = Some(since);
    let stages = [
        Progress::Replacing,
        Progress::Terminating,
        Progress::Missing { since: some_since },
        Progress::UpdatingInPlace { since },
        Progress::Reverting { since },
        Progress::Starting,
        Progress::NotYetAvailable {
            available_at: until,
        },
        Progress::Surplus,
        Progress::OldTerminating,
        Progress::SurgeStarting,
        Progress::SurgeYoung {
            available_at: until,
        },
        Progress::SurgeTakingOver,
        Progress::SurgeLeaving,
    ];
    let offline = [
        Offline::NotReady { since: some_since },
        Offline::Terminating { since: some_since },
        Offline::NoNode,
        Offline::Settling { until },
        Offline::Updated { since: some_since },
    ];
    let pulls = [
        PullStage::Queued { failed: false },
        PullStage::UnderWay { again: true },
        PullStage::Failed { retry: until },
        PullStage::AwaitingReady,
    ];
    let waves = [
        WaveShut::Charged { wave: Some(0) },
        WaveShut::Unfinished { wave: 0 },
        WaveShut::Soaking { wave: 0, until },
        WaveShut::Approval { wave: 1 },
    ];
    let guarded = [
        Guarded::Stopped(Stopped::FailedByRevision),
        Guarded::Stopped(Stopped::ReplacedTwice),
        Guarded::Inconclusive { until },
    ];
    let plain = [
        Verdict::Done,
        Verdict::Budget { broken: false },
        Verdict::AwaitingDomain,
        Verdict::Paused { until: None },
        Verdict::Paused { until: Some(until) },
        Verdict::Partition,
        Verdict::NotSelected,
        Verdict::OutOfWindow { opens: Some(until) },
        Verdict::AwaitingOwner,
        Verdict::AwaitingDeletion,
        Verdict::NativeControllerBehind,
        Verdict::Invalid,
        Verdict::NotTargeted,
        Verdict::UntoleratedTaint,
    ];
    let plain = plain.into_iter();
    let plain = plain
        .chain(stages.map(Verdict::InProgress))
        .chain(offline.map(Verdict::Offline))
        .chain(pulls.map(Verdict::PullPending))
        .chain(waves.map(|why| Verdict::WaveNotOpen { wave: 1, why }))
        .chain(guarded.map(Verdict::Guarded))
        .chain([Revert::Pending, Revert::Done].map(Verdict::Revert));
    let mut all: Vec<Example> = plain
        .map(|verdict| Example::new(verdict).failed("n4"))
        .collect();
    all.push(
        Example::new(Verdict::Held { until: Some(until) }).changed(|example| {
            let reason = "calibration, ask Ann".into();
            let until = Some(at(1_500));
            example.fleet.nodes[0].hold = Some(Hold {
                until,
                reason,
                unreadable: false,
            });
        }),
    );
    all.push(
        Example::new(Verdict::OutOfWindow { opens: None }).changed(|example| {
            let why = "\"Mon\" is no time".into();
            example.fleet.nodes[0].window = Some(NodeWindow::Unreadable(why));
        }),
    );
    all.push(
        Example::new(Verdict::Budget { broken: true }).failing("CrashLoopBackOff", "exit code 1"),
    );
    let starting = Verdict::InProgress(Progress::Starting);
    all.push(Example::new(starting).failing("ErrImagePull", "registry.example/agent:2: not found"));
    let causes = [
        (Cause::NodeLost, "", ""),
        (Cause::Crashing, "CrashLoopBackOff", "exit code 1"),
        (
            Cause::NotStarting,
            "ErrImagePull",
            "registry.example/agent:2: not found",
        ),
    ];
    all.extend(causes.map(|(cause, reason, details)| {
        Example::new(Verdict::FailedByRevision { since, cause }).failing(reason, details)
    }));
    all.extend([false, true].map(|overdue| {
        Example::new(Verdict::HookPending {
            since: some_since,
            overdue,
        })
        .changed(hooked)
    }));
    all.extend(OBSTRUCTIONS.map(|obstruction| {
        Example::new(Verdict::BlockedByPdb { since, obstruction })
            .changed(|example| block(example, obstruction))
    }));
    let refused = REJECTIONS.map(|(write, why)| {
        Example::new(Verdict::Refused { since }).changed(|example| reject(example, write, why))
    });
    all.extend(refused);
    let stuck = Verdict::InProgress(Progress::Terminating);
    all.push(Example::new(stuck).changed(|example| {
        let pod = &mut example.fleet.nodes[0].pods[0];
        pod.terminating = true;
        let grace = Duration::from_secs(30);
        pod.leaving = Some(
            Leaving {
                ends: at(130),
                stamped: at(130),
                grace,
            }
            .into(),
        );
    }));
    all
}

const OBSTRUCTIONS: [Obstruction; 4] = [
    Obstruction::Exhausted,
    Obstruction::NotProcessed,
    Obstruction::NotComputed,
    Obstruction::Several,
];

const REJECTIONS: [(WriteVerb, &str); 5] = [
    (
        WriteVerb::Delete,
        "ValidatingAdmissionPolicy 'freeze-pods' denied request: change freeze until Monday",
    ),
    (
        WriteVerb::Create,
        "pods \"agent-*\" is forbidden: exceeded quota: pods, used: pods=3, limited: pods=3",
    ),
    (
        WriteVerb::Evict,
        "pods is forbidden: User \"yurt-ds\" cannot create resource \"pods/eviction\" in API group \"\"",
    ),
    (
        WriteVerb::UpdateInPlace,
        "admission webhook \"images.example\" denied the request",
    ),
    (WriteVerb::Mark, "pods \"agent-1\" not found"),
];

fn hooked(example: &mut Example) {
    let pod = &mut example.fleet.nodes[0].pods[0];
    pod.exit = crate::core::Exit {
        preparing: Some(PreDeleteHook { since: None }),
        labels: [("drain", "true")].into_iter().collect(),
        ..(*pod.exit).clone()
    }
    .into();
}

fn block(example: &mut Example, obstruction: Obstruction) {
    let budget = match obstruction {
        Obstruction::Several => None,
        _ => Some("agent-pdb".into()),
    };
    let refusal = Refusal {
        budget,
        obstruction,
    };
    let pod = example.fleet.nodes[0].pods[0].clone();
    example.fleet.evictions.refuse(&pod, refusal, at(990));
}

fn reject(example: &mut Example, write: WriteVerb, why: &str) {
    let failures = &mut example.fleet.write_failures;
    failures.keep_to(&"new".into());
    failures.refuse((&"n1".into(), None), write, why, at(900));
    example.plan.refused = failures.clone();
}

/// Returns an example of every phase and stall.
fn status_examples() -> Vec<Example> {
    let until = at(1_500);
    let budget = Verdict::Budget { broken: false };
    let starting = Verdict::InProgress(Progress::Starting);
    let of = Example::new;
    let stale = StaleData {
        resource: "pods",
        heard: at(700),
    };
    let complete = |verdict, offline, kept| of(verdict).phase(Phase::Complete { offline, kept });
    let stalled = |verdict, stall| of(verdict).phase(Phase::Stalled(stall));
    let mut all = vec![
        complete(Verdict::Done, 0, 0),
        complete(Verdict::Offline(Offline::NotReady { since: None }), 1, 0)
            .changed(|example| example.plan.counts.offline_outdated = 1),
        complete(Verdict::Partition, 0, 1),
        complete(Verdict::Done, 0, 0).failed("n9"),
        of(budget).phase(Phase::Progressing),
        of(budget).phase(Phase::Progressing).changed(|example| {
            example.plan.guarded = Some(Guarded::Inconclusive { until: at(1_500) });
            let mut record = FailureRecord::new("new".into());
            record.updated_before_loss.insert("n1".into());
            example.plan.record = Some(record);
        }),
        of(Verdict::BlockedByPdb { since: at(900), obstruction: Obstruction::Exhausted })
            .phase(Phase::Progressing)
            .changed(|example| {
                block(example, Obstruction::Exhausted);
                example.plan.blocked = true;
            }),
        of(Verdict::OutOfWindow { opens: Some(until) }).phase(Phase::Progressing).changed(|example| {
            example.plan.verdicts = vec![example.plan.verdicts[0], Verdict::Done, Verdict::Done, Verdict::Done];
        }),
        of(Verdict::AwaitingOwner).phase(Phase::AwaitingOwners),
        of(Verdict::AwaitingDeletion).phase(Phase::AwaitingDeletions),
        of(Verdict::NativeControllerBehind).phase(Phase::Stale(stale)),
        of(Verdict::Paused { until: None }).phase(Phase::Paused { until: None }),
        of(Verdict::Paused { until: Some(until) })
            .failed("n4")
            .phase(Phase::Paused { until: Some(until) })
            .changed(|example| example.plan.guarded = Some(Guarded::Stopped(Stopped::FailedByRevision))),
        stalled(budget, Stall::FailedByRevision).failed("n4"),
        stalled(budget, Stall::FailedByRevision).failed("n4").changed(|example| {
            example.plan.guarded = Some(Guarded::Stopped(Stopped::FailedByRevision));
            example.plan.reversal = Some(Reversal {
                to: Some("old".into()),
                under_way: vec!["n1".into()],
                ..Reversal::default()
            });
        }),
        stalled(budget, Stall::ReplacedTwice).failed("n4").changed(|example| {
            example.plan.guarded = Some(Guarded::Stopped(Stopped::ReplacedTwice));
            let record = example.plan.record.as_mut().unwrap();
            record.replaced_twice.insert("n2".into());
        }),
        stalled(starting, Stall::PodsDoNotStart).failing("ErrImagePull", "registry.example/agent:2: not found"),
        stalled(starting, Stall::PodsDoNotStart).failing("CrashLoopBackOff", "exit code 1"),
        stalled(Verdict::PullPending(PullStage::Failed { retry: until }), Stall::ImagesNotPulled),
        stalled(Verdict::OutOfWindow { opens: None }, Stall::WindowNeverOpens),
        stalled(Verdict::InProgress(Progress::Missing { since: None }), Stall::PodsNotCreated),
        stalled(Verdict::InProgress(Progress::Missing { since: None }), Stall::PodsNotCreated).changed(|example| {
            let why = "pods \"agent-*\" is forbidden: exceeded quota: pods, used: pods=3, limited: pods=3";
            example.fleet.not_created = Some(why.into());
        }),
        stalled(Verdict::InProgress(Progress::Missing { since: None }), Stall::PodsKeptAway),
        stalled(Verdict::HookPending { since: None, overdue: true }, Stall::HookPending).changed(hooked),
        stalled(Verdict::NativeControllerBehind, Stall::NativeControllerBehind),
        stalled(starting, Stall::NoProgress).changed(|example| example.plan.overdue = vec![0]),
    ];
    all.extend(OBSTRUCTIONS.map(|obstruction| {
        let verdict = Verdict::BlockedByPdb {
            since: at(900),
            obstruction,
        };
        stalled(verdict, Stall::BlockedByPdb).changed(|example| block(example, obstruction))
    }));
    all.extend(REJECTIONS.map(|(write, why)| {
        let refused = Verdict::Refused { since: at(900) };
        stalled(refused, Stall::WritesRefused).changed(|example| reject(example, write, why))
    }));
    let behind = [
        RevisionUnknown::NotObserved,
        RevisionUnknown::NoRevision,
        RevisionUnknown::Tie,
        RevisionUnknown::Mismatch,
        RevisionUnknown::UnknownRevision,
    ];
    all.extend(behind.map(|behind| {
        of(Verdict::NativeControllerBehind)
            .phase(Phase::RevisionUnknown(behind))
            .changed(|example| example.fleet.revision = RevisionState::Unknown(behind))
    }));
    all
}

/// Returns the names of an enum's variants, from its source code.
fn variants<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let (_, body) = source.split_once(&format!("pub enum {name} {{")).unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(char::is_uppercase));
    names
        .map(|line| {
            line.split(|letter: char| !letter.is_alphanumeric())
                .next()
                .unwrap()
        })
        .collect()
}

#[test]
fn messages_match_the_golden_file() {
    let (mut lines, mut rendered) = (Vec::new(), String::new());
    for example in status_examples() {
        example.status_lines(&mut lines);
        rendered += &format!("{:?} {:?}\n", example.plan.phase, example.plan.guarded);
    }
    for example in node_examples() {
        example.node_lines(&mut lines);
        rendered += &format!("{:?}\n", example.plan.verdicts[0]);
    }
    let (verdicts, plans) = (include_str!("../verdict.rs"), include_str!("../plan.rs"));
    let enums = [
        (verdicts, "Verdict"),
        (verdicts, "Progress"),
        (verdicts, "PullStage"),
        (verdicts, "Obstruction"),
        (verdicts, "Cause"),
        (verdicts, "Guarded"),
        (verdicts, "Stopped"),
        (verdicts, "Revert"),
        (verdicts, "WaveShut"),
        (verdicts, "Offline"),
        (plans, "Phase"),
        (plans, "Stall"),
        (include_str!("../id.rs"), "RevisionUnknown"),
    ];
    for (source, name) in enums {
        for variant in variants(source, name) {
            // The text for this phase comes from the invalid setting.
            let is_covered = variant == "Invalid" || rendered.contains(variant);
            assert!(is_covered, "{FILE} has no example of {name}::{variant}");
        }
    }
    lines.sort();
    lines.dedup();
    let text = lines.join("\n") + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if crate::machine::is_set("YURT_DS_GOLDEN") {
        std::fs::write(file, text).expect("a file");
        return;
    }
    let known = std::fs::read_to_string(file).expect("the golden file");
    let known: Vec<&str> = known.lines().collect();
    let changed: Vec<&str> = text.lines().filter(|line| !known.contains(line)).collect();
    assert!(
        changed.is_empty() && known.len() == lines.len(),
        "{FILE} has other messages; YURT_DS_GOLDEN=1 rewrites it: {changed:#?}"
    );
}
