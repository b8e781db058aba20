//! User groups of this machine, from `/etc/group`.

use std::path::Path;

use anyhow::{Context, Result};

const FILE: &str = "/etc/group";

/// Returns the number of a group, given by number or by name.
///
/// # Errors
/// Fails if `/etc/group` cannot be read or does not have the name. Other databases of names, such as LDAP, are not used.
pub(super) fn id(group: &str) -> Result<u32> {
    if let Ok(id) = group.parse() {
        return Ok(id);
    }
    id_in(Path::new(FILE), group)
}

fn id_in(file: &Path, group: &str) -> Result<u32> {
    let why = || {
        format!(
            "the group {group:?} (--socket-group) is not in {}. Use its number, because a container does not know the groups \
             of its node",
            file.display()
        )
    };
    let text = std::fs::read_to_string(file).with_context(why)?;
    let mut all = text.lines().filter_map(entry);
    let found = all.find(|(name, _)| *name == group);
    found.map(|(_, id)| id).with_context(why)
}

/// Returns the name of a group, or its number if `/etc/group` has no name for it.
pub(crate) fn name(id: u32) -> String {
    let text = std::fs::read_to_string(FILE).unwrap_or_default();
    let mut all = text.lines().filter_map(entry);
    match all.find(|(_, number)| *number == id) {
        Some((name, _)) => name.to_owned(),
        None => id.to_string(),
    }
}

/// Parses name and number from a line `NAME:PASSWORD:NUMBER:MEMBERS`.
fn entry(line: &str) -> Option<(&str, u32)> {
    let mut fields = line.split(':');
    let (name, id) = (fields.next()?, fields.nth(1)?);
    Some((name, id.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_number_and_by_name() {
        assert_eq!(id("10267").unwrap(), 10267);
        assert_eq!(id("root").unwrap(), 0);
        assert_eq!(name(0), "root");
        assert_eq!(name(4_200_000_000), "4200000000");
    }

    #[test]
    fn an_unknown_group_is_refused_with_the_next_step() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "root:x:0:\n\nbroken\n+nis\nota:x:many:\nedge:x:990:ann,bob\n";
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(id_in(file.path(), "edge").unwrap(), 990);
        for unknown in ["ota", "broken", "ann", "", "nis"] {
            let error = format!("{:#}", id_in(file.path(), unknown).unwrap_err());
            assert!(error.contains("--socket-group"), "{error}");
            assert!(error.contains("Use its number"), "{error}");
        }
        let absent = format!("{:#}", id_in(Path::new("/nowhere"), "edge").unwrap_err());
        assert!(absent.contains("/nowhere"), "{absent}");
    }
}
