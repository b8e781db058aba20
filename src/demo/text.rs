//! Line wrapping.

/// Wraps a text into lines of at most `width` columns. Longer words are not split.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Wraps a text after the prefix `first`. Further lines are indented by the width of the prefix.
pub(super) fn hanging(first: &str, text: &str, width: usize) -> String {
    let indent = first.chars().count();
    let lines = wrap(text, width.saturating_sub(indent));
    let below = format!("\n{}", " ".repeat(indent));
    format!("{first}{}\n", lines.join(&below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_with_a_hanging_indent() {
        assert_eq!(
            hanging("00:15  ", "one two three", 15),
            "00:15  one two\n       three\n"
        );
        assert_eq!(hanging("  ", "", 15), "  \n");
        assert_eq!(wrap("unbreakably long", 5), ["unbreakably", "long"]);
    }
}
