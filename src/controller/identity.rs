//! The name of this replica: recognisable for people, and never used twice.

use std::fs::read_to_string;

/// Host name (of a pod: its name) and a random suffix.
///
/// Two processes with one name would both believe to hold the Lease, and a host name is not enough: pods with
/// hostNetwork have that of their node.
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
