//! Detection of import cycles of any length between files.
//!
//! Imports from a parent module (`core/guard/losses` from `core/guard`) are ignored: parent and child are one unit in two files.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{self, Module};

/// Imports of each file: the imported files with the imported names. Imports from its parent modules are omitted.
pub(super) type Arrows = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// Returns the imports of each file.
pub(super) fn arrows(sources: &BTreeMap<Module, String>) -> Arrows {
    let files: BTreeSet<Module> = sources.keys().cloned().collect();
    let from = |(file, source): (&Module, &String)| {
        let code = imports::code(source);
        let below = format!("{file}/");
        let children = files.iter().filter_map(|other| other.strip_prefix(&below));
        let mut taken: BTreeMap<Module, BTreeSet<String>> = BTreeMap::new();
        for (_, path) in imports::paths(&code, &children.collect()) {
            let target = imports::target(&path, file, &files);
            let target = target.filter(|target| !file.starts_with(&format!("{target}/")));
            if let (Some(target), Some(what)) = (target, path.last()) {
                taken
                    .entry(target.to_owned())
                    .or_default()
                    .insert((*what).to_owned());
            }
        }
        (file.clone(), taken)
    };
    sources.iter().map(from).collect()
}

/// Returns every cycle, as the set of files that import each other directly or indirectly.
pub(super) fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<&str>> {
    let files = arrows.keys().map(String::as_str);
    let ahead: BTreeMap<&str, BTreeSet<&str>> =
        files.map(|file| (file, reach(file, arrows))).collect();
    let mut circles = BTreeSet::new();
    for (file, reached) in &ahead {
        let back = |other: &&str| ahead[other].contains(file);
        circles.insert(reached.iter().copied().filter(back).collect());
    }
    circles.remove(&BTreeSet::new());
    circles
}

/// Returns all files that the file `from` imports, directly or indirectly.
fn reach<'a>(from: &str, arrows: &'a Arrows) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in arrows[file].keys() {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

/// Describes a cycle: which names its files import from each other.
pub(super) fn told(circle: &BTreeSet<&str>, arrows: &Arrows) -> String {
    let mut lines = Vec::new();
    for file in circle {
        for (other, what) in arrows[*file]
            .iter()
            .filter(|(other, _)| circle.contains(other.as_str()))
        {
            let what: Vec<&str> = what.iter().map(String::as_str).collect();
            lines.push(format!(
                "  src/{file}.rs takes {} from src/{other}.rs",
                what.join(", ")
            ));
        }
    }
    lines.join("\n")
}

#[test]
fn a_circle_is_told_with_what_is_taken() {
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
    let arrows = arrows(&sources.into());
    let circles = circles(&arrows);
    assert_eq!(circles.len(), 1);
    let circle = circles.first().expect("one");
    assert_eq!(
        told(circle, &arrows),
        "  src/core/guard.rs takes find from src/core/guard/losses.rs
  src/core/guard/losses.rs takes Plan from src/core/plan.rs
  src/core/plan.rs takes Record from src/core/guard.rs
  src/core/plan.rs takes losses from src/core/guard/losses.rs"
    );
}
