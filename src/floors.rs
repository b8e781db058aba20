//! Tests of the layers of the crate. A file imports from its own module and from lower layers, never from a higher layer or from
//! another module in the same layer. Within a module, files must not import each other in a cycle.
//!
//! Test code may import anything and is not checked.

mod circles;
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use imports::Module;

/// Modules by layer, the lowest first.
const FLOORS: &[&[&str]] = &[
    &["backoff", "clock", "core", "shutdown", "task"],
    &["k8s", "log", "manifests", "serve"],
    &["cli", "index"],
    &["controller", "ota_server"],
    &["sim"],
    &["ctl"],
    &["demo"],
];

/// Returns true if a file is only compiled for tests.
fn is_test(file: &str) -> bool {
    file.split('/').any(|part| {
        ["testing", "properties", "documents", "floors", "tests"].contains(&part)
            || part.ends_with("_tests")
    })
}

fn floor_of(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
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

/// Returns the source of each file below `src`, without tests.
fn sources() -> BTreeMap<Module, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&root, &mut found);
    let read = found.iter().map(|path| {
        let file = path.with_extension("");
        let file = file.strip_prefix(&root).expect("below src");
        let source = fs::read_to_string(path).expect("a source can be read");
        (file.to_str().expect("UTF-8").to_owned(), source)
    });
    let sources: BTreeMap<Module, String> = read
        .filter(|(file, _)| !["main", "lib"].contains(&file.as_str()) && !is_test(file))
        .collect();
    assert!(sources.len() > 100, "{} files", sources.len());
    sources
}

/// Returns the errors in a file's imports from other modules.
fn wrong(file: &str, source: &str) -> Vec<String> {
    let room = file.split('/').next().unwrap_or(file);
    let Some(floor) = floor_of(room) else {
        return vec![format!(
            "src/{file}.rs: the room `{room}` stands on no floor; give it one in src/floors.rs"
        )];
    };
    let code = imports::code(source);
    let mut wrong = Vec::new();
    for (at, path) in imports::paths(&code, &BTreeSet::new()) {
        let ["crate", other, ..] = path[..] else {
            continue;
        };
        let place = format!("src/{file}.rs:{} (floor {floor})", imports::line(&code, at));
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
    let sources = sources();
    let all = sources
        .iter()
        .flat_map(|(file, source)| wrong(file, source));
    let all: Vec<String> = all.collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn no_files_import_each_other() {
    let arrows = circles::arrows(&sources());
    let circles = circles::circles(&arrows);
    let told: Vec<String> = circles
        .iter()
        .map(|circle| circles::told(circle, &arrows))
        .collect();
    assert!(
        told.is_empty(),
        "files import each other; move what two of them need below both:\n{}",
        told.join("\n\n")
    );
}

#[test]
fn an_import_that_runs_up_is_named_with_both_files() {
    let found = |file: &str, source: &str| wrong(file, source).join("\n");
    assert_eq!(found("ctl/why", "use crate::core::Plan;\n"), "");
    let up = found("core/plan", "//! crate::ctl\n\nuse crate::ctl::Code;\n");
    assert_eq!(
        up,
        "src/core/plan.rs:3 (floor 0) imports from src/ctl.rs (floor 5): arrows run down; move what both need below"
    );
    let beside = found("ota_server/pod", "use crate::{controller::lease, core};");
    assert!(beside.contains("src/controller.rs (floor 3)"), "{beside}");
    let test = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::sim::dice;\n}\n";
    assert_eq!(found("core/plan", test), "");
    assert!(found("attic", "").contains("stands on no floor"));
    assert!(is_test("index/tests") && is_test("core/properties/world"));
}
