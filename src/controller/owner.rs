//! Facts about the DaemonSet whose pods are created, transferred or updated.

use crate::core::names::{IN_PLACE_UPDATE_READY, KRUISE_POD_READY};
use crate::core::revision::TemplateFingerprint;
use crate::core::selector::Selector;
use crate::core::{Mode, RollingUpdateType};
use crate::index::SetRecord;
use crate::k8s;

/// Facts about a DaemonSet at the time of the decision.
#[derive(Clone, Debug)]
pub(super) struct DaemonSetOwner {
    pub(super) uid: String,
    pub(super) template_generation: Option<String>,
    /// Template that the ControllerRevision must contain; `None`: the templates are not compared.
    pub(super) template: Option<TemplateFingerprint>,
    /// Pod selector of the DaemonSet; `None`: it is unreadable.
    pub(super) selector: Option<Selector>,
    /// Readiness gates for pods of an Advanced DaemonSet; `None`: the DaemonSet is native.
    pub(super) gates: Option<Vec<&'static str>>,
}

impl DaemonSetOwner {
    pub(super) fn from_set(set: &SetRecord) -> Self {
        Self {
            uid: set.uid.to_string(),
            template_generation: set.template_generation().map(str::to_owned),
            template: (!set.trusts_greatest()).then_some(set.template),
            selector: Selector::from_query(&set.selector).ok(),
            gates: set.is_advanced().then(|| gates(set)),
        }
    }

    pub(super) fn is_advanced(&self) -> bool {
        self.gates.is_some()
    }

    /// Returns true if the pod is a surge pod of the DaemonSet, and the selector still matches the pod. Also true if the DaemonSet
    /// already controls the pod.
    pub(super) fn owns(&self, pod: &k8s::Pod) -> bool {
        let selects = |selector: &Selector| selector.matches(|key: &str| pod.label(key));
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let is_own = owners.any(|owner| *owner.uid == *self.uid);
        let controls = pod.controller().is_some_and(|controller| {
            *controller.uid == *self.uid || controller.kind == "ControllerRevision"
        });
        is_own && controls && self.selector.as_ref().is_none_or(selects)
    }
}

/// Returns the readiness gates that pods of an Advanced DaemonSet need, as in Kruise.
///
/// A closed gate takes a pod out of service before an update in place, or while the pod waits for its preDelete hook. Each gate
/// costs an additional write per pod, so pods get only the gates that are needed.
fn gates(set: &SetRecord) -> Vec<&'static str> {
    let Some(strategy) = set.reading.usable() else {
        return Vec::new();
    };
    let in_place = strategy.mode == Mode::AdvancedRollingUpdate
        && strategy.rolling_update_type == RollingUpdateType::InPlaceIfPossible;
    let hook = strategy.pre_delete.as_ref();
    let marks = hook.is_some_and(|hook| hook.mark_not_ready);
    let gates = [(in_place, IN_PLACE_UPDATE_READY), (marks, KRUISE_POD_READY)];
    let wanted = gates.into_iter().filter(|(is_wanted, _)| *is_wanted);
    wanted.map(|(_, gate)| gate).collect()
}
