//! Random stories, generated from a seed.

use std::time::Duration;

use yurt_ds::sim::dice::mix;

/// Annotations of a DaemonSet as key and value. Keys have no prefix.
pub(crate) type Settings = &'static [(&'static str, &'static str)];

/// Settings of rollouts. Each DaemonSet of a story gets the next entry of this list, starting with a random one.
const STRATEGIES: [Settings; 12] = [
    &[("max-unavailable", "10%")],
    &[("max-unavailable", "2"), ("min-interval", "3s")],
    &[("max-surge", "10%")],
    &[("max-unavailable", "25%"), ("partition", "50%")],
    &[
        ("max-unavailable", "10%"),
        ("rolling-update-type", "InPlaceIfPossible"),
        ("image-predownload-parallelism", "0"),
    ],
    &[
        ("max-unavailable", "20%"),
        (
            "waves",
            r#"[{"name": "canary", "selector": "pool=canary", "soak": "5s"}]"#,
        ),
    ],
    &[("update-strategy", "OTA")],
    &[("max-unavailable", "10%"), ("disruption", "evict")],
    &[
        ("max-unavailable", "5"),
        ("topology-key", "zone"),
        ("max-domains", "1"),
    ],
    &[("max-unavailable", "10%"), ("ready-settle", "3s")],
    &[
        ("max-unavailable", "3"),
        ("failure-threshold", "2"),
        ("failure-window", "20s"),
    ],
    &[("max-unavailable", "1"), ("ramp-up", "1")],
];

/// Values that `max-unavailable` may change to.
const BUDGETS: [&str; 5] = ["1", "2", "5", "10%", "30%"];

/// Values that `partition` may change to.
const PARTITIONS: [&str; 4] = ["0", "3", "50%", "90%"];

/// Action of a user, or a fault. Numbers beyond the last DaemonSet or node wrap around to the first one.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The template of this DaemonSet gets the image with this number.
    Image(usize, u64),
    /// The template of this DaemonSet gets its previous image.
    Undo(usize),
    /// A setting changes or is removed.
    Set(usize, &'static str, Option<&'static str>),
    /// Nodes go offline. The values are the first node and the number of nodes.
    Leave(usize, usize),
    /// Nodes return. The values are the first node and the number of nodes.
    Return(usize, usize),
    /// An admission policy starts (true) or stops (false) rejecting deletions of this DaemonSet's pods.
    Refuse(usize, bool),
    /// A user deletes the pod of this DaemonSet on this node.
    DeletePod(usize, usize),
    /// A replica of the controller is killed and restarted.
    Kill(usize),
    /// The API server freezes for this many seconds.
    Freeze(u64),
}

/// Story of the benchmark: DaemonSets and the steps that disturb their rollouts.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// Name of the story, which makes its namespace unique.
    pub(crate) name: String,
    /// Strategy of each DaemonSet.
    pub(crate) sets: Vec<Settings>,
    /// Steps, each with its start time relative to the moment when all pods exist.
    pub(crate) steps: Vec<(Duration, Step)>,
}

pub(crate) fn set_name(number: usize) -> String {
    format!("set-{number:02}")
}

/// Pseudorandom number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % end.max(1)
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("it is below a length")
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }
}

impl Story {
    /// Generates the story with this number. Equal seeds give equal stories.
    pub(crate) fn new(seed: u64, number: u64, sets: usize, steps: usize) -> Self {
        let mut dice = Dice(mix(seed) ^ number);
        let first = dice.index(STRATEGIES.len());
        let strategies = (0..sets).map(|at| STRATEGIES[(first + at) % STRATEGIES.len()]);
        let mut at = Duration::ZERO;
        // Every DaemonSet gets a new image at the start, because faults can break promises only during a rollout.
        let mut told: Vec<(Duration, Step)> = (0..sets)
            .map(|set| (Duration::ZERO, Step::Image(set, 1)))
            .collect();
        for image in 0..steps as u64 {
            at += Duration::from_millis(200 + dice.below(3_000));
            told.push((at, step(&mut dice, sets, image + 2)));
        }
        Self {
            name: format!("{seed}-{number}"),
            sets: strategies.collect(),
            steps: told,
        }
    }
}

fn step(dice: &mut Dice, sets: usize, image: u64) -> Step {
    let set = dice.index(sets);
    let (first, count) = (dice.index(1_000), 1 + dice.index(4));
    match dice.below(26) {
        0..5 => Step::Image(set, image),
        5..8 => Step::Undo(set),
        8..10 => Step::Set(set, "max-unavailable", Some(dice.of(&BUDGETS))),
        10..12 => Step::Set(set, "paused", Some("true")),
        12..14 => Step::Set(set, "paused", None),
        14 => Step::Set(set, "partition", Some(dice.of(&PARTITIONS))),
        15 => Step::Set(set, "max-unavailable", Some("many")),
        16 => Step::Set(set, "max-surge", dice.of(&[None, Some("2")])),
        17..19 => Step::Leave(first, count),
        19..21 => Step::Return(first, count),
        21 => Step::Refuse(set, true),
        22 => Step::Refuse(set, false),
        23 => Step::DeletePod(set, first),
        24 => Step::Kill(dice.index(2)),
        _ => Step::Freeze(1 + dice.below(6)),
    }
}
