//! Command line of `yurt-ds manifests`, which prints generated files.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Flags and verbs of `yurt-ds manifests`.
#[derive(Clone, Debug, Args)]
pub struct ManifestsArgs {
    /// File to print.
    #[command(subcommand)]
    pub verb: ManifestsVerb,
}

const CRD_EXAMPLES: &str = "Install it, or replace OpenKruise's definition and keep its DaemonSets:
  yurt-ds manifests crd | kubectl apply -f -";

const MAN_EXAMPLES: &str = "\
Examples:
  yurt-ds manifests man | man -l -
  yurt-ds manifests man --dir /usr/local/share/man/man1
  yurt-ds manifests man undo > /usr/local/share/man/man1/yurt-ds-ctl-undo.1";

/// A file that the program generates.
#[derive(Clone, Debug, Subcommand)]
pub enum ManifestsVerb {
    /// Print the CustomResourceDefinition of the Advanced DaemonSet (daemonsets.apps.kruise.io), which needs no webhook
    #[command(after_help = CRD_EXAMPLES)]
    Crd,
    /// Print the manual page of `yurt-ds ctl`, or of one of its verbs; or write those of all commands
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

/// Flags of `yurt-ds manifests man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Verb of `yurt-ds ctl`, such as undo
    pub verb: Option<String>,
    /// Folder for the manual pages of all commands, such as yurt-ds-ctl-undo.1
    #[arg(long, env = "YURT_DS_DIR", value_name = "DIR", conflicts_with = "verb")]
    pub dir: Option<PathBuf>,
}
