//! kubectl plugin: `kubectl yurt-ds VERB` is `yurt-ds ctl VERB`.
//!
//! kubectl finds a plugin, and the program that completes its words, by the names of two executables. Both are links to this
//! program. The name under which the program was started decides which [`Role`] it has.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;

use clap::{Args as _, Command, Error, FromArgMatches as _};
use clap_complete::engine::complete;

pub use super::command_form::in_plugin;
use super::command_line::{COLUMNS, with_verbs};
use super::examples;
use crate::cli::ctl::CtlArgs;
use crate::cli::{self, Cli, LogArgs, VersionArgs};

/// Name of the plugin's executable. kubectl replaces `-` in the name of a plugin with `_`.
const PLUGIN: &str = "kubectl-yurt_ds";
/// Name of the executable that completes the plugin's words.
const COMPLETION: &str = "kubectl_complete-yurt_ds";
/// Last line of the candidates. In the protocol of cobra (kubectl's command line library), 4 means: don't offer files.
const NO_FILES: &str = ":4";

/// Role of this process, by the name under which it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The whole program, `yurt-ds`.
    Program,
    /// The kubectl plugin.
    Plugin,
    /// The completion of the kubectl plugin.
    Completion,
}

impl Role {
    /// Returns the role for the first word of the command line.
    pub fn of(program: &OsStr) -> Self {
        match Path::new(program).file_stem().and_then(OsStr::to_str) {
            Some(PLUGIN) => Self::Plugin,
            Some(COMPLETION) => Self::Completion,
            _ => Self::Program,
        }
    }
}

/// Returns the command line of the plugin: the verbs of `ctl`, and `version`.
pub fn described() -> Command {
    let plugin = Command::new("yurt-ds")
        .bin_name("kubectl yurt-ds")
        .version(env!("CARGO_PKG_VERSION"))
        .max_term_width(COLUMNS);
    let plugin = CtlArgs::augment_args(LogArgs::augment_args(plugin))
        .about("Inspect and control rollouts in a cluster, and pods on a node");
    let version =
        VersionArgs::augment_args(Command::new("version")).about("Print the version and the build");
    let plugin = plugin.subcommand(version);
    with_verbs(plugin, |verb| {
        let verb = if verb == "yurt-ds" { "ctl" } else { verb };
        in_plugin(&examples::help(verb))
    })
    // Hide `completions`: kubectl completes the words of the plugin, and the scripts work only for `yurt-ds`.
    .mut_subcommand("completions", |verb| verb.hide(true))
}

/// Parses the command line of the plugin.
///
/// # Errors
/// Fails if the words are no valid command line, or ask for help.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, Error> {
    let typed = described().try_get_matches_from(words)?;
    let command = match typed.subcommand() {
        Some(("version", typed)) => cli::Command::Version(VersionArgs::from_arg_matches(typed)?),
        _ => cli::Command::Ctl(CtlArgs::from_arg_matches(&typed)?),
    };
    Ok(Cli {
        log: LogArgs::from_arg_matches(&typed)?,
        command,
    })
}

/// Prints the candidates for the last word, one per line, as kubectl expects them. `words` has all words after the program name.
///
/// # Errors
/// Fails if they cannot be printed.
pub fn print_candidates(
    words: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let mut line = vec![OsString::from("yurt-ds")];
    line.extend(words);
    if line.len() == 1 {
        line.push(OsString::new());
    }
    let last = line.len() - 1;
    let found = complete(&mut described(), line, last, None)?;
    for candidate in found {
        write!(out, "{}", candidate.get_value().to_string_lossy())?;
        let help = candidate.get_help().map(ToString::to_string);
        match help.as_deref().and_then(|help| help.lines().next()) {
            Some(help) => writeln!(out, "\t{help}")?,
            None => writeln!(out)?,
        }
    }
    writeln!(out, "{NO_FILES}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ctl::Verb;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_executable_name_decides_the_role() {
        let role = |name: &str| Role::of(OsStr::new(name));
        assert_eq!(role("/usr/bin/yurt-ds"), Role::Program);
        assert_eq!(role("kubectl-yurt_ds"), Role::Plugin);
        assert_eq!(role("/home/ann/.krew/bin/kubectl-yurt_ds"), Role::Plugin);
        assert_eq!(role("bin/kubectl_complete-yurt_ds"), Role::Completion);
        assert_eq!(role("kubectl-yurt_ds-2"), Role::Program);
        assert_eq!(role(""), Role::Program);
    }

    #[test]
    fn the_plugin_has_the_verbs_of_ctl() {
        let parsed = parse(words("kubectl-yurt_ds status shop/web -n shop")).unwrap();
        let cli::Command::Ctl(ctl) = parsed.command else {
            panic!("{:?}", parsed.command);
        };
        assert_eq!(ctl.access.namespace.as_deref(), Some("shop"));
        assert!(
            matches!(ctl.verb, Verb::Status(status) if status.daemonset.as_deref() == Some("shop/web"))
        );
        let parsed = parse(words("kubectl-yurt_ds version -o json")).unwrap();
        assert!(matches!(parsed.command, cli::Command::Version(_)));
    }

    #[test]
    fn help_and_errors_of_the_plugin_use_the_kubectl_command() {
        for line in [
            "kubectl-yurt_ds --help",
            "kubectl-yurt_ds undo --help",
            "kubectl-yurt_ds version -h",
        ] {
            let help = parse(words(line)).unwrap_err().to_string();
            assert!(help.contains("Usage: kubectl yurt-ds"), "{help}");
            assert!(
                !help.contains("yurt-ds ctl") && help.contains("  kubectl yurt-ds "),
                "{help}"
            );
            assert!(help.lines().count() <= 40, "{help}");
        }
        let refused = parse(words("kubectl-yurt_ds undo"))
            .unwrap_err()
            .to_string();
        assert!(refused.contains("Usage: kubectl yurt-ds undo"), "{refused}");
    }

    #[test]
    fn the_completion_prints_candidates_and_the_directive() {
        let offers = |line: &str| {
            let mut out = Vec::new();
            print_candidates(words(line), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let verbs = offers("u");
        assert!(verbs.starts_with("undo\t"), "{verbs}");
        assert!(verbs.contains("\nupgrade\t"), "{verbs}");
        assert!(verbs.ends_with("\n:4\n"), "{verbs}");
        assert!(offers("").contains("\nstatus\t") || offers("").starts_with("status\t"));
        assert!(offers("status -o j").contains("json"));
        assert_eq!(offers("fly"), ":4\n");
    }
}
