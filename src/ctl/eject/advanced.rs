//! Ejects an Advanced DaemonSet: converts it to a paused native DaemonSet, so that no pod is replaced before the return to
//! Kubernetes.

use k8s_openapi::api::apps::v1::DaemonSet;

use super::candidate::{EjectCandidate, OldNodes};
use crate::cli::ctl::EjectArgs;
use crate::core::SetKind;
use crate::ctl::context::Context;
use crate::ctl::error::CliError;
use crate::ctl::lookup;
use crate::ctl::migrate::{Purpose, carry_over};
use crate::ctl::screen::Screen;
use crate::index::SetKey;

/// Converts the DaemonSet to a native one and returns its key; `None` with `--dry-run`.
///
/// If `key` names a native DaemonSet, an interrupted command has begun the conversion, and this one finishes it.
///
/// # Errors
/// Fails while nodes run an old revision, or if the conversion is not possible.
pub(super) async fn make_native(
    context: &Context,
    args: &EjectArgs,
    key: &SetKey,
    screen: &mut Screen<'_>,
) -> Result<Option<SetKey>, CliError> {
    let kind = SetKind::Native;
    if !key.is_advanced() {
        carry_over(context, key, kind, Purpose::Eject, args.dry_run, screen).await?;
        return Ok(Some(key.clone()));
    }
    let (_, snapshot) = lookup::snapshot(&context.access, key, context.clock.now()).await?;
    let candidate = EjectCandidate {
        key: key.clone(),
        set: DaemonSet::default(),
        settings: Default::default(),
        old: OldNodes::new(&snapshot),
        snapshot,
    };
    if !args.now {
        candidate.refuse_unfinished()?;
    }
    carry_over(context, key, kind, Purpose::Eject, args.dry_run, screen).await?;
    if args.dry_run {
        return Ok(None);
    }
    Ok(Some(key.as_kind(kind)))
}
