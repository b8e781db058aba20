//! Manifest of a surge pod. It equals a pod of the native controller, except for its owners and its name.
//!
//! - Owners: the ControllerRevision controls the pod, so the native controller ignores the pod. The DaemonSet is a second owner
//!   that doesn't control the pod. The revision may be deleted early, for example with `revisionHistoryLimit: 0`. Then the garbage
//!   collector removes only the reference to the revision, and the native controller adopts the pod. When the DaemonSet is deleted,
//!   both owners are gone, so the pod is deleted too.
//! - Name: derived from the old pod and the revision. So repeated requests never create two successors of the same revision. If a
//!   user detached the pod with the first name from the DaemonSet, another name is used. The name sorts before every generated
//!   name. If two pods were created in the same second, the native controller keeps the one whose name sorts first: the surge pod.

use serde_json::{Map, Value, json};

use crate::controller::owner::DaemonSetOwner;
use crate::core::names::{KRUISE_VERSION, REVISION_HASH_LABEL, TEMPLATE_GENERATION_LABEL};
use crate::core::revision::TemplateFingerprint;
use crate::core::{NodeName, PodUid, Revision};
use crate::index::SetKey;
use crate::k8s;

/// Maximum length of a pod name. The pod name is also the host name of the pod, so it has to be a DNS label.
const LONGEST: usize = 63;
/// Character that sorts before every character of a generated suffix (`bcdfghjklmnpqrstvwxz2456789`).
const FIRST: char = '0';
/// Number of hexadecimal digits after `FIRST`.
const DIGITS: usize = 9;

/// ControllerRevision from whose template pods are created.
pub(super) struct TemplateOrigin<'a> {
    key: &'a SetKey,
    set: &'a DaemonSetOwner,
    revision: &'a Revision,
    name: &'a str,
    uid: &'a str,
    template: &'a Value,
}

impl<'a> TemplateOrigin<'a> {
    /// Reads a ControllerRevision. Returns `None` if the revision has changed since the decision.
    pub(super) fn read(
        object: &'a Value,
        set: &'a DaemonSetOwner,
        key: &'a SetKey,
        revision: &'a Revision,
    ) -> Option<Self> {
        let meta = &object["metadata"];
        let template = object.pointer("/data/spec/template")?;
        let owners = meta["ownerReferences"].as_array()?;
        let is_ours = owners.iter().any(|owner| owner["uid"] == *set.uid);
        let is_expected = set
            .template
            .is_none_or(|expected| expected == TemplateFingerprint::from_template(template));
        let lives = meta["deletionTimestamp"].is_null();
        (is_ours && is_expected && lives).then_some(Self {
            key,
            set,
            revision,
            name: meta["name"].as_str()?,
            uid: meta["uid"].as_str()?,
            template,
        })
    }

    /// Returns true if the pod is a surge pod of the DaemonSet.
    pub(super) fn owns(&self, pod: &k8s::Pod) -> bool {
        self.set.owns(pod)
    }

    /// Returns the name of the surge pod next to the old pod with this UID. `taken` is the number of names that are already taken.
    pub(super) fn name(&self, beside: &PodUid, taken: usize) -> String {
        name(&self.key.name, self.revision, beside, taken)
    }

    /// Returns true if the revision belongs to an Advanced DaemonSet.
    pub(super) fn is_advanced(&self) -> bool {
        self.set.is_advanced()
    }

    pub(super) fn namespace(&self) -> &str {
        &self.key.namespace
    }
}

/// Returns an owner reference with `controller: true`.
///
/// It lacks `blockOwnerDeletion`, which would require the permission to update the owner's finalizers.
pub(super) fn controlled_by(kind: &str, name: &str, uid: &str) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true })
}

pub(super) fn manifest(origin: &TemplateOrigin<'_>, node: &NodeName, name: &str) -> Value {
    let (key, meta) = (origin.key, &origin.template["metadata"]);
    let mut labels = object(&meta["labels"]);
    labels.insert(
        REVISION_HASH_LABEL.to_owned(),
        origin.revision.as_str().into(),
    );
    if let Some(generation) = &origin.set.template_generation {
        labels.insert(
            TEMPLATE_GENERATION_LABEL.to_owned(),
            generation.as_str().into(),
        );
    }
    let mut spec = origin.template["spec"].clone();
    pin(&mut spec, node.as_str());
    tolerate(&mut spec);
    let belongs_to = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": &*key.name, "uid": origin.set.uid,
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": format!("{}-", key.name),
            "namespace": &*key.namespace,
            "labels": labels,
            "annotations": meta["annotations"],
            "finalizers": meta["finalizers"],
            "ownerReferences": [
                controlled_by("ControllerRevision", origin.name, origin.uid),
                belongs_to,
            ],
        },
        "spec": spec,
    })
}

/// Returns the manifest of an Advanced DaemonSet's pod for `node`, equal to what Kruise creates.
pub(super) fn advanced_manifest(origin: &TemplateOrigin<'_>, node: &NodeName) -> Value {
    let mut pod = manifest(origin, node, "");
    let meta = &mut pod["metadata"];
    if let Some(fields) = meta.as_object_mut() {
        fields.remove("name");
    }
    meta["ownerReferences"] = json!([controlled_by_advanced(&origin.key.name, &origin.set.uid)]);
    let gates = origin.set.gates.iter().flatten();
    let spec = &mut pod["spec"];
    let mut present = spec["readinessGates"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for gate in gates {
        if !present.iter().any(|known| known["conditionType"] == **gate) {
            present.push(json!({ "conditionType": gate }));
        }
    }
    if !present.is_empty() {
        spec["readinessGates"] = present.into();
    }
    pod
}

/// Returns the owner reference to an Advanced DaemonSet. Its API version is the one that Kruise always writes.
pub(in crate::controller) fn controlled_by_advanced(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": KRUISE_VERSION, "kind": "DaemonSet", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Returns the name of a surge pod. `taken` is the number of names that are already taken.
fn name(daemonset: &str, revision: &Revision, beside: &PodUid, taken: usize) -> String {
    let room = LONGEST - DIGITS - 2;
    let mut head: String = daemonset.chars().take_while(char::is_ascii).collect();
    head.truncate(room);
    // The name continues with a hyphen. In a DNS-1123 name, no hyphen may come after a dot.
    let head = head.trim_end_matches('.');
    let mut text = format!("{beside}/{revision}");
    if taken > 0 {
        text.push_str(&format!("/{taken}"));
    }
    let digest = fnv(text.as_bytes()) & ((1 << (4 * DIGITS)) - 1);
    format!("{head}-{FIRST}{digest:0DIGITS$x}")
}

/// FNV-1a hash with 64 bits. A name contains 36 bits of it.
///
/// With a thousand old pods, two names collide once in a hundred thousand rollouts. In that case, one pod is created only after the
/// DaemonSet has become the owner of the other one.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Restricts the pod to one node by node affinity, as the scheduler expects. Preferences in the template are kept.
fn pin(spec: &mut Value, node: &str) {
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    let mut affinity = object(&spec["affinity"]);
    let mut of_node = object(&affinity.remove("nodeAffinity").unwrap_or_default());
    of_node.insert(
        "requiredDuringSchedulingIgnoredDuringExecution".to_owned(),
        json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] }),
    );
    affinity.insert("nodeAffinity".to_owned(), of_node.into());
    spec["affinity"] = affinity.into();
}

/// Tolerations that pods of a DaemonSet have in addition to those of their template (Kubernetes,
/// `AddOrUpdateDaemonPodTolerations`).
const TOLERATED: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];
/// Additional toleration of pods that use the host network.
const TOLERATED_ON_HOST_NETWORK: (&str, &str) = ("network-unavailable", "NoSchedule");

/// Adds [`TOLERATED`]. An equal toleration of the template is replaced, because its `tolerationSeconds` would end the pod.
fn tolerate(spec: &mut Value) {
    let host_network = (spec["hostNetwork"] == true).then_some(TOLERATED_ON_HOST_NETWORK);
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for (name, effect) in TOLERATED.into_iter().chain(host_network) {
        let key = format!("node.kubernetes.io/{name}");
        tolerations.retain(|present| {
            !(present["key"] == *key
                && present["operator"] == "Exists"
                && present["effect"] == *effect)
        });
        tolerations.push(json!({ "key": key, "operator": "Exists", "effect": effect }));
    }
    spec["tolerations"] = tolerations.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin<'a>(
        set: &'a DaemonSetOwner,
        key: &'a SetKey,
        revision: &'a Value,
    ) -> Option<TemplateOrigin<'a>> {
        static HASH: std::sync::OnceLock<Revision> = std::sync::OnceLock::new();
        let hash = HASH.get_or_init(|| "7f9f6846dc".into());
        TemplateOrigin::read(revision, set, key, hash)
    }

    fn revision() -> Value {
        json!({
            "metadata": {
                "name": "agent-7f9f6846dc", "uid": "r1",
                "ownerReferences": [{ "kind": "DaemonSet", "uid": "d1", "controller": true }],
            },
            "data": { "spec": { "template": {
                "$patch": "replace",
                "metadata": { "labels": { "app": "agent" }, "annotations": { "a": "b" } },
                "spec": {
                    "containers": [{ "name": "agent", "image": "agent:2", "fieldOfTheFuture": { "x": 1 } }],
                    "hostNetwork": true,
                    "affinity": {
                        "podAntiAffinity": { "p": 1 },
                        "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [7],
                                          "requiredDuringSchedulingIgnoredDuringExecution": "old" },
                    },
                    "tolerations": [
                        { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                          "tolerationSeconds": 5 },
                        { "key": "gpu", "operator": "Exists" },
                    ],
                },
            } } },
        })
    }

    fn set(template: Option<&Value>) -> DaemonSetOwner {
        DaemonSetOwner {
            uid: "d1".into(),
            template_generation: Some("4".into()),
            template: template.map(TemplateFingerprint::from_template),
            selector: None,
            gates: None,
        }
    }

    #[test]
    fn a_surge_pod_matches_the_native_controllers_except_owner_and_name() {
        let (set, key, revision) = (set(None), SetKey::new("shop", "agent"), revision());
        let origin = origin(&set, &key, &revision).expect("the revision fits");
        let pod = manifest(&origin, &"n1".into(), "agent-0");
        let meta = &pod["metadata"];
        assert_eq!(
            meta["labels"],
            json!({ "app": "agent", "controller-revision-hash": "7f9f6846dc", "pod-template-generation": "4" })
        );
        assert_eq!(meta["annotations"], json!({ "a": "b" }));
        assert_eq!(meta["name"], "agent-0");
        assert_eq!(meta["generateName"], "agent-");
        assert_eq!(
            meta["ownerReferences"],
            json!([
                { "apiVersion": "apps/v1", "kind": "ControllerRevision", "name": "agent-7f9f6846dc", "uid": "r1",
                  "controller": true },
                { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d1" },
            ])
        );
        let spec = &pod["spec"];
        assert_eq!(spec["containers"][0]["fieldOfTheFuture"], json!({ "x": 1 }));
        let affinity = &spec["affinity"];
        assert_eq!(affinity["podAntiAffinity"], json!({ "p": 1 }));
        let of_node = &affinity["nodeAffinity"];
        assert_eq!(
            of_node["preferredDuringSchedulingIgnoredDuringExecution"],
            json!([7])
        );
        let terms = &of_node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        assert_eq!(
            *terms,
            json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] }])
        );
        let tolerations = spec["tolerations"].as_array().expect("a list");
        assert_eq!(tolerations.len(), 8);
        assert!(
            tolerations
                .iter()
                .all(|one| one["tolerationSeconds"].is_null())
        );
    }

    #[test]
    fn a_revision_with_another_template_or_owner_creates_no_surge_pod() {
        let (key, object) = (SetKey::new("shop", "agent"), revision());
        let template = &object["data"]["spec"]["template"];
        assert!(origin(&set(Some(template)), &key, &object).is_some());
        let other = json!({ "spec": { "containers": [] } });
        assert!(origin(&set(Some(&other)), &key, &object).is_none());
        let mut foreign = object.clone();
        foreign["metadata"]["ownerReferences"][0]["uid"] = "d2".into();
        assert!(origin(&set(Some(template)), &key, &foreign).is_none());
    }

    #[test]
    fn a_surge_pod_name_is_derived_from_old_pod_and_revision_and_sorts_first() {
        let of = |set: &str, revision: &str, pod: &str| name(set, &revision.into(), &pod.into(), 0);
        let one = of("agent", "r1", "u1");
        assert_eq!(one, of("agent", "r1", "u1"));
        assert_ne!(one, of("agent", "r2", "u1"));
        assert_ne!(one, of("agent", "r1", "u2"));
        assert_ne!(one, name("agent", &"r1".into(), &"u1".into(), 1));
        assert_eq!(one.len(), "agent-".len() + 1 + DIGITS);
        assert!(one.as_str() < "agent-22222", "{one}");
        assert_eq!(of(&"a".repeat(200), "r1", "u1").len(), LONGEST);
        for before in 40..60 {
            let dotted = format!("{}.{}", "a".repeat(before), "b".repeat(60));
            let name = of(&dotted, "r1", "u1");
            assert!(is_dns_1123(&name), "{name}");
            let generated = format!("{}22222", &format!("{dotted}-")[..58]);
            assert!(name < generated, "{name} {generated}");
        }
    }

    /// Returns true if the API server accepts the name. Its parts must consist of lower-case letters, digits and hyphens, and
    /// must not begin or end with a hyphen.
    fn is_dns_1123(name: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        name.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(fits)
                && !part.starts_with('-')
                && !part.ends_with('-')
        })
    }
}
