//! Last known state on disk, so that the agent can list the pods after a restart without a connection to the API server.
//!
//! One file has the node, the time of the last confirmation by the API server, and the pods. It is replaced atomically: a temporary
//! file is written, synced and renamed, and then the directory is synced. If the process is killed, either the previous state or
//! the new one remains.
//!
//! A temporary file is locked while it is written. A temporary file without a lock is from a killed process, and is removed before
//! the next write.

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

/// Name of the state file in the directory.
const FILE: &str = "pods.json";
/// Prefix and suffix of temporary files.
const TEMPORARY: (&str, &str) = (".pods-", ".tmp");
/// Version of the file format. A file of another version is ignored, and remains until new data is written.
const FORM: u32 = 1;
/// Maximum size of the state file in bytes. The agent never writes a larger file, so a larger one is ignored.
const LONGEST: u64 = 256 << 20;
/// Minimum time between two writes. Flash memory wears out.
const PAUSE: Duration = Duration::from_secs(10);
/// Interval between writes of the last confirmation's time while no pod changes.
const REFRESH: Duration = Duration::from_secs(600);
/// Timeout of the last write at shutdown.
const LAST_WRITE: Duration = Duration::from_secs(3);

/// Store on disk for the pods of one node.
#[derive(Clone)]
pub(super) struct StateStore {
    pub(super) directory: PathBuf,
    pub(super) node: String,
    /// Cache of the pods that are saved.
    pub(super) pod_cache: PodCache,
    /// Time at which the API server last confirmed the pods.
    pub(super) last_sync: LastSync,
    /// Last written state. Its lock is held during a write.
    pub(super) written: Arc<Mutex<WrittenState>>,
}

/// Version of the last written state. A write without a change is skipped.
#[derive(Debug, Default)]
pub(super) struct WrittenState {
    number: u64,
    heard: Option<Timestamp>,
    failing: bool,
}

#[derive(Deserialize)]
struct StateDocument {
    form: u32,
    /// Fields that depend on the version of the format.
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct StateFile {
    node: String,
    heard: Timestamp,
    // The splitter removes the items before the rest is parsed, so the array is always empty.
    #[serde(rename = "items")]
    _items: [(); 0],
}

impl StateStore {
    /// Loads the state that an earlier process saved, if the state is of this node. Creates the directory if it is missing.
    pub(super) fn load(&self) {
        let path = self.directory.join(FILE);
        if let Err(error) = prepare(&self.directory) {
            let directory = self.directory.display();
            warn!(%directory, %error, "Cannot use the state directory (--state-dir)");
        }
        match read(&path, &self.node) {
            Ok(Some((heard, pods))) => {
                info!(pods = pods.len(), %heard, "Loaded the saved state");
                self.pod_cache.replace(pods);
                self.last_sync.set(heard);
            }
            Ok(None) => {}
            Err(error) => {
                let file = path.display();
                warn!(%file, %error, "Cannot use the saved state; it is replaced when the API server responds");
            }
        }
    }

    /// Writes the state after each change, until dropped.
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

    /// Writes the state for the last time, if it changed.
    pub(super) async fn finish(&self) {
        if tokio::time::timeout(LAST_WRITE, self.save()).await.is_err() {
            warn!("The state was not saved before the shutdown");
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
        // The task holds the lock until the write ends, even if `save` is cancelled. So two writes never overlap.
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
                    warn!(%directory, %error, "Cannot save the state (--state-dir); retrying at every change");
                }
                Err(_) => {}
            }
        });
        let _panics_abort_the_process = writing.await;
    }
}

/// Returns the text of the file before the pods. Node names and times have no characters that JSON has to escape.
fn head(node: &str, heard: Timestamp) -> String {
    format!("{{\"form\":{FORM},\"node\":\"{node}\",\"heard\":\"{heard}\",\"items\":[")
}

/// Reads the state from a file; `None` if the file does not exist.
fn read(path: &Path, node: &str) -> io::Result<Option<(Timestamp, Vec<NodePod>)>> {
    let length = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) => return Err(io::Error::other("the path is not a file: remove it")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > LONGEST {
        return Err(io::Error::other(
            "the file is too large for a saved state: remove it",
        ));
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

/// Returns all fields except the pods.
///
/// # Errors
/// Fails if the format is unknown, or if the state is of another node.
fn of_node(document: StateDocument, node: &str) -> io::Result<StateFile> {
    if document.form != FORM {
        return Err(io::Error::other(format!(
            "the file has format {}, and this version reads format {FORM}: remove the file, or start the version that wrote it",
            document.form
        )));
    }
    let state: StateFile = serde_json::from_value(document.rest.into())?;
    if state.node != node {
        return Err(io::Error::other(format!(
            "the state belongs to node {}, not to {node}: give each node its own directory, or remove the file",
            state.node
        )));
    }
    Ok(state)
}

/// Creates the directory if it is missing, and removes temporary files of killed processes.
fn prepare(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1) {
            let path = entry.path();
            // Skip a locked file, which another process is writing, and a missing file, which another process has removed.
            if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
                let _gone = std::fs::remove_file(&path);
            }
        }
    }
    Ok(())
}

/// Step of a write. Tests stop the write after each step, as if the process were killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteStep {
    Created,
    HalfWritten,
    Written,
    Synced,
    Renamed,
}

/// Replaces the file atomically, and writes it pod by pod. Calls `reached` after each step. If `reached` returns an error, the
/// write stops as if the process were killed.
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

/// Writes the pods, unchanged and separated by commas.
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
    io::Error::other("the pods change faster than the disk can save them")
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

    /// Writes a state file with these pods.
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

    /// Returns the names of the pods in the state file.
    fn found(directory: &Path) -> Vec<String> {
        let (heard, pods) = read(&directory.join(FILE), "edge").unwrap().unwrap();
        assert_eq!(heard, at());
        pods.iter().map(|pod| pod.key().name.clone()).collect()
    }

    fn files(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn a_kill_during_a_write_leaves_the_old_or_the_new_state() {
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
    fn a_file_being_written_by_another_agent_is_not_changed() {
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
    fn foreign_or_damaged_state_is_refused_with_a_reason() {
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
        case(br#"{"form":2,"whatever":[]}"#, "format 2");
        case(br#"{"form":1,"node":"edge"}"#, "heard");
        case(br#"{"form":1,"node":"edge","heard":"then","items":[]}"#, "");
        case(
            br#"{"form":1,"node":"edge","heard":"2030-01-01T00:00:00Z","items":[3]}"#,
            "",
        );
        let other = format!("{}]}}", head("other", at()));
        case(other.as_bytes(), "belongs to node other, not to edge");
        let torn = format!("{}{}", head("edge", at()), pod("a").raw());
        case(torn.as_bytes(), "");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read(&path, "edge").is_err());
    }
}
