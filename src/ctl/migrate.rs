//! `ctl migrate`: converts a DaemonSet to the other kind under the same name, without restarting pods.
//!
//! ```text
//! look ─check, translate, try (dry run)─► refused, or:
//!   save the new object (journal) ─► delete the old one, orphaning; write revisions as Kubernetes does ─► create the new one
//!   ─► its controller adopts pods and revisions ─► check ─► delete the journal
//! ```
//!
//! Before the deletion, nothing has changed. After it, the same command finishes an interrupted migration: the journal, which holds
//! the new objects, is stored in the cluster. The deletion fails if the DaemonSet has changed since it was read. A native DaemonSet
//! is created paused. The pause ends once Kubernetes has adopted the revision of the pods.

mod adoption;
mod advanced;
mod extended;
mod journal;
mod messages;
mod native;
mod pods;
mod preflight;
mod revisions;
mod steps;
mod translation;

use serde_json::Value;

use self::adoption::Adoption;
use self::journal::Journal;
use self::native::handed_back;
pub(super) use self::native::{nothing_like, rolling_update};
use self::steps::{Migration, Undeleted};
use super::code::Code;
use super::context::Context;
use super::error::CliError;
use super::lookup;
use super::screen::Screen;
use crate::cli::ctl::MigrateArgs;
use crate::core::SetKind;
use crate::index::SetKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// `ctl migrate`: yurt-ds continues to roll out the new DaemonSet.
    GoOn,
    /// `ctl eject`: the new DaemonSet is returned to Kubernetes next. No pod is replaced before that.
    Eject,
}

/// Converts a DaemonSet to the other kind.
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

/// Converts the DaemonSet `key` to the kind `to`, or finishes an interrupted conversion.
///
/// # Errors
/// Fails with the cause, the steps that were done, and the command that finishes the migration.
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
    // Ignore a journal whose old DaemonSet still exists and is not being deleted: that migration has not begun.
    let is_void = |journal: &Journal| {
        target
            .as_ref()
            .is_some_and(|set| journal.is_of_staying(set))
    };
    let journal = journal.filter(|journal| !is_void(journal));
    let journal = journal.map(|journal| migration.own(journal)).transpose()?;
    match (source, target, journal) {
        (Some(_), Some(_), _) => Err(migration.refused(messages::both_exist(&migration.target))),
        (Some(source), None, Some(journal)) if journal.is_of_going(&source) => {
            migration.may_finish(dry_run, screen)?;
            Box::pin(migration.finish(&journal, screen)).await
        }
        // The DaemonSet already has the target kind: only check that it is managed.
        (Some(_), None, None) if key.kind == to => {
            let found = lookup::find(&context.access, key, context.clock.now()).await;
            found.map(drop)
        }
        (Some(source), None, _) => Box::pin(migration.begin(&source, dry_run, screen)).await,
        (None, None, Some(journal)) => {
            migration.check_left(&journal).await?;
            migration.may_finish(dry_run, screen)?;
            Box::pin(migration.finish(&journal, screen)).await
        }
        (None, Some(made), Some(journal)) if !journal.is_made(&made) => {
            Err(migration.refused(messages::made_by_others(&migration.target)))
        }
        (None, Some(made), Some(journal)) => {
            migration.may_finish(dry_run, screen)?;
            migration.conclude(&journal, &made, screen).await
        }
        (None, Some(_), None) => {
            let _ = screen.print(&messages::already(&migration.target));
            Ok(())
        }
        // Neither DaemonSet exists: return the same error as `status`.
        (None, None, None) => {
            let found = lookup::find(&context.access, key, context.clock.now()).await;
            found.map(drop)
        }
    }
}

/// Returns the key of the native DaemonSet if its migration, in either direction, is unfinished; otherwise `None`.
///
/// # Errors
/// Fails if the API server does not answer.
pub(super) async fn begun(context: &Context, typed: &str) -> Result<Option<SetKey>, CliError> {
    let found = unfinished(context, typed).await?;
    Ok(found.map(|(migration, _)| migration.target.as_kind(SetKind::Native)))
}

/// Returns the error for a DaemonSet that is missing because its migration is unfinished. The message has the command that finishes
/// the migration.
///
/// `None` if no migration is found, or the caller may not see it.
pub(super) async fn on_its_way(context: &Context, typed: &str) -> Option<CliError> {
    let (migration, made) = unfinished(context, typed).await.ok()??;
    let text = messages::unfinished(&migration.target, migration.purpose);
    made.is_none().then(|| migration.refused(text))
}

/// Returns the unfinished migration of a DaemonSet, and the new DaemonSet if it exists.
async fn unfinished<'a>(
    context: &'a Context,
    typed: &str,
) -> Result<Option<(Migration<'a>, Option<Value>)>, CliError> {
    let typed = lookup::TypedName::read(context, typed)?;
    let key = typed.key();
    let Some(journal) = Journal::find(&context.access, key).await? else {
        return Ok(None);
    };
    let migration = Migration::new(context, key, journal.kind(), journal.purpose);
    let (source, made) = migration.look().await?;
    let is_begun = source.is_none_or(|source| journal.is_of_going(&source));
    Ok(is_begun.then_some((migration, made)))
}

/// Checks that no Advanced DaemonSet has the same name as the native DaemonSet `key`.
///
/// # Errors
/// Fails if one exists, for example because its manifest was applied again after the conversion.
pub(super) async fn is_alone(context: &Context, key: &SetKey) -> Result<(), CliError> {
    let migration = Migration::new(context, key, SetKind::Native, Purpose::Eject);
    migration.refuse_two_kinds().await
}

impl Journal {
    /// Returns true if `set` is the journal's old DaemonSet and is being deleted: the migration has to be finished.
    fn is_of_going(&self, set: &Value) -> bool {
        self.is_from(set) && !set["metadata"]["deletionTimestamp"].is_null()
    }

    /// Returns true if `set` is the journal's old DaemonSet and is not being deleted: the migration has not begun.
    fn is_of_staying(&self, set: &Value) -> bool {
        self.is_from(set) && set["metadata"]["deletionTimestamp"].is_null()
    }
}

impl Migration<'_> {
    /// Returns the journal if it belongs to a migration in the same direction.
    fn own(&self, journal: Journal) -> Result<Journal, CliError> {
        if journal.kind() == self.target.kind {
            Ok(journal)
        } else {
            Err(self.refused(messages::other_way(&self.source, journal.purpose)))
        }
    }

    /// Prints that an interrupted migration continues. With `--dry-run`, returns an error instead.
    fn may_finish(&self, dry_run: bool, screen: &mut Screen<'_>) -> Result<(), CliError> {
        if dry_run {
            return Err(self.refused(messages::unfinished(&self.target, self.purpose)));
        }
        let _ = screen.print(&messages::goes_on(&self.target));
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
        let prepared = Box::pin(self.prepare(source)).await;
        let (journal, translation) = prepared.map_err(|error| self.as_refusal(error))?;
        if dry_run {
            let shown = match (self.purpose, self.settings(source)?) {
                (Purpose::Eject, (Some(strategy), _)) => handed_back(translation, &strategy),
                _ => translation,
            };
            let _ = screen.print(&messages::would(&self.target, source, &shown)?);
            return Ok(());
        }
        let access = &self.context.access;
        let kept = journal.keep(access, &self.target).await;
        kept.map_err(|error| self.as_refusal(error))?;
        match Box::pin(self.delete(source)).await {
            Ok(()) => {}
            Err(Undeleted::Certainly(error)) => {
                // A journal that remains is harmless: the next attempt replaces it.
                let _ = journal.forget(access, &self.target).await;
                return Err(self.as_refusal(error));
            }
            Err(Undeleted::Perhaps(error)) => {
                let next = messages::perhaps_begun(&self.target, self.purpose);
                return Err(CliError::new(error.code, format!("{error} {next}")));
            }
        }
        let _ = screen.print(&messages::translated(&translation));
        Box::pin(self.finish(&journal, screen)).await
    }

    /// Deletes the old DaemonSet, unless pods have changed so that the new one would not adopt them.
    async fn delete(&self, source: &Value) -> Result<(), Undeleted> {
        let (strategy, _) = self.settings(source).map_err(Undeleted::Certainly)?;
        let checked = self.check_pods(source, strategy.as_ref()).await;
        checked.map_err(Undeleted::Certainly)?;
        self.orphan(source).await
    }

    /// Adds to an error of the API server that nothing was changed, because the DaemonSet has not been deleted yet.
    fn as_refusal(&self, error: CliError) -> CliError {
        match error.code {
            Code::Failed => self.no(error.text),
            _ => error,
        }
    }

    /// Performs all steps that follow the deletion of the old DaemonSet.
    async fn finish(&self, journal: &Journal, screen: &mut Screen<'_>) -> Result<(), CliError> {
        let made = async {
            // Rewrite the revisions now: the controller creates no revisions for a DaemonSet that is being deleted.
            self.write_revisions(journal).await?;
            match self.await_gone(&journal.from, screen).await? {
                Some(_) => Ok(None),
                None => self.create(journal).await.map(Some),
            }
        };
        let made = made.await.map_err(|error| {
            let next = messages::to_finish(&self.target, journal, self.purpose);
            CliError::new(error.code, format!("{error} {next}"))
        })?;
        match made {
            Some(made) => self.conclude(journal, &made, screen).await,
            None => {
                // A user applied the old manifest again, and that DaemonSet owns the pods now. So the journal is obsolete. If it
                // cannot be deleted, the next attempt replaces it.
                let _ = journal.forget(&self.context.access, &self.target).await;
                let text = messages::applied_instead(&self.source, &self.target, self.purpose);
                Err(CliError::new(Code::Failed, text))
            }
        }
    }

    /// Waits until the new DaemonSet has adopted its revision, and then ends the migration. Returns an error if the adoption
    /// failed.
    async fn conclude(
        &self,
        journal: &Journal,
        made: &Value,
        screen: &mut Screen<'_>,
    ) -> Result<(), CliError> {
        let unfinished = |error: CliError, is_paused: bool| {
            let next = messages::to_conclude(&self.target, self.purpose, is_paused);
            CliError::new(error.code, format!("{error} {next}"))
        };
        let access = &self.context.access;
        let mut is_paused = journal.is_paused();
        let adoption = self.await_adoption(made).await;
        let adoption = adoption.map_err(|error| unfinished(error, is_paused))?;
        let alone = self.refuse_two_kinds().await;
        alone.map_err(|error| unfinished(error, is_paused))?;
        let is_over = match adoption {
            Adoption::Known => true,
            // An Advanced DaemonSet needs no adoption now: its controller restarts no pods when it adopts them later.
            Adoption::Unseen | Adoption::Foreign { .. } => self.target.kind == SetKind::Advanced,
            Adoption::Replaced => false,
        };
        if !is_over {
            if let Adoption::Foreign { .. } = adoption {
                // Delete the journal: all its objects have been created.
                let forgotten = journal.forget(access, &self.target).await;
                forgotten.map_err(|error| unfinished(error, is_paused))?;
            }
            let text = messages::not_adopted(&self.target, self.purpose, &adoption, is_paused);
            return Err(CliError::new(Code::Failed, text));
        }
        if journal.held && self.purpose == Purpose::GoOn {
            let resumed = self.let_go_on(made).await;
            resumed.map_err(|error| unfinished(error, is_paused))?;
            is_paused = false;
        }
        let forgotten = journal.forget(access, &self.target).await;
        forgotten.map_err(|error| unfinished(error, is_paused))?;
        let _ = screen.print(&messages::done(&self.target, journal, &adoption));
        if journal.purpose == Purpose::Eject && self.purpose == Purpose::GoOn {
            let _ = screen.print(&messages::to_eject(&self.target));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
