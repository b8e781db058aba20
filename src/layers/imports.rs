//! Paths to other files of the crate that occur in a source file, in `use` trees and elsewhere in the code.

use std::collections::BTreeSet;

/// Path of a file below `src` without its extension, such as `core/plan`.
pub(super) type Module = String;

/// A path to an item of the crate: its byte offset in the source, and its segments.
pub(super) type Named<'a> = (usize, Vec<&'a str>);

/// Returns the part of a source file that is compiled outside tests, with comments replaced by blanks.
pub(super) fn code(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests {").next();
    let lines = source.unwrap_or_default().lines().map(|line| {
        if line.trim_start().starts_with("//") {
            ""
        } else {
            line.split(" // ").next().unwrap_or(line)
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the number of the line that contains a byte. The first line has number 1.
pub(super) fn line(code: &str, byte: usize) -> usize {
    code[..byte].matches('\n').count() + 1
}

/// Returns every path that begins with `crate`, `super`, `self` or one of `children`.
pub(super) fn paths<'a>(code: &'a str, children: &BTreeSet<&str>) -> Vec<Named<'a>> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(start) = rest.find(is_letter) {
        rest = &rest[start..];
        let at = code.len() - rest.len();
        let before = &code[..at];
        let word = word(rest);
        let starts = ["crate", "super", "self"].contains(&word) || children.contains(word);
        // Skip the path in `pub(in crate::…)`: it sets a visibility and imports nothing.
        if starts && !before.ends_with("::") && !before.ends_with("(in ") && is_path(rest) {
            let mut branches = Vec::new();
            rest = expand(rest, &[], &mut branches);
            found.extend(branches.into_iter().map(|path| (at, path)));
        } else {
            rest = &rest[word.len()..];
        }
    }
    found
}

/// Returns the file that a path in the file `from` refers to; `None` if the path refers to `from` itself or to no file.
pub(super) fn target<'a>(
    path: &[&str],
    from: &str,
    files: &'a BTreeSet<Module>,
) -> Option<&'a str> {
    let mut folder: Vec<&str> = from.split('/').collect();
    let mut segments = path;
    if path[0] == "crate" {
        folder.clear();
        segments = &path[1..];
    }
    while let [first @ ("self" | "super"), rest @ ..] = segments {
        if *first == "super" {
            folder.pop();
        }
        segments = rest;
    }
    let named = |length: usize| [&folder, &segments[..length]].concat().join("/");
    let longest = (0..=segments.len())
        .map(named)
        .take_while(|file| file.is_empty() || files.contains(file))
        .last()?;
    files
        .get(&longest)
        .map(String::as_str)
        .filter(|file| *file != from)
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn word(text: &str) -> &str {
    text.split(|c| !is_letter(c)).next().unwrap_or_default()
}

fn is_path(text: &str) -> bool {
    text[word(text).len()..].starts_with("::")
}

/// Adds all paths of a `use` tree to `found`, each prefixed with `stem`, and returns the text after the tree.
fn expand<'a>(text: &'a str, stem: &[&'a str], found: &mut Vec<Vec<&'a str>>) -> &'a str {
    let name = word(text);
    let path = [stem, &[name]].concat();
    let rest = &text[name.len()..];
    let Some(below) = rest.strip_prefix("::") else {
        found.push(path);
        return rest;
    };
    if below.starts_with(is_letter) {
        return expand(below, &path, found);
    }
    let Some(mut branches) = below.strip_prefix('{') else {
        found.push(path); // the path ends here: `::*` imports everything, and `::<T>` is a generic argument
        return below;
    };
    loop {
        branches = branches.trim_start_matches(|c| c != '}' && !is_letter(c));
        if branches.is_empty() {
            return branches;
        }
        if let Some(after) = branches.strip_prefix('}') {
            return after;
        }
        branches = expand(branches, &path, found);
    }
}

#[test]
fn a_use_tree_is_expanded_to_all_paths() {
    let code = code(
        "//! crate::attic\nuse crate::core::{Plan, plan::{self, Action}};\npub(in crate::sim) fn a() {\n    super::b(row::c::<u8>()); // crate::z\n}\n",
    );
    let found = paths(&code, &BTreeSet::from(["row"]));
    let found: Vec<String> = found
        .iter()
        .map(|(at, path)| format!("{} {}", line(&code, *at), path.join("::")))
        .collect();
    let expected = [
        "2 crate::core::Plan",
        "2 crate::core::plan::self",
        "2 crate::core::plan::Action",
        "4 super::b",
        "4 row::c",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_path_resolves_to_its_file() {
    let files = ["core", "core/plan", "core/plan/row", "ctl"];
    let files: BTreeSet<Module> = files.map(Module::from).into();
    #[track_caller]
    fn case(path: &str, from: &str, files: &BTreeSet<Module>, expected: Option<&str>) {
        let path: Vec<&str> = path.split("::").collect();
        assert_eq!(target(&path, from, files), expected);
    }
    case(
        "crate::core::plan::Action",
        "ctl",
        &files,
        Some("core/plan"),
    );
    case("crate::core::Plan", "ctl", &files, Some("core"));
    case("super::Plan", "core/plan/row", &files, Some("core/plan"));
    case("super::super::Plan", "core/plan/row", &files, Some("core"));
    case("row::Row", "core/plan", &files, Some("core/plan/row"));
    case("self::row::Row", "core/plan", &files, Some("core/plan/row"));
    case("self::Row", "core/plan", &files, None);
    case("crate::machine::Machine", "ctl", &files, None);
}
