//! Shells of node owners. They run the real `ctl`, which sends requests to the real ota-server of the node.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser as _;
use tokio::time::Instant;

use super::report::{Line, LineKind, Time};
use super::scenario::CommandPurpose;
use crate::cli::ctl::Verb;
use crate::cli::{Cli, Command};
use crate::clock::Clock;
use crate::ctl::Screen;
use crate::ctl::node::perform_on_node;
use crate::demo::agents::{Agents, is_agent};
use crate::sim::cluster::{Cluster, Count};
use crate::task::Task;

/// Command with its result. Times count from the start of the play.
#[derive(Clone, Debug)]
pub(super) struct CommandRecord {
    /// Node on which the command was typed.
    pub(super) node: String,
    pub(super) line: String,
    pub(super) aim: CommandPurpose,
    /// Time at which the command started.
    pub(super) began: Duration,
    /// Time at which the command ended, and its exit code; `None` while it runs.
    pub(super) ended: Option<(Duration, u8)>,
    /// Lines of output, each with its time.
    pub(super) printed: Vec<(Duration, String)>,
    /// Number of requests of all agents to the API server while the command ran.
    pub(super) requests: u64,
}

impl CommandRecord {
    /// Returns the exit code; `None` while the command runs.
    pub(super) fn code(&self) -> Option<u8> {
        self.ended.map(|(_, code)| code)
    }

    /// Returns the command line after a prompt with the name of the node.
    pub(super) fn prompt(&self) -> String {
        format!("{} $ {}", self.node, self.line)
    }
}

/// Shells of all nodes. Only one command runs at a time.
pub(super) struct Shell {
    agents: Agents,
    cluster: Cluster,
    clock: Clock,
    start: Instant,
    ended: Vec<CommandRecord>,
    running: Option<(Arc<Mutex<CommandRecord>>, Task)>,
    /// Number of lines of the running command that are already in the timeline, including the command line.
    shown: usize,
}

impl Shell {
    /// Creates the shells. Times count from `start`, the start of the play.
    pub(super) fn new(agents: Agents, cluster: Cluster, clock: Clock, start: Instant) -> Self {
        Self {
            agents,
            cluster,
            clock,
            start,
            ended: Vec::new(),
            running: None,
            shown: 0,
        }
    }

    /// Starts a command.
    ///
    /// # Errors
    ///
    /// Fails if the line is not a `ctl` command for a node.
    pub(super) fn type_in(&mut self, node: &str, line: String, aim: CommandPurpose) -> Result<()> {
        let cli = Cli::try_parse_from(line.split_whitespace())?;
        let Command::Ctl(args) = cli.command else {
            bail!("{line}: not a ctl command");
        };
        let Verb::Node(verb) = args.verb else {
            bail!("{line}: not a ctl command for a node");
        };
        let client = self
            .agents
            .client(node)?
            .in_namespace(args.access.namespace);
        let typed = Arc::new(Mutex::new(CommandRecord {
            node: node.to_owned(),
            line,
            aim,
            began: self.start.elapsed(),
            ended: None,
            printed: Vec::new(),
            requests: 0,
        }));
        let (cluster, clock, start) = (self.cluster.clone(), self.clock.clone(), self.start);
        let sheet = typed.clone();
        let work = async move {
            let before = requests(&cluster);
            let mut paper = OutputLog {
                sheet: sheet.clone(),
                start,
                line: Vec::new(),
            };
            let mut screen = Screen::new(&mut paper, false, false);
            let ended = perform_on_node(&verb, &client, &mut screen, &clock).await;
            let code = ended.unwrap_or_else(|error| {
                paper.print(&error.to_string());
                error.code
            });
            let mut sheet = lock(&sheet);
            sheet.requests = requests(&cluster) - before;
            sheet.ended = Some((start.elapsed(), code.number()));
        };
        self.running = Some((typed, Task::spawn(work)));
        self.shown = 0;
        Ok(())
    }

    /// Returns the lines that the timeline does not have yet: the command line, and its output since the last call.
    pub(super) fn news(&mut self) -> Vec<Line> {
        let Some((running, _)) = &self.running else {
            return Vec::new();
        };
        let typed = lock(running).clone();
        let line = |at: Duration, voice, text| Line {
            at: Time::from(at),
            voice,
            text,
        };
        let prompt = (self.shown == 0).then(|| line(typed.began, LineKind::Typed, typed.prompt()));
        let shown = self.shown.saturating_sub(1);
        let printed = typed.printed.iter().skip(shown);
        let printed = printed.map(|(at, text)| line(*at, LineKind::Printed, text.clone()));
        let news = prompt.into_iter().chain(printed).collect();
        self.shown = typed.printed.len() + 1;
        if typed.ended.is_some() {
            self.ended.push(typed);
            self.running = None;
        }
        news
    }

    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the time at which the last command ended; `None` if there was none.
    pub(super) fn idle_since(&self) -> Option<Duration> {
        Some(self.ended.last()?.ended?.0)
    }

    /// Returns all commands so far, in order.
    pub(super) fn typed(&self) -> Vec<CommandRecord> {
        let running = self.running.iter().map(|(typed, _)| lock(typed).clone());
        self.ended.iter().cloned().chain(running).collect()
    }
}

/// Writer that records the output of a command as lines with times.
struct OutputLog {
    sheet: Arc<Mutex<CommandRecord>>,
    start: Instant,
    line: Vec<u8>,
}

impl OutputLog {
    fn print(&mut self, text: &str) {
        let at = self.start.elapsed();
        let lines = text.lines().map(|line| (at, line.to_owned()));
        lock(&self.sheet).printed.extend(lines);
    }
}

impl io::Write for OutputLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    let text = String::from_utf8_lossy(&line);
                    // `print` ignores an empty text. For an empty line, pass a line break.
                    self.print(if text.is_empty() { "\n" } else { &text });
                }
                byte => self.line.push(*byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the number of requests of all agents to the API server. Lists and watches of pods are not counted, because no command
/// causes them.
fn requests(cluster: &Cluster) -> u64 {
    let requests = cluster.requests();
    let is_own = |count: &Count| {
        count.resource == "pods" && ["list", "watch"].contains(&count.verb.as_str())
    };
    let agents = requests
        .iter()
        .filter(|count| is_agent(count) && !is_own(count));
    agents.map(|count| count.number).sum()
}

fn lock(typed: &Mutex<CommandRecord>) -> MutexGuard<'_, CommandRecord> {
    typed.lock().unwrap_or_else(PoisonError::into_inner)
}
