//! Look-ups of pods that run on other nodes, within a rate limit. With a look-up, the answer can name the pod's node.
//!
//! A request for a pod that is not in the cache is rejected, because the pod is not on this node. The agent looks the pod up only
//! if a DaemonSet of this node could have generated the pod's name. A caller may invent such names and use up the limit. After
//! that, requests for names that are not cached are rejected without a look-up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::ota_server::pod::{NodePod, PodKey};
use crate::ota_server::route::is_subdomain;

/// Maximum number of look-ups in a burst.
const BURST: u32 = 3;
/// Time after which one more look-up is allowed.
const REFILL: Duration = Duration::from_secs(5);
/// Lifetime of a cached result. Pods don't move to other nodes, and a name without a pod is unlikely to be generated within this
/// time.
const BELIEVED: Duration = Duration::from_secs(30);
/// Maximum number of cached results. The rate limit normally keeps their number below it.
const REMEMBERED: usize = 16;
/// Characters of the suffixes that Kubernetes generates.
const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
/// Number of characters that Kubernetes appends to `generateName`.
const RANDOM: usize = 5;
/// Maximum length that Kubernetes keeps of `generateName`.
const LONGEST: usize = 63 - RANDOM;

/// Rate limit and cache of look-ups. Cheap to clone: all clones share their state.
#[derive(Clone, Debug, Default)]
pub(super) struct PodLookups(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    turn: AsyncMutex<()>,
    state: Mutex<LookupState>,
}

#[derive(Debug, Default)]
struct LookupState {
    /// Time at which the token bucket will be full. Each look-up takes a token, and postpones this time by [`REFILL`].
    full_at: Option<Instant>,
    /// Results with the times when they expire.
    answers: BTreeMap<PodKey, (Option<NodePod>, Instant)>,
}

/// Result of a look-up.
#[derive(Clone, Debug)]
pub(super) enum PodLookup {
    Found(NodePod),
    /// No pod has the name.
    Absent,
    /// The rate limit allowed no look-up.
    Refused,
}

impl PodLookups {
    /// Looks up a pod, for one caller at a time. Does not cache a pod on `node` (this node), because its state changes.
    pub(super) async fn look_up<E>(
        &self,
        node: &str,
        key: &PodKey,
        look: impl AsyncFnOnce() -> Result<Option<NodePod>, E>,
    ) -> Result<PodLookup, E> {
        let _turn = self.0.turn.lock().await;
        if let Some(known) = self.known(key) {
            return Ok(known.into());
        }
        if !self.take_token() {
            return Ok(PodLookup::Refused);
        }
        let found = look().await?;
        if found.as_ref().is_none_or(|pod| pod.facts().node != node) {
            let until = Instant::now() + BELIEVED;
            self.state()
                .answers
                .insert(key.clone(), (found.clone(), until));
        }
        Ok(found.into())
    }

    fn known(&self, key: &PodKey) -> Option<Option<NodePod>> {
        let now = Instant::now();
        let mut state = self.state();
        state.answers.retain(|_, (_, until)| *until > now);
        state.answers.get(key).map(|(found, _)| found.clone())
    }

    fn take_token(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        let full_at = state.full_at.map_or(now, |at| at.max(now)) + REFILL;
        if full_at > now + REFILL * BURST || state.answers.len() >= REMEMBERED {
            return false;
        }
        state.full_at = Some(full_at);
        true
    }

    fn state(&self) -> MutexGuard<'_, LookupState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Option<NodePod>> for PodLookup {
    fn from(found: Option<NodePod>) -> Self {
        found.map_or(Self::Absent, Self::Found)
    }
}

/// Returns true if the name fits a DaemonSet that has a pod in `pods`. Then a pod of the DaemonSet on another node may have this
/// name.
pub(super) fn could_be_named(key: &PodKey, pods: &[NodePod]) -> bool {
    let same_namespace = pods
        .iter()
        .filter(|pod| pod.key().namespace == key.namespace);
    let mut owners = same_namespace.filter_map(NodePod::controller);
    owners.any(|owner| owner.kind == "DaemonSet" && is_generated(&key.name, &owner.name))
}

/// Returns true if the API server could have generated `name` for a pod of that DaemonSet.
fn is_generated(name: &str, daemonset: &str) -> bool {
    let base = format!("{daemonset}-");
    let base = base.get(..LONGEST).unwrap_or(&base);
    let Some(random) = name.strip_prefix(base) else {
        return false;
    };
    random.len() == RANDOM && random.chars().all(|letter| ALPHABET.contains(letter))
}

/// Returns true if the text is a valid name of a pod or namespace. A request for an invalid name cannot succeed.
pub(super) fn is_name(name: &str) -> bool {
    name.len() <= 253 && is_subdomain(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PodKey {
        PodKey::new("default", name)
    }

    #[test]
    fn only_generated_pod_names_are_looked_up() {
        fn case(name: &str, expected: bool) {
            assert_eq!(is_generated(name, "nginx"), expected, "{name}");
        }
        case("nginx-bwzss", true);
        case("nginx-2x4z9", true);
        case("nginx-bwzs", false);
        case("nginx-bwzsss", false);
        case("nginx-abcde", false);
        case("nginx-BWZSS", false);
        case("nginx-b/zss", false);
        case("nginy-bwzss", false);
        case("nginx", false);
        let long = "n".repeat(80);
        assert!(is_generated(&format!("{}bwzss", &long[..58]), &long));
    }

    #[test]
    fn invalid_names_are_never_sent() {
        for name in ["", "-a", "a-", ".", "..", "a/b", "a%2fb", "A", "a b", "ä"] {
            assert!(!is_name(name), "{name:?}");
        }
        for name in ["a", "nginx-bwzss", "kube-proxy.n1", "0"] {
            assert!(is_name(name), "{name:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn three_lookups_run_at_once_and_then_one_every_five_seconds() {
        let pod_lookups = PodLookups::default();
        let looks = async |numbers: std::ops::Range<u32>| {
            let mut looks = 0;
            for number in numbers {
                let look = async || {
                    looks += 1;
                    Ok::<_, ()>(None)
                };
                pod_lookups
                    .look_up("n1", &key(&format!("a{number}")), look)
                    .await
                    .unwrap();
            }
            looks
        };
        assert_eq!(looks(0..100).await, 3);
        tokio::time::advance(REFILL - Duration::from_millis(1)).await;
        assert_eq!(looks(100..200).await, 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(looks(200..300).await, 1);
        tokio::time::advance(REFILL * 100).await;
        assert_eq!(looks(300..400).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_pod_is_not_looked_up_again_for_a_while() {
        let pod_lookups = PodLookups::default();
        let mut looks = 0;
        for _ in 0..7 {
            let look = async || {
                looks += 1;
                Ok::<_, ()>(None)
            };
            pod_lookups.look_up("n1", &key("a"), look).await.unwrap();
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert_eq!(looks, 3); // At 0, 30 and 60 seconds: results expire after 30 seconds.
    }
}
