//! Tests that compare the files of a release with each other and with the program.

use serde_json::Value;

use crate::version::Version;

const CARGO: &str = include_str!("../../Cargo.toml");
const KREW: &str = include_str!("../../release/krew.yaml");
const CONTAINERFILE: &str = include_str!("../../Containerfile");
const ASSEMBLE: &str = include_str!("../../release/assemble");
const WORKFLOWS: [&str; 2] = [
    include_str!("../../.github/workflows/ci.yml"),
    include_str!("../../.github/workflows/release.yml"),
];

#[test]
fn the_krew_manifest_names_the_archives_of_the_release() {
    let manifest: Value =
        serde_saphyr::from_str(&KREW.replace("{{", "<").replace("}}", ">")).unwrap();
    assert_eq!(manifest["kind"], "Plugin");
    assert_eq!(
        manifest["apiVersion"],
        "krew.googlecontainertools.github.com/v1alpha2"
    );
    assert_eq!(manifest["metadata"]["name"], "yurt-ds");
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], "v<version>");
    let short = spec["shortDescription"].as_str().unwrap();
    // The rule of the krew index.
    assert!(short.len() <= 50 && !short.ends_with('.'), "{short}");
    assert!(spec["description"].is_string() && spec["homepage"] == "<url>");
    let platforms = spec["platforms"].as_array().unwrap();
    for (platform, arch) in platforms.iter().zip(["amd64", "arm64"]) {
        let labels = &platform["selector"]["matchLabels"];
        assert!(
            labels["os"] == "linux" && labels["arch"] == arch,
            "{labels}"
        );
        let uri = "<url>/releases/download/v<version>/yurt-ds-v<version>-linux-";
        assert_eq!(platform["uri"], format!("{uri}{arch}.tar.gz"));
        assert_eq!(platform["sha256"], format!("<sha256-{arch}>"));
        assert_eq!(platform["bin"], "yurt-ds");
    }
    assert_eq!(platforms.len(), 2);
    assert!(ASSEMBLE.contains("yurt-ds-v$version-linux-$arch.tar.gz"));
}

#[test]
fn binstall_finds_the_archives_of_both_architectures() {
    for (target, arch) in [("x86_64", "amd64"), ("aarch64", "arm64")] {
        for libc in ["gnu", "musl"] {
            let table =
                format!("[package.metadata.binstall.overrides.{target}-unknown-linux-{libc}]\n");
            let (_, table) = CARGO.split_once(&table).unwrap();
            let url = "{ repo }/releases/download/v{ version }/yurt-ds-v{ version }-linux-";
            let line = format!("pkg-url = \"{url}{arch}.tar.gz\"\n");
            assert!(table.starts_with(&line), "{target}-{libc}");
        }
    }
    assert!(CARGO.contains("bin-dir = \"{ bin }\"\n"));
}

#[test]
fn actions_and_images_are_pinned() {
    let is_hash = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let lines = WORKFLOWS.into_iter().flat_map(str::lines);
    let used = lines.filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("uses: "));
    let used: Vec<&str> = used.filter(|action| !action.starts_with("./")).collect();
    assert!(used.len() > 5, "{used:?}");
    for action in used {
        let (_, commit) = action.split_once('@').unwrap();
        let (commit, version) = commit.split_once(" # v").unwrap();
        assert!(is_hash(commit, 40) && !version.is_empty(), "{action}");
    }
    let bases = CONTAINERFILE
        .lines()
        .filter(|line| line.starts_with("FROM "));
    for from in bases.filter(|line| !line.starts_with("FROM scratch")) {
        let (_, digest) = from.split_once("@sha256:").unwrap();
        assert!(is_hash(digest.split(' ').next().unwrap(), 64), "{from}");
    }
}

#[test]
fn workflows_have_read_only_tokens_and_timeouts() {
    for workflow in WORKFLOWS {
        assert!(workflow.contains("\npermissions:\n  contents: read\n"));
        let timeouts = workflow.matches("timeout-minutes:").count();
        assert_eq!(workflow.matches("runs-on:").count(), timeouts);
    }
}

#[test]
fn the_supported_kubernetes_versions_are_the_same_everywhere() {
    let chart = include_str!("../../charts/yurt-ds/Chart.yaml");
    let support = include_str!("../../docs/reference/support.md");
    let supported = Version::of_this_program().kubernetes;
    let (oldest, newest) = (supported.oldest, supported.newest);
    assert!(chart.contains(&format!("kubeVersion: \">={oldest}.0-0\"")));
    for version in [&oldest, &newest] {
        assert!(
            support.contains(&format!("| {version} | real")),
            "{version}"
        );
    }
    assert!(super::README.contains(&format!("Kubernetes {oldest}")));
}
