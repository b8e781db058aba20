//! What can be typed after `yurt-ds manifests`.

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

/// A manifest that the program writes itself.
#[derive(Clone, Debug, Subcommand)]
pub enum ManifestsVerb {
    /// Print the CustomResourceDefinition of the Advanced DaemonSet (daemonsets.apps.kruise.io), which needs no webhook
    #[command(after_help = CRD_EXAMPLES)]
    Crd,
}
