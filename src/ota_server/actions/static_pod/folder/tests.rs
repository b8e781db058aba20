//! Tests of the folder's content after each operation, as the kubelet sees it.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use super::*;

fn text(image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: nginx, namespace: default}}\n\
         spec: {{containers: [{{name: c, image: \"{image}\"}}]}}\n"
    )
}

fn manifest(image: &str) -> Manifest {
    let data: BTreeMap<String, String> = [("nginx.yaml".to_owned(), text(image))].into();
    Manifest::choose(&data, "default", "nginx").unwrap()
}

fn pending(uid: &str) -> Pending {
    Pending {
        namespace: "default".to_owned(),
        pod: "nginx-n1".to_owned(),
        old: vec![uid.to_owned()],
        until: "2026-01-01T00:05:00Z".to_owned(),
        ..Pending::default()
    }
}

struct Manifests {
    _directory: tempfile::TempDir,
    folder: ManifestFolder,
}

impl Manifests {
    fn with(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let path = directory.path().to_owned();
        Self {
            _directory: directory,
            folder: ManifestFolder { path },
        }
    }

    fn replace(&self, image: &str) -> Result<FolderOutcome> {
        self.folder.replace(&manifest(image), pending("u1"))
    }

    fn refused(&self, image: &str) -> String {
        format!("{:#}", self.replace(image).unwrap_err())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder.path).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path.join(file)).unwrap()
    }

    fn awaited(&self) -> Pending {
        let mut found = self.folder.pending().unwrap();
        assert_eq!(found.len(), 1);
        found.remove(0)
    }
}

fn written(file: &str) -> FolderOutcome {
    FolderOutcome::Written(file.to_owned())
}

#[test]
fn the_manifest_file_of_the_pod_is_replaced_under_any_name() {
    let other = text("i:1").replace("name: nginx", "name: other");
    let manifests = Manifests::with(&[
        ("web.manifest", &text("i:1")),
        ("nginx.yaml.txt", &other),
        ("broken", "{"),
        (".nginx.yaml", &text("i:0")),
    ]);
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(manifests.folder.path.join("web.manifest"), mode).unwrap();
    fs::create_dir(manifests.folder.path.join("folder")).unwrap();
    assert_eq!(manifests.replace("i:2").unwrap(), written("web.manifest"));
    assert_eq!(manifests.read("web.manifest"), text("i:2"));
    assert_eq!(manifests.folder.mode("web.manifest"), 0o640);
    assert_eq!(manifests.read(".web.manifest.backup"), text("i:1"));
    let names = [
        ".nginx.yaml",
        ".web.manifest.backup",
        ".web.manifest.pending",
        "broken",
        "folder",
        "nginx.yaml.txt",
        "web.manifest",
    ];
    assert_eq!(manifests.names(), names);
}

#[test]
fn a_pod_without_a_file_gets_a_file_with_its_name() {
    let manifests = Manifests::with(&[]);
    assert_eq!(manifests.replace("i:2").unwrap(), written("nginx.yaml"));
    assert_eq!(manifests.folder.mode("nginx.yaml"), 0o600);
    assert!(manifests.awaited().is_new);
    assert!(manifests.folder.restore(&manifests.awaited()).unwrap());
    assert!(manifests.names().is_empty());
}

#[test]
fn an_unchanged_manifest_is_not_written_again() {
    let spaced = text("i:1").replace('{', "{ ");
    let manifests = Manifests::with(&[("nginx.yaml", &spaced)]);
    assert_eq!(manifests.replace("i:1").unwrap(), FolderOutcome::Unchanged);
    assert_eq!(manifests.names(), ["nginx.yaml"]);
}

#[test]
fn a_manifest_is_restored_if_its_pod_is_not_ready_in_time_and_kept_otherwise() {
    let manifests = Manifests::with(&[("nginx.yaml", &text("i:1"))]);
    manifests.replace("i:2").unwrap();
    assert!(manifests.folder.restore(&manifests.awaited()).unwrap());
    assert_eq!(manifests.read("nginx.yaml"), text("i:1"));
    assert_eq!(manifests.names(), [".nginx.yaml.backup", "nginx.yaml"]);
    manifests.replace("i:2").unwrap();
    manifests.folder.settle(&manifests.awaited()).unwrap();
    assert_eq!(manifests.read("nginx.yaml"), text("i:2"));
    assert!(manifests.folder.pending().unwrap().is_empty());
}

#[test]
fn a_second_attempt_falls_back_to_the_last_good_manifest() {
    let manifests = Manifests::with(&[("nginx.yaml", &text("i:1"))]);
    manifests.replace("i:2").unwrap();
    let first = manifests.awaited();
    manifests.replace("i:3").unwrap();
    assert!(!manifests.folder.restore(&first).unwrap(), "it is over");
    assert_eq!(manifests.read("nginx.yaml"), text("i:3"));
    assert!(manifests.folder.restore(&manifests.awaited()).unwrap());
    assert_eq!(manifests.read("nginx.yaml"), text("i:1"));
}

#[test]
fn a_manifest_of_another_writer_is_not_changed() {
    let manifests = Manifests::with(&[("nginx.yaml", &text("i:1"))]);
    manifests.replace("i:2").unwrap();
    fs::write(manifests.folder.path.join("nginx.yaml"), text("i:9")).unwrap();
    assert!(!manifests.folder.restore(&manifests.awaited()).unwrap());
    assert_eq!(manifests.read("nginx.yaml"), text("i:9"));
    assert!(manifests.folder.pending().unwrap().is_empty());
}

#[test]
fn files_of_a_killed_agent_are_ignored() {
    let manifests = Manifests::with(&[
        ("nginx.yaml", &text("i:1")),
        (".nginx.yaml.new", "half"),
        (".nginx.yaml.pending", "{\"half"),
        (".nginx.yaml.pending.new", "{"),
        (".nginx.yaml.backup.new", ""),
    ]);
    assert!(manifests.folder.pending().unwrap().is_empty());
    assert_eq!(manifests.replace("i:2").unwrap(), written("nginx.yaml"));
    assert_eq!(manifests.read("nginx.yaml"), text("i:2"));
    let names = [".nginx.yaml.backup", ".nginx.yaml.pending", "nginx.yaml"];
    assert_eq!(manifests.names(), names);
}

#[test]
fn a_manifest_that_cannot_be_replaced_safely_is_refused_with_a_reason() {
    let twice = Manifests::with(&[("a.yaml", &text("i:1")), ("b.yaml", &text("i:1"))]);
    assert!(
        twice
            .refused("i:2")
            .ends_with("are both manifests of nginx: remove one of them")
    );
    let taken = Manifests::with(&[("nginx.yaml", "something else")]);
    assert_eq!(
        taken.refused("i:2"),
        "nginx.yaml exists but is not the manifest of this pod"
    );
    let linked = Manifests::with(&[(".real", &text("i:1"))]);
    symlink(
        linked.folder.path.join(".real"),
        linked.folder.path.join("nginx.yaml"),
    )
    .unwrap();
    assert!(
        linked
            .refused("i:2")
            .starts_with("nginx.yaml is a symbolic link")
    );
    for manifests in [twice, taken, linked] {
        assert!(manifests.folder.pending().unwrap().is_empty());
    }
    let absent = ManifestFolder {
        path: "/nowhere".into(),
    };
    let error = absent.replace(&manifest("i:2"), pending("u1")).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("manifests/overlays/static-pods mounts it"),
        "{error}"
    );
    assert!(absent.pending().unwrap().is_empty());
}

#[test]
fn pipes_and_huge_files_are_skipped() {
    let manifests = Manifests::with(&[("nginx.yaml", &text("i:1"))]);
    let giant = File::create(manifests.folder.path.join("giant")).unwrap();
    giant.set_len(LONGEST + 1).unwrap();
    symlink("/dev/zero", manifests.folder.path.join("endless")).unwrap();
    symlink("nowhere", manifests.folder.path.join("dangling")).unwrap();
    assert_eq!(manifests.replace("i:2").unwrap(), written("nginx.yaml"));
}
