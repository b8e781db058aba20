//! Parts of sentences that several messages use.

use super::foreign::one_line;

/// Maximum number of names in one sentence.
pub const NAMED: usize = 10;

/// Returns the first [`NAMED`] names and the number of the others, as in `a, b and 3 more`. `more` is the number of others that are
/// not in `names`.
pub fn named<'a>(names: impl IntoIterator<Item = &'a str>, more: usize) -> String {
    let mut names = names.into_iter();
    let first: Vec<&str> = names.by_ref().take(NAMED).collect();
    let first = first.join(", ");
    match more + names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns `one` if the count is one; otherwise `many`.
pub fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// Returns a number of nodes with the noun: `1 node`, `3 nodes`.
pub fn nodes(count: usize) -> String {
    format!("{count} {}", plural(count, "node", "nodes"))
}

/// Returns a name with a leading space; empty if there is none.
pub(super) fn spaced(name: Option<impl std::fmt::Display>) -> String {
    name.map_or_else(String::new, |name| format!(" {name}"))
}

/// Joins sentences that have no final full stop. After a command, the separator is a semicolon, because a full stop would look like
/// a part of the command.
pub fn joined<T: AsRef<str>>(sentences: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    for sentence in sentences {
        append(&mut text, sentence.as_ref());
    }
    text
}

/// Appends a sentence to `text`, with the separator of [`joined`].
pub(super) fn append(text: &mut String, sentence: &str) {
    if sentence.is_empty() || text.is_empty() {
        text.push_str(sentence);
    } else if has_command_at_end(text) {
        text.extend(["; ", sentence]);
    } else {
        text.extend([". ", &capitalized(sentence)]);
    }
}

/// Returns the sentence with a capital first letter. If it begins with an identifier such as `apps.openyurt.io/hold`, it is
/// unchanged.
pub fn capitalized(sentence: &str) -> String {
    let word = sentence.split(' ').next().unwrap_or_default();
    let word = word.trim_end_matches([':', ';', ',', '.']);
    let mut letters = sentence.chars();
    match letters.next() {
        Some(first) if word.chars().all(char::is_alphabetic) => {
            first.to_uppercase().chain(letters).collect()
        }
        _ => sentence.to_owned(),
    }
}

/// Returns true if the last sentence of the text contains a command.
pub(super) fn has_command_at_end(text: &str) -> bool {
    let last = text.rsplit(". ").next().unwrap_or_default();
    last.contains("yurt-ds ctl ") || last.contains("kubectl ")
}

/// Maximum length of a message of another component, in characters. Registries send long ones.
const LONGEST: usize = 240;

/// Returns the message of an Event without the prefix that client-go adds when it combines similar Events.
pub fn of_event(message: &str) -> &str {
    message.trim_start_matches("(combined from similar events): ")
}

/// Returns a message of another component as a part of a sentence: on one line, truncated, and without a final full stop.
pub fn line(text: &str) -> String {
    one_line(text.trim_end().trim_end_matches('.'), LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_joined_without_a_full_stop_after_a_command() {
        let all = [
            "paused",
            "",
            "resume: yurt-ds ctl resume a/b",
            "no action needed",
            "ok",
        ];
        let text = joined(all);
        assert_eq!(
            text,
            "paused. Resume: yurt-ds ctl resume a/b; no action needed; ok"
        );
    }

    #[test]
    fn identifiers_keep_their_first_letter() {
        assert_eq!(capitalized("retried: later"), "Retried: later");
        assert_eq!(capitalized("retried; later"), "Retried; later");
        assert_eq!(capitalized("max-surge is 0"), "max-surge is 0");
        let annotation = "apps.openyurt.io/hold is invalid";
        assert_eq!(joined(["ok", annotation]), format!("ok. {annotation}"));
    }

    #[test]
    fn ten_names_are_listed_and_the_rest_is_counted() {
        let names: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
        let said = |count: usize, more| named(names[..count].iter().map(String::as_str), more);
        assert_eq!(said(2, 0), "n0, n1");
        assert_eq!(said(2, 3), "n0, n1 and 3 more");
        assert!(said(10, 0).ends_with(", n9"));
        assert!(said(12, 3).ends_with(", n9 and 5 more"));
    }
}
