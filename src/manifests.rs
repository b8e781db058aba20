//! What the program itself writes of its manifests, so that they cannot drift from it: the definition of the Advanced DaemonSet
//! (`daemonsets.apps.kruise.io`). `yurt-ds manifests crd` prints it, and `manifests/components/advanced/crd.yaml` is that text.
//!
//! ```text
//!   daemonset (types; what they say is what kubectl explains)
//!       │    rules (what the API server refuses, and the cure)
//!          ▼
//!       schema (structural, as API servers take it) ──► crd (names, versions, columns) ──► YAML
//! ```

mod crd;
mod daemonset;
mod rules;
mod schema;

#[cfg(test)]
mod crd_tests;

/// The first lines of what is printed.
const HEAD: &str = "\
# The Advanced DaemonSet, as OpenKruise defines it, checked by the API server itself instead of webhooks.
# Written by: yurt-ds manifests crd
";

/// The CustomResourceDefinition of the Advanced DaemonSet, as YAML.
///
/// # Errors
///
/// When it cannot be written as YAML, which a test has seen that it can.
pub fn crd() -> Result<String, serde_saphyr::ser::Error> {
    let written = serde_saphyr::to_string(&crd::definition())?;
    Ok(format!("{HEAD}{written}"))
}
