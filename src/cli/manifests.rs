//! What can be typed after `yurt-ds manifests`: texts that the program writes itself.

use clap::{Args, Subcommand};

/// What of `yurt-ds manifests` is printed.
#[derive(Clone, Debug, Args)]
pub struct ManifestsArgs {
    /// Which manifest.
    #[command(subcommand)]
    pub verb: ManifestsVerb,
}

const CRD_EXAMPLES: &str = "\
Install it, or put it in the place of OpenKruise's, whose DaemonSets stay:
  yurt-ds manifests crd | kubectl apply -f -";

const MAN_EXAMPLES: &str = "\
Examples:
  yurt-ds manifests man | man -l -
  yurt-ds manifests man undo > /usr/local/share/man/man1/yurt-ds-ctl-undo.1";

/// A manifest that the program writes itself.
#[derive(Clone, Debug, Subcommand)]
pub enum ManifestsVerb {
    /// Print the CustomResourceDefinition of the Advanced DaemonSet (daemonsets.apps.kruise.io), which needs no webhook
    #[command(after_help = CRD_EXAMPLES)]
    Crd,
    /// Print the manual page of `yurt-ds ctl`, or of one of its verbs
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

/// Flags of `yurt-ds manifests man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// A verb of `yurt-ds ctl`, as undo
    pub verb: Option<String>,
}
