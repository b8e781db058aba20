//! Golden corpus of writes: the number and hash of the controller's writes in each scenario on the embedded cluster.
//!
//! A refactoring must leave `tests/golden` unchanged. A change of behavior appears as changed lines. The hash covers the order of
//! the writes with verb, resource and name, but not their content, so messages can be reworded.
//!
//! `YURT_DS_GOLDEN=1 cargo test --test main scenarios` updates the lines of the scenarios that it runs. With `model::` instead of
//! `scenarios`, it updates the lines about the model's decisions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::fnv::fnv1a;
use super::machine;

/// File with a line for each scenario, relative to the root of the repository.
const WRITES: &str = "tests/golden/writes.txt";

/// File with a line for each test of the model: number and hash of the decisions in its first states.
const MODEL: &str = "tests/golden/model.txt";

/// Scenarios whose writes are not compared, because the time until the controller gives up on a frozen API server varies.
const UNSTEADY: [&str; 1] = [
    "s91_given_an_api_server_that_answers_nobody_for_a_while_then_no_lost_progress_no_excess_deletions",
];

/// Lock that serializes updates of a golden file.
static REPLACED: Mutex<()> = Mutex::new(());

/// Reads a golden file. Returns number and hash by name.
fn corpus(file: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(path(file)).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(name, told)| (name.to_owned(), told.to_owned()))
        .collect()
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Compares the writes of a scenario with the golden corpus. Does nothing in a deep run, because that runs on more variants of the
/// cluster.
///
/// # Errors
/// Returns an error that lists the writes if they differ.
pub(crate) fn check(name: &str, writes: &[String]) -> Result<(), String> {
    if machine::is_deep() || UNSTEADY.contains(&name) {
        return Ok(());
    }
    let bytes = writes.iter().flat_map(|write| write.bytes().chain([b'\n']));
    let found = format!("{} {:016x}", writes.len(), fnv1a(bytes));
    let differs = check_line(WRITES, name, found);
    differs.map_err(|why| format!("{why}:\n  {}", writes.join("\n  ")))
}

/// Compares the decisions in a test of the model with the golden corpus.
///
/// # Errors
/// Returns an error with both hashes if the decisions differ.
pub(crate) fn check_model(name: &str, decisions: &[String]) -> Result<(), String> {
    let bytes = decisions.iter().flat_map(|one| one.bytes().chain([b'\n']));
    let found = format!("{} {:016x}", decisions.len(), fnv1a(bytes));
    check_line(MODEL, &name.replace(' ', "_"), found)
}

fn check_line(file: &str, name: &str, found: String) -> Result<(), String> {
    if machine::is_set("YURT_DS_GOLDEN") {
        let _replaced = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = corpus(file);
        all.insert(name.to_owned(), found);
        let lines = all.iter().map(|(name, told)| format!("{name} {told}\n"));
        return std::fs::write(path(file), lines.collect::<String>())
            .map_err(|error| error.to_string());
    }
    match corpus(file).get(name) {
        Some(known) if *known == found => Ok(()),
        known => Err(format!(
            "{name} is otherwise than {file} says: {found}, and not {}",
            known.map_or("nothing", String::as_str)
        )),
    }
}
