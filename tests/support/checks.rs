//! Expectations of stories: named predicates over the [`Picture`] of a story. A *remembered* pod existed at the story's last step
//! `Remember`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;

use super::picture::{Picture, condition_of, hash, is_spare, uid};

type Predicate = dyn Fn(&Picture) -> Result<(), String> + Send + Sync;

/// Named predicate over the picture of a story. If it is false, it returns the reason.
#[derive(Clone)]
pub(crate) struct Check {
    /// Name of the expectation in messages.
    pub(crate) name: String,
    predicate: Arc<Predicate>,
}

impl Check {
    pub(crate) fn new(
        name: impl Into<String>,
        predicate: impl Fn(&Picture) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            predicate: Arc::new(predicate),
        }
    }

    /// Evaluates the predicate. The error contains the reason for a failure.
    pub(crate) fn holds(&self, picture: &Picture) -> Result<(), String> {
        (self.predicate)(picture)
    }

    /// Returns a check that succeeds if both checks succeed.
    pub(crate) fn and(self, other: Self) -> Self {
        Self::new(
            format!("{} and {}", self.name, other.name),
            move |picture| {
                self.holds(picture)?;
                other.holds(picture)
            },
        )
    }
}

fn demand(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// Checks that every node of the story has an available pod, of any revision.
pub(crate) fn all_available(nodes: usize) -> Check {
    Check::new("every node has an available pod", move |picture| {
        let online = picture.online().count();
        demand(online == nodes, || {
            format!("{online} nodes of {nodes} are online")
        })?;
        for node in picture.online() {
            let available = picture
                .living(node)
                .any(|pod| picture.is_available_now(pod));
            demand(available, || format!("{node} has none"))?;
        }
        Ok(())
    })
}

/// Checks that every targeted online node has exactly one pod. The pod must belong to the DaemonSet, be available, and have the
/// current revision.
pub(crate) fn converged() -> Check {
    Check::new("converged", |picture| {
        let daemon = picture.daemon.as_ref().ok_or("no DaemonSet")?;
        let observed = daemon
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        let fresh = picture.is_up_to_date() && observed >= daemon.metadata.generation;
        demand(fresh, || "the native controller is behind".into())?;
        // The native controller writes these numbers together with the observed generation. If they are equal, it has created the
        // newest revision, and the picture contains that revision too.
        let numbers = daemon.status.as_ref();
        let numbers = numbers.map(|s| (s.updated_number_scheduled, s.desired_number_scheduled));
        let all = numbers.is_some_and(|(updated, desired)| updated.unwrap_or(0) == desired);
        demand(all, || format!("updated and desired nodes are {numbers:?}"))?;
        for node in picture.online() {
            updated(picture, node)?;
            let handed_over = !picture.pods_on(node).any(is_spare);
            demand(handed_over, || {
                format!("the pod of {node} is not handed over")
            })?;
        }
        Ok(())
    })
}

fn updated(picture: &Picture, node: &str) -> Result<(), String> {
    let pods: Vec<_> = picture.pods_on(node).collect();
    let [pod] = pods.as_slice() else {
        return Err(format!("{node} has {} pods", pods.len()));
    };
    demand(hash(&pod.metadata) == picture.current(), || {
        format!("{node} is outdated")
    })?;
    demand(picture.is_available_now(pod), || {
        format!("the pod on {node} is not available")
    })
}

/// Checks that these nodes have a new available pod of the current revision, not the remembered pod.
pub(crate) fn replaced(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("replaced on {nodes:?}"), move |picture| {
        for node in nodes.iter().map(|number| picture.node(*number)) {
            updated(picture, &node)?;
            demand(!is_same(picture, &node), || {
                format!("{node} has the same pod")
            })?;
        }
        Ok(())
    })
}

/// Checks that these nodes have another pod than the remembered one. Its state and revision don't matter.
pub(crate) fn other_pod(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("another pod on {nodes:?}"), move |picture| {
        let mut nodes = nodes.iter().map(|number| picture.node(*number));
        let waits = |node: &String| is_same(picture, node) || picture.living(node).next().is_none();
        nodes.find(waits).map_or(Ok(()), |node| {
            Err(format!("{node} has the same pod, or none"))
        })
    })
}

/// Checks that the remembered pods of these nodes were updated in place. They must be available and have the current revision.
pub(crate) fn renewed(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("updated in place on {nodes:?}"), move |picture| {
        for node in nodes.iter().map(|number| picture.node(*number)) {
            updated(picture, &node)?;
            demand(is_same(picture, &node), || {
                format!("{node} has another pod")
            })?;
        }
        Ok(())
    })
}

/// Checks that the pods of these nodes were rolled back in place. They must be available and have this image and the hash of the
/// oldest revision.
pub(crate) fn rolled_back(nodes: impl IntoIterator<Item = usize>, image: &'static str) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("taken back on {nodes:?}"), move |picture| {
        for node in nodes.iter().map(|number| picture.node(*number)) {
            let pod = picture.living(&node).next().ok_or("no pod")?;
            let found = pod.spec.as_ref().map(|spec| &spec.containers[0].image);
            demand(found == Some(&Some(image.into())), || {
                format!("{node} has {found:?}")
            })?;
            demand(hash(&pod.metadata) == picture.oldest(), || {
                format!("the pod on {node} does not name the oldest revision")
            })?;
            demand(picture.is_available_now(pod), || {
                format!("the pod on {node} is not available")
            })?;
        }
        Ok(())
    })
}

/// Checks the number of in-place updates by the controller since `remember`.
pub(crate) fn renewals(expected: usize) -> Check {
    Check::new(format!("{expected} updates in place"), move |picture| {
        let found = picture.renewals.len();
        demand(found == expected, || format!("{found}"))
    })
}

/// Checks that these nodes still have the remembered pod and that it is not terminating.
pub(crate) fn untouched(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("untouched on {nodes:?}"), move |picture| {
        for node in nodes.iter().map(|number| picture.node(*number)) {
            demand(is_same(picture, &node), || format!("{node} lost its pod"))?;
        }
        Ok(())
    })
}

fn is_same(picture: &Picture, node: &str) -> bool {
    let mut present = picture.living(node).map(|pod| uid(&pod.metadata));
    let remembered = picture.remembered(node);
    remembered.is_some_and(|remembered| present.any(|uid| uid == *remembered))
}

/// Checks the current number of surge pods: new pods that run next to old ones and that the DaemonSet doesn't own yet.
pub(crate) fn spares(expected: usize) -> Check {
    Check::new(format!("{expected} pods beside others"), move |picture| {
        let found = picture.spares();
        demand(found == expected, || format!("{found}"))
    })
}

/// Checks the largest number of surge pods that existed at the same time since `remember`.
pub(crate) fn most_spares(expected: usize) -> Check {
    Check::new(
        format!("{expected} pods beside others at most"),
        move |picture| {
            let found = picture.most_spares;
            demand(found == expected, || format!("{found}"))
        },
    )
}

/// Checks the largest number of nodes that had two pods at the same time since `remember`. The pods may have any owner.
pub(crate) fn most_doubled(expected: usize) -> Check {
    Check::new(
        format!("{expected} nodes with two pods at most"),
        move |picture| {
            let found = picture.most_doubled;
            demand(found == expected, || format!("{found}"))
        },
    )
}

/// Checks that these nodes have the remembered pod and a surge pod of the current revision.
pub(crate) fn beside_each_other(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("two pods on {nodes:?}"), move |picture| {
        for node in nodes.iter().map(|number| picture.node(*number)) {
            let mut made = picture.living(&node).filter(|pod| is_spare(pod));
            let current = made.any(|pod| hash(&pod.metadata) == picture.current());
            let fits = current && is_same(picture, &node);
            demand(fits, || format!("{node} has not"))?;
        }
        Ok(())
    })
}

/// Checks that these nodes have the remembered pod and an available surge pod.
pub(crate) fn both_ready(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    let ready = nodes.clone();
    let new = Check::new(
        format!("Ready beside others on {ready:?}"),
        move |picture| {
            for node in ready.iter().map(|number| picture.node(*number)) {
                let mut made = picture.living(&node).filter(|pod| is_spare(pod));
                let is_ready = made.any(|pod| picture.is_available_now(pod));
                demand(is_ready, || format!("{node} has none"))?;
            }
            Ok(())
        },
    );
    beside_each_other(nodes).and(new)
}

/// Checks the number of pods that the controller has deleted since `remember`.
pub(crate) fn deletions(expected: usize) -> Check {
    Check::new(format!("{expected} deletions"), move |picture| {
        let found = picture.deletions.len();
        demand(found == expected, || format!("{found}"))
    })
}

/// Checks that at least this time passed between any two deletions by the controller. The API server's timestamps are whole
/// seconds.
pub(crate) fn apart(least: Duration) -> Check {
    Check::new(format!("deletions {least:?} apart"), move |picture| {
        let stamps = picture.deletions.iter().map(|deletion| deletion.at);
        let stamps: Vec<_> = stamps.collect();
        for pair in stamps.windows(2) {
            let seconds = pair[1].as_second() - pair[0].as_second() + 1;
            demand(seconds >= least.as_secs().cast_signed(), || {
                format!("{} and {}", pair[0], pair[1])
            })?;
        }
        Ok(())
    })
}

/// Checks that the controller has deleted no pod since `remember`.
pub(crate) fn no_deletions() -> Check {
    deletions(0)
}

/// Checks that the controller has deleted at most this many pods since `remember`.
pub(crate) fn at_most_deletions(limit: usize) -> Check {
    Check::new(format!("at most {limit} deletions"), move |picture| {
        let found = picture.deletions.len();
        demand(found <= limit, || format!("{found}"))
    })
}

/// Checks that the controller has deleted at most this many pods of one node since `remember`.
pub(crate) fn at_most_deletions_on(node: usize, limit: usize) -> Check {
    Check::new(
        format!("at most {limit} deletions on {node}"),
        move |picture| {
            let name = picture.node(node);
            let found = picture
                .deletions
                .iter()
                .filter(|deletion| deletion.node == name)
                .count();
            demand(found <= limit, || format!("{found}"))
        },
    )
}

/// Checks that the controller deleted the pods of exactly these nodes, in this order.
pub(crate) fn in_order(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("replaced in the order {nodes:?}"), move |picture| {
        let expected: Vec<String> = nodes.iter().map(|number| picture.node(*number)).collect();
        let found: Vec<&String> = picture
            .deletions
            .iter()
            .map(|deletion| &deletion.node)
            .collect();
        demand(found == expected.iter().collect::<Vec<_>>(), || {
            format!("{found:?}")
        })
    })
}

/// Checks that the controller deleted all pods of one group of nodes before those of the next group.
pub(crate) fn group_by_group(groups: impl IntoIterator<Item = Vec<usize>>) -> Check {
    let groups: Vec<Vec<usize>> = groups.into_iter().collect();
    Check::new(
        format!("replaced in the groups {groups:?}"),
        move |picture| {
            let group_of = |name: &String| {
                let holds =
                    |group: &Vec<usize>| group.iter().any(|node| picture.node(*node) == *name);
                groups.iter().position(holds)
            };
            let found: Vec<&String> = picture
                .deletions
                .iter()
                .map(|deletion| &deletion.node)
                .collect();
            let order: Option<Vec<usize>> = found.iter().map(|name| group_of(name)).collect();
            let fits = order.is_some_and(|order| order.is_sorted());
            demand(fits, || format!("{found:?}"))
        },
    )
}

/// Checks the largest number of nodes that lacked a pod at the same time because of the controller, since `remember`.
pub(crate) fn peak(expected: usize) -> Check {
    Check::new(format!("{expected} nodes down at once"), move |picture| {
        demand(picture.peak == expected, || format!("{}", picture.peak))
    })
}

/// Checks that the DaemonSet has a condition with this type and status whose message contains these words.
pub(crate) fn condition(kind: &'static str, status: &'static str, says: &'static str) -> Check {
    Check::new(
        format!("condition {kind}={status} saying {says:?}"),
        move |picture| {
            let condition = picture.condition(kind).ok_or("absent")?;
            let message = condition.message.as_deref().unwrap_or_default();
            let fits = condition.status == status && message.contains(says);
            demand(fits, || format!("{}: {message}", condition.status))
        },
    )
}

/// Checks that yurt-ds has created an Event of this type whose note contains these words.
pub(crate) fn event(kind: &'static str, says: &'static str) -> Check {
    Check::new(format!("a {kind} Event saying {says:?}"), move |picture| {
        demand(count_events(picture, kind, says) > 0, || "none".into())
    })
}

/// Checks that yurt-ds has created at most this many Events of this type with these words. Repetitions count.
pub(crate) fn at_most_events(kind: &'static str, says: &'static str, limit: i64) -> Check {
    Check::new(format!("at most {limit} {kind} Events"), move |picture| {
        let count = count_events(picture, kind, says);
        demand(count <= limit, || format!("{count}"))
    })
}

/// Checks that yurt-ds has created exactly one Event of this type with these words and has not repeated it.
pub(crate) fn one_event(kind: &'static str, says: &'static str) -> Check {
    Check::new(
        format!("one {kind} Event saying {says:?}"),
        move |picture| {
            let count = count_events(picture, kind, says);
            demand(count == 1, || format!("{count}"))
        },
    )
}

/// Checks the number of Events with this reason that yurt-ds has created. Repetitions count.
pub(crate) fn events_because(reason: &'static str, expected: i64) -> Check {
    Check::new(
        format!("{expected} Events with reason {reason}"),
        move |picture| {
            let ours = our_events(picture);
            let because = ours.filter(|event| event.reason.as_deref() == Some(reason));
            let count: i64 = because.map(times).sum();
            demand(count == expected, || format!("{count}"))
        },
    )
}

/// Checks the number of Events of this type with these words that yurt-ds has created. Repetitions count.
pub(crate) fn events(kind: &'static str, says: &'static str, expected: i64) -> Check {
    Check::new(
        format!("{expected} {kind} Events saying {says:?}"),
        move |picture| {
            let count = count_events(picture, kind, says);
            demand(count == expected, || format!("{count}"))
        },
    )
}

/// Checks that yurt-ds has created at least this many Events of this type with these words. Repetitions count.
///
/// There may be one more Event than expected: yurt-ds creates it if it sees the first pods of a DaemonSet while they start.
pub(crate) fn events_at_least(kind: &'static str, says: &'static str, expected: i64) -> Check {
    Check::new(
        format!("{expected} {kind} Events or more saying {says:?}"),
        move |picture| {
            let count = count_events(picture, kind, says);
            demand(count >= expected, || format!("{count}"))
        },
    )
}

/// Returns the number of times that an Event occurred: the count in its series, or one.
fn times(event: &Event) -> i64 {
    event
        .series
        .as_ref()
        .map_or(1, |series| i64::from(series.count))
}

fn our_events(picture: &Picture) -> impl Iterator<Item = &Event> {
    let is_ours = |event: &&Event| {
        let reporter = event.reporting_controller.as_deref();
        reporter.unwrap_or_default().contains("yurt-ds")
    };
    picture.events().filter(is_ours)
}

fn count_events(picture: &Picture, kind: &str, says: &str) -> i64 {
    our_events(picture)
        .filter(|event| event.type_.as_deref() == Some(kind))
        .filter(|event| event.note.as_deref().unwrap_or_default().contains(says))
        .map(times)
        .sum()
}

/// Checks that exactly the pods of these nodes are marked `PreparingDelete`, and that each mark has a timestamp.
pub(crate) fn preparing(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(format!("preparing on {nodes:?}"), move |picture| {
        let wanted: BTreeSet<String> = nodes.iter().map(|number| picture.node(*number)).collect();
        let mut found = BTreeSet::new();
        for pod in picture
            .pods()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        {
            let labels = pod.metadata.labels.iter().flatten();
            let state = labels.filter(|(key, _)| *key == "lifecycle.apps.kruise.io/state");
            let is_marked = state
                .map(|(_, value)| value)
                .any(|value| value == "PreparingDelete");
            let mut notes = pod.metadata.annotations.iter().flatten();
            let since = notes.find(|(key, _)| *key == "lifecycle.apps.kruise.io/timestamp");
            let is_dated = since.is_some_and(|(_, at)| at.parse::<Timestamp>().is_ok());
            demand(is_marked == is_dated, || {
                format!("marked {is_marked}, dated {since:?}")
            })?;
            if is_marked {
                found.extend(pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
            }
        }
        demand(found == wanted, || format!("{found:?}"))
    })
}

/// Checks that the pod on a node has a condition with this type and status whose message contains these words.
pub(crate) fn pod_condition(
    node: usize,
    kind: &'static str,
    status: &'static str,
    says: &'static str,
) -> Check {
    Check::new(
        format!("{kind}={status} {says:?} on {node}"),
        move |picture| {
            let name = picture.node(node);
            let pod = picture.living(&name).next().ok_or("no pod")?;
            let found = condition_of(pod, kind).ok_or("absent")?;
            let message = found.message.as_deref().unwrap_or_default();
            demand(found.status == status && message.contains(says), || {
                format!("{found:?}")
            })
        },
    )
}

/// Checks that the pods of these nodes have `PodNeedUpgrade` with this status and the current revision in its message.
pub(crate) fn need_upgrade(nodes: impl IntoIterator<Item = usize>, status: bool) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    let expected = if status { "True" } else { "False" };
    Check::new(
        format!("PodNeedUpgrade={expected} on {nodes:?}"),
        move |picture| {
            let current = picture.current().ok_or("no revision")?;
            for node in nodes.iter().map(|number| picture.node(*number)) {
                let pod = picture
                    .living(&node)
                    .next()
                    .ok_or_else(|| format!("{node} has no pod"))?;
                let found = condition_of(pod, "PodNeedUpgrade")
                    .ok_or_else(|| format!("absent on {node}"))?;
                let message = found.message.as_deref().unwrap_or_default();
                let fits =
                    found.status == expected && message == format!("controllerrevision: {current}");
                demand(fits, || {
                    format!("{node}: {} {message:?}, current {current}", found.status)
                })?;
            }
            Ok(())
        },
    )
}

/// Checks the reason of `PodNeedUpgrade` on the pod of a node.
pub(crate) fn announced_because(node: usize, reason: &'static str) -> Check {
    let says = format!("PodNeedUpgrade because of {reason:?} on {node}");
    Check::new(says, move |picture| {
        let name = picture.node(node);
        let pod = picture.living(&name).next().ok_or("no pod")?;
        let found = condition_of(pod, "PodNeedUpgrade").ok_or("absent")?;
        let because = found.reason.as_deref().unwrap_or_default();
        demand(because == reason, || format!("because of {because:?}"))
    })
}

/// Checks that the pods of these nodes have `PodImageReady` with this status and reason. The message must name the current
/// revision, unless the condition reports a failure.
pub(crate) fn image_ready(
    nodes: impl IntoIterator<Item = usize>,
    status: &'static str,
    reason: &'static str,
) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new(
        format!("PodImageReady={status} {reason} on {nodes:?}"),
        move |picture| {
            let current = picture.current().ok_or("no revision")?;
            for node in nodes.iter().map(|number| picture.node(*number)) {
                let pod = picture.living(&node).next();
                let pod = pod.ok_or_else(|| format!("{node} has no pod"))?;
                let found = condition_of(pod, "PodImageReady")
                    .ok_or_else(|| format!("absent on {node}"))?;
                let message = found.message.as_deref().unwrap_or_default();
                let names = message == format!("controllerrevision: {current}")
                    || reason == "PullImageFail";
                let fits = found.status == status
                    && found.reason.as_deref().unwrap_or_default() == reason
                    && names;
                demand(fits, || format!("{node}: {found:?}, current {current}"))?;
            }
            Ok(())
        },
    )
}

/// Checks the number of Jobs that exist now, and the number of Jobs that were created since `remember`.
pub(crate) fn jobs(standing: usize, made: usize) -> Check {
    Check::new(format!("{standing} Jobs, {made} made"), move |picture| {
        let found = (picture.jobs().count(), picture.made_jobs());
        demand(found == (standing, made), || format!("{found:?}"))
    })
}

/// Checks the largest number of nodes that pulled images for Jobs at the same time since `remember`. It must be from one to
/// `limit`.
pub(crate) fn pulled_at_once(limit: usize) -> Check {
    Check::new(
        format!("at most {limit} nodes pulling at once"),
        move |picture| {
            let found = picture.pulled_at_once();
            demand((1..=limit).contains(&found), || found.to_string())
        },
    )
}

/// Checks that no pod has a condition of OTA mode (`PodNeedUpgrade` or `PodImageReady`).
pub(crate) fn no_ota_conditions() -> Check {
    Check::new("no OTA conditions", |picture| {
        for pod in picture.pods() {
            for kind in ["PodNeedUpgrade", "PodImageReady"] {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                demand(condition_of(pod, kind).is_none(), || {
                    format!("{kind} on {name}")
                })?;
            }
        }
        Ok(())
    })
}

/// Checks that the native controller has observed the latest change of the DaemonSet.
pub(crate) fn observed() -> Check {
    Check::new("observed by the native controller", |picture| {
        let daemon = picture.daemon.as_ref().ok_or("no DaemonSet")?;
        let observed = daemon
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        let fresh = picture.is_up_to_date() && observed >= daemon.metadata.generation;
        demand(fresh && picture.current().is_some(), || "not yet".into())
    })
}

/// Checks that the time between two successive deletions is always within this range, in seconds.
pub(crate) fn gaps(least: u64, most: u64) -> Check {
    Check::new(
        format!("{least} to {most} s between deletions"),
        move |picture| {
            for pair in picture.deletions.windows(2) {
                let gap = pair[1]
                    .at
                    .duration_since(pair[0].at)
                    .as_secs()
                    .unsigned_abs();
                demand((least..=most).contains(&gap), || {
                    format!("{gap} s before {}", pair[1].node)
                })?;
            }
            Ok(())
        },
    )
}

/// Checks that the pod on this node has restarted and is not available.
pub(crate) fn restarting(node: usize) -> Check {
    Check::new(format!("the pod on {node} crashes"), move |picture| {
        let name = picture.node(node);
        let pod = picture.living(&name).next().ok_or("no pod")?;
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let restarts: i32 = statuses.map(|status| status.restart_count).sum();
        demand(restarts > 0 && !picture.is_available_now(pod), || {
            format!("{restarts} restarts")
        })
    })
}

pub(crate) fn terminating(node: usize) -> Check {
    Check::new(format!("terminating on {node}"), move |picture| {
        let name = picture.node(node);
        let dying = picture
            .pods_on(&name)
            .any(|pod| pod.metadata.deletion_timestamp.is_some());
        demand(dying, || "not yet".into())
    })
}

/// Checks that this node has a Ready pod of the current revision that is not the remembered one.
pub(crate) fn runs_current(node: usize) -> Check {
    Check::new(format!("the current revision on {node}"), move |picture| {
        let name = picture.node(node);
        let pod = picture.living(&name).next().ok_or("no pod")?;
        let ready = condition_of(pod, "Ready").is_some_and(|ready| ready.status == "True");
        let fits = hash(&pod.metadata) == picture.current() && !is_same(picture, &name) && ready;
        demand(fits, || "not yet".into())
    })
}

/// Checks that the DaemonSet doesn't have this condition with status `True`.
pub(crate) fn not_condition(kind: &'static str) -> Check {
    Check::new(format!("not {kind}"), move |picture| {
        let holds = picture
            .condition(kind)
            .is_some_and(|condition| condition.status == "True");
        demand(!holds, || "it is".into())
    })
}

/// Checks that the message of this condition doesn't contain these words. The condition may be absent.
pub(crate) fn never_says(kind: &'static str, says: &'static str) -> Check {
    Check::new(format!("{kind} not saying {says:?}"), move |picture| {
        let condition = picture.condition(kind);
        let message = condition.and_then(|condition| condition.message.as_deref());
        let message = message.unwrap_or_default();
        demand(!message.contains(says), || message.to_owned())
    })
}

/// Checks the number of pods in the story's namespace that are not terminating.
pub(crate) fn pods(expected: usize) -> Check {
    Check::new(format!("{expected} pods"), move |picture| {
        let living = picture
            .pods()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .count();
        demand(living == expected, || format!("{living}"))
    })
}

/// Checks that the current revision is not the remembered one.
pub(crate) fn another_revision() -> Check {
    Check::new("another revision", |picture| {
        demand(picture.current() != picture.remembered_revision(), || {
            "the same".into()
        })
    })
}

/// Checks that `PodNeedUpgrade` on the pods of these nodes has the same lastTransitionTime as at `remember`.
pub(crate) fn transitions_unchanged(nodes: impl IntoIterator<Item = usize>) -> Check {
    let nodes: Vec<usize> = nodes.into_iter().collect();
    Check::new("lastTransitionTime unchanged", move |picture| {
        for node in nodes.iter().map(|number| picture.node(*number)) {
            let pod = picture
                .living(&node)
                .next()
                .ok_or_else(|| format!("{node} has no pod"))?;
            let found =
                condition_of(pod, "PodNeedUpgrade").and_then(|c| c.last_transition_time.clone());
            let before = picture.remembered_transition(&node);
            demand(found.is_some() && found.as_ref() == before, || {
                format!("{node}: {found:?}, before {before:?}")
            })?;
        }
        Ok(())
    })
}

/// Checks that the controller has deleted at least one pod since `remember`.
pub(crate) fn deletions_begun() -> Check {
    Check::new("deletions", |picture| {
        demand(!picture.deletions.is_empty(), || "none".into())
    })
}
