//! From one revision to another: what has to be changed in a running pod, or why that is not possible.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shape::Shape;
use crate::core::id::Revision;
use crate::core::names::TEMPLATE_GENERATION_LABEL;

/// `kubectl rollout restart` writes this annotation into the template: whoever changes it wants new pods.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Annotations that a pod cannot change (Kubernetes, `ValidatePodUpdate`): those of AppArmor, one per container, and the mark of
/// a static pod.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// By old revision, how its pods become those of the current one.
pub type InPlaceTransitions = BTreeMap<Revision, Result<InPlaceTransition, Recreate>>;

/// How the pods of an old revision become those of the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlaceTransition {
    /// Name and image of every container of the old revision: a pod that runs others is not one of it.
    pub(in crate::core) images: Vec<(Arc<str>, Arc<str>)>,
    /// What to change.
    pub(in crate::core) change: Arc<InPlaceChange>,
}

/// What is changed in a running pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPlaceChange {
    /// Names of the changed containers with their new images, in the order of the pod's containers. A strategic merge patch gives
    /// the containers that it lists their order, and Kubernetes lets no pod reorder its containers.
    pub images: Vec<(Arc<str>, Arc<str>)>,
    /// Labels, with their new value; `None`: removed.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations, with their new value; `None`: removed.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Finalizers that are added.
    pub new_finalizers: Vec<String>,
    /// Finalizers that are removed.
    pub old_finalizers: Vec<String>,
}

/// Why a pod is made anew although an update in place was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recreate {
    /// More than images and metadata differs between the revisions.
    OtherChange,
    /// A container reads a label or an annotation that differs into its environment.
    ReadByContainer,
    /// A restart was asked for (`kubectl rollout restart`).
    RestartAsked,
    /// An annotation differs that no running pod can change.
    FixedAnnotation,
    /// The revision of the pod is not in the history.
    UnknownRevision,
    /// The pod does not run the images of its revision.
    OtherImages,
    /// The pod is over.
    Over,
    /// The pod was marked to be deleted for an earlier change, and whoever was asked for that may be at it.
    Leaving,
    /// The API server does not let the pod be changed so.
    Refused,
}

impl Recreate {
    /// Why, as the end of a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::OtherChange => "more than images, labels and annotations of the template changed",
            Self::ReadByContainer => {
                "a container reads a changed label or annotation into its environment"
            }
            Self::RestartAsked => "a restart was asked for (kubectl.kubernetes.io/restartedAt)",
            Self::FixedAnnotation => {
                "an annotation changed that Kubernetes lets no running pod change (AppArmor)"
            }
            Self::UnknownRevision => "the pod's revision is not in the history of the DaemonSet",
            Self::OtherImages => "the pod does not name the images of its revision",
            Self::Over => "the pod has ended",
            Self::Leaving => "the pod was marked to be deleted before (PreparingDelete)",
            Self::Refused => "the API server does not let the pod be changed so",
        }
    }
}

impl InPlaceTransition {
    /// From `old` to `new`, whose pods name this generation of the template in their label.
    ///
    /// # Errors
    /// Why a pod has to be made anew.
    pub fn between(old: &Shape, new: &Shape, generation: Option<&str>) -> Result<Self, Recreate> {
        if old.rest != new.rest || old.images.len() != new.images.len() {
            return Err(Recreate::OtherChange);
        }
        let mut labels = difference(&old.labels, &new.labels);
        let annotations = difference(&old.annotations, &new.annotations);
        if annotations.contains_key(RESTARTED_AT) {
            return Err(Recreate::RestartAsked);
        }
        let is_fixed = |key: &String| key.starts_with(APP_ARMOR) || key == MIRROR;
        if annotations.keys().any(is_fixed) {
            return Err(Recreate::FixedAnnotation);
        }
        let is_read = |kind: &str, key: &String| {
            let path = format!("metadata.{kind}['{key}']");
            old.read.contains(&path)
        };
        if labels.keys().any(|key| is_read("labels", key))
            || annotations.keys().any(|key| is_read("annotations", key))
        {
            return Err(Recreate::ReadByContainer);
        }
        let label = (
            TEMPLATE_GENERATION_LABEL.to_owned(),
            generation.map(str::to_owned),
        );
        labels.extend([label]);
        let pairs = old.images.iter().zip(&new.images);
        let changed = pairs.filter(|((_, before), (_, after))| before != after);
        Ok(Self {
            images: old.images.clone(),
            change: Arc::new(InPlaceChange {
                images: changed.map(|(_, after)| after.clone()).collect(),
                labels,
                annotations,
                new_finalizers: new
                    .finalizers
                    .difference(&old.finalizers)
                    .cloned()
                    .collect(),
                old_finalizers: old
                    .finalizers
                    .difference(&new.finalizers)
                    .cloned()
                    .collect(),
            }),
        })
    }
}

fn difference(
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    let set = new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(*value));
    let set = set.map(|(key, value)| (key.clone(), Some(value.clone())));
    let removed = old.keys().filter(|key| !new.contains_key(*key));
    set.chain(removed.map(|key| (key.clone(), None))).collect()
}
