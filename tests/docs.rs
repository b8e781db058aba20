//! Tests of the examples in `docs/`. Each test applies an example to an embedded cluster, changes its image, and checks the outcome
//! that the page states. `docs/README.md` describes the comments in which pages state outcomes.

mod page;
mod play;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use yurt_ds::core::names::ANNOTATION_PREFIX;
use yurt_ds::core::{Verdict, settings};

use self::page::Page;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

fn index() -> String {
    fs::read_to_string(folder().join("README.md")).expect("the index")
}

/// Returns all pages except the index and the table of contents.
fn pages() -> Vec<Page> {
    pages_in(&folder())
}

fn pages_in(folder: &Path) -> Vec<Page> {
    let files = fs::read_dir(folder).expect("the folder of the pages");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let is_page = |file: &&PathBuf| {
        let is_list = file.ends_with("README.md") || file.ends_with("SUMMARY.md");
        file.extension().is_some_and(|e| e == "md") && !is_list
    };
    let read = |file: &PathBuf| {
        let name = file.file_name().expect("a name").to_string_lossy();
        Page::read(&name, &fs::read_to_string(file).expect("a text"))
    };
    files.iter().filter(is_page).map(read).collect()
}

/// Returns the texts in backquotes, without the annotation prefix.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.map(|text| text.strip_prefix(ANNOTATION_PREFIX).unwrap_or(text))
}

/// Returns the annotations that the index describes without a separate page, in "How to turn it on" and "Other keys".
fn told_in(index: &str) -> impl Iterator<Item = &str> {
    let sections = index.split("\n## ");
    let has_keys = |text: &&str| {
        ["How to turn it on", "Other keys"]
            .iter()
            .any(|title| text.starts_with(title))
    };
    sections
        .filter(has_keys)
        .flat_map(|text| text.lines().flat_map(quoted))
}

#[test]
fn every_example_does_what_its_page_says() {
    let mut failures = Vec::new();
    for page in pages() {
        if page.examples.is_empty() {
            failures.push(format!("{}: no ```yaml example", page.name));
        }
    }
    let tasks = pages_in(&folder().join("how-to"));
    for page in pages().into_iter().chain(tasks) {
        for example in &page.examples {
            let played = match &example.unreadable {
                Some(why) => Err(why.clone()),
                None => play::play(example),
            };
            failures.extend(played.err().map(|why| format!("{}: {why}", page.name)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_annotation_has_a_page_or_a_line_in_the_index() {
    let names = include_str!("../src/core/names.rs");
    let names = names.split('"').skip(1).step_by(2);
    let keys: BTreeSet<&str> = names
        .chain(settings::keys())
        .filter_map(|key| key.strip_prefix(ANNOTATION_PREFIX))
        .filter(|name| !name.is_empty())
        .collect();
    assert!(keys.len() > 25, "found only {keys:?}");
    let (pages, index) = (pages(), index());
    let titled = pages.iter().flat_map(|page| quoted(&page.title));
    let known: BTreeSet<&str> = titled.chain(told_in(&index)).collect();
    for name in &keys {
        assert!(
            known.contains(name),
            "{ANNOTATION_PREFIX}{name} is read by the program, but neither in the title of a page of docs/ nor told in docs/README.md"
        );
    }
}

/// Checks the links to `docs/` in verdicts of `ctl why` and in faults of `ctl check`. The page and its section must exist.
#[test]
fn every_page_that_a_verdict_or_a_fault_links_has_that_section() {
    let sources = [
        include_str!("../src/core/messages/pages.rs"),
        include_str!("../src/ctl/check/finding.rs"),
    ];
    let links = sources.iter().flat_map(|source| source.split('"'));
    let links: BTreeSet<&str> = links.filter(|text| text.starts_with("docs/")).collect();
    assert!(links.len() > 15, "found only {links:?}");
    for link in links {
        let (page, section) = link.split_once('#').unwrap_or((link, ""));
        let text = std::fs::read_to_string(folder().join("..").join(page));
        let text = text.unwrap_or_else(|error| panic!("{link}: {error}"));
        let anchor = |heading: &str| {
            let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
            let words: String = heading.chars().filter(kept).collect();
            words.to_lowercase().replace(' ', "-")
        };
        let mut headings = text.lines().filter_map(|line| line.strip_prefix("## "));
        assert!(
            section.is_empty() || headings.any(|heading| anchor(heading) == section),
            "{link}: no such section"
        );
    }
}

#[test]
fn the_index_lists_every_page_and_every_verdict() {
    let index = index();
    for page in pages() {
        let link = format!("]({})", page.name);
        assert!(
            index.contains(&link),
            "docs/README.md does not link {}",
            page.name
        );
    }
    for word in Verdict::WORDS {
        let told = index.lines().filter(|line| line.starts_with('|'));
        let told = told.filter(|line| quoted(line).any(|quoted| quoted == word));
        assert!(
            told.count() > 0,
            "docs/README.md has no row for the verdict {word}"
        );
    }
    let readme = include_str!("../README.md");
    assert!(
        readme.contains("](docs/README.md)"),
        "README.md does not link docs/"
    );
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let root = folder().join("..");
    let subfolders = ["reference", "how-to", "tutorials"].map(|name| folder().join(name));
    for page in [root, folder()]
        .into_iter()
        .chain(subfolders)
        .flat_map(|folder| fs::read_dir(folder).expect("a folder"))
    {
        let page = page.expect("a file").path();
        // Skip the table of contents. It links pages that exist only on the website.
        let is_summary = page.ends_with("SUMMARY.md");
        if is_summary || page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).expect("a text");
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = target.split('#').next().unwrap_or_default();
            let is_outside = file.contains("://") || file.is_empty();
            assert!(
                is_outside || page.with_file_name(file).exists(),
                "{}: {target} leads nowhere",
                page.display()
            );
        }
    }
}

#[test]
fn the_site_has_every_page_once() {
    let summary = fs::read_to_string(folder().join("SUMMARY.md")).expect("the summary");
    let mut open = vec![folder()];
    while let Some(at) = open.pop() {
        for file in fs::read_dir(at).expect("a folder") {
            let file = file.expect("a file").path();
            if file.is_dir() {
                open.push(file);
            } else if file.extension().is_some_and(|e| e == "md") && !file.ends_with("SUMMARY.md") {
                let name = file.strip_prefix(folder()).expect("a page of docs/");
                let link = format!("]({})", name.display());
                assert_eq!(summary.matches(&link).count(), 1, "docs/SUMMARY.md: {link}");
            }
        }
    }
}
