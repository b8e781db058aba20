//! The floors of the house, from the ground up: a file imports from its own floor's room and from those below, never from
//! above and never from a neighbour on the same floor.
//!
//! Tests may stand on anything: they are left out.

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms by floor, the ground first.
const FLOORS: &[&[&str]] = &[
    &["clock", "core", "shutdown", "task"],
    &["k8s", "log", "serve"],
    &["cli", "index"],
    &["controller", "ota_server"],
    &["sim"],
    &["ctl"],
    &["demo"],
];

/// Files that are only compiled for tests.
fn is_test(file: &Path) -> bool {
    let parts = file.with_extension("");
    let mut parts = parts.iter().filter_map(|part| part.to_str());
    parts.any(|part| {
        ["testing", "properties", "documents", "floors"].contains(&part)
            || part == "tests"
            || part.ends_with("_tests")
    })
}

fn floor_of(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// The rooms that are named in that source, with the lines: `crate::ROOM`, outside of test modules.
fn imports(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let source = source
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(source);
    let code = source.lines().enumerate();
    let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.flat_map(|(number, line)| {
        let rooms = line.split("crate::").skip(1);
        rooms.map(move |rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            (number + 1, &rest[..end.unwrap_or(rest.len())])
        })
    })
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are here") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What is wrong with what that file of a room imports.
fn wrong(file: &Path, source: &str) -> Vec<String> {
    let room = file
        .iter()
        .next()
        .and_then(|first| Path::new(first).file_stem());
    let room = room.and_then(|room| room.to_str()).expect("a room");
    if ["main", "lib"].contains(&room) || is_test(file) {
        return Vec::new();
    }
    let Some(floor) = floor_of(room) else {
        return vec![format!(
            "src/{}: the room `{room}` stands on no floor; give it one in src/floors.rs",
            file.display()
        )];
    };
    let mut wrong = Vec::new();
    for (line, other) in imports(source) {
        let place = format!("src/{}:{line} (floor {floor})", file.display());
        match floor_of(other) {
            _ if other == room => {}
            Some(below) if below < floor => {}
            Some(above) => wrong.push(format!(
                "{place} imports from src/{other}.rs (floor {above}): arrows run down; move what both need below"
            )),
            None => wrong.push(format!("{place} imports from `{other}`, which stands on no floor")),
        }
    }
    wrong
}

#[test]
fn no_import_runs_up() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&root, &mut found);
    assert!(found.len() > 100, "{} files", found.len());
    let mut all = Vec::new();
    for path in &found {
        let source = fs::read_to_string(path).expect("a source can be read");
        let file = path.strip_prefix(&root).expect("below src");
        all.extend(wrong(file, &source));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn an_import_that_runs_up_is_named_with_both_files() {
    let found = |file: &str, source: &str| wrong(Path::new(file), source).join("\n");
    assert_eq!(found("ctl/why.rs", "use crate::core::Plan;\n"), "");
    let up = found("core/plan.rs", "//! crate::ctl\n\nuse crate::ctl::Code;\n");
    assert_eq!(
        up,
        "src/core/plan.rs:3 (floor 0) imports from src/ctl.rs (floor 5): arrows run down; move what both need below"
    );
    let beside = found("ota_server/pod.rs", "use crate::controller::lease;");
    assert!(beside.contains("src/controller.rs (floor 3)"), "{beside}");
    let test = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::sim::dice;\n}\n";
    assert_eq!(found("core/plan.rs", test), "");
    assert_eq!(found("index/tests.rs", "use crate::sim::dice;"), "");
    assert!(found("attic.rs", "").contains("stands on no floor"));
}
