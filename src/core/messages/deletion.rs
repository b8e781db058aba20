//! Message about a DaemonSet whose deletion doesn't finish.

/// Returns the message that the rollout has ended because of the deletion, with the finalizers that keep the object.
pub fn undeletable(finalizers: &[&str]) -> String {
    format!(
        "it is being deleted: nothing is rolled out and no pod is made any more. What keeps the object and its pods are finalizers \
         of others ({}): whoever set them has to take them away",
        finalizers.join(", ")
    )
}
