//! `ctl status`: prints the state of rollouts once, continuously (`--watch`), or until the rollouts end (`--wait`).

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use super::access::SLOW_WARNING;
use super::code::Code;
use super::context::Context;
use super::error::CliError;
use super::json_lines::{self, JsonLines};
use super::junit::JunitReport;
use super::liveness::{ControllerLiveness, LivenessWatch, PendingActions, liveness_of};
use super::look::Look;
use super::lookup::TypedName;
use super::row::SetRow;
use super::screen::{Closed, Screen};
use super::view::{ClusterView, ListScope, WatchStep};
use super::{lookup, partition_origin, print};
use crate::cli::ctl::StatusArgs;
use crate::cli::{Output, StatusOutput};
use crate::core::{Revision, Verdict};
use crate::index::{SetKey, Unmanaged};

/// Time in which changes are collected before the output is updated.
const GATHER: Duration = Duration::from_millis(300);
/// Interval between updates of the output without a change. Ages grow, and some verdicts depend on the time.
const REFRESH: Duration = Duration::from_secs(2);
/// Minimum interval between two loads of all objects. While watches fail, this is the polling interval.
const RELOAD: Duration = Duration::from_secs(3);
/// Deadline of a wait without `--timeout`. It never takes effect.
const FAR: Duration = Duration::from_secs(86_400);
/// Time within which a running controller reports a change.
const REPORT_LAG: Duration = Duration::from_secs(5);
/// Minimum time for a load, even if `--timeout` ends sooner.
const ONE_LOOK: Duration = Duration::from_secs(1);
/// Maximum number of lines for one kind of rows on a redrawn screen, so that the output fits on 24 lines.
const FIT: usize = 8;
/// Minimum interval between progress lines on an output that is not a terminal.
const TELL: Duration = Duration::from_secs(5);

/// Prints the state of rollouts, and writes the JUnit report if the command has one. Its file is checked first, so that no report
/// of an earlier run remains.
pub(super) async fn status(
    context: &Context,
    args: &StatusArgs,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let Some(path) = &args.junit else {
        return show(context, args, screen, None).await;
    };
    let mut report = JunitReport::create(path, args, context.clock.now())?;
    let ended = show(context, args, screen, Some(&mut report)).await;
    let Err(unwritten) = report.write(&ended) else {
        return ended;
    };
    screen.warn(&unwritten.to_string());
    match ended? {
        Code::Complete => Ok(unwritten.code),
        // An incomplete rollout matters more than a report that cannot be written.
        code => Ok(code),
    }
}

async fn show(
    context: &Context,
    args: &StatusArgs,
    screen: &mut Screen<'_>,
    report: Option<&mut JunitReport>,
) -> Result<Code, CliError> {
    // `status` itself warns of a slow API server, below its output. So suppress the warning of the calls.
    context.access.is_warned.store(true, Ordering::Relaxed);
    let typed = args.daemonset.as_deref();
    let target = typed
        .map(|typed| TypedName::read(context, typed))
        .transpose()?;
    let scope = match &context.namespace {
        Some(namespace) => {
            lookup::may_be_a_name("namespace", namespace)?;
            ListScope::Namespace(namespace.clone())
        }
        None => ListScope::Everywhere,
    };
    let show = StatusScreen {
        context,
        args,
        target,
        scope,
    };
    if args.watch {
        show.watch(screen).await
    } else if args.wait {
        show.wait(screen, report).await
    } else {
        let (view, liveness) = show.load().await;
        let mut view = view?;
        let now = show.now(&view);
        let mut snapshots = show.snapshots_at(&mut view, now, &liveness);
        if let (Some(_), [Look::Judged(snapshot)]) = (&show.target, snapshots.as_mut_slice())
            && snapshot.plan.counts.of_kind(Verdict::Partition) > 0
        {
            let key = &snapshot.key;
            snapshot.partition_origin = partition_origin::note(&context.access, key, now).await;
        }
        show.check_namespace(&view).await?;
        // Ignore a closed output pipe, as with `| head`. It must not change the exit code.
        let _ = screen.print(&(show.text(&snapshots, screen.colour)? + &show.unmanaged(&view)));
        StatusScreen::warn_of_hidden(&view, screen);
        Ok(show.code(&snapshots))
    }
}

/// Selection and format of the output.
struct StatusScreen<'a> {
    context: &'a Context,
    args: &'a StatusArgs,
    target: Option<TypedName>,
    /// DaemonSets to show if the command names none.
    scope: ListScope,
}

impl StatusScreen<'_> {
    /// Lists all objects of the view, and reads the controller's liveness from the Lease.
    async fn load(&self) -> (Result<ClusterView, CliError>, ControllerLiveness) {
        let (access, now) = (&self.context.access, self.context.clock.now());
        let liveness = liveness_of(access, now);
        match &self.target {
            Some(typed) => {
                let view = async {
                    let key = typed.resolve(access).await?;
                    lookup::load(access, &key, now).await
                };
                tokio::join!(view, liveness)
            }
            None => tokio::join!(ClusterView::load(access, &self.scope, now), liveness),
        }
    }

    /// Loads the view for a waiting command. Warns of a slow API server, and returns an error at the deadline.
    async fn load_within(
        &self,
        deadline: Option<Instant>,
        screen: &mut Screen<'_>,
    ) -> Result<(ClusterView, ControllerLiveness), CliError> {
        let begun = Instant::now();
        let mut loading = pin!(self.load());
        let mut is_warned = false;
        loop {
            let far = begun + FAR;
            tokio::select! {
                (view, liveness) = &mut loading => return Ok((view?, liveness)),
                () = sleep_until(begun + SLOW_WARNING), if !is_warned => {
                    is_warned = true;
                    screen.warn(&format!("{} Waiting for it.", self.context.access.unanswered(SLOW_WARNING)));
                }
                () = sleep_until(deadline.unwrap_or(far)), if deadline.is_some() => {
                    return Err(self.too_late(begun.elapsed()));
                }
            }
        }
    }

    /// Fails if no DaemonSet was listed because the namespace does not exist.
    async fn check_namespace(&self, view: &ClusterView) -> Result<(), CliError> {
        match (&self.scope, &self.target) {
            (ListScope::Namespace(namespace), None) if view.present.is_empty() => {
                lookup::namespace(&self.context.access, namespace).await
            }
            _ => Ok(()),
        }
    }

    /// Returns the error for a timeout that ends while the API server does not answer.
    fn too_late(&self, passed: Duration) -> CliError {
        let waited = self.args.timeout.unwrap_or(passed);
        let text = format!(
            "Not complete after {}. {}",
            humantime::format_duration(waited),
            self.context.access.unanswered(passed)
        );
        CliError::new(Code::Unreachable, text)
    }

    /// Returns the time for the evaluation of a freshly loaded view: the time of the load.
    fn now(&self, view: &ClusterView) -> Timestamp {
        view.loaded
    }

    fn snapshots(
        &self,
        view: &mut ClusterView,
        watch: &LivenessWatch,
        pending: &mut PendingActions,
    ) -> Vec<Look> {
        let now = self.context.clock.now();
        let mut snapshots = self.snapshots_at(view, now, &watch.liveness());
        // Actions that stay pending show that no controller is running. Skip this if the caller may not read a resource: the
        // controller may then plan other actions than this command.
        for look in &mut snapshots {
            let Look::Judged(snapshot) = look else {
                continue;
            };
            if snapshot.unread.is_some() {
                continue;
            }
            let (liveness, actions) = (snapshot.liveness.clone(), &snapshot.plan.actions);
            snapshot.liveness = pending.judge(liveness, &snapshot.key, actions, now);
        }
        snapshots
    }

    fn snapshots_at(
        &self,
        view: &mut ClusterView,
        now: Timestamp,
        liveness: &ControllerLiveness,
    ) -> Vec<Look> {
        let mut keys: Vec<SetKey> = view.managed().cloned().collect();
        keys.sort_by(|a, b| (&a.namespace, &a.name, a.kind).cmp(&(&b.namespace, &b.name, b.kind)));
        let take = |key: &SetKey| {
            let mut snapshot = Look::take(view, key, now)?;
            snapshot.note_liveness(liveness.clone());
            Some(snapshot)
        };
        keys.iter().filter_map(take).collect()
    }

    fn rows(&self, snapshots: &[Look], nodes: bool) -> Vec<SetRow> {
        let nodes = nodes && self.target.is_some();
        let row = |look: &Look| {
            let (key, mut row) = (look.key(), SetRow::of_look(look, nodes));
            let mut others = snapshots.iter().map(Look::key);
            if others.any(|other| other.kind != key.kind && other.as_kind(key.kind) == *key) {
                row.name_kind(key);
            }
            row
        };
        snapshots.iter().map(row).collect()
    }

    fn code(&self, snapshots: &[Look]) -> Code {
        let strict = self.args.strict;
        Code::worst(snapshots.iter().map(|snapshot| snapshot.code(strict)))
    }

    /// Renders the state of the rollouts in the requested format.
    fn text(&self, snapshots: &[Look], colour: bool) -> Result<String, CliError> {
        // `--watch` prints documents without nodes. In a large fleet, they would be megabytes per minute.
        let rows = self.rows(snapshots, !(self.args.watch && self.is_document()));
        let now = self.context.clock.now();
        let wide = self.args.output == StatusOutput::Wide;
        let format = match self.args.output {
            StatusOutput::Jsonl => return json_lines::render(&rows, now),
            StatusOutput::Json => Some(Output::Json),
            StatusOutput::Yaml => Some(Output::Yaml),
            StatusOutput::Table | StatusOutput::Wide => None,
        };
        match (format, &self.target, rows.first()) {
            (Some(format), Some(_), Some(row)) => print::document(row, format),
            (Some(format), ..) => print::document(&rows, format),
            (_, Some(_), Some(row)) => Ok(print::report(row, wide, colour, now, self.limit())),
            (_, _, None) => Ok(self.nothing()),
            _ => Ok(print::list(&rows, wide, colour, now, self.limit())),
        }
    }

    /// Returns a line for each DaemonSet that yurt-ds does not manage although it has settings of yurt-ds.
    fn unmanaged(&self, view: &ClusterView) -> String {
        let line =
            |(key, stray): (&SetKey, &Unmanaged)| format!("\nNote, on {key}: {}\n", stray.text);
        if self.is_document() {
            String::new()
        } else {
            view.index.unmanaged().map(line).collect()
        }
    }

    /// Names the DaemonSets that could not be listed, on standard error, so that documents on standard output stay valid.
    fn warn_of_hidden(view: &ClusterView, screen: &mut Screen<'_>) {
        if let Some(why) = &view.unlisted_advanced {
            screen.warn(&format!(
                "Note: Advanced DaemonSets (apps.kruise.io) are not shown: {why}"
            ));
        }
    }

    fn nothing(&self) -> String {
        let place = match &self.scope {
            ListScope::Namespace(namespace) => format!(" in namespace {namespace}"),
            _ => String::new(),
        };
        format!(
            "No DaemonSet is managed by yurt-ds{place}: none has the annotation {}.\n",
            crate::core::settings::update_strategy::UPDATE_STRATEGY
        )
    }

    /// Returns the maximum number of lines for one kind of rows. Only `--watch` has a limit.
    fn limit(&self) -> usize {
        if self.args.watch { FIT } else { usize::MAX }
    }

    /// Returns true if the output is for programs.
    fn is_document(&self) -> bool {
        !matches!(self.args.output, StatusOutput::Table | StatusOutput::Wide)
    }

    /// Shows every change until the output is closed.
    async fn watch(&self, screen: &mut Screen<'_>) -> Result<Code, CliError> {
        let (mut view, liveness) = self.load_within(None, screen).await?;
        self.check_namespace(&view).await?;
        let watch = self.watch_liveness(liveness);
        let (mut printed, mut pending) = (PrintedLines::default(), PendingActions::default());
        loop {
            view.watch(&self.context.access);
            loop {
                let snapshots = self.snapshots(&mut view, &watch, &mut pending);
                let shown = if screen.live || self.is_document() {
                    self.draw(&snapshots, screen, &mut printed)?
                } else {
                    printed.lines(&self.rows(&snapshots, false), false, screen)
                };
                if shown == Err(Closed) {
                    return Ok(self.code(&snapshots));
                }
                self.warn(&watch, &mut printed, screen);
                if self.next(&mut view, None).await == WaitStep::Outdated {
                    break;
                }
            }
            view = self.reload(view.loaded_at, None, screen).await?;
        }
    }

    fn watch_liveness(&self, liveness: ControllerLiveness) -> LivenessWatch {
        let context = self.context;
        LivenessWatch::start(context.access.clone(), context.clock.clone(), liveness)
    }

    /// Warns once per outage that the API server does not answer.
    fn warn(&self, watch: &LivenessWatch, printed: &mut PrintedLines<'_>, screen: &mut Screen<'_>) {
        let unanswered = watch.unanswered();
        if let (Some(passed), false) = (unanswered, printed.unanswered) {
            screen.warn(&format!(
                "{} The output may be out of date.",
                self.context.access.unanswered(passed)
            ));
        }
        printed.unanswered = unanswered.is_some();
    }

    fn draw(
        &self,
        snapshots: &[Look],
        screen: &mut Screen<'_>,
        printed: &mut PrintedLines<'_>,
    ) -> Result<Result<(), Closed>, CliError> {
        if self.args.output == StatusOutput::Jsonl {
            let rows = self.rows(snapshots, false);
            return printed
                .json
                .progress(&rows, self.context.clock.now(), screen);
        }
        if self.is_document() {
            let rows = self.rows(snapshots, false);
            let summary: Vec<SetRow> = rows.iter().map(SetRow::summary).collect();
            if printed.summary.as_ref() == Some(&summary) {
                return Ok(Ok(()));
            }
            printed.summary = Some(summary);
            return Ok(screen.print(&self.text(snapshots, false)?));
        }
        Ok(screen.redraw(&self.text(snapshots, screen.colour)?))
    }

    /// Waits until all rollouts are complete, or until one needs an operator.
    async fn wait(
        &self,
        screen: &mut Screen<'_>,
        report: Option<&mut JunitReport>,
    ) -> Result<Code, CliError> {
        let begun = Instant::now();
        let deadline = self.args.timeout.map(|timeout| begun + timeout);
        let first = deadline.map(|deadline| deadline.max(Instant::now() + ONE_LOOK));
        let (mut view, liveness) = self.load_within(first, screen).await?;
        self.check_namespace(&view).await?;
        let watch = self.watch_liveness(liveness);
        let mut printed = PrintedLines {
            report,
            ..PrintedLines::default()
        };
        let (mut pending, mut awaited) = (PendingActions::default(), Awaited::default());
        loop {
            view.watch(&self.context.access);
            loop {
                let snapshots = self.snapshots(&mut view, &watch, &mut pending);
                if let Some(replaced) =
                    awaited.superseded(&view, &snapshots, self.args.revision.as_deref())
                {
                    if !snapshots.is_empty() {
                        self.conclude(&snapshots, screen, &mut printed, None)?;
                    }
                    self.supersede(&mut printed, Some(&replaced.key), &replaced.why, screen)?;
                    screen.warn(&replaced.why);
                    if let Some(report) = printed.report {
                        report.supersede(&replaced.key, replaced.why);
                    }
                    return Ok(Code::Superseded);
                }
                if self.is_over(&snapshots, begun) {
                    return self.conclude(&snapshots, screen, &mut printed, None);
                }
                self.progress(&snapshots, screen, &mut printed)?;
                self.warn(&watch, &mut printed, screen);
                match self.next(&mut view, deadline).await {
                    WaitStep::Look => {}
                    WaitStep::Outdated => break,
                    WaitStep::TooLate => {
                        if let Some(passed) = watch.unanswered() {
                            return Err(self.too_late(passed));
                        }
                        let snapshots = self.snapshots(&mut view, &watch, &mut pending);
                        let waited = self.args.timeout;
                        return self.conclude(&snapshots, screen, &mut printed, waited);
                    }
                }
            }
            view = match self.reload(view.loaded_at, deadline, screen).await {
                Err(error) if error.code == Code::NotFound => {
                    self.supersede(&mut printed, None, &error.to_string(), screen)?;
                    screen.warn(&error.to_string());
                    if let Some(report) = printed.report {
                        report.supersede_all(&error.to_string());
                    }
                    return Ok(Code::Superseded);
                }
                view => view?,
            };
        }
    }

    /// Returns true if all rollouts are complete, or one cannot continue without an operator.
    ///
    /// A rollout remains complete while pods restart, but a waiting command waits for these pods too. A state reported by the
    /// controller may be older than the caller's last change, so the command then waits at least [`REPORT_LAG`].
    fn is_over(&self, snapshots: &[Look], begun: Instant) -> bool {
        let strict = self.args.strict;
        if snapshots.iter().any(Look::is_reported) && begun.elapsed() < REPORT_LAG {
            return false;
        }
        let complete = |look: &Look| look.code(strict) == Code::Complete && look.recovering() == 0;
        snapshots.iter().all(complete)
            || snapshots
                .iter()
                .any(|snapshot| snapshot.needs_a_person(strict))
    }

    /// Prints the progress of a wait. A JSON or YAML document is printed only at the end.
    fn progress(
        &self,
        snapshots: &[Look],
        screen: &mut Screen<'_>,
        printed: &mut PrintedLines<'_>,
    ) -> Result<(), CliError> {
        if let Some(report) = &mut printed.report {
            report.observe(snapshots);
        }
        let rows = self.rows(snapshots, false);
        // Ignore a closed output: the exit code still tells the result.
        let _ = match (self.args.output, screen.live) {
            (StatusOutput::Json | StatusOutput::Yaml, _) => Ok(()),
            (StatusOutput::Jsonl, _) => {
                let now = self.context.clock.now();
                printed.json.progress(&rows, now, screen)?
            }
            (_, true) => screen.redraw(&self.lines(snapshots, screen.colour)),
            (_, false) => printed.lines(&rows, false, screen),
        };
        Ok(())
    }

    fn lines(&self, snapshots: &[Look], colour: bool) -> String {
        let rows = self.rows(snapshots, false);
        rows.iter().map(|row| print::line(row, colour)).collect()
    }

    fn conclude(
        &self,
        snapshots: &[Look],
        screen: &mut Screen<'_>,
        printed: &mut PrintedLines<'_>,
        waited: Option<Duration>,
    ) -> Result<Code, CliError> {
        if let Some(report) = &mut printed.report {
            report.observe(snapshots);
            report.end(waited);
        }
        // Ignore a closed output: the exit code still tells the result.
        let _ = if self.args.output == StatusOutput::Jsonl {
            let rows = self.rows(snapshots, false);
            printed.json.end(&rows, self.context.clock.now(), screen)?
        } else if self.is_document() {
            screen.print(&self.text(snapshots, false)?)
        } else if snapshots.is_empty() {
            screen.redraw(&self.nothing())
        } else if screen.live {
            screen.redraw(&self.lines(snapshots, screen.colour))
        } else {
            printed.lines(&self.rows(snapshots, false), true, screen)
        };
        let recovering: Vec<String> = match waited {
            Some(_) => snapshots.iter().filter_map(recovering).collect(),
            None => Vec::new(),
        };
        if let (Some(waited), false) = (waited, self.is_document()) {
            let waited = humantime::format_duration(waited);
            let recovering = if recovering.is_empty() {
                String::new()
            } else {
                format!(": {}", recovering.join(", "))
            };
            let _ = screen.print(&format!("Not complete after {waited}{recovering}.\n"));
        }
        let code = self.code(snapshots);
        let is_partial = snapshots.iter().any(Look::is_reported);
        let in_vain = code == Code::Silent || is_partial || waited.is_some();
        if in_vain && !self.is_document() {
            let _ = screen.print(&print::warnings(
                &self.rows(snapshots, false),
                |row, note| *note == row.message,
            ));
        }
        Ok(match code {
            // The rollout is complete, but nodes had no available pod when the wait timed out.
            Code::Complete if !recovering.is_empty() => Code::Progressing,
            code => code,
        })
    }

    /// Prints the last lines of `-o jsonl` for a DaemonSet that was replaced or deleted, or for all if `key` is `None`.
    fn supersede(
        &self,
        printed: &mut PrintedLines<'_>,
        key: Option<&SetKey>,
        why: &str,
        screen: &mut Screen<'_>,
    ) -> Result<(), CliError> {
        if self.args.output == StatusOutput::Jsonl {
            // Ignore a closed output: the exit code still tells the result.
            let now = self.context.clock.now();
            let _ = printed.json.supersede(key, why, now, screen)?;
        }
        Ok(())
    }

    /// Waits for a change, the next refresh, or the deadline.
    async fn next(&self, view: &mut ClusterView, deadline: Option<Instant>) -> WaitStep {
        let clock = &self.context.clock;
        let far = Instant::now() + REFRESH;
        let step = tokio::select! {
            step = view.changed(GATHER, || clock.now()) => step,
            () = sleep_until(deadline.map_or(far, |deadline| deadline.min(far))) => {
                return match deadline {
                    Some(deadline) if deadline <= Instant::now() => WaitStep::TooLate,
                    _ => WaitStep::Look,
                };
            }
        };
        match step {
            WatchStep::Changed => WaitStep::Look,
            WatchStep::Outdated => WaitStep::Outdated,
        }
    }

    /// Loads all objects again, at intervals of at least [`RELOAD`]. Repeats a failed load, because the API server may be
    /// unreachable for a moment.
    async fn reload(
        &self,
        loaded: Instant,
        deadline: Option<Instant>,
        screen: &mut Screen<'_>,
    ) -> Result<ClusterView, CliError> {
        let mut next = loaded + RELOAD;
        loop {
            sleep_until(deadline.map_or(next, |deadline| deadline.min(next))).await;
            let last = deadline.map(|deadline| deadline.max(Instant::now() + ONE_LOOK));
            match self.load_within(last, screen).await {
                Ok((view, _)) => return Ok(view),
                Err(error) if error.code != Code::Unreachable => return Err(error),
                Err(error) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                    return Err(error);
                }
                Err(error) => screen.warn(&format!("{error} Trying again.")),
            }
            next = Instant::now() + RELOAD;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitStep {
    Look,
    Outdated,
    TooLate,
}

/// Output of a waiting or watching command so far.
#[derive(Default)]
struct PrintedLines<'a> {
    /// Lines on an output that cannot be redrawn.
    rows: Vec<(String, String, &'static str, Instant)>,
    summary: Option<Vec<SetRow>>,
    json: JsonLines,
    /// JUnit report of a wait; `None` if none was requested.
    report: Option<&'a mut JunitReport>,
    unanswered: bool,
}

impl PrintedLines<'_> {
    /// Prints lines that have changed: immediately after a change of the phase and at the end, otherwise at intervals of at least
    /// [`TELL`].
    fn lines(
        &mut self,
        rows: &[SetRow],
        is_end: bool,
        screen: &mut Screen<'_>,
    ) -> Result<(), Closed> {
        let now = Instant::now();
        for row in rows {
            let (key, line) = (row.title(), print::line(row, false));
            let before = self.rows.iter_mut().find(|(known, ..)| *known == key);
            match before {
                Some((_, printed, phase, at)) => {
                    let is_due = is_end || *phase != row.phase || *at + TELL <= now;
                    if *printed == line || !is_due {
                        continue;
                    }
                    (*printed, *phase, *at) = (line.clone(), row.phase, now);
                }
                None => self.rows.push((key, line.clone(), row.phase, now)),
            }
            screen.print(&line)?;
        }
        Ok(())
    }
}

/// DaemonSets that a command waits for, with their UIDs and awaited revisions.
#[derive(Default)]
struct Awaited(BTreeMap<SetKey, (Arc<str>, Option<Revision>)>);

/// DaemonSet for which the command stopped waiting, and the reason.
struct Superseded {
    key: SetKey,
    why: String,
}

impl Awaited {
    /// Returns a DaemonSet that was recreated, or whose current revision is not the awaited one.
    ///
    /// The awaited revision is `asked` if the caller named one, otherwise the one that was current at the first call.
    fn superseded(
        &mut self,
        view: &ClusterView,
        snapshots: &[Look],
        asked: Option<&str>,
    ) -> Option<Superseded> {
        let superseded = |key: &SetKey, why: &str| Superseded {
            key: key.clone(),
            why: format!("{key}: stopped waiting {why}"),
        };
        for look in snapshots {
            let (key, set) = (look.key(), view.index.set(look.key()));
            let Some(uid) = set.map(|set| set.uid.clone()) else {
                continue;
            };
            let (known, revision) = self
                .0
                .entry(key.clone())
                .or_insert_with(|| (uid.clone(), asked.map(Revision::from)));
            if *known != uid {
                return Some(superseded(
                    key,
                    "because the DaemonSet was deleted and recreated. To wait for the new one, run the command again.",
                ));
            }
            // Ignore a revision from the controller's report: it may be older than the caller's last change.
            let current = look.revision().filter(|_| !look.is_reported());
            match (&*revision, current) {
                (None, Some(current)) => *revision = Some(current.clone()),
                (Some(awaited), Some(current)) if awaited != current => {
                    let why = format!(
                        "for revision {awaited} because the current revision is {current}."
                    );
                    return Some(superseded(key, &why));
                }
                _ => {}
            }
        }
        let is_there = |key: &SetKey| snapshots.iter().any(|look| look.key() == key);
        let gone = self.0.keys().find(|key| !is_there(key))?;
        let why = "because the DaemonSet was deleted, or yurt-ds no longer manages it.";
        Some(superseded(gone, why))
    }
}

/// Returns a note if nodes have no available pod although the rollout is complete.
fn recovering(look: &Look) -> Option<String> {
    let lacking = look.recovering();
    let is_so = look.code(false) == Code::Complete && lacking > 0;
    is_so.then(|| {
        let nodes = match lacking {
            1 => "1 node has".to_owned(),
            nodes => format!("{nodes} nodes have"),
        };
        format!("{} is complete, but {nodes} no available pod", look.key())
    })
}
