//! Name of this replica for the leader election. Users can recognize it, and no two replicas ever have the same name.

use std::fs::read_to_string;

/// Returns the host name (in a pod: the name of the pod) with a random suffix.
///
/// If two processes had the same name, both would believe that they hold the Lease. The host name alone is not enough, because
/// pods with hostNetwork have the name of their node.
pub fn unique() -> String {
    let host = line("/proc/sys/kernel/hostname").unwrap_or_else(|| "yurt-ds".to_owned());
    let suffix = line("/proc/sys/kernel/random/uuid").unwrap_or_else(|| {
        let now = crate::clock::Clock::System.now().as_nanosecond();
        format!("{}-{now:x}", std::process::id())
    });
    format!("{host}_{suffix}")
}

fn line(path: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_identities_are_unique() {
        assert_ne!(super::unique(), super::unique());
    }
}
