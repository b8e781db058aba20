//! Tests of shell completion in real shells, with the script that `ctl completions` prints.
//!
//! Shells that are not installed are skipped, except bash.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Binary under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_yurt-ds");

/// Number of attempts per shell, one second apart. A cluster that has just started has no objects to complete yet.
const TRIES: usize = 60;

/// Shell with a script that prints its completions of `$LINE`. The last word of `$LINE` is incomplete.
struct Shell {
    program: &'static str,
    flags: &'static [&'static str],
    script: &'static str,
}

const BASH: Shell = Shell {
    program: "bash",
    flags: &["--norc", "-c"],
    script: r#"
        source <(yurt-ds ctl completions bash)
        declared=$(complete -p yurt-ds); function=${declared##*-F }; function=${function%% *}
        COMP_WORDS=($LINE); [[ $LINE == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_TYPE=9
        "$function" yurt-ds "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2> /dev/null
        printf '%s\n' "${COMPREPLY[@]}"
    "#,
};

/// Zsh without its completion system. The script defines the two functions of that system that the completion script calls.
const ZSH: Shell = Shell {
    program: "zsh",
    flags: &["-f", "-c"],
    script: r#"
        compdef() { completer=$1 }
        _describe() { print -l -- ${${(P)3}%%:*} }
        source <(yurt-ds ctl completions zsh)
        words=(${=LINE}); [[ $LINE == *' ' ]] && words+=('')
        CURRENT=$#words; "$completer"
    "#,
};

const FISH: Shell = Shell {
    program: "fish",
    flags: &["--no-config", "-c"],
    script: "yurt-ds ctl completions fish | source; complete -C \"$LINE\"",
};

impl Shell {
    /// Returns the completions that the shell offers for a line; `None` if the shell is not installed.
    fn offers(&self, line: &str, kubeconfig: &Path) -> Option<Vec<String>> {
        let folder = Path::new(PROGRAM).parent().expect("a folder");
        let out = Command::new(self.program)
            .args(self.flags)
            .arg(self.script)
            .env("LINE", line)
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .env("KUBECONFIG", kubeconfig)
            .output();
        let text = String::from_utf8_lossy(&out.ok()?.stdout).into_owned();
        let value = |line: &str| {
            line.split('\t')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        Some(text.lines().map(value).collect())
    }
}

/// Checks that every installed shell offers at least these words. A word that ends with `-` matches any offered word with that
/// prefix.
#[track_caller]
fn case(kubeconfig: &Path, line: &str, expected: &[&str]) {
    let is_meant = |offer: &str, word: &str| {
        if word.ends_with('-') {
            offer.starts_with(word)
        } else {
            offer == word
        }
    };
    let lacks = |found: &[String]| {
        let is_missing = |word: &&str| !found.iter().any(|offer| is_meant(offer, word));
        expected.iter().any(is_missing)
    };
    assert!(BASH.offers("yurt-ds", kubeconfig).is_some(), "no bash");
    for shell in [BASH, ZSH, FISH] {
        let Some(mut found) = shell.offers(line, kubeconfig) else {
            eprintln!("SKIPPED: {} is not installed", shell.program);
            continue;
        };
        for _ in 0..TRIES {
            if !lacks(&found) {
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
            found = shell.offers(line, kubeconfig).expect("it was there before");
        }
        assert!(!lacks(&found), "{}, {line}: {found:?}", shell.program);
    }
}

/// Embedded cluster with the DaemonSet `default/nginx-daemonset` and a node's agent.
struct Cluster {
    serve: Child,
    /// Output of the cluster. It stays open, because the process may still write to it.
    _said: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Cluster {
    /// Starts the cluster and waits until it responds. Also returns the address of the agent.
    fn start() -> (Self, String) {
        let folder = std::env::temp_dir().join(format!("yds-completion-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut serve = Command::new(PROGRAM)
            .args(["sim", "serve", "--nodes", "2"])
            .args(["--ota-server", "edge-1", "--ota-listen", "127.0.0.1:0"])
            .arg("--kubeconfig-out")
            .arg(folder.join("kubeconfig"))
            .env("YURT_DS_LOG_LEVEL", "off")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut said = BufReader::new(serve.stdout.take().expect("its output"));
        let mut lines = said.by_ref().lines().map_while(Result::ok);
        let agent = lines.find_map(|line| {
            let at = line.find("--server http://")?;
            let address = line[at..].split_whitespace().nth(1)?;
            Some(address.to_owned())
        });
        let cluster = Self {
            serve,
            _said: said,
            folder,
        };
        (cluster, agent.expect("the address of the agent"))
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _gone = self.serve.kill();
        let _ended = self.serve.wait();
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn shells_complete_verbs_flags_and_values_at_every_depth() {
    let nowhere = Path::new("/nowhere");
    case(nowhere, "yurt-ds c", &["controller", "ctl"]);
    case(nowhere, "yurt-ds ctl st", &["status"]);
    case(nowhere, "yurt-ds ctl u", &["undo", "upgrade"]);
    case(nowhere, "yurt-ds ctl se", &["settings"]);
    case(nowhere, "yurt-ds manifests ", &["crd"]);
    case(nowhere, "yurt-ds ctl status --wa", &["--watch", "--wait"]);
    case(nowhere, "yurt-ds ctl status -o j", &["json"]);
    case(nowhere, "yurt-ds ota-server --li", &["--listen"]);
}

#[test]
fn shells_complete_the_names_of_daemonsets_nodes_and_pods() {
    let (cluster, agent) = Cluster::start();
    let kubeconfig = cluster.kubeconfig();
    let status = "yurt-ds ctl status ngi";
    case(&kubeconfig, status, &["nginx-daemonset"]);
    let elsewhere = "yurt-ds ctl pause default/";
    case(&kubeconfig, elsewhere, &["default/nginx-daemonset"]);
    let settings = "yurt-ds ctl settings ngi";
    case(&kubeconfig, settings, &["nginx-daemonset"]);
    let why = "yurt-ds ctl why nginx-daemonset edge";
    case(&kubeconfig, why, &["edge-1", "edge-2"]);
    let upgrade = format!("yurt-ds ctl upgrade --server {agent} default/");
    case(&kubeconfig, &upgrade, &["default/nginx-daemonset-"]);
}
