//! The last state on disk, so that pods can be read after a restart without the cloud.
//!
//! One file with everything: the node, when the cloud was last heard, and the pods. It is replaced as a whole (a
//! temporary file beside it, synced, renamed, the directory synced), so whoever is killed at any moment leaves the state
//! before or the state after. A temporary file is locked while it is written: one that is not locked is left over from a
//! kill, and goes at the next start.

use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::last_sync::LastSync;
use super::pod::NodePod;
use super::pod_cache::{LentPods, PodCache};
use crate::k8s::json_list::ListSplitter;

/// Name of the file in the directory.
const FILE: &str = "pods.json";
/// What temporary files begin and end with.
const TEMPORARY: (&str, &str) = (".pods-", ".tmp");
/// The form of the file. One that is not known is left alone until there is something newer to write.
const FORM: u32 = 1;
/// A file that is larger is not ours.
const LONGEST: u64 = 256 << 20;
/// The least time between two writes: flash wears.
const PAUSE: Duration = Duration::from_secs(10);
/// How often the time of the last word is written when nothing else changed.
const REFRESH: Duration = Duration::from_secs(600);
/// The longest that the last write may take.
const LAST_WRITE: Duration = Duration::from_secs(3);

/// Keeps the state of one node in one directory.
#[derive(Clone)]
pub(super) struct StateStore {
    /// Where.
    pub(super) directory: PathBuf,
    /// Whose.
    pub(super) node: String,
    /// The pods.
    pub(super) pod_cache: PodCache,
    /// Their age.
    pub(super) last_sync: LastSync,
    /// What was written last; held while writing.
    pub(super) written: Arc<Mutex<WrittenState>>,
}

/// What was written last.
#[derive(Debug, Default)]
pub(super) struct WrittenState {
    number: u64,
    heard: Option<Timestamp>,
    failing: bool,
}

#[derive(Deserialize)]
struct StateDocument {
    form: u32,
    /// As one form has it.
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct StateFile {
    node: String,
    heard: Timestamp,
    /// Nothing is left here, unless it is no array.
    #[serde(rename = "items")]
    _items: [(); 0],
}

impl StateStore {
    /// Takes in what an earlier process left, if that is of this node; makes the directory when there is none.
    pub(super) fn load(&self) {
        let path = self.directory.join(FILE);
        if let Err(error) = prepare(&self.directory) {
            let directory = self.directory.display();
            warn!(%directory, %error, "Cannot use the directory for the state (--state-dir)");
        }
        match read(&path, &self.node) {
            Ok(Some((heard, pods))) => {
                info!(pods = pods.len(), %heard, "Read the state of an earlier run");
                self.pod_cache.replace(pods);
                self.last_sync.set(heard);
            }
            Ok(None) => {}
            Err(error) => {
                let file = path.display();
                warn!(%file, %error, "The state on disk is not used; it is replaced once the API server answers");
            }
        }
    }

    /// Writes what changes, until dropped.
    pub(super) async fn run(self) {
        let mut changes = self.pod_cache.changes();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(REFRESH) => {}
            }
            self.save().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Writes now, if something changed, for the last time.
    pub(super) async fn finish(&self) {
        if tokio::time::timeout(LAST_WRITE, self.save()).await.is_err() {
            warn!("The state could not be written before the end");
        }
    }

    async fn save(&self) {
        let mut written = self.written.clone().lock_owned().await;
        let (number, heard) = (*self.pod_cache.changes().borrow(), self.last_sync.at());
        if (written.number, written.heard) == (number, heard) {
            return;
        }
        let (Some(pods), Some(heard)) = (self.pod_cache.lend(), heard) else {
            return;
        };
        let directory = self.directory.clone();
        let node = self.node.clone();
        // The lock goes along: should this be given up, the next write still waits for the end of this one.
        let writing = tokio::task::spawn_blocking(move || {
            let saved = prepare(&directory)
                .and_then(|()| replace(&directory, &head(&node, heard), &pods, &mut |_| Ok(())));
            match saved {
                Ok(()) => {
                    *written = WrittenState {
                        number,
                        heard: Some(heard),
                        failing: false,
                    };
                }
                Err(error) if !std::mem::replace(&mut written.failing, true) => {
                    let directory = directory.display();
                    warn!(%directory, %error, "Cannot write the state (--state-dir); it is tried again at every change");
                }
                Err(_) => {}
            }
        });
        let _panics_abort_the_process = writing.await;
    }
}

/// What is before the pods. Names of nodes and instants need no escapes.
fn head(node: &str, heard: Timestamp) -> String {
    format!("{{\"form\":{FORM},\"node\":\"{node}\",\"heard\":\"{heard}\",\"items\":[")
}

/// The state in that file; `None` when there is none.
fn read(path: &Path, node: &str) -> io::Result<Option<(Timestamp, Vec<NodePod>)>> {
    let length = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) => return Err(io::Error::other("it is not a file: remove it")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > LONGEST {
        return Err(io::Error::other("it is too large to be one: remove it"));
    }
    let mut splitter = ListSplitter::default();
    let mut pods = Vec::new();
    let mut file = BufReader::new(File::open(path)?);
    loop {
        let bytes = file.fill_buf()?;
        let length = bytes.len();
        if length == 0 {
            break;
        }
        splitter.feed(bytes, |raw| {
            pods.push(NodePod::read(serde_json::from_slice(raw)?));
            Ok(())
        })?;
        file.consume(length);
    }
    let state = of_node(splitter.finish()?, node)?;
    let pods = pods.into_iter().collect::<Result<_, _>>()?;
    Ok(Some((state.heard, pods)))
}

/// What is beside the pods, if it has our form and is of that node.
fn of_node(document: StateDocument, node: &str) -> io::Result<StateFile> {
    if document.form != FORM {
        return Err(io::Error::other(format!(
            "it has form {}, and this version reads form {FORM}: remove it, or start the version that wrote it",
            document.form
        )));
    }
    let state: StateFile = serde_json::from_value(document.rest.into())?;
    if state.node != node {
        return Err(io::Error::other(format!(
            "it is of node {}, not of {node}: give each node a directory of its own, or remove the file",
            state.node
        )));
    }
    Ok(state)
}

/// Makes the directory when there is none, and removes what a killed process left there.
fn prepare(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1) {
            let path = entry.path();
            // Locked by who writes it just now, gone when somebody else was faster: both are well.
            if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
                let _gone = std::fs::remove_file(&path);
            }
        }
    }
    Ok(())
}

/// Where a kill may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteStep {
    Created,
    HalfWritten,
    Written,
    Synced,
    Renamed,
}

/// Replaces the file as a whole, written pod by pod. `reached` is told every step, and can end it there as a kill would.
fn replace(
    directory: &Path,
    head: &str,
    pods: &LentPods,
    reached: &mut dyn FnMut(WriteStep) -> io::Result<()>,
) -> io::Result<()> {
    let number = RandomState::new().build_hasher().finish();
    let temporary = directory.join(format!("{}{number:016x}{}", TEMPORARY.0, TEMPORARY.1));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.lock()?;
    reached(WriteStep::Created)?;
    file.write_all(head.as_bytes())?;
    reached(WriteStep::HalfWritten)?;
    write_pods(&mut file, pods)?;
    file.write_all(b"]}\n")?;
    reached(WriteStep::Written)?;
    file.sync_all()?;
    reached(WriteStep::Synced)?;
    std::fs::rename(&temporary, directory.join(FILE))?;
    reached(WriteStep::Renamed)?;
    File::open(directory)?.sync_all()
}

/// The pods with commas between them, as they came.
fn write_pods(file: &mut File, pods: &LentPods) -> io::Result<()> {
    let mut before = "";
    while let Some(pod) = pods.front().map_err(|_| too_slow())? {
        file.write_all(before.as_bytes())?;
        file.write_all(pod.raw().as_bytes())?;
        pods.pop();
        before = ",";
    }
    Ok(())
}

fn too_slow() -> io::Error {
    io::Error::other("the disk is slower than the pods change")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;
    use std::os::unix::fs::PermissionsExt;

    fn pod(name: &str) -> NodePod {
        let raw = format!(r#"{{"metadata":{{"name":"{name}","namespace":"n"}},"x":"{name}"}}"#);
        NodePod::read(RawValue::from_string(raw).unwrap()).unwrap()
    }

    fn at() -> Timestamp {
        "2030-01-01T00:00:00.5Z".parse().unwrap()
    }

    /// Writes a state with those pods.
    fn write(
        directory: &Path,
        pods: &[&str],
        reached: &mut dyn FnMut(WriteStep) -> io::Result<()>,
    ) -> io::Result<()> {
        let pod_cache = PodCache::default();
        pod_cache.replace(pods.iter().map(|name| pod(name)));
        let pods = pod_cache.lend().unwrap();
        replace(directory, &head("edge", at()), &pods, reached)
    }

    /// Names of the pods that are found.
    fn found(directory: &Path) -> Vec<String> {
        let (heard, pods) = read(&directory.join(FILE), "edge").unwrap().unwrap();
        assert_eq!(heard, at());
        pods.iter().map(|pod| pod.key().name.clone()).collect()
    }

    fn files(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn a_kill_at_any_step_leaves_the_state_before_or_after() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("made/on/demand");
        prepare(&directory).unwrap();
        assert!(read(&directory.join(FILE), "edge").unwrap().is_none());
        write(&directory, &["old"], &mut |_| Ok(())).unwrap();
        for step in [
            WriteStep::Created,
            WriteStep::HalfWritten,
            WriteStep::Written,
            WriteStep::Synced,
        ] {
            let killed = write(&directory, &["new", "newer"], &mut |reached| {
                if reached == step {
                    Err(io::Error::other("killed"))
                } else {
                    Ok(())
                }
            });
            assert!(killed.is_err());
            assert_eq!(found(&directory), ["old"], "{step:?}");
            assert_eq!(files(&directory), 2, "{step:?}");
            prepare(&directory).unwrap();
            assert_eq!(files(&directory), 1, "{step:?}");
        }
        let killed = write(&directory, &["new"], &mut |reached| match reached {
            WriteStep::Renamed => Err(io::Error::other("killed")),
            _ => Ok(()),
        });
        assert!(killed.is_err());
        assert_eq!(found(&directory), ["new"]);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory.join(FILE)), 0o600);
        assert_eq!(mode(&directory), 0o700);
    }

    #[test]
    fn a_file_that_another_agent_is_writing_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        write(directory, &["mine"], &mut |step| {
            if step == WriteStep::Written {
                prepare(directory)?;
                write(directory, &["other"], &mut |_| Ok(()))?;
                assert_eq!(found(directory), ["other"]);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(found(directory), ["mine"]);
        assert_eq!(files(directory), 1);
    }

    #[test]
    fn what_is_not_the_state_of_this_node_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let case = |text: &[u8], expected: &str| {
            std::fs::write(&path, text).unwrap();
            let error = read(&path, "edge").err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        };
        case(b"", "EOF");
        case(b"\0\0\0", "expected value");
        case(b"[]", "");
        case(b"{}", "form");
        case(br#"{"form":2,"whatever":[]}"#, "form 2");
        case(br#"{"form":1,"node":"edge"}"#, "heard");
        case(br#"{"form":1,"node":"edge","heard":"then","items":[]}"#, "");
        case(
            br#"{"form":1,"node":"edge","heard":"2030-01-01T00:00:00Z","items":[3]}"#,
            "",
        );
        let other = format!("{}]}}", head("other", at()));
        case(other.as_bytes(), "of node other, not of edge");
        let torn = format!("{}{}", head("edge", at()), pod("a").raw());
        case(torn.as_bytes(), "");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read(&path, "edge").is_err());
    }
}
