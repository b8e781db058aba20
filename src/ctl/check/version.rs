//! Versions of the controller and of the agents, from the tags of their images.

use std::collections::BTreeMap;

use crate::core::words::plural;

/// Version of this program.
pub(super) const OWN: &str = env!("CARGO_PKG_VERSION");

/// Numbers of pods per version. The key is `None` for pods whose version is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VersionCounts(BTreeMap<Option<String>, usize>);

impl VersionCounts {
    /// Counts a pod.
    pub(super) fn add(&mut self, version: Option<String>) {
        *self.0.entry(version).or_default() += 1;
    }

    /// Returns true if no version is known.
    pub(super) fn is_unknown(&self) -> bool {
        self.0.keys().all(Option::is_none)
    }

    /// Returns true if all known versions are that of this program.
    pub(super) fn is_own(&self) -> bool {
        self.0.keys().flatten().all(|version| version == OWN)
    }

    /// Returns the numbers as in `0.1.0 on 2 pods, unknown on 1 pod`. `noun` and `nouns` are the singular and the plural, such as
    /// "pod" and "pods".
    pub(super) fn text(&self, noun: &str, nouns: &str) -> String {
        let part = |(version, count): (&Option<String>, &usize)| {
            let version = version.as_deref().unwrap_or("unknown");
            format!("{version} on {count} {}", plural(*count, noun, nouns))
        };
        let parts: Vec<String> = self.0.iter().map(part).collect();
        parts.join(", ")
    }
}

/// Returns the version in the tag of an image; `None` if the image has a digest or a tag that is no version, such as `latest`.
pub(super) fn of_image(image: &str) -> Option<String> {
    let (name, _) = image.split_once('@').unwrap_or((image, ""));
    let (_, tag) = name
        .rsplit_once('/')
        .unwrap_or(("", name))
        .1
        .split_once(':')?;
    let version = tag.strip_prefix('v').unwrap_or(tag);
    let is_version = version.starts_with(|letter: char| letter.is_ascii_digit())
        && version.split('.').count() >= 3;
    is_version.then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_parsed_from_the_image_tag() {
        #[track_caller]
        fn case(image: &str, expected: Option<&str>) {
            assert_eq!(of_image(image).as_deref(), expected, "{image}");
        }
        case("yurt-ds:0.1.0", Some("0.1.0"));
        case("localhost:5000/a/yurt-ds:v0.2.0-rc.1", Some("0.2.0-rc.1"));
        case("registry.example/yurt-ds:0.1.0@sha256:aa", Some("0.1.0"));
        case("localhost:5000/yurt-ds", None);
        case("yurt-ds:latest", None);
        case("yurt-ds:1", None);
        case("yurt-ds@sha256:0.0.0", None);
    }

    #[test]
    fn pods_are_counted_per_version() {
        let mut counts = VersionCounts::default();
        assert!(counts.is_unknown() && counts.is_own());
        counts.add(Some(OWN.to_owned()));
        counts.add(None);
        assert!(!counts.is_unknown() && counts.is_own());
        counts.add(Some("0.0.1".to_owned()));
        counts.add(Some("0.0.1".to_owned()));
        assert!(!counts.is_own());
        let expected = format!("unknown on 1 pod, 0.0.1 on 2 pods, {OWN} on 1 pod");
        assert_eq!(counts.text("pod", "pods"), expected);
    }
}
