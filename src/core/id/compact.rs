//! Compact storage for strings that every pod has, because the controller keeps tens of thousands of them.

use std::fmt;
use std::sync::Arc;

/// UID of a Pod. Kubernetes uses UUIDs, which are stored as 16 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodUid(Uid);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Uid {
    Uuid([u8; 16]),
    Text(Arc<str>),
}

/// `metadata.resourceVersion` of a Pod. With etcd it is a number, stored as such. It is only compared for equality.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceVersion(Version);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Number(u64),
    Text(Arc<str>),
}

/// Positions of the hyphens in a UUID.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl From<&str> for PodUid {
    fn from(text: &str) -> Self {
        Self(uuid(text).map_or_else(|| Uid::Text(text.into()), Uid::Uuid))
    }
}

impl From<String> for PodUid {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

/// Returns the 16 bytes of a UUID in lower case. Any other form gives `None`, because the text could not be restored from the
/// bytes.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let mut digits = 0;
    if text.len() != 36 {
        return None;
    }
    for (place, letter) in text.bytes().enumerate() {
        let digit = match letter {
            b'-' if HYPHENS.contains(&place) => continue,
            _ if HYPHENS.contains(&place) => return None,
            b'0'..=b'9' => letter - b'0',
            b'a'..=b'f' => letter - b'a' + 10,
            _ => return None,
        };
        uuid[digits / 2] = uuid[digits / 2] << 4 | digit;
        digits += 1;
    }
    Some(uuid)
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uuid = match &self.0 {
            Uid::Uuid(uuid) => uuid,
            Uid::Text(text) => return f.write_str(text),
        };
        for (place, byte) in uuid.iter().enumerate() {
            let hyphen = if [4, 6, 8, 10].contains(&place) {
                "-"
            } else {
                ""
            };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PodUid({:?})", self.to_string())
    }
}

impl ResourceVersion {
    /// Returns the value that stands for any resource version, so that a write has no such precondition.
    pub fn any() -> Self {
        "".into()
    }

    /// Returns the resource version as a precondition of a write; `None` if any version is accepted.
    pub fn precondition(&self) -> Option<String> {
        (*self != Self::any()).then(|| self.to_string())
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        let number = text.parse::<u64>().ok();
        let number = number.filter(|_| !text.starts_with(['0', '+']));
        Self(number.map_or_else(|| Version::Text(text.into()), Version::Number))
    }
}

impl From<String> for ResourceVersion {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Version::Number(number) => number.fmt(f),
            Version::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceVersion({:?})", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_and_resource_versions_are_written_as_they_were_read() {
        let uuid = "0f3a9c1e-52b7-4d08-9e6f-a1b2c3d4e5f6";
        let odd = [
            "",
            "uid-n1",
            "0F3A9C1E-52B7-4D08-9E6F-A1B2C3D4E5F6",
            "0f3a9c1e-52b7-4d08-9e6f-a1b2c3d4e5f",
            "0f3a9c1e-52b7-4d08-9e6f-a1b2c3d4e5f6a",
            "0f3a9c1e052b7-4d08-9e6f-a1b2c3d4e5f6",
            "0f3a9c1e-52b7-4d08-9e6f-a1b2c3d4e5g6",
            "-f3a9c1e-52b7-4d08-9e6f-a1b2c3d4e5f6",
            "0f3a9c1é-52b7-4d08-9e6f-a1b2c3d4e5f",
        ];
        for text in odd.into_iter().chain([uuid]) {
            let uid = PodUid::from(text);
            assert_eq!(uid.to_string(), text);
            assert_eq!(matches!(uid.0, Uid::Uuid(_)), text == uuid, "{text}");
        }
        let mut uids = [PodUid::from(uuid), "b".into(), uuid.into()];
        uids.sort();
        assert_eq!(uids[0], uids[1]);
        for text in [
            "",
            "0",
            "007",
            "+7",
            "-7",
            "7",
            "18446744073709551615",
            "18446744073709551616",
            "7a",
        ] {
            assert_eq!(ResourceVersion::from(text).to_string(), text);
        }
        assert!(matches!(
            ResourceVersion::from("4711").0,
            Version::Number(4711)
        ));
    }

    #[test]
    fn compact_uids_and_resource_versions_stay_small() {
        assert!(size_of::<PodUid>() <= 24);
        assert!(size_of::<ResourceVersion>() <= 16);
    }
}
