//! Tests that compare README, reference pages and manifests with the program: documented names must exist, and existing names
//! must be documented.

mod monitoring;
mod releases;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clap::{CommandFactory, Parser};

use crate::cli::node::{SERVER, SOCKET};
use crate::cli::{Cli, Command};
use crate::controller::metrics::Metrics;
use crate::core::Verdict;
use crate::core::settings::{Mode, SETTINGS};

const README: &str = include_str!("../README.md");
const INSTALL: &str = include_str!("../docs/reference/install.md");
const METRICS: &str = include_str!("../docs/reference/metrics.md");
const OPERATE: &str = include_str!("../docs/reference/operate.md");
const OTA: &str = include_str!("../docs/reference/ota.md");
const SETTINGS_PAGE: &str = include_str!("../docs/README.md");
const DEPLOYMENT: &str = include_str!("../manifests/base/controller/deployment.yaml");
const DAEMONSET: &str = include_str!("../manifests/base/ota-server/daemonset.yaml");
const STATIC_PODS: &str = include_str!("../manifests/overlays/static-pods/kustomization.yaml");
const AGENT_SOCKET: &str = include_str!("../manifests/overlays/agent-socket/kustomization.yaml");
const NODE_API: &str = include_str!("../docs/reference/node-api.md");
const HOST_NETWORK: &str = include_str!("../manifests/overlays/host-network/kustomization.yaml");
const RUN: [&str; 2] = ["yurt-ds ", "cargo run --release -- "];

/// Returns the words in `text` that have the prefix `start`.
fn words<'a>(text: &'a str, start: &'a str) -> BTreeSet<&'a str> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(start)
        .map(|(at, _)| text[at..].split(|c| !letter(c)).next().unwrap_or_default())
        .collect()
}

/// Returns the arguments of every `yurt-ds` command line in a code span or code block of a page.
fn command_lines(page: &'static str) -> Vec<&'static str> {
    let spans = page.split('`').skip(1).step_by(2);
    let blocks = page.split("\n```").skip(1).step_by(2);
    let lines = blocks.flat_map(str::lines);
    let text = spans.chain(lines).filter(|text| !text.contains('\n'));
    text.filter_map(|text| {
        let inner = text.strip_prefix("source <(").unwrap_or(text);
        RUN.iter().find_map(|run| inner.strip_prefix(run))
    })
    .map(|arguments| arguments.trim_end_matches(')'))
    // Remove the comment at the end of the line, which a shell would ignore.
    .map(|arguments| arguments.split(" #").next().unwrap_or(arguments))
    .collect()
}

#[test]
fn every_documented_command_is_valid() {
    let pages = [README, INSTALL, OPERATE, OTA, SETTINGS_PAGE];
    let commands: Vec<&str> = pages.into_iter().flat_map(command_lines).collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let typed = std::iter::once("yurt-ds").chain(command.split_whitespace());
        if let Err(error) = Cli::try_parse_from(typed) {
            panic!("{command}: {error}");
        }
    }
}

#[test]
fn the_image_is_built_with_a_supported_compiler() {
    let number = |text: &str| {
        text.split('.')
            .nth(1)
            .and_then(|minor| minor.parse::<u32>().ok())
    };
    let oldest = number(env!("CARGO_PKG_RUST_VERSION")).expect("rust-version");
    let image = include_str!("../Containerfile");
    let (_, version) = image
        .split_once("/rust:")
        .expect("the image of the compiler");
    let version = version.split('-').next().and_then(number);
    assert!(version.is_some_and(|version| version >= oldest), "{oldest}");
}

#[test]
fn pages_and_manifests_name_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let kustomization = include_str!("../manifests/base/kustomization.yaml");
    let tag = format!("newTag: {version}\n");
    assert!(kustomization.contains(&tag), "manifests/base: {tag}");
    for (page, text) in [("README.md", README), ("install.md", INSTALL)] {
        let images = text.match_indices("/yurt-ds:");
        let other = images.map(|(at, start)| &text[at + start.len()..]);
        let other: Vec<&str> = other.filter(|rest| !rest.starts_with(version)).collect();
        assert!(
            other.is_empty(),
            "{page} names another version than {version}"
        );
    }
}

#[test]
fn the_readme_is_short() {
    let lines = README.lines().count();
    assert!(
        lines <= 150,
        "{lines} lines; what is longer belongs into docs/"
    );
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let source = include_str!("controller/metrics.rs");
    let (_, registering) = source.split_once("let mut registry =").unwrap();
    let (registering, _) = registering.split_once("pub fn encode").unwrap();
    let literals = registering.split('"').skip(1).step_by(2);
    let is_name = |text: &&str| {
        text.bytes()
            .all(|byte| byte == b'_' || byte.is_ascii_lowercase())
    };
    let names = literals.filter(is_name).filter(|name| *name != "version");
    // The names in the source are needed too, because the page omits metric families that have no series yet.
    let page = Metrics::new().encode();
    let told = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE yurt_ds_"));
    let told = told.filter_map(|line| line.split(' ').next());
    let registered: BTreeSet<&str> = names.chain(told).collect();
    assert!(registered.len() > 20, "{registered:?}");
    let plain = |name: &'static str| {
        let name = name.trim_start_matches("yurt_ds_");
        name.trim_end_matches("_total").trim_end_matches("_info")
    };
    let told: BTreeSet<&str> = words(METRICS, "yurt_ds_").into_iter().map(plain).collect();
    assert_eq!(told, registered);
    let elsewhere = [README, OPERATE, OTA].into_iter();
    for name in elsewhere.flat_map(|page| words(page, "yurt_ds_")) {
        assert!(told.contains(plain(name)), "{name}");
    }
}

#[test]
fn every_documented_event_is_sent() {
    let sources = [
        include_str!("controller/engine.rs"),
        include_str!("controller/engine/advanced.rs"),
        include_str!("controller/engine/answers.rs"),
        include_str!("controller/lease.rs"),
        include_str!("controller/live_reads.rs"),
        include_str!("controller/permissions.rs"),
        include_str!("controller/report.rs"),
        include_str!("controller/report/paused.rs"),
        include_str!("controller/report/refused.rs"),
        include_str!("controller/report/reverted.rs"),
        include_str!("core/messages.rs"),
        include_str!("index.rs"),
        include_str!("core/messages/status.rs"),
        include_str!("core/messages/guarded.rs"),
        include_str!("core/verdict.rs"),
    ];
    let (_, table) = OPERATE.split_once("| Event | tells |").unwrap();
    let cells = table.lines().filter_map(|line| line.split('|').nth(1));
    let reasons = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let reasons: Vec<&str> = reasons.collect();
    assert!(reasons.len() > 10, "{reasons:?}");
    let is_sent = |reason: &str| {
        let literal = format!("\"{reason}\"");
        sources.iter().any(|source| source.contains(&literal))
    };
    assert_eq!(reasons.into_iter().find(|reason| !is_sent(reason)), None);
}

#[test]
fn every_verdict_is_documented() {
    for word in Verdict::WORDS {
        assert!(SETTINGS_PAGE.contains(&format!("| `{word}` |")), "{word}");
    }
}

/// Returns the text of a Markdown link, without the link target.
fn unlinked(cell: &str) -> &str {
    let words = cell
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]("));
    words.map_or(cell, |(words, _)| words)
}

#[test]
fn the_documented_settings_match_the_program() {
    let (_, table) = SETTINGS_PAGE
        .split_once("| --- | --- | --- | --- | --- |\n")
        .unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let rows = rows.map(|line| {
        let cells = line.trim_matches('|').split(" | ").map(str::trim);
        cells.map(unlinked).collect::<Vec<_>>().join(" | ")
    });
    let expected = SETTINGS.iter().map(|setting| {
        let ota = if setting.is_used_by(Mode::Ota) {
            "yes"
        } else {
            "no"
        };
        let (name, does, as_, default) = (
            setting.name(),
            setting.summary,
            &setting.syntax,
            setting.default,
        );
        format!("`{name}` | {does} | {as_} | {default} | {ota}")
    });
    let (rows, expected): (Vec<String>, Vec<String>) = (rows.collect(), expected.collect());
    assert!(
        rows == expected,
        "docs/README.md should say:\n{}",
        expected.join("\n")
    );
}

#[test]
fn manifests_use_existing_commands_and_variables() {
    assert!(DEPLOYMENT.contains("command: [/yurt-ds, controller]"));
    assert!(DAEMONSET.contains("command: [/yurt-ds, ota-server]"));
    let mut known = BTreeSet::new();
    collect_variables(&Cli::command(), &mut known);
    for text in [
        DEPLOYMENT,
        DAEMONSET,
        STATIC_PODS,
        HOST_NETWORK,
        AGENT_SOCKET,
    ] {
        for name in words(text, "YURT_DS_") {
            assert!(known.contains(name), "{name}");
        }
    }
    let port = default_address(&["controller"]).port();
    assert!(DEPLOYMENT.contains(&format!("containerPort: {port}\n")));
    assert!(HOST_NETWORK.contains(&format!("$(NODE_IP):{port}\n")));
    for text in [DEPLOYMENT, HOST_NETWORK] {
        let (_, probes) = text.split_once("name: YURT_DS_PROBE_LISTEN\n").unwrap();
        assert!(
            probes.lines().next().unwrap().ends_with(":10274"),
            "{probes}"
        );
    }
    assert!(DEPLOYMENT.contains("- name: probes\n              containerPort: 10274\n"));
    assert_eq!(DEPLOYMENT.matches("port: probes\n").count(), 2);
    let policy = include_str!("../manifests/base/controller/networkpolicy.yaml");
    assert!(DEPLOYMENT.contains("- name: metrics\n") && policy.contains("port: metrics\n"));
    let address = default_address(&["ota-server", "--node-name", "any"]);
    assert!(DAEMONSET.contains(&format!("value: {address}\n")));
    assert!(DAEMONSET.contains(&format!("containerPort: {}\n", address.port())));
}

#[test]
fn agents_serve_the_socket_that_ctl_uses() {
    let (directory, _) = SOCKET.rsplit_once('/').unwrap();
    assert!(AGENT_SOCKET.contains(&format!("value: {SOCKET}\n")));
    assert!(AGENT_SOCKET.contains(&format!("mountPath: {directory}\n")));
    assert!(AGENT_SOCKET.contains(&format!("path: {directory}\n")));
    let command = format!("curl --unix-socket {SOCKET} http://localhost/pods\n");
    assert!(NODE_API.contains(&command));
    let mut help = Cli::command();
    let verb = help.find_subcommand_mut("ctl").expect("a verb");
    let verb = verb.find_subcommand_mut("pods").expect("a verb");
    let help = verb.render_long_help().to_string().replace('\n', " ");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let default = format!("[default: unix://{SOCKET} if it answers, else {SERVER}]");
    assert!(help.contains(&default), "{help}");
}

fn collect_variables(command: &clap::Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for command in command.get_subcommands() {
        collect_variables(command, known);
    }
}

/// Returns the default listen address of a command.
fn default_address(typed: &[&str]) -> SocketAddr {
    let words = std::iter::once(&"yurt-ds").chain(typed);
    let cli = Cli::try_parse_from(words).expect("no flag is missing");
    match cli.command {
        Command::Controller(args) => args.listen,
        Command::OtaServer(args) => args.listen.0.expect("a port is open by default"),
        other => panic!("nothing is served: {other:?}"),
    }
}

/// Checks that the source line of each mutant exists. Mutation tests run only by hand, so a missing line would go unnoticed.
#[test]
fn the_source_line_of_every_mutant_exists() {
    let list = include_str!("../tests/mutants.toml");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mutants = list.split("[[mutant]]").skip(1);
    let mut count = 0;
    for mutant in mutants {
        let value = |key: &str, quote: &str| {
            let (_, rest) = mutant.split_once(&format!("\n{key} = {quote}"))?;
            rest.split_once(quote).map(|(value, _)| value)
        };
        let name = value("name", "\"").unwrap();
        let source = std::fs::read_to_string(root.join(value("file", "\"").unwrap()));
        let source = source.unwrap_or_else(|error| panic!("{name}: {error}"));
        let old = value("old", "'''").or_else(|| value("old", "'"));
        let old = old.unwrap_or_else(|| panic!("{name}: no old text"));
        let old = old.strip_prefix('\n').unwrap_or(old); // TOML drops this newline
        let found = source.matches(old).count();
        assert_eq!(found, 1, "{name}: {old:?}");
        count += 1;
    }
    assert!(count > 30, "{count}");
}
