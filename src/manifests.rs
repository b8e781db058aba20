//! The part of the manifests that the program generates, so that program and manifest cannot diverge. It is the
//! CustomResourceDefinition of the Advanced DaemonSet (`daemonsets.apps.kruise.io`).
//!
//! `yurt-ds manifests crd` prints it, and `manifests/components/advanced/crd.yaml` is that output.
//!
//! ```text
//!   daemonset (types; their doc comments are the text of kubectl explain)
//!       │    rules (validation rules of the API server, with messages)
//!       │      │
//!       ▼      ▼
//!       schema (structural, as API servers require) ──► crd (names, versions, columns) ──► YAML
//! ```

mod crd;
mod daemonset;
mod rules;
mod schema;

#[cfg(test)]
mod crd_tests;

/// First lines of the output.
const HEAD: &str = "\
# The Advanced DaemonSet, as OpenKruise defines it, checked by the API server itself instead of webhooks.
# Written by: yurt-ds manifests crd
";

/// Returns the CustomResourceDefinition of the Advanced DaemonSet as YAML.
///
/// # Errors
///
/// If it cannot be serialized as YAML. A test checks that it can.
pub fn crd() -> Result<String, serde_saphyr::ser::Error> {
    let written = serde_saphyr::to_string(&crd::definition())?;
    Ok(format!("{HEAD}{written}"))
}
