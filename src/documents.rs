//! The README and the manifests against the program: what they name has to exist.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::core::{Verdict, names};

const README: &str = include_str!("../README.md");
const DEPLOYMENT: &str = include_str!("../manifests/base/controller/deployment.yaml");
const DAEMONSET: &str = include_str!("../manifests/base/ota-server/daemonset.yaml");
const STATIC_PODS: &str = include_str!("../manifests/overlays/static-pods/kustomization.yaml");
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
    // A comment, as the shell sees it.
    .map(|arguments| arguments.split(" #").next().unwrap_or(arguments))
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
fn every_event_of_the_readme_is_sent() {
    let sources = [
        include_str!("controller/engine.rs"),
        include_str!("controller/lookup.rs"),
        include_str!("controller/permissions.rs"),
        include_str!("controller/report.rs"),
        include_str!("controller/report/paused.rs"),
        include_str!("controller/report/refused.rs"),
        include_str!("controller/report/reverted.rs"),
        include_str!("core/revert.rs"),
        include_str!("core/said.rs"),
        include_str!("core/said/stall.rs"),
    ];
    let (_, named) = README.split_once("change of state:").unwrap();
    let (named, _) = named.split_once("\n\n").unwrap();
    let mut reasons = named.split('`').skip(1).step_by(2);
    assert!(reasons.clone().count() > 10);
    let is_sent = |reason: &str| {
        let literal = format!("\"{reason}\"");
        sources.iter().any(|source| source.contains(&literal))
    };
    assert_eq!(reasons.find(|reason| !is_sent(reason)), None);
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
    assert!(DAEMONSET.contains("command: [/yurt-ds, ota-server]"));
    let mut known = BTreeSet::new();
    collect_variables(&Cli::command(), &mut known);
    for text in [DEPLOYMENT, DAEMONSET, STATIC_PODS, HOST_NETWORK] {
        for name in words(text, "YURT_DS_") {
            assert!(known.contains(name), "{name}");
        }
    }
    let port = default_address(&["controller"]).port();
    assert!(DEPLOYMENT.contains(&format!("containerPort: {port}\n")));
    assert!(HOST_NETWORK.contains(&format!("$(NODE_IP):{port}\n")));
    let address = default_address(&["ota-server", "--node-name", "any"]);
    assert!(DAEMONSET.contains(&format!("value: {address}\n")));
    assert!(DAEMONSET.contains(&format!("containerPort: {}\n", address.port())));
}

fn collect_variables(command: &clap::Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for command in command.get_subcommands() {
        collect_variables(command, known);
    }
}

/// Where that is served unless told otherwise.
fn default_address(typed: &[&str]) -> SocketAddr {
    let words = std::iter::once(&"yurt-ds").chain(typed);
    let cli = Cli::try_parse_from(words).expect("no flag is missing");
    match cli.command {
        Command::Controller(args) => args.listen,
        Command::OtaServer(args) => args.listen,
        other => panic!("nothing is served: {other:?}"),
    }
}
