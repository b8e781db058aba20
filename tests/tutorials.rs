//! Tests of `docs/tutorials`, which execute each tutorial like a reader: every command runs in a shell, against `yurt-ds sim
//! serve`, and must print the output that the page shows.
//!
//! A page consists of these parts, which the test processes in order:
//!
//! - A ```` ```console ```` block: lines that start with `$ ` are commands, and the lines below a command are its output. A line
//!   `...` stands for any number of lines. A command that ends in `&` keeps running, and its output isn't compared.
//! - `<!-- file: NAME -->`: the next block is written to that file.
//! - `<!-- pause: 10s -->`: the test waits for this time. If a later command doesn't print the shown output, the test repeats the
//!   command for up to two minutes, unless the command changes something.
//!
//! Times, addresses and random suffixes of names are not compared. `YURT_DS_GOLDEN=1` writes the actual outputs to the pages.
//!
//! The tutorials need kubectl: the program in the environment variable `KUBECTL`, or else the one in `PATH`. They are skipped
//! without kubectl.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::machine;

/// Binary under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_yurt-ds");

/// Number of attempts, one second apart, until a command must print the shown output.
const TRIES: usize = 120;

/// Words that identify commands that only read. The test may repeat these commands.
const READING: [&str; 7] = [
    "kubectl get",
    "ctl status",
    "ctl why",
    "ctl pods",
    "ctl plan",
    "ctl settings",
    "curl",
];

/// Step that a page describes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// File to write, with its content.
    File { name: String, text: String },
    /// Time to wait.
    Pause(Duration),
    /// Command, and the lines of the page with its output.
    Run {
        command: String,
        output: std::ops::Range<usize>,
    },
}

pub(crate) fn steps(lines: &[&str]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut file: Option<String> = None;
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if let Some(name) = comment(line, "file") {
            file = Some(name.to_owned());
        } else if let Some(time) = comment(line, "pause") {
            let time = humantime::parse_duration(time).expect("a duration in <!-- pause -->");
            steps.push(Step::Pause(time));
        } else if line.starts_with("```") {
            let end = at + lines[at..].iter().position(|l| *l == "```").expect("```");
            if let Some(name) = file.take() {
                let text = lines[at..end].join("\n") + "\n";
                steps.push(Step::File { name, text });
            } else if line == "```console" {
                steps.extend(commands(lines, at..end));
            }
            at = end + 1;
        }
    }
    steps
}

/// Returns the value of the comment `<!-- KEY: VALUE -->`.
fn comment<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let inner = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    inner.strip_prefix(key)?.strip_prefix(": ")
}

/// Returns the commands of a console block, each with its expected output.
fn commands(lines: &[&str], block: std::ops::Range<usize>) -> Vec<Step> {
    let is_command = |at: &usize| lines[*at].starts_with("$ ");
    let starts: Vec<usize> = block.clone().filter(is_command).collect();
    let ends = starts.iter().skip(1).copied().chain([block.end]);
    let run = |(&start, end): (&usize, usize)| Step::Run {
        command: lines[start][2..].to_owned(),
        output: start + 1..end,
    };
    starts.iter().zip(ends).map(run).collect()
}

/// Simulated reader of a tutorial, with a folder for files, environment variables and background processes.
pub(crate) struct Reader {
    pub(crate) folder: tempfile::TempDir,
    path: String,
    /// Variables that the tutorial has exported.
    exported: Vec<(String, String)>,
    servers: Vec<Child>,
}

impl Reader {
    pub(crate) fn new(kubectl: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let tools = folder.path().join("tools");
        fs::create_dir(&tools).expect("a folder for the tools");
        for (name, program) in [("yurt-ds", Path::new(PROGRAM)), ("kubectl", kubectl)] {
            std::os::unix::fs::symlink(program, tools.join(name)).expect("a link to a tool");
        }
        let path = std::env::var("PATH").unwrap_or_default();
        Self {
            path: format!("{}:{path}", tools.display()),
            folder,
            exported: Vec::new(),
            servers: Vec::new(),
        }
    }

    pub(crate) fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("bash");
        shell
            .args(["-c", command])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .env("HOME", self.folder.path())
            .env("COLUMNS", "80")
            .env_remove("KUBECONFIG")
            .envs(self.exported.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        shell
    }

    /// Runs a command. Returns the lines of its output.
    pub(crate) fn run(&mut self, command: &str) -> Vec<String> {
        if let Some(variable) = command.strip_prefix("export ") {
            let (name, value) = variable.split_once('=').expect("export NAME=VALUE");
            let value = value.replace("$PWD", &self.folder.path().to_string_lossy());
            self.exported.push((name.to_owned(), value));
            return Vec::new();
        }
        if let Some(server) = command.strip_suffix(" &") {
            let mut server = self.shell(&format!("exec {server}"));
            let output = fs::File::create(self.folder.path().join("server.log")).expect("a file");
            let errors = output.try_clone().expect("a file");
            let server = server.stdout(output).stderr(errors).spawn();
            self.servers.push(server.expect("a background process"));
            return Vec::new();
        }
        let (mut both, writer) = std::io::pipe().expect("a pipe");
        let mut shell = self.shell(command);
        shell
            .stdout(writer.try_clone().expect("a pipe"))
            .stderr(writer);
        let mut child = shell.spawn().expect("a shell");
        drop(shell);
        let mut text = String::new();
        both.read_to_string(&mut text).expect("a text");
        child.wait().expect("the end of the shell");
        text.lines().map(|l| l.trim_end().to_owned()).collect()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // Ignore errors: the server may have ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Returns a line without the parts that differ between runs.
fn steady(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let is_time = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_digit())
                && word.ends_with(['s', 'm', 'h', 'd', 'Z'])
                && word
                    .chars()
                    .all(|c| c.is_ascii_digit() || "smhdTZ:-".contains(c))
        };
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_time(bare) {
            return word.replace(bare, "TIME");
        }
        if bare.starts_with("127.0.0.1:") || bare.starts_with("10.0.0.") {
            return word.replace(bare, "ADDRESS");
        }
        match bare.rsplit_once('-') {
            Some((_, end)) if is_random(end, 5) => word.replace(end, "RANDOM"),
            _ if is_random(bare, 10) => word.replace(bare, "HASH"),
            _ => word.to_owned(),
        }
    });
    let mut words: Vec<String> = words.collect();
    words.dedup_by(|word, before| word == before && before.starts_with("TIME"));
    words.join(" ")
}

/// Returns true if a text consists of this many characters that Kubernetes uses in random names.
fn is_random(text: &str, length: usize) -> bool {
    let letters = "bcdfghjklmnpqrstvwxz2456789";
    text.len() == length && text.chars().all(|c| letters.contains(c))
}

/// Returns true if the printed lines match the expected ones. An expected line `...` matches any number of lines.
fn matches(expected: &[&str], printed: &[String]) -> bool {
    match (expected.first(), printed.first()) {
        (None, None) => true,
        (Some(&"..."), _) => {
            (0..=printed.len()).any(|skipped| matches(&expected[1..], &printed[skipped..]))
        }
        (Some(line), Some(other)) => {
            steady(line) == steady(other) && matches(&expected[1..], &printed[1..])
        }
        _ => false,
    }
}

/// Runs a tutorial. Returns the text of the page with the outputs that the commands printed.
///
/// # Errors
/// Returns an error if a command prints something other than the page shows. The error contains both outputs.
fn follow(page: &Path, kubectl: &Path) -> Result<String, String> {
    let text = fs::read_to_string(page).expect("a page");
    let lines: Vec<&str> = text.lines().collect();
    let is_golden = machine::is_set("YURT_DS_GOLDEN");
    let mut reader = Reader::new(kubectl);
    let mut written = Vec::new();
    let mut copied = 0;
    for step in steps(&lines) {
        match step {
            Step::File { name, text } => {
                fs::write(reader.folder.path().join(name), text).expect("a file");
            }
            Step::Pause(time) => std::thread::sleep(time),
            Step::Run { command, output } => {
                let expected = &lines[output.clone()];
                let mut printed = reader.run(&command);
                let is_repeatable = READING.iter().any(|words| command.contains(words));
                let tries = if is_repeatable && !is_golden {
                    TRIES
                } else {
                    0
                };
                for _ in 0..tries {
                    if matches(expected, &printed) {
                        break;
                    }
                    std::thread::sleep(Duration::from_secs(1));
                    printed = reader.run(&command);
                }
                let is_right = command.ends_with(" &") || matches(expected, &printed);
                if !is_right && !is_golden {
                    return Err(format!(
                        "$ {command}\nexpected:\n  {}\nprinted:\n  {}",
                        expected.join("\n  "),
                        printed.join("\n  ")
                    ));
                }
                written.extend(lines[copied..output.start].iter().map(|l| (*l).to_owned()));
                let kept = || expected.iter().map(|l| (*l).to_owned()).collect();
                written.extend(if is_right { kept() } else { printed });
                copied = output.end;
            }
        }
    }
    written.extend(lines[copied..].iter().map(|l| (*l).to_owned()));
    Ok(written.join("\n") + "\n")
}

/// Returns the kubectl to use; `None` if there is none.
pub(crate) fn kubectl() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("KUBECTL") {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH")?;
    let mut tools = std::env::split_paths(&path).map(|folder| folder.join("kubectl"));
    tools.find(|tool| tool.is_file())
}

fn check(name: &str) {
    let Some(kubectl) = kubectl() else {
        eprintln!("skipped: no kubectl in PATH, and KUBECTL is not set");
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = root.join("docs/tutorials").join(name);
    let text = follow(&page, &kubectl).unwrap_or_else(|why| panic!("{name}: {why}"));
    if machine::is_set("YURT_DS_GOLDEN") {
        fs::write(&page, text).expect("the page with its outputs");
    }
}

#[test]
fn first_rollout() {
    check("first-rollout.md");
}

#[test]
fn canary() {
    check("canary.md");
}

#[test]
fn ota() {
    check("ota.md");
}

#[test]
fn every_tutorial_is_executed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tutorials");
    let files = fs::read_dir(folder).expect("the folder docs/tutorials");
    let name = |file: std::io::Result<fs::DirEntry>| file.expect("a file").file_name();
    let mut names: Vec<_> = files.map(name).collect();
    names.sort();
    assert_eq!(names, ["canary.md", "first-rollout.md", "ota.md"]);
}

#[test]
fn what_differs_between_two_runs_is_not_compared() {
    let printed = [
        "web-7xk2q   1/1     Running   0          5s".to_owned(),
        "Complete for 3s, revision tj6zqsrdzr:".to_owned(),
        "done".to_owned(),
    ];
    let same = [
        "web-b2cd4 1/1 Running 0 12s",
        "Complete for 1m, revision xf2bnmqlwf:",
        "done",
    ];
    assert!(matches(&same, &printed));
    assert!(matches(&["...", "done"], &printed));
    assert!(!matches(
        &["web-b2cd4 0/1 Running 0 12s", "...", "done"],
        &printed
    ));
    assert!(!matches(&["...", "do"], &printed));
    assert!(!matches(&same[..2], &printed));
}
