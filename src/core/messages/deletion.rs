//! What is said of a DaemonSet that is being deleted and does not go.

/// That nothing is rolled out any more, and what keeps the object.
pub fn undeletable(finalizers: &[&str]) -> String {
    format!(
        "it is being deleted: nothing is rolled out and no pod is made any more. What keeps the object and its pods are finalizers \
         of others ({}): whoever set them has to take them away",
        finalizers.join(", ")
    )
}
