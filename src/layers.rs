//! Tests of the layers of the crate. A file imports from its own module and from lower layers, never from a higher layer or from
//! another module in the same layer. Within a module, files must not import each other in a cycle.
//!
//! Test code may import anything and is not checked.

mod cycles;
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use imports::Module;

/// Modules by layer, the lowest first.
const LAYERS: &[&[&str]] = &[
    &["backoff", "clock", "core", "shutdown", "stdout", "task"],
    &["k8s", "log", "manifests", "serve"],
    &["cli", "index", "version"],
    &["controller", "ota_server"],
    &["sim"],
    &["ctl"],
    &["demo"],
];

/// Returns true if a file is only compiled for tests.
fn is_test(file: &str) -> bool {
    file.split('/').any(|part| {
        ["testing", "properties", "documents", "layers", "tests"].contains(&part)
            || part.ends_with("_tests")
    })
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder src is readable") {
        let path = entry.expect("a readable entry").path();
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
        let source = fs::read_to_string(path).expect("a readable source");
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
    let module = file.split('/').next().unwrap_or(file);
    let Some(layer) = layer_of(module) else {
        return vec![format!(
            "src/{file}.rs: module `{module}` has no layer; add it to src/layers.rs"
        )];
    };
    let code = imports::code(source);
    let mut wrong = Vec::new();
    for (at, path) in imports::paths(&code, &BTreeSet::new()) {
        let ["crate", other, ..] = path[..] else {
            continue;
        };
        let place = format!("src/{file}.rs:{} (layer {layer})", imports::line(&code, at));
        match layer_of(other) {
            _ if other == module => {}
            Some(below) if below < layer => {}
            Some(above) => wrong.push(format!(
                "{place} imports from src/{other}.rs (layer {above}): imports must point to lower layers; move the shared code down"
            )),
            None => wrong.push(format!("{place} imports from `{other}`, which has no layer")),
        }
    }
    wrong
}

#[test]
fn every_import_points_to_a_lower_layer() {
    let sources = sources();
    let all = sources
        .iter()
        .flat_map(|(file, source)| wrong(file, source));
    let all: Vec<String> = all.collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_cycle() {
    let imports = cycles::imports(&sources());
    let cycles = cycles::cycles(&imports);
    let messages: Vec<String> = cycles
        .iter()
        .map(|cycle| cycles::describe(cycle, &imports))
        .collect();
    assert!(
        messages.is_empty(),
        "files import each other; move the shared code to a lower module:\n{}",
        messages.join("\n\n")
    );
}

#[test]
fn a_message_about_an_import_from_a_higher_layer_names_both_files() {
    let found = |file: &str, source: &str| wrong(file, source).join("\n");
    assert_eq!(found("ctl/why", "use crate::core::Plan;\n"), "");
    let up = found("core/plan", "//! crate::ctl\n\nuse crate::ctl::Code;\n");
    assert_eq!(
        up,
        "src/core/plan.rs:3 (layer 0) imports from src/ctl.rs (layer 5): imports must point to lower layers; move the shared code down"
    );
    let same_layer = found("ota_server/pod", "use crate::{controller::lease, core};");
    assert!(
        same_layer.contains("src/controller.rs (layer 3)"),
        "{same_layer}"
    );
    let test = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::sim::dice;\n}\n";
    assert_eq!(found("core/plan", test), "");
    assert!(found("attic", "").contains("has no layer"));
    assert!(is_test("index/tests") && is_test("core/properties/world"));
}
