//! The folder from which the kubelet makes static pods.
//!
//! The kubelet reads every file whose name does not start with a dot, whenever one changes. So everything here is made
//! under a dot name, and becomes a manifest by a rename: there is never half a manifest, nor two of one pod.
//!
//! ```text
//! nginx.yaml             the manifest
//! .nginx.yaml.backup     the manifest before, as long as nobody makes another
//! .nginx.yaml.pending    what is awaited of the new one; outlives a restart of the agent
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::manifest::Manifest;

/// Files looked at; a node has some dozen static pods at most.
const FILES: usize = 512;
/// The longest file that is read: a ConfigMap cannot hold more.
const LONGEST: u64 = 1 << 20;
/// The longest note: it holds a manifest, in which JSON takes up to six bytes for one.
const LONGEST_NOTE: u64 = 8 * LONGEST;
/// Permissions of a manifest that was not there before: it may hold secrets.
const MODE: u32 = 0o600;
const BACKUP: &str = ".backup";
const PENDING: &str = ".pending";

/// The folder. Whoever calls holds the lock of `guard`: one change at a time.
#[derive(Clone, Debug)]
pub(super) struct ManifestFolder {
    /// Where it is.
    pub(super) path: PathBuf,
}

/// What is awaited of a manifest that was replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending {
    /// Namespace of the pod.
    pub(super) namespace: String,
    /// Name of the mirror pod.
    pub(super) pod: String,
    /// UIDs of the mirror pods that were there: as it was read, and as the cache had it.
    pub(super) old: Vec<String>,
    /// When the new pod has to be Ready.
    pub(super) until: String,
    /// Name of the manifest's file.
    pub(super) file: String,
    /// Whether there was no manifest before.
    pub(super) is_new: bool,
    /// What was written: whatever else is found there later is not ours to undo.
    pub(super) written: String,
}

/// What became of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FolderOutcome {
    /// It says the same already.
    Unchanged,
    /// It is in that file.
    Written(String),
}

impl ManifestFolder {
    /// Makes `manifest` that of its pod; `pending` says who is awaited.
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
        // What was put there a moment ago proved nothing yet: the last good one is that before.
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

    /// Everything that is awaited.
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

    /// The new pod is as it should be: nothing is awaited any more.
    pub(super) fn settle(&self, pending: &Pending) -> Result<()> {
        if self.read_pending(&pending.file).as_ref() == Some(pending) {
            self.remove(&hidden(&pending.file, PENDING))?;
        }
        Ok(())
    }

    /// Puts the manifest back that was there before; says whether there was something to put back.
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

    /// The file that holds the present manifest of that pod, and its text.
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
                bail!("{} holds more than {FILES} files", self.path.display());
            }
            let Ok(file) = entry.with_context(what)?.file_name().into_string() else {
                continue; // the name of a manifest is ours to write back
            };
            if file.starts_with('.') {
                continue;
            }
            // What is no file, too long or not text is not the manifest of a pod.
            let Some(text) = self
                .read(&file)
                .ok()
                .filter(|text| manifest.is_of_same_pod(text))
            else {
                continue;
            };
            if let Some((other, _)) = &found {
                bail!(
                    "both {other} and {file} are manifests of {}: remove one",
                    manifest.name
                );
            }
            if fs::symlink_metadata(self.path.join(&file))?.is_symlink() {
                bail!("{file} is a symbolic link: whoever made it has to change what it points at");
            }
            found = Some((file, text));
        }
        Ok(found)
    }

    fn unused(&self, file: &str) -> Result<String> {
        match fs::symlink_metadata(self.path.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(file.to_owned()),
            Err(error) => Err(error).with_context(|| format!("look for {file}")),
            Ok(_) => bail!("{file} is there, but is not the manifest of that pod"),
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
        let meta = fs::metadata(&path)?; // opening a pipe would block
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

    /// Makes a file whole or not at all, and has it on the disk before it is told to anybody.
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

/// The name of a file beside a manifest that the kubelet does not see.
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
        _ => {} // left behind by an agent that was killed
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?; // whatever the umask says
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
