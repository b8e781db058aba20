//! ControllerRevisions of an Advanced DaemonSet: one for each pod template that the DaemonSet has had.
//!
//! Names and contents are the same as in Kruise, so that either controller can continue the work of the other.
//!
//! The revision of the current template is found by comparing templates ([`TemplateFingerprint`]), not by calculating a hash. The
//! hash in the name only has to be unique.

use std::collections::BTreeMap;

use kube::Resource as _;
use kube::api::Patch;
use serde_json::{Map, Value, json};

use crate::controller::apply::{WriteError, Writer, deleted, patched, posted, read, requests};
use crate::controller::live_reads::in_time;
use crate::controller::owner::DaemonSetOwner;
use crate::controller::reflector::list_each;
use crate::controller::surge::manifest::controlled_by_advanced;
use crate::core::names::REVISION_HASH_LABEL;
use crate::core::revision::TemplateFingerprint;
use crate::core::{PodRef, Revision};
use crate::index::SetKey;
use crate::k8s;
use crate::k8s::client::Failure;

/// Maximum number of names that are tried for a new revision. A name contains a hash of the template and of a counter, and another
/// object may already have that name.
const NAMES: i64 = 8;

/// Request to store the current template of an Advanced DaemonSet in a ControllerRevision.
pub(in crate::controller) struct RevisionSync {
    pub(in crate::controller) key: SetKey,
    pub(in crate::controller) owner: DaemonSetOwner,
    /// Fingerprint of the template on which the decision is based.
    pub(in crate::controller) template: TemplateFingerprint,
    /// Label selector of the pods and revisions, in the syntax of the query parameter `labelSelector`.
    pub(in crate::controller) selector: String,
    /// Pods, by the revision hash in their label.
    pub(in crate::controller) pods: BTreeMap<Revision, Vec<PodRef>>,
    /// Current `status.collisionCount`.
    pub(in crate::controller) collisions: i64,
}

/// Revisions of an Advanced DaemonSet after [`Writer::sync_revisions`].
#[derive(Debug, Default)]
pub(in crate::controller) struct RevisionsRead {
    /// All existing revisions of the DaemonSet.
    pub(in crate::controller) revisions: Vec<k8s::ControllerRevision>,
    /// Names of the duplicates that were deleted.
    pub(in crate::controller) removed: Vec<String>,
    /// New `status.collisionCount`.
    pub(in crate::controller) collisions: i64,
}

impl Writer {
    /// Ensures that exactly one revision contains the current template, and that this revision has the highest number.
    ///
    /// If the DaemonSet changed after the decision, writes nothing and returns no revisions: the watch is about to report the
    /// change.
    pub(in crate::controller) async fn sync_revisions(
        &self,
        sync: &RevisionSync,
    ) -> Result<RevisionsRead, WriteError> {
        let _one_of_few = self.whole_template().await;
        let (key, owner) = (&sync.key, &sync.owner);
        let path = k8s::AdvancedDaemonSet::url_path(&(), Some(&key.namespace));
        let mut set: Value =
            read(self.client(), path, "daemonsets.apps.kruise.io", &key.name).await?;
        let (mut meta, template) = (set["metadata"].take(), set["spec"]["template"].take());
        let is_it = meta["uid"] == *owner.uid && meta["deletionTimestamp"].is_null();
        if !is_it || TemplateFingerprint::from_template(&template) != sync.template {
            return Ok(RevisionsRead::default());
        }
        let mut owned = self.claim(sync).await?;
        let mut found = RevisionsRead {
            collisions: sync.collisions,
            ..RevisionsRead::default()
        };
        let greatest = owned.iter().map(|one| one.revision).max().unwrap_or(0);
        let same = (0..owned.len()).filter(|at| holds(&owned[*at], sync));
        let mut same: Vec<usize> = same.collect();
        same.sort_by_key(|at| owned[*at].revision);
        match same.pop() {
            None => {
                let made = self
                    .make_revision(sync, template, meta["annotations"].take(), greatest + 1)
                    .await?;
                found.collisions = made.1;
                owned.push(made.0);
            }
            Some(kept) => {
                let is_alone = owned
                    .iter()
                    .filter(|other| other.revision == greatest)
                    .count()
                    == 1;
                if owned[kept].revision < greatest || !is_alone {
                    owned[kept] = self.raise(key, &owned[kept], greatest + 1).await?;
                }
                let hash = hash(&owned[kept], &key.name);
                for twin in same {
                    let twin = owned[twin].clone();
                    self.merge(sync, &twin, &hash).await?;
                    found.removed.push(name(&twin).to_owned());
                }
            }
        }
        owned.retain(|one| !found.removed.iter().any(|gone| gone == name(one)));
        found.revisions = owned;
        Ok(found)
    }

    /// Adopts revisions without a controller. Returns all revisions that the DaemonSet controls.
    ///
    /// Keeps only the fingerprints of their templates, because there may be many revisions with a megabyte each.
    async fn claim(&self, sync: &RevisionSync) -> Result<Vec<k8s::ControllerRevision>, WriteError> {
        let (key, owner) = (&sync.key, &sync.owner);
        let mut listed: Vec<k8s::ControllerRevision> = Vec::new();
        let take = |revision| listed.push(revision);
        let namespace = Some(&*key.namespace);
        let list = list_each(self.client(), namespace, &sync.selector, take);
        in_time(list).await.map_err(|error| WriteError::Failed {
            verb: "list",
            resource: "controllerrevisions",
            error,
        })?;
        let mut owned = Vec::new();
        for revision in listed {
            let meta = &revision.metadata;
            let mut owners = meta.owner_references.iter().flatten();
            match owners.find(|owner| owner.controller == Some(true)) {
                Some(controller) if controller.uid == *owner.uid => owned.push(revision),
                Some(_) => {}
                None if meta.deletion_timestamp.is_some() => {}
                None => {
                    let reference = controlled_by_advanced(&key.name, &owner.uid);
                    let patch = json!({ "metadata": {
                        "uid": meta.uid,
                        "ownerReferences": [reference],
                    } });
                    owned.push(self.patch_revision(key, name(&revision), &patch).await?);
                }
            }
        }
        Ok(owned)
    }

    /// Gives the highest number to an existing revision whose template is the current one again, for example after a rollback.
    async fn raise(
        &self,
        key: &SetKey,
        revision: &k8s::ControllerRevision,
        to: i64,
    ) -> Result<k8s::ControllerRevision, WriteError> {
        let patch = json!({
            "metadata": { "uid": revision.metadata.uid },
            "revision": to,
        });
        self.patch_revision(key, name(revision), &patch).await
    }

    async fn read_revision(
        &self,
        key: &SetKey,
        name: &str,
    ) -> Result<k8s::ControllerRevision, WriteError> {
        let path = k8s::ControllerRevision::url_path(&(), Some(&key.namespace));
        read(self.client(), path, "controllerrevisions", name).await
    }

    async fn patch_revision(
        &self,
        key: &SetKey,
        name: &str,
        patch: &Value,
    ) -> Result<k8s::ControllerRevision, WriteError> {
        let parameters = patched();
        let requests = requests::<k8s::ControllerRevision>(&key.namespace);
        let request = requests.patch(name, &parameters, &Patch::Merge(patch));
        let answer = self.send("patch", "controllerrevisions", request).await?;
        answered(&answer)
    }

    /// Relabels the pods of the duplicate revision `twin` with the hash `kept`, and deletes the duplicate.
    ///
    /// Pods of other revisions are not changed (unlike in Kruise and Kubernetes, see kubernetes#111280).
    async fn merge(
        &self,
        sync: &RevisionSync,
        twin: &k8s::ControllerRevision,
        kept: &str,
    ) -> Result<(), WriteError> {
        let hash = hash(twin, &sync.key.name);
        let pods = sync.pods.get(&Revision::from(hash.as_str()));
        for pod in pods.into_iter().flatten().filter(|_| hash != kept) {
            let patch = json!({ "metadata": {
                "uid": pod.uid.to_string(),
                "labels": { REVISION_HASH_LABEL: kept },
            } });
            match self
                .patch_meta(&sync.key, pod.name.as_str(), &Patch::Merge(patch))
                .await
            {
                Err(refusal) if refusal.failure() == Some(Failure::Gone) => {}
                answer => answer?,
            }
        }
        let uid = twin.metadata.uid.as_deref().unwrap_or_default();
        let namespace = &sync.key.namespace;
        self.delete_revision(namespace, name(twin), &deleted(uid))
            .await
    }

    /// Creates a revision with the current template and the annotations of the DaemonSet. Also returns the new
    /// `status.collisionCount`.
    ///
    /// If another revision of the DaemonSet has the name and the same template, returns that revision: another controller has just
    /// created it. Kubernetes does the same (`snapshot`).
    async fn make_revision(
        &self,
        sync: &RevisionSync,
        template: Value,
        annotations: Value,
        number: i64,
    ) -> Result<(k8s::ControllerRevision, i64), WriteError> {
        let parameters = posted();
        let template = payload(template);
        let text = template.to_string();
        let mut object = manifest(sync, template, annotations, number);
        let mut collisions = sync.collisions;
        loop {
            name_by(&mut object, &sync.key.name, &hash_of(&text, collisions));
            let requests = requests::<k8s::ControllerRevision>(&sync.key.namespace);
            let request = requests.create(&parameters, k8s::go_json(&object).into_bytes());
            let refusal = match self.send("create", "controllerrevisions", request).await {
                Ok(answer) => return Ok((answered(&answer)?, collisions)),
                Err(refusal) => refusal,
            };
            let is_taken = refusal.failure() == Some(Failure::Conflict);
            if !is_taken {
                return Err(refusal);
            }
            let taken = object["metadata"]["name"].as_str().unwrap_or_default();
            let taken = self.read_revision(&sync.key, taken).await?;
            if is_same(&taken, sync) {
                return if taken.revision < number {
                    Ok((self.raise(&sync.key, &taken, number).await?, collisions))
                } else {
                    Ok((taken, collisions))
                };
            }
            if collisions - sync.collisions >= NAMES {
                return Err(refusal);
            }
            collisions += 1;
        }
    }
}

/// Returns true if the revision contains the current template.
fn holds(revision: &k8s::ControllerRevision, sync: &RevisionSync) -> bool {
    let held = revision.template.as_ref();
    held.is_some_and(|held| held.fingerprint == sync.template)
}

/// Returns true if the revision contains the current template, belongs to the DaemonSet, and is not being deleted.
fn is_same(revision: &k8s::ControllerRevision, sync: &RevisionSync) -> bool {
    let mut owners = revision.metadata.owner_references.iter().flatten();
    let is_own = owners.any(|owner| owner.controller == Some(true) && owner.uid == sync.owner.uid);
    is_own && revision.metadata.deletion_timestamp.is_none() && holds(revision, sync)
}

fn name(revision: &k8s::ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

fn hash(revision: &k8s::ControllerRevision, set: &str) -> String {
    let labels = revision.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(REVISION_HASH_LABEL));
    crate::core::revision::hash_of(label.map(String::as_str), name(revision), set).to_string()
}

/// Parses the revision in the response to a write.
fn answered(answer: &str) -> Result<k8s::ControllerRevision, WriteError> {
    serde_json::from_str(answer).map_err(|error| WriteError::Failed {
        verb: "read",
        resource: "controllerrevisions",
        error: kube::Error::SerdeError(error).into(),
    })
}

/// Returns the manifest of a ControllerRevision with this template and number. The name is not set yet.
fn manifest(sync: &RevisionSync, template: Value, annotations: Value, number: i64) -> Value {
    let key = &sync.key;
    let labels = template["metadata"]["labels"].as_object();
    let labels = labels.cloned().unwrap_or_default();
    let mut object = json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "namespace": &*key.namespace,
            "labels": labels,
            "ownerReferences": [controlled_by_advanced(&key.name, &sync.owner.uid)],
        },
        "revision": number,
        "data": { "spec": {} },
    });
    object["metadata"]["annotations"] = annotations;
    object["data"]["spec"]["template"] = template; // moved and not cloned, because a template can have a megabyte
    object
}

fn name_by(revision: &mut Value, set: &str, hash: &str) {
    revision["metadata"]["name"] = format!("{set}-{hash}").into();
    revision["metadata"]["labels"][REVISION_HASH_LABEL] = hash.into();
}

/// Returns a template in the form in which Kruise stores it in a revision.
///
/// The form includes the empty fields that Kruise's Go types add. So Kruise recognizes the revision if Kruise manages the DaemonSet
/// again.
fn payload(template: Value) -> Value {
    let mut payload = match template {
        Value::Object(payload) => payload,
        _ => Map::new(),
    };
    payload.insert("$patch".to_owned(), "replace".into());
    let object = |value: Option<&mut Value>| value.and_then(Value::as_object_mut).map(|_| ());
    if object(payload.get_mut("metadata")).is_none() {
        payload.insert("metadata".to_owned(), Value::Object(Map::new()));
    }
    if let Some(meta) = payload.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.entry("creationTimestamp").or_insert(Value::Null);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let spec = payload.get_mut("spec");
        let containers = spec.and_then(|spec| spec.get_mut(list)?.as_array_mut());
        for container in containers.into_iter().flatten() {
            if let Some(fields) = container.as_object_mut() {
                fields.entry("resources").or_insert_with(|| json!({}));
            }
        }
    }
    Value::Object(payload)
}

/// Returns the hash in the name of a revision with this template.
///
/// The hash has at most ten characters, from an alphabet without vowels so that they form no words (Kubernetes,
/// `SafeEncodeString`).
fn hash_of(template: &str, collisions: i64) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let collisions = match collisions {
        ..=0 => String::new(),
        some => some.to_string(),
    };
    let digest = template
        .bytes()
        .chain(collisions.bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
    let digits = digest.to_string();
    let encode = |digit: u8| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]);
    digits.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use kube::api::DeleteParams;

    use super::*;
    use crate::clock::Clock;
    use crate::controller::lease::Leadership;
    use crate::controller::metrics::Metrics;
    use crate::core::names::KRUISE_VERSION;
    use crate::index::SetKind;
    use crate::sim::cluster::{Cluster, ClusterOptions};

    #[test]
    fn a_revision_payload_matches_kruise_and_keeps_its_fingerprint() {
        let template = json!({
            "metadata": { "labels": { "app": "agent" } },
            "spec": { "containers": [{ "name": "a", "image": "a:1" },
                                     { "name": "b", "resources": { "limits": { "cpu": "1" } } }] },
        });
        let written = payload(template.clone());
        assert_eq!(
            written.to_string(),
            r#"{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"agent"}},"spec":{"containers":[{"image":"a:1","name":"a","resources":{}},{"name":"b","resources":{"limits":{"cpu":"1"}}}]}}"#
        );
        assert_eq!(
            TemplateFingerprint::from_template(&written),
            TemplateFingerprint::from_template(&template)
        );
    }

    /// Advanced DaemonSet on a simulated cluster, and a controller without leader election.
    struct World {
        cluster: Cluster,
        leadership: tokio::sync::watch::Sender<Leadership>,
        sync: RevisionSync,
    }

    impl World {
        async fn new() -> Self {
            let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
            let cluster = Cluster::new(ClusterOptions {
                advanced: true,
                ..ClusterOptions::new(clock, 1)
            });
            let template = json!({
                "metadata": { "labels": { "app": "agent" } },
                "spec": { "containers": [{ "name": "a", "image": "a:1" }] },
            });
            let set = json!({
                "apiVersion": KRUISE_VERSION, "kind": "DaemonSet",
                "metadata": { "name": "agent", "namespace": "default" },
                "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": template },
            });
            let request = requests::<k8s::AdvancedDaemonSet>("default");
            let request = request.create(&posted(), set.to_string().into_bytes());
            let made: Value = cluster
                .client("user")
                .request(request.unwrap())
                .await
                .unwrap();
            let owner = DaemonSetOwner {
                uid: made["metadata"]["uid"].as_str().unwrap().to_owned(),
                template_generation: None,
                template: None,
                selector: None,
                gates: Some(Vec::new()),
            };
            let (leadership, _) = tokio::sync::watch::channel(Leadership::Alone);
            Self {
                cluster,
                leadership,
                sync: RevisionSync {
                    key: SetKey::of_kind(SetKind::Advanced, "default", "agent"),
                    owner,
                    template: TemplateFingerprint::from_template(&made["spec"]["template"]),
                    selector: "app=agent".to_owned(),
                    pods: BTreeMap::new(),
                    collisions: 0,
                },
            }
        }

        fn writer(&self) -> Writer {
            let client = self.cluster.client("yurt-ds-controller");
            Writer::new(client, Metrics::new(), self.leadership.subscribe())
        }

        /// Returns the number of requests to create a revision that failed because the name was taken.
        fn refused_names(&self) -> u64 {
            let requests = self.cluster.requests().into_iter();
            let refused = requests.filter(|one| {
                (one.verb.as_str(), one.resource.as_str(), one.code)
                    == ("create", "controllerrevisions", 409)
            });
            refused.map(|one| one.number).sum()
        }
    }

    #[tokio::test]
    async fn two_replicas_that_create_the_same_revision_do_not_collide() {
        let world = World::new().await;
        let (one, other) = (world.writer(), world.writer());
        let (one, other) = tokio::join!(
            one.sync_revisions(&world.sync),
            other.sync_revisions(&world.sync)
        );
        assert_eq!(world.refused_names(), 1, "both were to make it");
        let seen = |read: Result<RevisionsRead, WriteError>| {
            let read = read.unwrap();
            let names = read.revisions.iter().map(|one| name(one).to_owned());
            (names.collect::<Vec<_>>(), read.collisions)
        };
        let (one, other) = (seen(one), seen(other));
        assert_eq!(one, other);
        assert_eq!((one.0.len(), one.1), (1, 0));
    }

    #[tokio::test]
    async fn a_revision_with_another_template_or_owner_is_a_collision() {
        for (path, value) in [
            ("/data/spec/template/spec/containers/0/image", json!("b:1")),
            ("/metadata/ownerReferences/0/uid", json!("another")),
        ] {
            let world = World::new().await;
            let made = world.writer().sync_revisions(&world.sync).await.unwrap();
            let name = name(&made.revisions[0]).to_owned();
            let request = requests::<k8s::ControllerRevision>("default");
            let client = world.cluster.client("user");
            let read = request.get(&name, &Default::default()).unwrap();
            let mut taken: Value = client.request(read).await.unwrap();
            let any = DeleteParams::default();
            let gone = world.writer().delete_revision("default", &name, &any).await;
            gone.unwrap();
            let meta = taken["metadata"].as_object_mut().unwrap();
            meta.retain(|key, _| ["name", "namespace", "ownerReferences"].contains(&key.as_str()));
            // Remove the labels, so that a list by label selector doesn't find the revision. Then the creation of a revision with
            // this name conflicts.
            *taken.pointer_mut(path).unwrap() = value;
            let create = request.create(&posted(), taken.to_string().into_bytes());
            let _: Value = client.request(create.unwrap()).await.unwrap();
            let made = world.writer().sync_revisions(&world.sync).await.unwrap();
            assert_eq!((made.revisions.len(), made.collisions), (1, 1), "{path}");
        }
    }

    #[test]
    fn a_revision_hash_depends_on_template_and_collision_count_and_fits_a_label() {
        let one = hash_of(r#"{"a":1}"#, 0);
        assert_eq!(one, hash_of(r#"{"a":1}"#, 0));
        assert_ne!(one, hash_of(r#"{"a":2}"#, 0));
        assert_ne!(one, hash_of(r#"{"a":1}"#, 1));
        assert!(one.len() <= 10 && one.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
