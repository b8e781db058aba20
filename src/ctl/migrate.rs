//! `ctl migrate`: makes of a DaemonSet one of the other kind of that name, and restarts nobody.
//!
//! ```text
//! look ─judge, translate, try (dry run)─► refused, or:
//!   keep what is to be made (journal) ─► delete the old one, orphaning; revisions in the words of Kubernetes ─► create the new one
//!   ─► its controller adopts pods and revisions ─► looked at ─► journal goes
//! ```
//!
//! Before the deletion nothing has changed; after it, whoever types the same command again finishes, for the journal is in the
//! cluster. The deletion holds only for the object that was looked at. A native DaemonSet is made paused, and goes on when it is
//! certain that Kubernetes knows the revision that the pods carry.

mod adoption;
mod advanced;
mod extended;
mod journal;
mod judge;
mod native;
mod revisions;
mod steps;
mod translation;
mod words;

use std::time::Duration;

use serde_json::Value;

use self::adoption::Adoption;
use self::journal::Journal;
use self::steps::Migration;
use super::code::Code;
use super::context::Context;
use super::error::CliError;
use super::lookup;
use super::screen::Screen;
use crate::cli::ctl::MigrateArgs;
use crate::core::SetKind;
use crate::index::SetKey;

/// What a migration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// This controller goes on rolling it out.
    GoOn,
    /// It is handed back to Kubernetes next, and nobody replaces a pod before that.
    Eject,
}

/// Makes of a DaemonSet one of the other kind.
pub(super) async fn migrate(
    context: &Context,
    args: &MigrateArgs,
    screen: &mut Screen<'_>,
) -> Result<(), CliError> {
    let kind = args.to.kind();
    if let Some(name) = extended::typed(&args.daemonset) {
        return extended::show(context, name, kind, screen).await;
    }
    let key = lookup::target(context, &args.daemonset).await?;
    carry_over(context, &key, kind, Purpose::GoOn, args.dry_run, screen).await
}

/// The same of a DaemonSet that was found.
///
/// # Errors
/// Why not, what was done, and how to finish.
pub(super) async fn carry_over(
    context: &Context,
    key: &SetKey,
    to: SetKind,
    purpose: Purpose,
    dry_run: bool,
    screen: &mut Screen<'_>,
) -> Result<(), CliError> {
    let migration = Migration::new(context, key, to, purpose);
    let (source, target) = migration.look().await?;
    let journal = Journal::find(&context.access, key).await?;
    let journal = journal.map(|journal| migration.own(journal)).transpose()?;
    match (source, target, journal) {
        (Some(_), Some(_), _) => Err(migration.refused(words::both_exist(&migration.target))),
        (Some(source), None, Some(journal)) if journal.is_of_going(&source) => {
            migration.may_finish(dry_run, screen)?;
            Box::pin(migration.finish(&journal, screen)).await
        }
        (Some(source), None, _) => Box::pin(migration.begin(&source, dry_run, screen)).await,
        (None, None, Some(journal)) => {
            migration.may_finish(dry_run, screen)?;
            Box::pin(migration.finish(&journal, screen)).await
        }
        (None, Some(made), Some(journal)) => {
            migration.may_finish(dry_run, screen)?;
            migration.conclude(&journal, &made, screen).await
        }
        (None, Some(_), None) => {
            let _ = screen.print(&words::already(&migration.target));
            Ok(())
        }
        // In the words of `status`.
        (None, None, None) => {
            let found = lookup::find(&context.access, key, context.clock.now()).await;
            found.map(drop)
        }
    }
}

impl Journal {
    /// Whether `source` is the DaemonSet that it tells of, on its way out.
    fn is_of_going(&self, source: &Value) -> bool {
        let meta = &source["metadata"];
        meta["uid"] == *self.from && !meta["deletionTimestamp"].is_null()
    }
}

impl Migration<'_> {
    /// The journal, if it is about this way.
    fn own(&self, journal: Journal) -> Result<Journal, CliError> {
        match journal.kind() == self.target.kind {
            true => Ok(journal),
            false => Err(self.refused(words::other_way(&self.target))),
        }
    }

    /// An earlier attempt is finished, and not only looked at.
    fn may_finish(&self, dry_run: bool, screen: &mut Screen<'_>) -> Result<(), CliError> {
        if dry_run {
            return Err(self.refused(words::unfinished(&self.target)));
        }
        let _ = screen.print(&words::goes_on(&self.target));
        Ok(())
    }

    fn refused(&self, text: String) -> CliError {
        CliError::new(Code::Refused, text)
    }

    async fn begin(
        &self,
        source: &Value,
        dry_run: bool,
        screen: &mut Screen<'_>,
    ) -> Result<(), CliError> {
        let (journal, translation) = Box::pin(self.prepare(source)).await?;
        if dry_run {
            let _ = screen.print(&words::would(&self.target, source, &translation)?);
            return Ok(());
        }
        let access = &self.context.access;
        journal.keep(access, &self.target).await?;
        if let Err(error) = self.orphan(source).await {
            // Nothing has happened yet.
            journal.forget(access, &self.target).await?;
            return Err(error);
        }
        let _ = screen.print(&words::translated(&translation));
        Box::pin(self.finish(&journal, screen)).await
    }

    /// All that follows the deletion.
    async fn finish(&self, journal: &Journal, screen: &mut Screen<'_>) -> Result<(), CliError> {
        let made = async {
            // Nobody makes a revision for a DaemonSet on its way out.
            self.write_revisions(journal).await?;
            self.await_gone(&journal.from, screen).await?;
            self.create(journal).await
        };
        let made = made.await.map_err(|error| {
            let text = format!("{error} {}", words::to_finish(&self.target));
            CliError::new(error.code, text)
        })?;
        self.conclude(journal, &made, screen).await
    }

    /// Looks what became of the DaemonSet that was made.
    async fn conclude(
        &self,
        journal: &Journal,
        made: &Value,
        screen: &mut Screen<'_>,
    ) -> Result<(), CliError> {
        let adoption = self.await_adoption(made).await?;
        if let (SetKind::Native, Adoption::Unseen | Adoption::Foreign { .. }) =
            (self.target.kind, &adoption)
        {
            let text = words::not_adopted(&self.target, &adoption, self.is_held(journal));
            return Err(CliError::new(Code::Failed, text));
        }
        if self.is_held(journal) && self.purpose == Purpose::GoOn {
            self.let_go_on(made).await?;
        }
        journal.forget(&self.context.access, &self.target).await?;
        let _ = screen.print(&words::done(&self.target, journal, &adoption));
        Ok(())
    }
}

/// How long Kubernetes gets to look at what was made: before that it is not certain that nobody is restarted.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same of this controller, which restarts nobody, and may not run.
const PATIENCE_WITH_OURS: Duration = Duration::from_secs(10);
/// How often that is looked at.
const GLANCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
