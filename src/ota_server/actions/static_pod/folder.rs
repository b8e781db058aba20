//! Folder from which the kubelet creates static pods.
//!
//! When a file changes, the kubelet reads every file whose name doesn't start with a dot. So files are written under a hidden name
//! and then renamed. The kubelet never sees an incomplete manifest, or two manifests of one pod.
//!
//! ```text
//! nginx.yaml             the manifest
//! .nginx.yaml.backup     the previous manifest, until the next backup
//! .nginx.yaml.pending    the expected pod of the new manifest; survives a restart of the agent
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::manifest::Manifest;

/// Maximum number of files in the folder. A node has at most a few dozen static pods.
const FILES: usize = 512;
/// Maximum size of a manifest in bytes, the same as for a ConfigMap.
const LONGEST: u64 = 1 << 20;
/// Maximum size of a `.pending` note in bytes. The note contains a manifest as a JSON string, in which one byte may become six.
const LONGEST_NOTE: u64 = 8 * LONGEST;
/// Permission bits of a new manifest. Other users must not read it, because it may have secrets.
const MODE: u32 = 0o600;
const BACKUP: &str = ".backup";
const PENDING: &str = ".pending";

/// Folder of manifests. Callers hold the lock in `guard`, so only one change is made at a time.
#[derive(Clone, Debug)]
pub(super) struct ManifestFolder {
    /// Path of the folder with the manifests.
    pub(super) path: PathBuf,
}

/// Pod that the kubelet should create from a replaced manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) namespace: String,
    /// Name of the mirror pod.
    pub(super) pod: String,
    /// UIDs of the mirror pod before the change, from the API server and from the cache. A pod with another UID is the new one.
    pub(super) old: Vec<String>,
    /// Time until which the new pod has to become Ready.
    pub(super) until: String,
    /// File name of the replaced manifest.
    pub(super) file: String,
    /// True if the pod had no manifest before. After a failure, the agent then removes the file.
    pub(super) is_new: bool,
    /// Content that the agent wrote. If the file has other content later, the agent does not restore the backup.
    pub(super) written: String,
}

/// Result of replacing a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FolderOutcome {
    /// The manifest already had this content, so nothing was written.
    Unchanged,
    /// The manifest was written to the file with this name.
    Written(String),
}

impl ManifestFolder {
    /// Replaces the manifest of a pod. `pending` describes the expected pod.
    pub(super) fn replace(&self, manifest: &Manifest, pending: Pending) -> Result<FolderOutcome> {
        let present = self.find(manifest)?;
        if let Some((_, text)) = &present
            && manifest.says_the_same_as(text)
        {
            return Ok(FolderOutcome::Unchanged);
        }
        let file = match &present {
            Some((file, _)) => file.clone(),
            None => self.unused(&format!("{}.yaml", manifest.name))?,
        };
        let earlier = self.read_pending(&file);
        // If the pod of the present manifest never became Ready, keep the existing backup: it is the last manifest that worked.
        let text = present.map(|(_, text)| text);
        let unproven = earlier.filter(|earlier| Some(&earlier.written) == text.as_ref());
        if let (Some(text), None) = (&text, &unproven) {
            self.put(&hidden(&file, BACKUP), text, self.mode(&file))?;
        }
        let pending = Pending {
            is_new: unproven
                .as_ref()
                .map_or(text.is_none(), |earlier| earlier.is_new),
            file: file.clone(),
            written: manifest.text.clone(),
            ..pending
        };
        self.note(&pending)?;
        if let Err(error) = self.put(&file, &manifest.text, self.mode(&file)) {
            match &unproven {
                Some(earlier) => self.note(earlier)?,
                None => self.remove(&hidden(&file, PENDING))?,
            }
            return Err(error);
        }
        Ok(FolderOutcome::Written(file))
    }

    /// Returns the notes of all expected pods that are not Ready yet.
    pub(super) fn pending(&self) -> Result<Vec<Pending>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries.with_context(|| format!("read {}", self.path.display()))?,
        };
        for entry in entries.take(FILES) {
            let name = entry?.file_name();
            let file = name.to_str().and_then(|name| name.strip_prefix('.'));
            if let Some(file) = file.and_then(|name| name.strip_suffix(PENDING)) {
                found.extend(self.read_pending(file));
            }
        }
        Ok(found)
    }

    /// Removes the note of a pod that has become Ready.
    pub(super) fn settle(&self, pending: &Pending) -> Result<()> {
        if self.read_pending(&pending.file).as_ref() == Some(pending) {
            self.remove(&hidden(&pending.file, PENDING))?;
        }
        Ok(())
    }

    /// Restores the previous manifest of a pod. Returns false if the manifest has changed since the agent replaced it.
    pub(super) fn restore(&self, pending: &Pending) -> Result<bool> {
        if self.read_pending(&pending.file).as_ref() != Some(pending) {
            return Ok(false);
        }
        let is_ours = self
            .read(&pending.file)
            .is_ok_and(|text| text == pending.written);
        if is_ours && pending.is_new {
            self.remove(&pending.file)?;
        } else if is_ours {
            let text = self.read(&hidden(&pending.file, BACKUP))?;
            self.put(&pending.file, &text, self.mode(&pending.file))?;
        }
        self.remove(&hidden(&pending.file, PENDING))?;
        Ok(is_ours)
    }

    /// Returns name and content of the file with the present manifest of the pod.
    fn find(&self, manifest: &Manifest) -> Result<Option<(String, String)>> {
        let what = || {
            format!(
                "read {} (--manifest-dir; manifests/overlays/static-pods mounts it)",
                self.path.display()
            )
        };
        let mut found = None;
        for (number, entry) in fs::read_dir(&self.path).with_context(what)?.enumerate() {
            if number >= FILES {
                bail!("{} contains more than {FILES} files", self.path.display());
            }
            let Ok(file) = entry.with_context(what)?.file_name().into_string() else {
                continue; // The file would be written under this name, so skip a name that is not UTF-8.
            };
            if file.starts_with('.') {
                continue;
            }
            // Skip everything that cannot be a pod's manifest: directories, files that are too large, and files that are not text.
            let Some(text) = self
                .read(&file)
                .ok()
                .filter(|text| manifest.is_of_same_pod(text))
            else {
                continue;
            };
            if let Some((other, _)) = &found {
                bail!(
                    "{other} and {file} are both manifests of {}: remove one of them",
                    manifest.name
                );
            }
            if fs::symlink_metadata(self.path.join(&file))?.is_symlink() {
                bail!(
                    "{file} is a symbolic link and is not replaced. Change the file that it points to"
                );
            }
            found = Some((file, text));
        }
        Ok(found)
    }

    fn unused(&self, file: &str) -> Result<String> {
        match fs::symlink_metadata(self.path.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(file.to_owned()),
            Err(error) => Err(error).with_context(|| format!("inspect {file}")),
            Ok(_) => bail!("{file} exists but is not the manifest of this pod"),
        }
    }

    fn note(&self, pending: &Pending) -> Result<()> {
        let note = serde_json::to_string(pending)?;
        self.put(&hidden(&pending.file, PENDING), &note, MODE)
    }

    fn read_pending(&self, file: &str) -> Option<Pending> {
        let text = self
            .read_at_most(&hidden(file, PENDING), LONGEST_NOTE)
            .ok()?;
        let pending: Pending = serde_json::from_str(&text).ok()?;
        (pending.file == file).then_some(pending)
    }

    fn read(&self, file: &str) -> io::Result<String> {
        self.read_at_most(file, LONGEST)
    }

    fn read_at_most(&self, file: &str, most: u64) -> io::Result<String> {
        let path = self.path.join(file);
        let meta = fs::metadata(&path)?; // Check the type first: opening a pipe would block.
        if !meta.is_file() || meta.len() > most {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = String::new();
        File::open(path)?.take(most).read_to_string(&mut text)?;
        Ok(text)
    }

    fn mode(&self, file: &str) -> u32 {
        let meta = fs::metadata(self.path.join(file));
        meta.map_or(MODE, |meta| meta.mode() & 0o777)
    }

    /// Writes a file atomically and syncs it to disk.
    fn put(&self, file: &str, text: &str, mode: u32) -> Result<()> {
        let path = self.path.join(file);
        let temporary = self.path.join(hidden(file, ".new"));
        let written = write_whole(&temporary, text, mode)
            .and_then(|()| fs::rename(&temporary, &path))
            .and_then(|()| self.sync());
        if written.is_err() {
            let _gone_anyway = fs::remove_file(&temporary);
        }
        written.with_context(|| format!("write {}", path.display()))
    }

    fn remove(&self, file: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::remove_file(&path)
            .and_then(|()| self.sync())
            .with_context(|| format!("remove {}", path.display()))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// Returns the hidden name of a file that belongs to a manifest. The kubelet ignores hidden files.
fn hidden(file: &str, ending: &str) -> String {
    if file.starts_with('.') {
        format!("{file}{ending}")
    } else {
        format!(".{file}{ending}")
    }
}

fn write_whole(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {} // Removed, or not found. A killed agent may have left it.
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?; // Set the mode again: the umask limits it at creation.
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
