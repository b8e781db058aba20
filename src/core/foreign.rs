//! Foreign text: messages of kubelets, registries, API servers and other components, made safe for display.
//!
//! Every output shows such text only after this module has changed it: terminal, log, condition, Event and node API. Values that
//! are parsed or compared are not changed.
//!
//! # Guarantees
//! - No character of the result controls a terminal, reorders the surrounding text, or is invisible. Each such character is
//!   replaced by an escape such as `\u{1b}`.
//! - Tabs and white space that breaks a line become one space.
//! - A function doesn't change its own result. Clean text is not copied.
//!
//! # Caveats
//! Letters of all scripts and emoji stay readable. A joiner (U+200C, U+200D) is kept between two non-ASCII characters, because
//! Persian, Sinhala and composed emoji need it. A variation selector (U+FE0E, U+FE0F) is kept after a non-ASCII character. Flags of
//! regions consist of invisible characters, so they are shown as escapes.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Maximum length of a sentence that contains foreign text, in characters.
pub const SENTENCE: usize = 1_000;
/// Maximum length of one output that contains foreign text, such as a response or a log line, in characters.
pub const TEXT: usize = 4_000;
/// Maximum length of a setting's value that a message quotes in full, in characters.
pub const QUOTED: usize = 64;
/// Maximum length of a one-word field in an API object, such as a reason, in characters.
pub const WORD: usize = 100;

/// Control characters that JSON allows between its tokens, but not in its strings.
const JSON_LAYOUT: [char; 3] = ['\n', '\r', '\t'];

/// Returns true if a character controls a terminal, reorders text, breaks a line, or is invisible.
pub fn is_forbidden(letter: char) -> bool {
    match letter {
        ' '..='~' => false,
        // Control characters (C0, DEL and C1).
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        // Invisible characters (`Default_Ignorable_Code_Point` in Unicode). They include the bidirectional marks.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => {
            true
        }
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}' => true,
        '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => true,
        '\u{e0000}'..='\u{e0fff}' => true,
        // Line and paragraph separators, and format characters without a glyph.
        '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' => true,
        _ => false,
    }
}

/// Returns the text on one line, with an escape for each forbidden character.
pub fn shown(text: &str) -> Cow<'_, str> {
    styled(text, &[])
}

/// Returns the text like [`shown`], but keeps the sequences in `own`, which the program itself inserted: line breaks and colors.
pub fn styled<'a>(text: &'a str, own: &[&str]) -> Cow<'a, str> {
    rewritten(text, own, |out, letter| {
        if letter.is_whitespace() {
            out.push(' ');
        } else {
            out.extend(letter.escape_unicode());
        }
    })
}

/// Returns a JSON document, or a part of one, with a JSON escape for each forbidden character. Parsers get the same values.
pub fn json(document: &str) -> Cow<'_, str> {
    escaped(document, &JSON_LAYOUT, |out, letter| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

/// Returns the length of [`json`]'s result, in bytes.
pub fn json_length(document: &str) -> usize {
    let forbidden = |letter: char| is_forbidden(letter) && !JSON_LAYOUT.contains(&letter);
    let letters = document.chars().filter(|letter| forbidden(*letter));
    let more = letters.map(|letter| 6 * letter.len_utf16() - letter.len_utf8());
    document.len() + more.sum::<usize>()
}

/// Returns a YAML document with escapes as in [`json`]. Only strings in double quotes may contain forbidden characters.
pub fn yaml(document: &str) -> Cow<'_, str> {
    escaped(document, &['\n'], |out, letter| {
        // Writing to a String cannot fail.
        let _ = match u32::from(letter) {
            code @ ..=0xffff => write!(out, "\\u{code:04X}"),
            code => write!(out, "\\U{code:08X}"),
        };
    })
}

/// Returns the document with each forbidden character replaced, except the characters in `layout`. In contrast to [`rewritten`],
/// neighboring characters make no difference.
fn escaped<'a>(
    document: &'a str,
    layout: &[char],
    replace: impl Fn(&mut String, char),
) -> Cow<'a, str> {
    let forbidden = |letter: char| is_forbidden(letter) && !layout.contains(&letter);
    let Some(start) = document.find(forbidden) else {
        return Cow::Borrowed(document);
    };
    let mut out = document[..start].to_owned();
    for letter in document[start..].chars() {
        if forbidden(letter) {
            replace(&mut out, letter)
        } else {
            out.push(letter)
        }
    }
    Cow::Owned(out)
}

/// Returns at most `limit` characters of [`shown`]'s result, followed by an ellipsis if the text was truncated.
pub fn cut(text: &str, limit: usize) -> Cow<'_, str> {
    let end = |text: &str, count| text.char_indices().nth(count).map(|(end, _)| end);
    let start = &text[..end(text, limit + 1).unwrap_or(text.len())];
    let shown = shown(start);
    match end(&shown, limit) {
        None => shown,
        Some(end) => Cow::Owned(format!("{}…", &shown[..end])),
    }
}

/// Returns the value for display with `{:?}`: at most [`QUOTED`] characters, then an ellipsis if it was truncated.
pub fn quoted(value: &str) -> String {
    match value.char_indices().nth(QUOTED) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}…", &value[..end]),
    }
}

/// Returns the longest beginning of the text that fits into `bytes` bytes and ends between two characters.
pub fn beginning(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the result of [`cut`] on one line, with single spaces between the words.
pub fn one_line(text: &str, limit: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    cut(&words.join(" "), limit).into_owned()
}

/// Returns the text with each forbidden character replaced, except where one of the sequences in `kept` begins.
fn rewritten<'a>(
    text: &'a str,
    kept: &[&str],
    replace: impl Fn(&mut String, char),
) -> Cow<'a, str> {
    let start = text.bytes().position(|byte| !matches!(byte, b' '..=b'~'));
    let Some(start) = start else {
        return Cow::Borrowed(text);
    };
    let mut out: Option<String> = None;
    let mut before = text[..start].chars().next_back().unwrap_or(' ');
    let mut rest = &text[start..];
    while let Some(letter) = rest.chars().next() {
        let (first, after) = rest.split_at(letter.len_utf8());
        let keeps = match is_forbidden(letter) && !joins(before, letter, after) {
            false => first.len(),
            true => {
                let mut own = kept.iter().filter(|own| rest.starts_with(**own));
                own.next().map_or(0, |own| own.len())
            }
        };
        if keeps > 0 {
            if let Some(out) = &mut out {
                out.push_str(&rest[..keeps]);
            }
            (before, rest) = (letter, &rest[keeps..]);
        } else {
            let done = text.len() - rest.len();
            replace(out.get_or_insert_with(|| text[..done].to_owned()), letter);
            (before, rest) = (' ', after);
        }
    }
    out.map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Returns true if a forbidden character is needed between these two neighbors, such as a joiner in an emoji.
fn joins(before: char, letter: char, after: &str) -> bool {
    let is_joiner = |letter| matches!(letter, '\u{200c}' | '\u{200d}');
    match letter {
        '\u{200c}' | '\u{200d}' => {
            let after = after.chars().next().unwrap_or(' ');
            !before.is_ascii() && !is_joiner(before) && !after.is_ascii() && !is_forbidden(after)
        }
        '\u{fe0e}' | '\u{fe0f}' => !before.is_ascii() && !is_forbidden(before),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates text from all kinds of characters. Characters at the limits of the rules are frequent.
    fn letters() -> impl Strategy<Value = String> {
        let near = prop::sample::select(
            "ab .\\\n\r\t\0\x07\x1b\x7f\u{85}\u{9b}\u{9d}\u{ad}\u{200b}\u{200c}\u{200d}\u{200e}\u{2028}\u{202e}\u{2066}\u{fe0f}\u{feff}\u{e0041}é中ع😀❤…"
                .chars()
                .collect::<Vec<_>>(),
        );
        let letter = prop_oneof![4 => near, 1 => any::<char>()];
        prop::collection::vec(letter, 0..60).prop_map(String::from_iter)
    }

    /// Returns true if the character at this position is forbidden there.
    fn is_wrong(text: &str, at: usize) -> bool {
        let letter = text[at..].chars().next().unwrap();
        let before = text[..at].chars().next_back().unwrap_or(' ');
        is_forbidden(letter) && !joins(before, letter, &text[at + letter.len_utf8()..])
    }

    fn is_clean(text: &str) -> bool {
        !text.char_indices().any(|(at, _)| is_wrong(text, at))
    }

    proptest! {
        #[test]
        fn what_is_shown_is_clean_and_stays_as_it_is(text in letters(), limit in 0_usize..70) {
            let once = shown(&text);
            prop_assert!(is_clean(&once), "{once:?}");
            prop_assert!(matches!(shown(&once), Cow::Borrowed(_)), "{once:?}");
            prop_assert_eq!(is_clean(&text), matches!(shown(&text), Cow::Borrowed(_)));
            let short = cut(&text, limit);
            prop_assert!(is_clean(&short), "{short:?}");
            prop_assert!(short.chars().count() <= limit + 1, "{short:?}");
            prop_assert_eq!(&cut(&short, limit), &short);
            let line = one_line(&text, limit);
            prop_assert_eq!(&one_line(&line, limit), &line);
        }

        #[test]
        fn a_document_keeps_its_values(key in letters(), text in letters()) {
            let value = serde_json::json!({ key: [text, 1] });
            for document in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let safe = json(&document);
                prop_assert!(!safe.replace('\n', "").chars().any(is_forbidden), "{safe:?}");
                prop_assert_eq!(json_length(&document), safe.len());
                prop_assert!(matches!(json(&safe), Cow::Borrowed(_)));
                let read: serde_json::Value = serde_json::from_str(&safe).unwrap();
                prop_assert_eq!(&read, &value);
            }
        }

        #[test]
        fn own_sequences_stay_and_others_do_not(text in letters()) {
            let own = ["\n", "\x1b[1m", "\x1b[0m"];
            let around = format!("\x1b[1m{text}\x1b[0m\n");
            let safe = styled(&around, &own);
            prop_assert!(safe.starts_with("\x1b[1m") && safe.ends_with("\x1b[0m\n"));
            let rest = own.iter().fold(safe.into_owned(), |text, own| text.replace(own, "."));
            prop_assert!(is_clean(&rest), "{rest:?}");
        }
    }

    #[test]
    fn control_and_bidi_characters_are_escaped() {
        for (text, expected) in [
            (
                "\x1b]52;c;cm0gLXJmIH4=\x07",
                "\\u{1b}]52;c;cm0gLXJmIH4=\\u{7}",
            ),
            ("\x1b]0;root\x1b\\", "\\u{1b}]0;root\\u{1b}\\"),
            ("\x1b[2J\x1b[H", "\\u{1b}[2J\\u{1b}[H"),
            ("\u{9b}31m", "\\u{9b}31m"),
            (
                "a\u{202e}b\u{2066}c\u{61c}d\u{200f}",
                "a\\u{202e}b\\u{2066}c\\u{61c}d\\u{200f}",
            ),
            (
                "na\u{200b}me\u{feff}\u{ad}",
                "na\\u{200b}me\\u{feff}\\u{ad}",
            ),
            ("na\u{200d}me", "na\\u{200d}me"),
            ("a\r\nb\tc\u{2028}d\u{85}e", "a  b c d e"),
        ] {
            assert_eq!(shown(text), expected);
        }
        assert_eq!(cut("a\x1bcdefghij", 8), "a\\u{1b}c…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(one_line(" a\n\n b\t\x1bc ", 100), "a b \\u{1b}c");
        assert_eq!(
            json("{\"a\":\"\u{e0041}\u{9b}\u{202e}\"}"),
            r#"{"a":"\udb40\udc41\u009b\u202e"}"#
        );
    }

    #[test]
    fn text_in_every_writing_system_stays_readable() {
        for text in [
            "plain words, \"quoted\"",
            "حاوية لا تبدأ",
            "می\u{200c}خواهم",
            "ශ්\u{200d}රී",
            "容器无法启动",
            "コンテナ",
            "नमस्ते",
            "👩\u{200d}👩\u{200d}👧 ❤\u{fe0f}\u{200d}🔥 👍🏽 🇩🇪",
        ] {
            assert!(matches!(shown(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
