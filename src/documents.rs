//! The README and the manifests against the program: what they name has to exist.

use std::collections::BTreeSet;

use clap::{CommandFactory, Parser};

use crate::cli::Cli;
use crate::core::{Verdict, names};

const README: &str = include_str!("../README.md");
const DEPLOYMENT: &str = include_str!("../manifests/base/controller/deployment.yaml");
const HOST_NETWORK: &str = include_str!("../manifests/overlays/host-network/kustomization.yaml");
const RUN: [&str; 2] = ["yurt-ds ", "cargo run --release -- "];

/// The words in a text that start like that.
fn words<'a>(text: &'a str, start: &'a str) -> BTreeSet<&'a str> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(start)
        .map(|(at, _)| text[at..].split(|c| !letter(c)).next().unwrap_or_default())
        .collect()
}

/// Every command line of ours that the README shows in a code span or a code block.
fn command_lines() -> Vec<&'static str> {
    let spans = README.split('`').skip(1).step_by(2);
    let lines = README.lines().filter(|line| !line.contains('`'));
    let text = spans.chain(lines).filter(|text| !text.contains('\n'));
    text.filter_map(|text| {
        let inner = text.strip_prefix("source <(").unwrap_or(text);
        RUN.iter().find_map(|run| inner.strip_prefix(run))
    })
    .map(|arguments| arguments.trim_end_matches(')'))
    .collect()
}

#[test]
fn every_command_of_the_readme_is_understood() {
    let commands = command_lines();
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        let typed = std::iter::once("yurt-ds").chain(command.split_whitespace());
        if let Err(error) = Cli::try_parse_from(typed) {
            panic!("README: {command}: {error}");
        }
    }
}

#[test]
fn every_metric_of_the_readme_is_counted() {
    let source = include_str!("controller/metrics.rs");
    let named = words(README, "yurt_ds_");
    assert!(!named.is_empty());
    for name in named {
        let registered = name
            .trim_start_matches("yurt_ds_")
            .trim_end_matches("_total");
        assert!(
            source.contains(&format!("\"{registered}\"")),
            "README: {name}"
        );
    }
}

#[test]
fn every_verdict_and_annotation_is_explained_in_the_readme() {
    for word in Verdict::WORDS {
        assert!(README.contains(&format!("| `{word}` |")), "{word}");
    }
    for key in [
        names::UPDATE_STRATEGY,
        names::MAX_UNAVAILABLE,
        names::PAUSED,
        names::READY_SETTLE,
    ] {
        let short = key.trim_start_matches(names::ANNOTATION_PREFIX);
        assert!(README.contains(&format!("| `{short}` |")), "{short}");
    }
}

#[test]
fn the_manifests_use_commands_and_variables_that_exist() {
    assert!(DEPLOYMENT.contains("command: [/yurt-ds, controller]"));
    let mut known = BTreeSet::new();
    collect_variables(&Cli::command(), &mut known);
    for text in [DEPLOYMENT, HOST_NETWORK] {
        for name in words(text, "YURT_DS_") {
            assert!(known.contains(name), "{name}");
        }
    }
    let port = format!("containerPort: {}", default_port());
    assert!(DEPLOYMENT.contains(&port), "{port}");
    assert!(HOST_NETWORK.contains(&format!("$(NODE_IP):{}", default_port())));
}

fn collect_variables(command: &clap::Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for command in command.get_subcommands() {
        collect_variables(command, known);
    }
}

/// The port that the controller listens on unless told otherwise.
fn default_port() -> u16 {
    let cli = Cli::try_parse_from(["yurt-ds", "controller"]).expect("no flag is required");
    match cli.command {
        crate::cli::Command::Controller(args) => args.listen.port(),
        other => panic!("not the controller: {other:?}"),
    }
}
