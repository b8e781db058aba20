//! Tests of the real program with an output that cannot be written, and without a cluster.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_yurt-ds");

/// Command lines of all kinds that need no cluster.
const LINES: [&str; 9] = [
    "--help",
    "version",
    "version -o json",
    "manifests crd",
    "manifests man",
    "ctl settings",
    "ctl settings -o json",
    "ctl completions bash",
    "sim --story ota --fast",
];

fn command(line: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(line.split(' ')).stdin(Stdio::null());
    command
}

#[test]
fn a_full_disk_fails_every_command() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        return; // Linux only.
    };
    for line in LINES {
        let full = full.try_clone().expect("a copy of the file");
        let ended = command(line).stdout(full).output().expect(line);
        let text = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{line}: {text}");
        let wanted = "yurt-ds: cannot write to standard output: No space left on device";
        assert!(text.contains(wanted), "{line}: {text}");
    }
}

#[test]
fn a_closed_pipe_ends_every_command_quietly() {
    for line in LINES {
        let mut child = command(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect(line);
        drop(child.stdout.take());
        let mut text = String::new();
        let mut errors = child.stderr.take().expect("a pipe");
        errors.read_to_string(&mut text).expect("UTF-8");
        let ended = child.wait().expect(line);
        assert_eq!((ended.code(), text.as_str()), (Some(0), ""), "{line}");
    }
}

#[test]
fn a_junit_report_of_an_earlier_run_is_replaced_without_a_kubeconfig() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rollout.xml");
    std::fs::write(&file, "<testsuites/>").expect("an earlier report");
    let ended = command("ctl status shop/web --wait --kubeconfig absent")
        .current_dir(folder.path())
        .env("YURT_DS_JUNIT", &file)
        .output()
        .expect("ctl status");
    assert_eq!(ended.status.code(), Some(7));
    let report = std::fs::read_to_string(file).expect("a report");
    assert!(
        report.contains("name=\"shop/web\"") && report.contains("<error type=\"Unreachable\""),
        "{report}"
    );
}

#[test]
fn check_prints_a_document_without_a_kubeconfig() {
    let ended = command("ctl check -o json --kubeconfig /absent/config")
        .output()
        .expect("ctl check");
    assert_eq!(ended.status.code(), Some(7));
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("a document");
    let check = &report["checks"][0];
    assert_eq!(
        (&check["id"], &check["status"]),
        (&"api-reachable".into(), &"failed".into())
    );
    let text = check["message"].to_string() + &check["fix"].to_string();
    assert_eq!(text.matches("Select a kubeconfig").count(), 1, "{text}");
}
