//! Detection of import cycles of any length between files.
//!
//! Imports from a parent module (`core/guard/losses` from `core/guard`) are ignored: parent and child are one unit in two files.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{self, Module};

/// Imports of each file: the imported files with the imported names. Imports from its parent modules are omitted.
pub(super) type Imports = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// Returns the imports of each file.
pub(super) fn imports(sources: &BTreeMap<Module, String>) -> Imports {
    let files: BTreeSet<Module> = sources.keys().cloned().collect();
    let from = |(file, source): (&Module, &String)| {
        let code = imports::code(source);
        let below = format!("{file}/");
        let children = files.iter().filter_map(|other| other.strip_prefix(&below));
        let mut imported: BTreeMap<Module, BTreeSet<String>> = BTreeMap::new();
        for (_, path) in imports::paths(&code, &children.collect()) {
            let target = imports::target(&path, file, &files);
            let target = target.filter(|target| !file.starts_with(&format!("{target}/")));
            if let (Some(target), Some(what)) = (target, path.last()) {
                imported
                    .entry(target.to_owned())
                    .or_default()
                    .insert((*what).to_owned());
            }
        }
        (file.clone(), imported)
    };
    sources.iter().map(from).collect()
}

/// Returns every cycle, as the set of files that import each other directly or indirectly.
pub(super) fn cycles(imports: &Imports) -> BTreeSet<BTreeSet<&str>> {
    let files = imports.keys().map(String::as_str);
    let ahead: BTreeMap<&str, BTreeSet<&str>> =
        files.map(|file| (file, reach(file, imports))).collect();
    let mut cycles = BTreeSet::new();
    for (file, reached) in &ahead {
        let back = |other: &&str| ahead[other].contains(file);
        cycles.insert(reached.iter().copied().filter(back).collect());
    }
    cycles.remove(&BTreeSet::new());
    cycles
}

/// Returns all files that the file `from` imports, directly or indirectly.
fn reach<'a>(from: &str, imports: &'a Imports) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in imports[file].keys() {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

/// Describes a cycle: which names its files import from each other.
pub(super) fn describe(cycle: &BTreeSet<&str>, imports: &Imports) -> String {
    let mut lines = Vec::new();
    for file in cycle {
        for (other, what) in imports[*file]
            .iter()
            .filter(|(other, _)| cycle.contains(other.as_str()))
        {
            let what: Vec<&str> = what.iter().map(String::as_str).collect();
            lines.push(format!(
                "  src/{file}.rs imports {} from src/{other}.rs",
                what.join(", ")
            ));
        }
    }
    lines.join("\n")
}

#[test]
fn a_message_about_a_cycle_names_the_imported_items() {
    let sources = [
        ("core", "use plan::Plan;"),
        (
            "core/plan",
            "use super::guard::{Record, losses};\nuse crate::core::Fleet;",
        ),
        ("core/guard", "fn a() { losses::find(); }"),
        (
            "core/guard/losses",
            "use super::Record;\nuse crate::core::plan::Plan;",
        ),
        ("core/scope", "use super::plan::Plan;"),
    ];
    let sources = sources.map(|(file, source)| (file.to_owned(), source.to_owned()));
    let imports = imports(&sources.into());
    let cycles = cycles(&imports);
    assert_eq!(cycles.len(), 1);
    let cycle = cycles.first().expect("one");
    assert_eq!(
        describe(cycle, &imports),
        "  src/core/guard.rs imports find from src/core/guard/losses.rs
  src/core/guard/losses.rs imports Plan from src/core/plan.rs
  src/core/plan.rs imports Record from src/core/guard.rs
  src/core/plan.rs imports losses from src/core/guard/losses.rs"
    );
}
