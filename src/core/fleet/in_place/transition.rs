//! Transition of a pod from one revision to another: the changes to the running pod, or the reason why it must be recreated.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shape::Shape;
use crate::core::id::Revision;
use crate::core::names::TEMPLATE_GENERATION_LABEL;

/// Annotation that `kubectl rollout restart` writes into the template. A new value requests a restart, so pods are recreated.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Prefix of annotations for AppArmor, one per container. Kubernetes rejects an update of a pod that changes one of them, or the
/// annotation of mirror pods (`ValidatePodUpdate`).
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// For each old revision, the transition to the current one.
pub type InPlaceTransitions = BTreeMap<Revision, Result<InPlaceTransition, Recreate>>;

/// Transition of pods from an old revision to the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlaceTransition {
    /// Name and image of every container of the old revision. A pod with other images is recreated, because its state is unknown.
    pub(in crate::core) images: Vec<(Arc<str>, Arc<str>)>,
    /// Changes to make in each pod.
    pub(in crate::core) change: Arc<InPlaceChange>,
}

/// Changes that one patch makes to a running pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPlaceChange {
    /// Names of the changed containers with their new images, in the order of the pod's containers.
    ///
    /// In another order, the patch would reorder the pod's containers, and Kubernetes would reject it.
    pub images: Vec<(Arc<str>, Arc<str>)>,
    /// Labels with their new values; `None` removes the label.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations with their new values; `None` removes the annotation.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Finalizers to add.
    pub new_finalizers: Vec<String>,
    /// Finalizers to remove.
    pub old_finalizers: Vec<String>,
}

/// Reason why a pod is recreated although in-place updates are enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recreate {
    /// The revisions differ in more than images and metadata.
    OtherChange,
    /// A container has a changed label or annotation in its environment. Only a new container would get the new value.
    ReadByContainer,
    /// A restart was requested (`kubectl rollout restart`).
    RestartAsked,
    /// A changed annotation is immutable in running pods.
    FixedAnnotation,
    /// The pod's revision is not in the DaemonSet's history.
    UnknownRevision,
    /// The pod's images differ from those of its revision.
    OtherImages,
    /// The pod has ended, so its containers never run again.
    Over,
    /// The pod was already marked for deletion because of an earlier change, and its preDelete hook may be running.
    Leaving,
    /// The API server rejected the in-place update.
    Refused,
}

impl Recreate {
    /// Returns the reason as the end of a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::OtherChange => "the template changed in more than images, labels and annotations",
            Self::ReadByContainer => {
                "a container has a changed label or annotation in its environment"
            }
            Self::RestartAsked => "a restart was requested (kubectl.kubernetes.io/restartedAt)",
            Self::FixedAnnotation => {
                "an annotation changed that Kubernetes cannot change in a running pod (AppArmor)"
            }
            Self::UnknownRevision => "the pod's revision is not in the DaemonSet's history",
            Self::OtherImages => "the pod's images differ from those of its revision",
            Self::Over => "the pod has ended",
            Self::Leaving => "the pod is already marked for deletion (PreparingDelete)",
            Self::Refused => "the API server rejects the change of the pod",
        }
    }
}

impl InPlaceTransition {
    /// Returns the transition from `old` to `new`. `generation` is the new value of the label `pod-template-generation`, if any.
    ///
    /// # Errors
    /// Returns the reason why pods have to be recreated.
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
