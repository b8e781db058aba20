//! Finds broken promises in the recorded changes of objects and in the controller's writes from the audit log.
//!
//! Only a write of the controller can break a promise. The controller decides with the data that it has received. So after a pause
//! or a smaller budget, its writes must follow the new setting only after [`LAG`]. The controller knows its own writes immediately,
//! so the checks count these writes without delay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::monitor::{Entry, Fact, PodFact, Said};

/// Longest time after a change of an object in which the controller may still write as if the object had not changed. It covers a
/// slow watch on a busy machine and the timeout of the write (four seconds).
const LAG: Duration = Duration::from_secs(8);

/// Names of the pods that the controller deleted, patched or created.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    /// Deleted or evicted pods.
    pub(crate) deleted: BTreeSet<String>,
    /// Pods that were updated in place or patched otherwise.
    pub(crate) patched: BTreeSet<String>,
    pub(crate) made: BTreeSet<String>,
}

/// Settings of a DaemonSet, and the time until which they applied; `None` for the current settings.
#[derive(Clone, Debug)]
struct Held {
    until: Option<Duration>,
    settings: BTreeMap<String, String>,
}

#[derive(Default)]
struct Set {
    held: Vec<Held>,
    pods: BTreeMap<String, PodFact>,
    /// Number and hash of the newest revision.
    newest: Option<(i64, String)>,
    /// `known`: hashes of all revisions that have ever been the newest. `undone`: the revision that the last change rolled back;
    /// `None` if that change was no rollback.
    known: BTreeSet<String>,
    undone: Option<String>,
    /// Nodes whose pod the controller ended and that have not had an available pod since.
    taken: BTreeSet<String>,
    conditions: Vec<Said>,
}

#[derive(Clone, Copy)]
struct Node {
    ready: bool,
    since: Duration,
}

/// Checks the recorded changes of one story.
pub(crate) struct Judge<'a> {
    deeds: &'a Deeds,
    nodes: BTreeMap<String, Node>,
    sets: BTreeMap<String, Set>,
    owners: BTreeMap<String, String>,
    broken: Vec<String>,
    /// Number of recorded pod deletions by the controller.
    pub(crate) deletions: usize,
}

impl<'a> Judge<'a> {
    /// Checks all recorded changes, in order.
    pub(crate) fn of(entries: &[Entry], deeds: &'a Deeds) -> Self {
        let mut judge = Self {
            deeds,
            nodes: BTreeMap::new(),
            sets: BTreeMap::new(),
            owners: BTreeMap::new(),
            broken: Vec::new(),
            deletions: 0,
        };
        for entry in entries {
            judge.take(entry);
        }
        judge
    }

    /// Returns the promises that were broken during the story.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.broken.clone()
    }

    /// Returns the DaemonSets whose rollout is neither complete nor stopped, and for which no condition names what the rollout
    /// waits for.
    pub(crate) fn unsettled(&self) -> Vec<String> {
        let unsettled = self.sets.iter().filter(|(_, set)| !set.is_settled());
        unsettled
            .map(|(name, set)| {
                let said = set.conditions.iter().map(|said| {
                    format!("{}={} {} {:?}", said.kind, said.status, said.reason, said.message)
                });
                let said: Vec<String> = said.collect();
                let (old, all) = set.outdated(&self.nodes);
                format!(
                    "{name} is neither complete, nor stopped, nor says what it waits for; {old} of {all} nodes that are Ready \
                     are outdated: {}",
                    said.join("; ")
                )
            })
            .collect()
    }

    /// Returns the DaemonSets that report a complete rollout while Ready nodes are outdated.
    pub(crate) fn untrue(&self) -> Vec<String> {
        let complete = self.sets.iter().filter(|(_, set)| set.says("Complete"));
        let outdated = complete.filter_map(|(name, set)| {
            let (old, all) = set.outdated(&self.nodes);
            (old > 0).then(|| format!("{name} says that it is complete, and {old} of {all} nodes that are Ready are outdated"))
        });
        outdated.collect()
    }

    fn take(&mut self, entry: &Entry) {
        match &entry.fact {
            Fact::Node { name, ready } => {
                let known = self.nodes.get(name);
                if known.is_none_or(|known| known.ready != *ready) {
                    let node = Node {
                        ready: *ready,
                        since: entry.at,
                    };
                    self.nodes.insert(name.clone(), node);
                }
            }
            Fact::Set {
                name,
                settings,
                conditions,
            } => {
                let set = self.sets.entry(name.clone()).or_default();
                set.conditions.clone_from(conditions);
                let last = set.held.last_mut();
                if last.as_ref().is_none_or(|last| last.settings != *settings) {
                    if let Some(last) = last {
                        last.until = Some(entry.at);
                    }
                    let settings = settings.clone();
                    set.held.push(Held {
                        until: None,
                        settings,
                    });
                }
            }
            Fact::Revision { set, hash, number } => {
                let set = self.sets.entry(set.clone()).or_default();
                if set
                    .newest
                    .as_ref()
                    .is_none_or(|(newest, _)| newest < number)
                {
                    let before = set.newest.replace((*number, hash.clone()));
                    let is_back = !set.known.insert(hash.clone());
                    set.undone = before.map(|(_, hash)| hash).filter(|_| is_back);
                }
            }
            Fact::Pod(pod) => self.take_pod(pod, entry),
            Fact::PodGone { uid } => self.take_end(uid, entry),
        }
    }

    fn take_pod(&mut self, pod: &PodFact, entry: &Entry) {
        self.owners.insert(pod.uid.clone(), pod.set.clone());
        let set = self.sets.entry(pod.set.clone()).or_default();
        let before = set.pods.insert(pod.uid.clone(), pod.clone());
        match before {
            None if self.deeds.made.contains(&pod.name) => self.judge_surge(pod, entry),
            Some(before) if pod.terminating && !before.terminating => {
                self.judge_end(&before, entry);
            }
            Some(before) if pod.hash != before.hash && self.deeds.patched.contains(&pod.name) => {
                self.judge_removal(&before, entry, "updated in place");
            }
            _ => {}
        }
        let set = self.sets.entry(pod.set.clone()).or_default();
        if set.serves(&pod.node) {
            set.taken.remove(&pod.node);
        }
    }

    fn take_end(&mut self, uid: &str, entry: &Entry) {
        let Some(set) = self
            .owners
            .get(uid)
            .and_then(|name| self.sets.get_mut(name))
        else {
            return;
        };
        if let Some(before) = set.pods.remove(uid).filter(|pod| !pod.terminating) {
            self.judge_end(&before, entry);
        }
    }

    fn judge_end(&mut self, pod: &PodFact, entry: &Entry) {
        if self.deeds.deleted.contains(&pod.name) {
            self.deletions += 1;
            self.judge_removal(pod, entry, "deleted");
        }
    }

    /// Checks a pod that the controller deleted or changed. `pod` is the state of the pod before that write.
    fn judge_removal(&mut self, pod: &PodFact, entry: &Entry, what: &str) {
        let Some(set) = self.sets.get_mut(&pod.set) else {
            return;
        };
        let held: Vec<&BTreeMap<String, String>> = set.held_lately(entry.at);
        let all = |key: &str, is: &dyn Fn(&str) -> bool| {
            held.iter()
                .all(|settings| settings.get(key).is_some_and(|value| is(value)))
        };
        let mut why = Vec::new();
        if all("paused", &|value| value == "true") {
            why.push("it is paused".to_owned());
        }
        if all("update-strategy", &|value| value == "OTA") {
            why.push("OTA leaves that to the owner of the node".to_owned());
        }
        if all("max-unavailable", &|value| count(value, 100).is_none()) {
            why.push("its settings are invalid".to_owned());
        }
        let nodes = self.nodes.len();
        let newest = set.newest.as_ref().map(|(_, hash)| hash.as_str());
        let is_old = |pod: &&PodFact| !pod.terminating && Some(pod.hash.as_str()) != newest;
        // `partition` keeps pods on old revisions. One exception: if the last change rolled a revision back, all pods of that
        // revision may be replaced.
        if is_old(&pod) && set.undone.as_ref() != Some(&pod.hash) {
            let old: BTreeSet<&str> = set
                .pods
                .values()
                .filter(is_old)
                .map(|pod| pod.node.as_str())
                .collect();
            let kept = held.iter().map(|settings| {
                settings
                    .get("partition")
                    .and_then(|value| floor(value, nodes))
                    .unwrap_or(0)
            });
            let kept = kept.min().unwrap_or(0);
            if old.len() < kept {
                why.push(format!(
                    "{} nodes are left with an old revision, partition keeps {kept}",
                    old.len()
                ));
            }
        }
        let budget = held.iter().map(|settings| budget(settings, nodes)).max();
        let budget = budget.unwrap_or(nodes);
        if pod.ready && !set.serves(&pod.node) {
            set.taken.insert(pod.node.clone());
            let known = |node: &&String| {
                let found = self.nodes.get(*node);
                found.is_some_and(|found| {
                    found.ready && (**node == pod.node || found.since + LAG < entry.at)
                })
            };
            let taken: Vec<&String> = set.taken.iter().filter(known).collect();
            if taken.len() > budget {
                why.push(format!(
                    "{} nodes lack an available pod because of us, {budget} may: {taken:?}",
                    taken.len()
                ));
            }
        }
        for why in why {
            self.broken.push(format!(
                "{:.1} s, version {}: pod {} of {} on {} was {what}, but {why}",
                entry.at.as_secs_f64(),
                entry.version,
                pod.name,
                pod.set,
                pod.node
            ));
        }
    }

    /// Checks a surge pod that the controller created. A surge pod starts while the old pod of the node still runs (`max-surge`).
    fn judge_surge(&mut self, pod: &PodFact, entry: &Entry) {
        let nodes = self.nodes.len();
        let Some(set) = self.sets.get(&pod.set) else {
            return;
        };
        let allowed = set.held_lately(entry.at).into_iter();
        let allowed = allowed.map(|settings| {
            settings
                .get("max-surge")
                .and_then(|value| count(value, nodes))
                .unwrap_or(0)
        });
        let allowed = allowed.max().unwrap_or(0);
        let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in set.pods.values() {
            *pods.entry(&pod.node).or_default() += 1;
        }
        let is_known = |node: &str| {
            let found = self.nodes.get(node);
            node == pod.node
                || found.is_some_and(|found| found.ready && found.since + LAG < entry.at)
        };
        let two: Vec<&str> = pods
            .into_iter()
            .filter(|(node, pods)| *pods > 1 && is_known(node))
            .map(|(node, _)| node)
            .collect();
        if two.len() > allowed {
            self.broken.push(format!(
                "{:.1} s, version {}: pod {} of {} was made, and {} nodes have two pods, {allowed} may: {two:?}",
                entry.at.as_secs_f64(), entry.version, pod.name, pod.set, two.len()
            ));
        }
    }
}

impl Set {
    /// Returns all settings that applied at some moment within the last [`LAG`].
    fn held_lately(&self, at: Duration) -> Vec<&BTreeMap<String, String>> {
        let lately = |held: &&Held| held.until.is_none_or(|until| until + LAG >= at);
        self.held
            .iter()
            .filter(lately)
            .map(|held| &held.settings)
            .collect()
    }

    /// Returns true if the node has an available pod that is not terminating.
    fn serves(&self, node: &str) -> bool {
        let mut pods = self.pods.values();
        pods.any(|pod| pod.node == node && pod.ready && !pod.terminating)
    }

    /// Returns the number of Ready nodes with a pod of an older revision, and the number of all Ready nodes.
    fn outdated(&self, nodes: &BTreeMap<String, Node>) -> (usize, usize) {
        let newest = self.newest.as_ref().map(|(_, hash)| hash);
        let is_ready = |node: &str| nodes.get(node).is_some_and(|node| node.ready);
        let old = self
            .pods
            .values()
            .filter(|pod| Some(&pod.hash) != newest && is_ready(&pod.node));
        let old: BTreeSet<&str> = old.map(|pod| pod.node.as_str()).collect();
        (old.len(), nodes.values().filter(|node| node.ready).count())
    }

    fn condition(&self, kind: &str) -> Option<&Said> {
        self.conditions
            .iter()
            .find(|said| said.kind == kind && said.status == "True")
    }

    fn says(&self, reason: &str) -> bool {
        self.condition("RolloutComplete")
            .is_some_and(|said| said.reason == reason)
    }

    fn is_settled(&self) -> bool {
        let told = |kind: &str| {
            self.condition(kind)
                .is_some_and(|said| !said.message.is_empty())
        };
        let waits = [
            "AwaitingOwners",
            "Paused",
            "BlockedByPDB",
            "OutOfWindow",
            "WaveNotOpen",
        ];
        let named = self
            .conditions
            .iter()
            .any(|said| waits.contains(&said.reason.as_str()) && !said.message.is_empty());
        told("RolloutComplete") || told("Stalled") || told("InvalidSettings") || named
    }
}

/// Returns the number of nodes that may lack an available pod. It defaults to 10 % of the nodes.
fn budget(settings: &BTreeMap<String, String>, nodes: usize) -> usize {
    let value = settings.get("max-unavailable");
    count(value.map_or("10%", String::as_str), nodes).unwrap_or(0)
}

/// Parses a number of nodes, or a percentage that is rounded up.
fn count(value: &str, nodes: usize) -> Option<usize> {
    match value.strip_suffix('%') {
        Some(percent) => Some((nodes * percent.parse::<usize>().ok()?).div_ceil(100)),
        None => value.parse().ok(),
    }
}

/// Parses a number of nodes, or a percentage that is rounded down.
fn floor(value: &str, nodes: usize) -> Option<usize> {
    match value.strip_suffix('%') {
        Some(percent) => Some(nodes * percent.parse::<usize>().ok()? / 100),
        None => value.parse().ok(),
    }
}
