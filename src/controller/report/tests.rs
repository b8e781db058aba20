//! Tests of the messages: conditions and Events.

use serde_json::json;

use super::*;
use crate::core::fleet::in_place::Recreate;
use crate::core::testing::{self, current};
use crate::core::{
    Action, Cause, Counts, FailureRecord, Guarded, Node, NodeName, Obstruction, PauseRecord,
    PauseStand, Pod, PodProblem, PodRef, Progress, PullStage, Readiness, Refusal, Reversal,
    Revision, RevisionUnknown, Stopped, Verdict, WaveShut, WaveStand, WaveState,
};
use crate::index::{Index, SetKey};
use crate::k8s;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// Returns an index with one DaemonSet that has these conditions.
fn with(conditions: Vec<Condition>) -> Index {
    let set = json!({"metadata": {"name": "agent", "namespace": "edge", "uid": "ds",
        "annotations": {"apps.openyurt.io/update-strategy": "auto"}},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": {"type": "OnDelete"}, "template": {}}});
    let mut set: k8s::DaemonSet = serde_json::from_str(&set.to_string()).unwrap();
    set.status.conditions = conditions;
    let mut index = Index::default();
    index.apply_set(&set);
    index
}

fn fleet(names: &[&str], problem: Option<&str>) -> Fleet {
    let pod = || Pod {
        ready_since: None,
        started: None,
        problem: problem.map(|reason| {
            PodProblem {
                detail: Default::default(),
                reason: reason.into(),
                restarts: 3,
                ended: 0,
            }
            .into()
        }),
        ..current(0)
    };
    let node = |name: &&str| Node {
        readiness: Readiness::Ready { since: at(0) },
        ..testing::node(name, pod())
    };
    Fleet {
        revision: RevisionState::Current(Revision::from("abc")),
        ..testing::fleet(names.iter().map(node).collect())
    }
}

fn plan(phase: Phase, verdicts: Vec<Verdict>, outdated: usize) -> Plan {
    let counts = Counts {
        outdated,
        ..Counts::default()
    };
    Plan {
        actions: Vec::new(),
        invalid: None,
        recreates: None,
        verdicts,
        pulls: Vec::new(),
        pulls_await: None,
        counts,
        phase,
        tells_opening: false,
        opens: None,
        domains: Vec::new(),
        guarded: None,
        record: None,
        reversal: None,
        pause: None,
        waves: Vec::new(),
        overdue: Vec::new(),
        blocked: false,
        refused: Default::default(),
        next_wake: None,
    }
}

fn report(before: Vec<Condition>, fleet: &Fleet, plan: &Plan) -> Report {
    let index = with(before);
    Report::of_plan(
        index.set(&SetKey::new("edge", "agent")).unwrap(),
        fleet,
        plan,
        false,
        at(0),
    )
}

fn said(report: &Report, kind: &str) -> String {
    let found = find(&report.conditions, kind).unwrap();
    format!("{} {} {}", found.status, found.reason, found.message)
}

fn events(report: &Report) -> Vec<(&'static str, bool)> {
    report
        .notices
        .iter()
        .map(|notice| (notice.reason, notice.warning))
        .collect()
}

#[test]
fn completion_names_the_revision_and_the_offline_nodes() {
    let mut done = plan(
        Phase::Complete {
            offline: 2,
            kept: 0,
        },
        vec![Verdict::Done],
        0,
    );
    done.counts.offline_outdated = 2;
    let before = vec![condition(
        ROLLOUT_COMPLETE,
        false,
        "Progressing",
        "revision abc: being rolled out",
    )];
    let report = report(before, &fleet(&["n1"], None), &done);
    assert_eq!(
        said(&report, ROLLOUT_COMPLETE),
        "True CompleteExceptOffline revision abc: complete. 2 nodes are offline and will be updated when they reconnect. No action needed"
    );
    assert_eq!(events(&report), [("RolloutComplete", false)]);
}

#[test]
fn completion_names_the_nodes_with_an_untolerated_taint() {
    let kept = 12;
    let verdicts = vec![Verdict::UntoleratedTaint; kept];
    let names: Vec<String> = (10..10 + kept).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut done = plan(Phase::Complete { offline: 0, kept }, verdicts, 0);
    done.counts.repelled = kept;
    let report = report(Vec::new(), &fleet(&names, None), &done);
    assert_eq!(
        said(&report, ROLLOUT_COMPLETE),
        "True CompleteExceptKept revision abc: complete. 12 nodes have an untolerated taint: n10, n11, n12, n13, n14, n15, \
         n16, n17, n18, n19 and 2 more"
    );
}

#[test]
fn a_selector_without_matches_is_reported_once_for_any_number_of_nodes() {
    let plan = |nodes: usize| {
        let invalid = Invalid {
            key: "apps.openyurt.io/selector".into(),
            value: "pool=nope".into(),
            why: format!("which matches none of the {nodes} nodes that should run a pod"),
            is_object: false,
        };
        Plan {
            invalid: Some(invalid),
            ..plan(Phase::Invalid, vec![Verdict::Invalid], 1)
        }
    };
    let first = report(Vec::new(), &fleet(&["n1"], None), &plan(3));
    let note = "apps.openyurt.io/selector is \"pool=nope\", which matches none of the 3 nodes that should run a pod";
    assert_eq!(
        said(&first, INVALID_SETTINGS),
        format!("True InvalidSettings {note}")
    );
    assert_eq!(
        said(&first, ROLLOUT_COMPLETE),
        format!("False InvalidSettings {note}")
    );
    assert_eq!(events(&first), [("InvalidSettings", true)]);
    let again = report(first.conditions, &fleet(&["n1"], None), &plan(4));
    assert!(said(&again, INVALID_SETTINGS).contains("none of the 4 nodes"));
    assert_eq!(events(&again), []);
}

#[test]
fn events_about_a_growing_stall_are_duplicates() {
    let failed = Verdict::FailedByRevision {
        since: at(0),
        cause: Cause::Crashing,
    };
    let told = |stall: Stall, failed: &[Verdict], guarded: Option<Guarded>| {
        let plan = Plan {
            guarded,
            ..plan(Phase::Stalled(stall), failed.to_vec(), 1)
        };
        let mut report = report(Vec::new(), &fleet(&["n1", "n2"], None), &plan);
        report.notices.pop().expect("an Event")
    };
    let first = told(Stall::FailedByRevision, &[failed, Verdict::Done], None);
    let second = told(Stall::FailedByRevision, &[failed; 2], None);
    assert_ne!(first.note, second.note);
    assert!(second.repeats(&first));
    let stopped = Some(Guarded::Stopped(Stopped::FailedByRevision));
    let stop = told(Stall::FailedByRevision, &[failed; 2], stopped);
    assert!(!stop.repeats(&second), "{}", stop.note);
    let other = told(Stall::NoProgress, &[failed; 2], None);
    assert!(!other.repeats(&second), "{}", other.note);
}

#[test]
fn a_stalled_rollout_names_nodes_reasons_and_remedies() {
    fn case(stall: Stall, verdict: Verdict, problem: Option<&str>, expected: &[&str]) {
        let plan = plan(Phase::Stalled(stall), vec![verdict; 2], 1);
        let report = report(Vec::new(), &fleet(&["n1", "n2"], problem), &plan);
        let told = said(&report, STALLED);
        for words in expected {
            assert!(told.contains(words), "{told:?} lacks {words:?}");
        }
        assert_eq!(events(&report), [("RolloutStalled", true)]);
    }
    let failed = Verdict::FailedByRevision {
        since: at(0),
        cause: Cause::NodeLost,
    };
    let starting = Verdict::InProgress(Progress::Starting);
    let missing = Verdict::InProgress(Progress::Missing { since: None });
    case(
        Stall::FailedByRevision,
        failed,
        None,
        &[
            "True FailedByRevision",
            "n1, n2",
            "Roll back: yurt-ds ctl undo edge/agent",
        ],
    );
    case(
        Stall::PodsDoNotStart,
        starting,
        Some("ErrImagePull"),
        &[
            "ErrImagePull",
            "n1, n2",
            "Roll back: yurt-ds ctl undo edge/agent",
        ],
    );
    case(
        Stall::PodsDoNotStart,
        starting,
        Some("Unschedulable"),
        &["n1, n2", "ree resources there, or set a priorityClassName"],
    );
    case(
        Stall::PodsNotCreated,
        missing,
        None,
        &["creates no pods on n1, n2", "heck quotas"],
    );
    case(
        Stall::NoProgress,
        starting,
        None,
        &["do not become available on n1, n2"],
    );
}

#[test]
fn long_lists_of_node_names_are_shortened() {
    let names: Vec<String> = (0..25).map(|number| format!("n{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let verdicts = vec![
        Verdict::FailedByRevision {
            since: at(0),
            cause: Cause::NodeLost
        };
        25
    ];
    let plan = plan(Phase::Stalled(Stall::FailedByRevision), verdicts, 1);
    let told = said(&report(Vec::new(), &fleet(&names, None), &plan), STALLED);
    assert!(told.contains("n00, n01, n02 and 22 more"), "{told}");
}

#[test]
fn a_progressing_rollout_is_reported_once() {
    let moving = plan(
        Phase::Progressing,
        vec![Verdict::Budget { broken: false }],
        1,
    );
    let fleet = fleet(&["n1"], None);
    let first = report(Vec::new(), &fleet, &moving);
    assert_eq!(events(&first), [("RolloutStarted", false)]);
    let again = report(first.conditions.clone(), &fleet, &moving);
    assert_eq!(
        again.difference(&first.conditions, at(9)),
        Vec::<Value>::new()
    );
    assert_eq!(events(&again), []);
}

#[test]
fn a_new_revision_during_a_rollout_is_a_new_start() {
    let moving = plan(
        Phase::Progressing,
        vec![Verdict::Budget { broken: false }],
        1,
    );
    let before = report(Vec::new(), &fleet(&["n1"], None), &moving).conditions;
    let mut next = fleet(&["n1"], None);
    next.revision = RevisionState::Current(Revision::from("def"));
    assert_eq!(
        events(&report(before, &next, &moving)),
        [("RolloutStarted", false)]
    );
}

/// The rollout waits for images, and then for the native controller. When the rollout continues, it must not be reported as started
/// again.
#[test]
fn a_rollout_that_waits_for_images_is_reported_as_started_once() {
    let fleet = fleet(&["n1", "n2"], None);
    let waits = Verdict::PullPending(PullStage::Queued { failed: false });
    let moving = Verdict::InProgress(Progress::Replacing);
    let pulls = || {
        let mut plan = plan(Phase::Progressing, vec![waits, waits], 2);
        plan.counts.by_word[waits.index()] = 2;
        plan
    };
    let behind = plan(
        Phase::RevisionUnknown(RevisionUnknown::UnknownRevision),
        vec![Verdict::NativeControllerBehind; 2],
        2,
    );
    let moves = plan(Phase::Progressing, vec![moving, waits], 2);
    let index = |before: &Report| with(before.conditions.clone());
    let key = SetKey::new("edge", "agent");
    let mut unknown = fleet.clone();
    unknown.revision = RevisionState::Unknown(RevisionUnknown::UnknownRevision);
    let mut told = report(Vec::new(), &fleet, &pulls());
    assert!(said(&told, PROGRESSING).contains("PullPending"));
    assert_eq!(events(&told), [("RolloutStarted", false)]);
    for _ in 0..3 {
        told = report(told.conditions.clone(), &fleet, &moves);
        assert_eq!(events(&told), []);
        told = report(told.conditions.clone(), &fleet, &pulls());
        assert_eq!(events(&told), []);
        let index = index(&told);
        told = Report::of_plan(index.set(&key).unwrap(), &unknown, &behind, true, at(0));
        assert_eq!(
            said(&told, PROGRESSING),
            "True NativeControllerBehind after revision abc: waiting: the controller is reading the revision of a pod from the API server"
        );
        assert_eq!(events(&told), []);
    }
    let mut next = fleet.clone();
    next.revision = RevisionState::Current(Revision::from("def"));
    let next = report(told.conditions.clone(), &next, &moves);
    assert_eq!(events(&next), [("RolloutStarted", false)]);
}

/// Two replicas with different clocks calculate the opening time of the same wave.
#[test]
fn a_closed_wave_is_reported_once_across_leaders_with_different_clocks() {
    let fleet = fleet(&["n1"], None);
    let waits = |nanoseconds: i64, wave| {
        let until = Timestamp::from_nanosecond(
            i128::from(at(60).as_second()) * 1_000_000_000 + i128::from(nanoseconds),
        );
        let why = WaveShut::Soaking {
            wave,
            until: until.unwrap(),
        };
        let stand = |name: &str| WaveStand {
            name: name.to_owned(),
            nodes: 1,
            done: 1,
            in_flight: 0,
            taken: 0,
            allowed: 1,
            state: WaveState::Complete,
        };
        Plan {
            waves: vec![stand("canary"), stand("shops"), stand("rest")],
            ..plan(
                Phase::Progressing,
                vec![Verdict::WaveNotOpen {
                    wave: wave + 1,
                    why,
                }],
                1,
            )
        }
    };
    let first = report(Vec::new(), &fleet, &waits(123_456_789, 0));
    assert_eq!(
        said(&first, PROGRESSING),
        "True WaveNotOpen revision abc: waiting for the soak time of wave canary, which ends 2023-11-14T22:14:20Z"
    );
    assert_eq!(events(&first), [("WaveNotOpen", false)]);
    let same = report(first.conditions.clone(), &fleet, &waits(987_654_321, 0));
    assert_eq!(
        same.difference(&first.conditions, at(1)),
        Vec::<Value>::new()
    );
    let later = report(first.conditions.clone(), &fleet, &waits(2_000_000_000, 0));
    assert_eq!(later.difference(&first.conditions, at(1)).len(), 2);
    assert_eq!(events(&later), []);
    let next = report(later.conditions, &fleet, &waits(0, 1));
    assert_eq!(events(&next), [("WaveNotOpen", false)]);
}

#[test]
fn a_complete_rollout_stays_complete_while_pods_restart_and_nodes_join() {
    let fleet = fleet(&["n1"], None);
    let done = plan(
        Phase::Complete {
            offline: 0,
            kept: 0,
        },
        vec![Verdict::Done],
        0,
    );
    let complete = report(Vec::new(), &fleet, &done).conditions;
    let daily = plan(
        Phase::Progressing,
        vec![Verdict::InProgress(Progress::Starting)],
        0,
    );
    assert_eq!(
        report(complete.clone(), &fleet, &daily).conditions,
        complete
    );
    let outdated = plan(
        Phase::Progressing,
        vec![Verdict::Budget { broken: false }],
        1,
    );
    assert!(
        said(
            &report(complete.clone(), &fleet, &outdated),
            ROLLOUT_COMPLETE
        )
        .starts_with("False")
    );
    let lost = plan(
        Phase::Stalled(Stall::FailedByRevision),
        vec![Verdict::Done],
        0,
    );
    assert!(said(&report(complete, &fleet, &lost), ROLLOUT_COMPLETE).starts_with("False"));
}

#[test]
fn a_changed_template_ends_completion_before_the_native_controller_observes_it() {
    let done = plan(
        Phase::Complete {
            offline: 0,
            kept: 0,
        },
        vec![Verdict::Done],
        0,
    );
    let complete = report(Vec::new(), &fleet(&["n1"], None), &done).conditions;
    let mut unseen = fleet(&["n1"], None);
    unseen.revision = RevisionState::Unknown(RevisionUnknown::NotObserved);
    let behind = plan(
        Phase::RevisionUnknown(RevisionUnknown::NotObserved),
        vec![Verdict::NativeControllerBehind],
        0,
    );
    let told = said(&report(complete, &unseen, &behind), ROLLOUT_COMPLETE);
    assert!(told.starts_with("False NativeControllerBehind"), "{told}");
}

#[test]
fn invalid_settings_are_reported_once_and_withdrawn_when_fixed() {
    let invalid = Invalid {
        key: "k".to_owned(),
        value: "v".to_owned(),
        why: "expected w".to_owned(),
        is_object: false,
    };
    let index = with(Vec::new());
    let key = SetKey::new("edge", "agent");
    let first = Report::of_invalid(index.set(&key).unwrap(), &invalid);
    assert_eq!(events(&first), [("InvalidSettings", true)]);
    assert!(said(&first, INVALID_SETTINGS).contains("expected w"));
    let index = with(first.conditions.clone());
    let again = Report::of_invalid(index.set(&key).unwrap(), &invalid);
    assert_eq!(
        (again.difference(&first.conditions, at(9)), events(&again)),
        (vec![], vec![])
    );
    let done = plan(
        Phase::Complete {
            offline: 0,
            kept: 0,
        },
        vec![Verdict::Done],
        0,
    );
    let mended = report(first.conditions.clone(), &fleet(&["n1"], None), &done);
    let patch = mended.difference(&first.conditions, at(9));
    assert!(
        patch.contains(&json!({"$patch": "delete", "type": INVALID_SETTINGS})),
        "{patch:?}"
    );
}

#[test]
fn a_transition_time_is_written_only_when_the_status_flips() {
    let before = vec![condition(
        ROLLOUT_COMPLETE,
        true,
        "Complete",
        "revision abc: complete",
    )];
    let wanted = Report {
        conditions: vec![condition(
            ROLLOUT_COMPLETE,
            true,
            "CompleteExceptOffline",
            "revision abc: complete except …",
        )],
        ..Report::default()
    };
    assert!(
        wanted.difference(&before, at(5))[0]
            .get("lastTransitionTime")
            .is_none()
    );
    let flipped = Report {
        conditions: vec![condition(ROLLOUT_COMPLETE, false, "Progressing", "")],
        ..Report::default()
    };
    assert_eq!(
        flipped.difference(&before, at(0))[0]["lastTransitionTime"],
        "2023-11-14T22:13:20Z"
    );
}

#[test]
fn conditions_of_an_unmanaged_daemonset_are_deleted() {
    let before = vec![
        condition(ROLLOUT_COMPLETE, true, "Complete", ""),
        condition(STALLED, false, "NotStalled", ""),
    ];
    assert_eq!(Report::of_nothing().difference(&before, at(0)).len(), 2);
}

/// The test compares the reasons of the Events and the ends of their notes. Each Event is published once.
#[test]
fn a_rollback_is_reported_when_it_starts_and_ends_with_node_names() {
    let fleet = fleet(&["a", "b"], None);
    let told = |reversal: Reversal| {
        let stopped = Guarded::Stopped(Stopped::FailedByRevision);
        let record = FailureRecord {
            stopped: Some(Stopped::FailedByRevision),
            before: Some("old".into()),
            ..FailureRecord::new("abc".into())
        };
        Plan {
            guarded: Some(stopped),
            record: Some(record),
            reversal: Some(reversal),
            ..plan(Phase::Stalled(Stall::FailedByRevision), vec![], 1)
        }
    };
    let names = |names: &[&str]| names.iter().map(|name| NodeName::from(*name)).collect();
    let begins = told(Reversal {
        to: Some("old".into()),
        under_way: names(&["a", "b"]),
        ..Reversal::default()
    });
    let goes_on = told(Reversal {
        under_way: names(&["b"]),
        done: names(&["a"]),
        ..begins.reversal.clone().unwrap()
    });
    let over = told(Reversal {
        under_way: vec![],
        done: names(&["a", "b"]),
        ..begins.reversal.clone().unwrap()
    });
    let impossible = told(Reversal {
        under_way: vec![],
        stuck: names(&["a"]),
        why: Some(Recreate::OtherChange),
        ..begins.reversal.clone().unwrap()
    });
    let of_it = |report: &Report| {
        let mut notices = report.notices.iter();
        let found = notices.find(|notice| notice.reason != "RolloutStalled");
        found.map(|notice| (notice.reason, notice.warning, notice.note.clone()))
    };
    let first = report(vec![], &fleet, &begins);
    assert!(
        said(&first, STALLED).contains("RevertInPlace rolls pods back in place to revision old")
    );
    let (reason, warning, note) = of_it(&first).unwrap();
    assert_eq!((reason, warning), ("Reverting", false));
    assert!(note.ends_with(": a, b"), "{note}");
    let second = report(first.conditions.clone(), &fleet, &goes_on);
    assert_eq!(of_it(&second), None);
    assert_eq!(said(&second, STALLED), said(&first, STALLED));
    let last = report(second.conditions, &fleet, &over);
    let (reason, warning, note) = of_it(&last).unwrap();
    assert_eq!((reason, warning), ("Reverted", false));
    assert!(note.ends_with(": a, b"), "{note}");
    let refused = report(first.conditions, &fleet, &impossible);
    let (reason, warning, note) = of_it(&refused).unwrap();
    assert_eq!((reason, warning), ("NotReverted", true));
    assert!(
        note.contains("more than images")
            && note.contains(": a. Roll back to revision old: yurt-ds"),
        "{note}"
    );
}

/// Returns the plan of a paused rollout with one outdated node. `newcomers` are the nodes that got the new revision during the
/// pause.
fn paused(record: PauseRecord, reminds: bool, newcomers: &[&str]) -> Plan {
    let stand = PauseStand {
        record,
        until: None,
        reminds,
        newcomers: newcomers.iter().map(|name| (*name).into()).collect(),
        reverts: false,
    };
    Plan {
        pause: Some(stand),
        ..plan(Phase::Paused { until: None }, Vec::new(), 1)
    }
}

/// Returns the conditions of a report as the API server would return them.
fn written(report: &Report) -> Vec<Condition> {
    report.conditions.clone()
}

#[test]
fn a_pause_is_reported_with_its_start_and_one_reminder() {
    let mut record = PauseRecord {
        since: at(0),
        reminded: 0,
    };
    let none = fleet(&[], None);
    let first = report(Vec::new(), &none, &paused(record, false, &[]));
    assert_eq!(
        said(&first, PAUSED_CONDITION),
        "True Paused revision abc: paused until an operator resumes it, since 2023-11-14T22:13:20Z"
    );
    assert_eq!(events(&first), [("RolloutPaused", false)]);
    let patch = first.difference(&[], at(7));
    let of_pause = patch.iter().find(|patch| patch["type"] == PAUSED_CONDITION);
    assert_eq!(
        of_pause.unwrap()["lastTransitionTime"],
        "2023-11-14T22:13:20Z"
    );

    record.reminded = 2;
    let names = ["n1", "n2"];
    let due = report(written(&first), &none, &paused(record, true, &names));
    assert_eq!(events(&due), [("StillPaused", true)]);
    assert_eq!(
        due.notices[0].note,
        "revision abc: still paused until an operator resumes it, since 2023-11-14T22:13:20Z (2 days). 1 node \
         outdated. Updated during the pause: n1, n2. Resume: yurt-ds ctl resume"
    );
    assert_eq!(due.notices[0].mark.as_deref(), Some("paused-6553f100-2"));
    assert!(said(&due, PAUSED_CONDITION).ends_with(". Updated during the pause: n1, n2"));
    assert_eq!(due.state.pause.as_ref().unwrap().record, record);
    let again = report(written(&due), &none, &paused(record, false, &names));
    assert!(again.notices.is_empty());
    assert_eq!(again.difference(&written(&due), at(9)), Vec::<Value>::new());
}

#[test]
fn nodes_updated_during_a_pause_stay_named_while_their_pod_is_missing() {
    let record = PauseRecord {
        since: at(0),
        reminded: 0,
    };
    let none = fleet(&[], None);
    let names: Vec<String> = (10..30).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let after = |before: &Report, names: &[&str]| {
        report(written(before), &none, &paused(record, false, names))
    };
    let changes = |before: &Report, after: &Report| {
        let changed = after.difference(&written(before), at(1));
        changed.len()
    };
    let two = after(&Report::default(), &names[..2]);
    let one = after(&two, &names[1..2]);
    assert_eq!(changes(&two, &one), 0);
    let none_is_left = after(&two, &[]);
    assert_eq!(changes(&two, &none_is_left), 0);
    let another = after(&two, &names[1..3]);
    // Two conditions changed: the one about the pause, and the one with the saved state.
    assert_eq!(changes(&two, &another), 2);
    let many = after(&two, &names[..11]);
    assert!(said(&many, PAUSED_CONDITION).ends_with("n18, n19 and others"));
    let more = after(&many, &names);
    assert_eq!(changes(&many, &more), 0);
    let fewer = after(&many, &names[3..15]);
    assert_eq!(changes(&many, &fewer), 0);
}

#[test]
fn a_pause_survives_invalid_settings_and_a_native_controller_that_is_behind() {
    let record = PauseRecord {
        since: at(0),
        reminded: 1,
    };
    let mut fleet = fleet(&[], None);
    let first = report(Vec::new(), &fleet, &paused(record, false, &["n1"]));
    fleet.revision = RevisionState::Unknown(crate::core::RevisionUnknown::NotObserved);
    let behind = report(written(&first), &fleet, &paused(record, false, &[]));
    assert_eq!(
        said(&behind, PAUSED_CONDITION),
        said(&first, PAUSED_CONDITION)
    );
    let invalid = Invalid {
        key: "apps.openyurt.io/max-unavailable".to_owned(),
        value: "many".to_owned(),
        why: "a number".to_owned(),
        is_object: false,
    };
    let index = with(written(&first));
    let set = index.set(&SetKey::new("edge", "agent")).unwrap();
    let unreadable = Report::of_invalid(set, &invalid);
    assert_eq!(unreadable.state.pause.as_ref().unwrap().record, record);
    assert_eq!(
        said(&unreadable, PAUSED_CONDITION),
        said(&first, PAUSED_CONDITION)
    );
}

/// Neither a repeated eviction request nor the first one after a restart is reported again.
#[test]
fn a_rollout_blocked_by_disruption_budgets_is_reported_once() {
    let mut fleet = fleet(&["n1", "n2"], None);
    let pod = fleet.nodes[0].pods[0].clone();
    let refusal = Refusal {
        budget: Some("web".into()),
        obstruction: Obstruction::Exhausted,
    };
    fleet.evictions.refuse(&pod, refusal, at(10));
    let waits = Verdict::BlockedByPdb {
        since: at(10),
        obstruction: Obstruction::Exhausted,
    };
    let blocked = Plan {
        blocked: true,
        ..plan(Phase::Progressing, vec![waits, waits], 2)
    };
    let told = report(Vec::new(), &fleet, &blocked);
    let words = "PodDisruptionBudget web allows no eviction now. Retried within 2 minutes; to allow evictions, lower minAvailable";
    assert_eq!(
        said(&told, PROGRESSING),
        format!("True BlockedByPDB revision abc: waiting: {words}")
    );
    assert_eq!(events(&told), [("BlockedByPDB", true)]);
    assert_eq!(
        events(&report(told.conditions.clone(), &fleet, &blocked)),
        []
    );
    let replacing = Verdict::InProgress(Progress::Replacing);
    let asks = Plan {
        actions: vec![Action::Evict(PodRef {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
        })],
        ..plan(
            Phase::Progressing,
            vec![replacing, Verdict::Budget { broken: false }],
            2,
        )
    };
    let same = report(told.conditions.clone(), &fleet, &asks);
    assert_eq!(
        same.difference(&told.conditions, at(20)),
        Vec::<Value>::new()
    );
    // A terminating pod shows that the rollout is not blocked, so the report changes.
    let goes = Verdict::InProgress(Progress::Terminating);
    let moving = plan(Phase::Progressing, vec![goes, waits], 1);
    let moved = report(told.conditions.clone(), &fleet, &moving);
    assert!(said(&moved, PROGRESSING).contains("being rolled out"));
    assert_eq!(events(&moved), []);
}

/// Checks the generation that health checks compare. A short delay of the native controller is not reported, so the conditions
/// still describe the generation before.
#[test]
fn the_state_condition_names_the_generation_that_the_conditions_describe() {
    let generation = |report: &Report| {
        let state = find(&report.conditions, ROLLOUT_STATE).unwrap();
        state.reason.clone()
    };
    let mut index = with(Vec::new());
    let mut report_at = |number: i64, conditions: &[Condition], fleet: &Fleet, plan: &Plan| {
        let set = json!({"metadata": {"name": "agent", "namespace": "edge", "uid": "ds", "generation": number,
            "annotations": {"apps.openyurt.io/update-strategy": "auto"}},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": {"type": "OnDelete"}, "template": {}}});
        let mut set: k8s::DaemonSet = serde_json::from_str(&set.to_string()).unwrap();
        set.status.conditions = conditions.to_vec();
        index.apply_set(&set);
        let set = index.set(&SetKey::new("edge", "agent")).unwrap();
        Report::of_plan(set, fleet, plan, false, at(0))
    };
    let mut fleet = fleet(&["n1"], None);
    let moving = plan(
        Phase::Progressing,
        vec![Verdict::InProgress(Progress::Terminating)],
        1,
    );
    let first = report_at(2, &[], &fleet, &moving);
    assert_eq!(generation(&first), "Generation2");
    fleet.revision = RevisionState::Unknown(RevisionUnknown::NotObserved);
    let unseen = plan(
        Phase::RevisionUnknown(RevisionUnknown::NotObserved),
        vec![Verdict::InProgress(Progress::Terminating)],
        1,
    );
    let behind = report_at(3, &first.conditions, &fleet, &unseen);
    assert_eq!(generation(&behind), "Generation2");
    fleet.revision = RevisionState::Current(Revision::from("def"));
    let next = report_at(3, &behind.conditions, &fleet, &moving);
    assert_eq!(generation(&next), "Generation3");
}

#[test]
fn a_state_of_a_later_version_is_used_and_left_unchanged() {
    let later = r#"{"version":2,"guard":{"revision":"abc","stopped":"BySunspots"},"moon":1}"#;
    let known = Condition {
        message: later.to_owned(),
        ..condition(ROLLOUT_STATE, true, "Version2", "")
    };
    let index = with(vec![known]);
    let set = index.set(&SetKey::new("edge", "agent")).unwrap();
    assert!(
        set.last_record()
            .is_some_and(|record| record.stopped.is_some())
    );
    let record = PauseRecord {
        since: at(0),
        reminded: 1,
    };
    let told = Report::of_plan(
        set,
        &fleet(&[], None),
        &paused(record, false, &["n1"]),
        false,
        at(9),
    );
    assert_eq!(
        find(&told.conditions, ROLLOUT_STATE).unwrap().message,
        later
    );
    // The condition stays as a later release wrote it. The running controller still remembers the pause.
    assert_eq!(told.state.pause.unwrap().record, record);
}
