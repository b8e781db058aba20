//! Static pods. The kubelet creates them from manifest files, so an upgrade replaces the file (docs/reference/node-api.md).
//!
//! ```text
//! ConfigMap yurt-static-set-NAME ─► manifest (of that pod?) ─► folder (backup, note, rename) ─► kubelet
//!                                                                    ▲
//!                           guard (new pod not Ready in time?) ──────┘ restores the backup
//! ```
//!
//! OpenYurt's YurtStaticSet controller sets `PodNeedUpgrade` on static pods, and writes the ConfigMap with the new manifest.

mod folder;
mod guard;
mod manifest;

use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use tracing::{info, warn};

use self::folder::{FolderOutcome, Pending};
pub(super) use self::guard::GuardedManifest;
use self::guard::PATIENCE;
use self::manifest::Manifest;
use super::Actions;
use super::precheck::precheck;
use super::reason::Reason;
use super::text::{self, ActionVerb};
use crate::k8s::client::{CallError, Failure};
use crate::ota_server::answer::Answer;
use crate::ota_server::pod::{NodePod, PodKey};

/// Prefix of the names of OpenYurt's ConfigMaps that have manifests.
const CONFIG_MAP_PREFIX: &str = "yurt-static-set-";

impl Actions {
    /// Replaces the manifest of a static pod. `name` is the name of the pod without the node's name.
    pub(super) async fn replace_static(
        &self,
        verb: ActionVerb,
        key: &PodKey,
        name: &str,
    ) -> Result<Answer, Answer> {
        let config_map = format!("{CONFIG_MAP_PREFIX}{name}");
        let (pod, map) = tokio::join!(
            self.live.pod(key),
            self.live.get::<ConfigMap>(&key.namespace, &config_map)
        );
        let pod = pod.map_err(|error| text::not_read(&error))?;
        precheck(verb, &self.setup.node, &pod)?;
        let map = map.map_err(|error| not_given(verb, key, &config_map, &error))?;
        let data = map.data.unwrap_or_default();
        let manifest = Manifest::choose(&data, &key.namespace, name).map_err(|why| {
            warn!(pod = %key, %config_map, %why, "The ConfigMap does not contain the manifest of this static pod");
            verb.not_applied(Reason::ManifestInvalid)
        })?;
        self.write_manifest(verb, &pod, manifest).await
    }

    async fn write_manifest(
        &self,
        verb: ActionVerb,
        pod: &NodePod,
        manifest: Manifest,
    ) -> Result<Answer, Answer> {
        let key = pod.key();
        let until = self.setup.clock.now().saturating_add(PATIENCE);
        let pending = Pending {
            namespace: key.namespace.clone(),
            pod: key.name.clone(),
            old: [Some(pod.clone()), self.setup.pod_cache.pod(key)]
                .iter()
                .flatten()
                .map(|pod| pod.facts().uid.clone())
                .collect(),
            until: until
                .unwrap_or(k8s_openapi::jiff::Timestamp::MAX)
                .to_string(),
            ..Pending::default()
        };
        let written = self
            .guarded
            .with_folder(move |folder| folder.replace(&manifest, pending))
            .await;
        match written {
            Ok(FolderOutcome::Unchanged) => Ok(verb.accepted(key, Reason::Unchanged)),
            Ok(FolderOutcome::Written(file)) => {
                info!(pod = %key, file, "Replaced the manifest, as requested by the node owner");
                self.guarded.wake();
                Ok(verb.accepted(key, Reason::Started))
            }
            Err(error) => {
                warn!(pod = %key, error = format!("{error:#}"), "Cannot replace the manifest of a static pod");
                Err(verb.not_applied(Reason::ApplyFailed))
            }
        }
    }
}

/// Returns the answer for a ConfigMap that could not be read. The status depends on the cause: a missing ConfigMap (check 10 in
/// docs/reference/node-api.md), a missing permission (check 11), or a failed read.
fn not_given(verb: ActionVerb, key: &PodKey, config_map: &str, error: &CallError) -> Answer {
    match error.failure() {
        Failure::Gone => {
            let text = "Configmap for static pod does not exist";
            text::answer(StatusCode::FORBIDDEN, Reason::ConfigMapMissing, text)
        }
        Failure::Forbidden => {
            warn!(
                pod = %key, %config_map, %error,
                "The service account lacks: get configmaps. manifests/overlays/static-pods grants it in kube-system; \
                 bind its role in other namespaces with static pods"
            );
            verb.not_applied(Reason::Forbidden)
        }
        _ => text::not_read(error),
    }
}
