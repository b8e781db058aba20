//! Name of this replica: recognizable for users, and never used twice.

use std::fs::read_to_string;

/// Returns the host name (in a pod: the pod's name) with a random suffix.
///
/// Two processes with the same name would both believe that they hold the Lease. A host name is not enough, because pods with
/// hostNetwork have the name of their node.
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
    fn no_two_are_equal() {
        assert_ne!(super::unique(), super::unique());
    }
}
