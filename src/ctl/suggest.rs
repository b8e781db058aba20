//! Suggestions for mistyped names.

use crate::core::suggest::distance;

/// Maximum number of suggestions.
pub(super) const OFFERED: usize = 3;

/// Returns the names that are most similar to `typed`, the most similar first.
pub(super) fn near<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| Some((likeness(typed, name)?, name)))
        .collect();
    found.sort();
    found.dedup();
    found.truncate(OFFERED);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Returns the number of edits between a name and the name that the user entered; `None` if they are not similar.
pub(super) fn likeness(typed: &str, name: &str) -> Option<usize> {
    // Ignore names of more than 253 bytes, the limit of Kubernetes: they are not typing errors.
    if typed.is_empty() || typed.len() > 253 || !typed.is_ascii() || !name.is_ascii() {
        return None;
    }
    let (typed, name) = (typed.to_ascii_lowercase(), name.to_ascii_lowercase());
    let allowed = ((typed.len() + 1) / 3).min(4);
    let edits = distance(&typed, &name);
    if edits <= allowed {
        return Some(edits);
    }
    // The user may have entered the beginning of a name, with or without a typing error, or a part of it.
    let begun = typed.len() >= 3 && name.len() > typed.len();
    let slips = if begun {
        distance(&typed, &name[..typed.len()])
    } else {
        usize::MAX
    };
    if slips <= allowed {
        return Some(allowed + 1 + slips);
    }
    (begun && name.contains(&typed)).then_some(2 * allowed + 2)
}

/// Returns " Did you mean a, b or c?"; an empty string without names.
pub(super) fn suggestion(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => format!(" Did you mean {last}?"),
        Some((last, others)) => format!(" Did you mean {} or {last}?", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_find_the_similar_name() {
        #[track_caller]
        fn case(typed: &str, expected: &[&str]) {
            let names = [
                "nginx-daemonset",
                "fluent-bit",
                "edge-1",
                "edge-2",
                "edge-11",
                "web",
            ];
            assert_eq!(near(typed, names), expected, "{typed}");
        }
        case("nginx-deamonset", &["nginx-daemonset"]);
        case("NGINX-daemonset", &["nginx-daemonset"]);
        case("nginx", &["nginx-daemonset"]);
        case("ngixn", &["nginx-daemonset"]);
        case("daemonset", &["nginx-daemonset"]);
        case("fluentbit", &["fluent-bit"]);
        case("edge1", &["edge-1", "edge-11", "edge-2"]);
        case("wbe", &["web"]);
        case("weeb", &["web"]);
        case("postgres", &[]);
        case("", &[]);
    }

    #[test]
    fn suggestions_read_like_a_question() {
        assert_eq!(suggestion(&[""; 0]), "");
        assert_eq!(suggestion(&["a"]), " Did you mean a?");
        assert_eq!(suggestion(&["a", "b", "c"]), " Did you mean a, b or c?");
    }
}
