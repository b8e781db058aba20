//! Parts of sentences that several messages use.

use super::foreign::one_line;

/// Maximum number of names in one sentence.
pub const NAMED: usize = 10;

/// Returns the first [`NAMED`] names and the number of all further ones: `a, b and 3 more`. `more` is the number of unnamed ones.
pub fn named<'a>(names: impl IntoIterator<Item = &'a str>, more: usize) -> String {
    let mut names = names.into_iter();
    let first: Vec<&str> = names.by_ref().take(NAMED).collect();
    let first = first.join(", ");
    match more + names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns `one` for a count of one, else `many`.
pub fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// Maximum length of a message from another component, in characters. Registries send long messages.
const LONGEST: usize = 240;

/// Returns the message of an Event without the prefix that client-go puts before the last of many similar Events.
pub fn of_event(message: &str) -> &str {
    message.trim_start_matches("(combined from similar events): ")
}

/// Returns a message from another component as part of a sentence: on one line, without the final full stop, and truncated.
pub fn line(text: &str) -> String {
    one_line(text.trim_end().trim_end_matches('.'), LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_are_named_and_the_rest_is_counted() {
        let names: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
        let said = |count: usize, more| named(names[..count].iter().map(String::as_str), more);
        assert_eq!(said(2, 0), "n0, n1");
        assert_eq!(said(2, 3), "n0, n1 and 3 more");
        assert!(said(10, 0).ends_with(", n9"));
        assert!(said(12, 3).ends_with(", n9 and 5 more"));
    }
}
