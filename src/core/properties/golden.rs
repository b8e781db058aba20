//! Golden corpus: hashes of decisions about thousands of random fleets, stored in the repository.
//!
//! If a change preserves all decisions, `tests/golden/decisions.txt` stays the same. Any other change modifies some of its lines.
//! The hashes are computed from [`decision`], which contains words that users see, but no names of types. So a renamed type changes
//! nothing.
//!
//! `YURT_DS_GOLDEN=1 cargo test --lib golden` updates the corpus.

use std::fmt::Write as _;
use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::guarded::outages;
use super::{Random, fleets, now, strategies};
use crate::core::{Action, Fleet, Phase, Plan, PodRef, Strategy, decide};
use crate::fnv::fnv1a;
use crate::machine;

/// Path of the file with the corpus, relative to the root of the repository.
const FILE: &str = "tests/golden/decisions.txt";

/// Number of cases of each kind.
const CASES: usize = 2048;
/// Number of cases per hash. A smaller number makes it easier to find a difference, and the file longer.
const TOGETHER: usize = 64;

/// Returns the decisions of a plan as text: the writes to pods in order, the verdict of each node, and the next wake-up.
fn decision(plan: &Plan) -> String {
    let mut text = String::new();
    for action in &plan.actions {
        let (word, pods) = named(action);
        let _ = write!(text, "{word}");
        for pod in pods {
            let _ = write!(text, " {}", pod.name.as_str());
        }
        text.push('\n');
    }
    for verdict in &plan.verdicts {
        let _ = writeln!(text, "{}", verdict.word());
    }
    for pull in &plan.pulls {
        let _ = writeln!(text, "pull {} {}", pull.pod.name.as_str(), pull.may_start);
    }
    let counts = &plan.counts;
    let _ = writeln!(
        text,
        "{} unavailable {} of {}, failures {} of {}",
        phase(plan.phase),
        counts.unavailable,
        counts.allowed,
        counts.failures,
        counts.threshold
    );
    let _ = writeln!(text, "{:?}", plan.guarded.map(|guarded| guarded.word()));
    let seconds = |at: Timestamp| at.duration_since(now()).as_secs();
    let times = [plan.opens, plan.next_wake].map(|at| at.map(seconds));
    let _ = writeln!(text, "{times:?}");
    text
}

fn named(action: &Action) -> (&'static str, Vec<&PodRef>) {
    match action {
        Action::Delete(pod) => ("delete", vec![pod]),
        Action::Evict(pod) => ("evict", vec![pod]),
        Action::UpdateInPlace { pod, .. } => ("update in place", vec![pod]),
        Action::Mark { pod, preparing, .. } => match preparing {
            Some(true) => ("mark", vec![pod]),
            Some(false) => ("unmark", vec![pod]),
            None => ("gate", vec![pod]),
        },
        Action::Surge { beside, .. } => ("surge beside", vec![beside]),
        Action::DeleteAfterSurge { pod, successor, .. } => ("retire", vec![pod, successor]),
        Action::TransferOwnership(pod) => ("hand over", vec![pod]),
        Action::SetNeedUpgrade { pod, needed, .. } => {
            if *needed {
                ("needs upgrade", vec![pod])
            } else {
                ("needs no upgrade", vec![pod])
            }
        }
        Action::AskForImages { pod, .. } => ("ask for images", vec![pod]),
        Action::RemoveConditions { pod, .. } => ("remove conditions", vec![pod]),
    }
}

/// Returns a word for the phase that stays the same if the type is renamed.
fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Complete { .. } => "complete",
        Phase::Progressing => "progressing",
        Phase::RevisionUnknown(_) => "revision unknown",
        Phase::Stale(_) => "stale",
        Phase::Stalled(_) => "stalled",
        Phase::Paused { .. } => "paused",
        Phase::AwaitingOwners => "awaiting owners",
        Phase::AwaitingDeletions => "awaiting deletions",
        Phase::Invalid => "invalid",
    }
}

/// Decides fixed pseudo-random cases, and returns one line for each group of cases.
fn corpus(kind: &str, cases: impl Random<(Strategy, Fleet)>) -> Vec<String> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let decided = (0..CASES).map(|_| {
        let case = cases.new_tree(&mut runner).expect("a case");
        let (strategy, fleet) = case.current();
        decision(&decide(&strategy, &fleet, now()))
    });
    let decided: Vec<String> = decided.collect();
    let groups = decided.chunks(TOGETHER).enumerate();
    let line = |(number, group): (usize, &[String])| {
        let first = number * TOGETHER;
        let bytes = group.iter().flat_map(|text| text.bytes());
        format!("{kind} {first:04} {:016x}", fnv1a(bytes))
    };
    groups.map(line).collect()
}

#[test]
fn decisions_are_those_of_the_golden_corpus() {
    let mut lines = corpus("fleet", (strategies(), fleets()));
    lines.extend(corpus("outage", outages()));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if machine::is_set("YURT_DS_GOLDEN") {
        std::fs::write(file, lines.join("\n") + "\n").expect("a file");
        return;
    }
    let known = std::fs::read_to_string(file).expect("the corpus");
    let known: Vec<&str> = known.lines().collect();
    assert_eq!(known.len(), lines.len(), "groups");
    let changed = lines
        .iter()
        .zip(known)
        .filter(|(line, known)| *line != known);
    let changed: Vec<&String> = changed.map(|(line, _)| line).collect();
    assert!(
        changed.is_empty(),
        "{} of {} groups decide otherwise than {FILE} says: {changed:#?}",
        changed.len(),
        lines.len()
    );
}
