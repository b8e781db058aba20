//! Tests of `docs/how-to/pipelines.md`: the scripts of all CI systems, run in a shell against `yurt-ds sim serve`.
//!
//! They need kubectl, like the tutorials, and are skipped without it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use yurt_ds::ctl::Code;

use crate::tutorials::{Reader, Step, kubectl, steps};

/// DaemonSet that the page deploys, with a placeholder for the tag of its image.
const DAEMONSET: &str = "\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: web
  namespace: shop
  annotations: {apps.openyurt.io/update-strategy: AdvancedRollingUpdate, apps.openyurt.io/max-unavailable: \"2\"}
spec:
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: \"web:TAG\"}]}
";

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join("docs/how-to/pipelines.md")).expect("the page")
}

/// Returns the files of the page by name.
fn files() -> BTreeMap<String, String> {
    let page = page();
    // The page indents the blocks of its list.
    let mut is_indented = false;
    let lines: Vec<&str> = page
        .lines()
        .map(|line| match line.strip_prefix("   ") {
            Some(fence) if fence.starts_with("```") => {
                is_indented = !is_indented;
                fence
            }
            Some(rest) if is_indented || rest.starts_with("<!-- ") => rest,
            _ => line,
        })
        .collect();
    let file = |step| match step {
        Step::File { name, text } => Some((name, text)),
        Step::Pause(_) | Step::Run { .. } => None,
    };
    steps(&lines).into_iter().filter_map(file).collect()
}

/// Script of a pipeline, with the environment variables of its step.
struct Script {
    text: String,
    variables: BTreeMap<String, String>,
}

impl Script {
    fn new(text: &Value) -> Self {
        Self {
            text: text.as_str().expect("a script").to_owned(),
            variables: BTreeMap::new(),
        }
    }
}

/// Returns the scripts that a CI system runs.
fn scripts(system: &str, pipeline: &Value) -> Vec<Script> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match system {
        "github.yaml" => {
            let steps = list(&pipeline["jobs"]["deploy"]["steps"]).into_iter();
            let with_script = steps.filter(|step| step["run"].is_string());
            with_script
                .map(|step| Script {
                    variables: serde_json::from_value(step["env"].clone()).unwrap_or_default(),
                    ..Script::new(&step["run"])
                })
                .collect()
        }
        "gitlab.yaml" => list(&pipeline["deploy"]["script"])
            .iter()
            .map(Script::new)
            .collect(),
        "tekton.yaml" => list(&pipeline["spec"]["steps"])
            .iter()
            .map(|step| Script::new(&step["script"]))
            .collect(),
        other => panic!("no such system: {other}"),
    }
}

/// A repository with the files of the page, and a cluster.
struct Pipeline {
    reader: Reader,
    files: BTreeMap<String, String>,
}

impl Pipeline {
    fn start(kubectl: &Path) -> Self {
        let mut reader = Reader::new(kubectl);
        let files = files();
        let deploy = reader.folder.path().join("deploy.sh");
        fs::write(&deploy, &files["deploy.sh"]).expect("the script");
        fs::set_permissions(&deploy, fs::Permissions::from_mode(0o755)).expect("a mode");
        reader.run("yurt-ds sim serve --empty --nodes 2 --kubeconfig-out sim.kubeconfig &");
        reader.run("export KUBECONFIG=$PWD/sim.kubeconfig");
        let ready =
            "for try in $(seq 60); do kubectl create namespace shop && exit; sleep 0.5; done";
        reader.run(ready);
        Self { reader, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.reader.folder.path().join(name)
    }

    /// Replaces the manifest, as a commit does.
    fn commit(&self, tag: &str) {
        let text = DAEMONSET.replace("TAG", tag);
        fs::write(self.path("web.yaml"), text).expect("the manifest");
    }

    /// Runs the scripts of a CI system until one fails. Returns the output of the last one.
    fn run(&self, system: &str) -> Output {
        let pipeline = serde_saphyr::from_str(&self.files[system]).expect(system);
        let kubeconfig = fs::read_to_string(self.path("sim.kubeconfig")).expect("a kubeconfig");
        let mut last = None;
        for script in scripts(system, &pipeline) {
            let mut shell = self.reader.shell(&script.text);
            for (name, value) in script.variables {
                shell.env(
                    name,
                    value.replace("${{ secrets.KUBECONFIG }}", &kubeconfig),
                );
            }
            let output = shell.output().expect("a shell");
            let failed = !output.status.success();
            last = Some(output);
            if failed {
                break;
            }
        }
        last.expect("a script")
    }

    fn report(&self) -> String {
        fs::read_to_string(self.path("rollout.xml")).expect("the JUnit report")
    }
}

#[test]
fn every_pipeline_deploys_and_a_bad_version_is_rolled_back() {
    let Some(kubectl) = kubectl() else {
        eprintln!("skipped: no kubectl in PATH, and KUBECTL is not set");
        return;
    };
    let pipeline = Pipeline::start(&kubectl);
    let systems = ["github.yaml", "gitlab.yaml", "tekton.yaml"];
    for (version, system) in systems.into_iter().enumerate() {
        pipeline.commit(&version.to_string());
        let output = pipeline.run(system);
        assert_eq!(output.status.code(), Some(0), "{system}: {output:?}");
        let report = pipeline.report();
        let passed = "tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\"";
        assert!(report.contains(passed), "{system}: {report}");
        fs::remove_file(pipeline.path("rollout.xml")).expect("the report");
    }
    pipeline.commit("crash");
    let output = pipeline.run("gitlab.yaml");
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let report = pipeline.report();
    let case = "classname=\"shop\" name=\"ds/web\"";
    assert!(report.contains(case), "{report}");
    assert!(report.contains("<failure type="), "{report}");
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    let mut shell = pipeline
        .reader
        .shell(&format!("kubectl -n shop get ds web -o '{image}'"));
    let image = shell.output().expect("a shell").stdout;
    assert_eq!(String::from_utf8_lossy(&image), "web:2");
}

/// Checks that the table of the page has every exit code of `ctl status --wait`.
#[test]
fn the_page_lists_every_exit_code_of_a_wait() {
    let page = page();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let listed: BTreeSet<u8> = rows
        .filter_map(|row| row.split(" |").next())
        .flat_map(|codes| codes.split(", "))
        .filter_map(|code| code.parse().ok())
        .collect();
    let of_nodes_and_undo = [Code::Refused, Code::Disconnected, Code::PullFailed];
    let codes = Code::ALL
        .iter()
        .filter(|code| !of_nodes_and_undo.contains(code));
    let codes: BTreeSet<u8> = codes.map(|code| code.number()).collect();
    assert_eq!(listed, codes);
}
