//! Unix socket. The mode and group of its file determine which users of this machine may connect.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, listen, socket_with};
use tokio::net::{UnixListener, UnixStream};

use crate::serve::Listener;

/// Maximum number of connections that wait to be accepted, the same as in the standard library.
const BACKLOG: i32 = 128;
/// Maximum length of a socket's path, in bytes (unix(7)).
const LONGEST: usize = 107;
/// Timeout for connecting to an existing socket, to find out whether a process listens on it. The kernel normally answers
/// immediately.
const PROBE: Duration = Duration::from_secs(2);

/// Path and permissions of a socket.
#[derive(Clone, Debug)]
pub(in crate::ota_server) struct SocketConfig {
    /// Path of the socket file.
    pub(in crate::ota_server) path: PathBuf,
    /// Permission bits of the socket file.
    pub(in crate::ota_server) mode: u32,
    /// Number of the group; `None` for the group of the process.
    pub(in crate::ota_server) group: Option<u32>,
}

impl fmt::Display for SocketConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} mode {:04o}", self.path.display(), self.mode)?;
        match self.group {
            Some(group) => write!(f, " group {group}"),
            None => Ok(()),
        }
    }
}

/// Listening socket. When dropped, it removes its file and then closes the listener.
#[derive(Debug)]
pub(in crate::ota_server) struct Socket {
    _file: SocketFile,
    listener: UnixListener,
}

/// File of a socket that this process created. When dropped, it removes the file, unless another process has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file. The inode is not reused while the socket is open.
    identity: (u64, u64),
}

impl Socket {
    /// Creates the socket. Mode and group are set before any process can connect.
    ///
    /// Replaces an existing socket on which no process listens, because a killed process left it.
    ///
    /// # Errors
    /// Fails if another process listens on the path, or the path is not a socket. Also fails if the directory is missing, other
    /// users could replace the socket in it, or the group cannot be set.
    pub(in crate::ota_server) async fn open(config: &SocketConfig) -> Result<Self> {
        let path = &config.path;
        let opened = async {
            check_directory(path)?;
            make_room(path).await?;
            Self::create(config)
        };
        let opened = opened.await;
        opened.with_context(|| format!("cannot listen on the socket {} (--socket)", path.display()))
    }

    fn create(config: &SocketConfig) -> Result<Self> {
        let SocketConfig { path, mode, group } = config;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let address = SocketAddrUnix::new(path.as_path())
            .with_context(|| format!("the path must have at most {LONGEST} bytes"))?;
        bind(&socket, &address)?;
        let made = fs::symlink_metadata(path)?;
        let file = SocketFile {
            path: path.clone(),
            identity: (made.dev(), made.ino()),
        };
        if let Some(group) = *group {
            lchown(path, None, Some(group)).with_context(|| {
                format!(
                    "cannot set its group to {group} (--socket-group): the agent must be a member of the group (in a pod: \
                     runAsGroup or supplementalGroups), or have CAP_CHOWN"
                )
            })?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(*mode))?;
        // Listen only after mode and group are set. Before that, the kernel rejects all connections.
        listen(&socket, BACKLOG)?;
        Ok(Self {
            _file: file,
            listener: UnixListener::from_std(socket.into())?,
        })
    }
}

impl Listener for Socket {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        Ok(stream)
    }

    fn peer(_stream: &UnixStream) -> Option<IpAddr> {
        None
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            let _gone_already = fs::remove_file(&self.path);
        }
    }
}

/// Checks that the directory exists and that other users cannot replace the socket in it.
fn check_directory(path: &Path) -> Result<()> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) => Path::new("."),
        None => bail!("the path must name a file"),
    };
    let shown = directory.display();
    let metadata = fs::metadata(directory)
        .with_context(|| format!("the directory {shown} cannot be used; create it first"))?;
    if !metadata.is_dir() {
        bail!("{shown} is not a directory");
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        bail!(
            "other users may write to the directory {shown} (mode {mode:04o}), so they could replace the socket. Remove that \
             right: chmod go-w {shown}"
        );
    }
    Ok(())
}

/// Removes an existing socket on which no process listens.
async fn make_room(path: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !found.file_type().is_socket() {
        bail!("the path exists and is not a socket; remove it, or use another path");
    }
    match tokio::time::timeout(PROBE, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).context("cannot remove the socket of a process that ended")
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(Err(error)) => Err(error)
            .context("cannot connect to the socket that exists there, so it is not replaced"),
        Ok(Ok(_)) | Err(_) => {
            bail!("another process listens there. Is another ota-server running on this node?")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixListener as StdListener, UnixStream as StdStream};

    fn at(path: PathBuf) -> SocketConfig {
        SocketConfig {
            path,
            mode: 0o660,
            group: None,
        }
    }

    async fn refused(config: &SocketConfig) -> String {
        let error = Socket::open(config).await.unwrap_err();
        let text = format!("{error:#}");
        let shown = config.path.display().to_string();
        assert!(text.contains(&shown) && text.contains("--socket"), "{text}");
        text
    }

    #[tokio::test]
    async fn a_socket_has_its_mode_and_group_and_is_removed_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        for mode in [0o660, 0o600, 0o666, 0o000] {
            let mut config = at(directory.path().join("ota.sock"));
            config.mode = mode;
            let own = fs::metadata(directory.path()).unwrap();
            config.group = Some(own.gid());
            let socket = Socket::open(&config).await.unwrap();
            let made = fs::symlink_metadata(&config.path).unwrap();
            assert_eq!(made.mode() & 0o7777, mode);
            assert_eq!((made.uid(), made.gid()), (own.uid(), own.gid()));
            assert!(made.file_type().is_socket());
            let (asked, accepted) = tokio::join!(UnixStream::connect(&config.path), socket.next());
            assert!(accepted.is_ok() || mode == 0 && asked.is_err());
            drop(socket);
            assert!(!config.path.exists());
        }
    }

    #[tokio::test]
    async fn the_group_is_set_if_the_process_is_permitted_to_set_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = at(directory.path().join("ota.sock"));
        config.group = Some(10_267);
        let is_root = fs::metadata(directory.path()).unwrap().uid() == 0;
        match is_root {
            true => {
                let _socket = Socket::open(&config).await.unwrap();
                assert_eq!(fs::symlink_metadata(&config.path).unwrap().gid(), 10_267);
            }
            false => {
                let text = refused(&config).await;
                assert!(text.contains("group 10267 (--socket-group)"), "{text}");
            }
        }
        assert!(!config.path.exists(), "also removed after an error");
    }

    #[tokio::test]
    async fn a_socket_without_a_listener_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let config = at(directory.path().join("ota.sock"));
        drop(StdListener::bind(&config.path).unwrap());
        assert!(config.path.exists());
        let socket = Socket::open(&config).await.unwrap();
        let connected = StdStream::connect(&config.path);
        assert!(connected.is_ok(), "{connected:?}");
        assert!(socket.next().await.is_ok());
    }

    #[tokio::test]
    async fn a_socket_with_a_listener_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let config = at(directory.path().join("ota.sock"));
        let first = Socket::open(&config).await.unwrap();
        let text = refused(&config).await;
        assert!(text.contains("another process listens there"), "{text}");
        assert!(StdStream::connect(&config.path).is_ok());
        drop(first);
        // A process that is too busy to accept connections still listens, so its socket must not be replaced.
        let _busy = StdListener::bind(&config.path).unwrap();
        let mut waiting = Vec::new();
        while let Ok(Ok(stream)) =
            tokio::time::timeout(PROBE, UnixStream::connect(&config.path)).await
        {
            waiting.push(stream);
            assert!(waiting.len() < 100_000);
        }
        refused(&config).await;
        assert!(config.path.exists());
    }

    #[tokio::test]
    async fn other_files_are_not_replaced_by_a_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "kept").unwrap();
        fs::create_dir(path("directory")).unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("nowhere"), path("dangling")).unwrap();
        for name in ["file", "directory", "link", "dangling"] {
            let text = refused(&at(path(name))).await;
            assert!(text.contains("is not a socket"), "{text}");
            assert!(fs::symlink_metadata(path(name)).is_ok());
        }
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "kept");
        let _datagram = UnixDatagram::bind(path("datagram")).unwrap();
        let text = refused(&at(path("datagram"))).await;
        assert!(text.contains("is not replaced"), "{text}");
        assert!(path("datagram").exists());
    }

    #[tokio::test]
    async fn the_directory_of_a_socket_must_exist_and_be_safe() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let text = refused(&at(missing.join("ota.sock"))).await;
        let named = format!("the directory {} cannot be used", missing.display());
        assert!(text.contains(&named), "{text}");
        fs::write(&missing, "").unwrap();
        let text = refused(&at(missing.join("ota.sock"))).await;
        assert!(text.contains("is not a directory"), "{text}");
        refused(&at("/".into())).await;
        let open = directory.path().join("open");
        fs::create_dir(&open).unwrap();
        for (mode, is_safe) in [
            (0o777, false),
            (0o770, false),
            (0o1777, true),
            (0o755, true),
        ] {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
            let config = at(open.join("ota.sock"));
            if is_safe {
                Socket::open(&config).await.unwrap();
            } else {
                let text = refused(&config).await;
                assert!(text.contains(&format!("mode {mode:04o}")), "{text}");
            }
        }
        let long = directory.path().join("x".repeat(200));
        let text = refused(&at(long)).await;
        assert!(text.contains("at most 107 bytes"), "{text}");
    }

    #[tokio::test]
    async fn closing_removes_no_socket_of_another_process() {
        let directory = tempfile::tempdir().unwrap();
        let config = at(directory.path().join("ota.sock"));
        let first = Socket::open(&config).await.unwrap();
        fs::remove_file(&config.path).unwrap();
        let _second = Socket::open(&config).await.unwrap();
        drop(first);
        assert!(StdStream::connect(&config.path).is_ok());
    }
}
