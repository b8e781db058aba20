//! An Advanced DaemonSet on its way back to Kubernetes: it is made a native one first, paused, so that nobody replaces a pod
//! between the two steps.

use k8s_openapi::api::apps::v1::DaemonSet;

use super::standing::{EjectCandidate, OldNodes};
use crate::cli::ctl::EjectArgs;
use crate::core::SetKind;
use crate::ctl::context::Context;
use crate::ctl::error::CliError;
use crate::ctl::lookup;
use crate::ctl::migrate::{Purpose, carry_over};
use crate::ctl::screen::Screen;
use crate::index::SetKey;

/// Makes a native DaemonSet of it, and says which; `None`: that was only to be looked at. A native `key` was on its way already.
///
/// # Errors
/// While nodes run an old revision, and when it cannot be made a native one.
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
