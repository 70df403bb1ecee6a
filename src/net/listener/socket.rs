//! Unix socket, bound before anything else starts, like an address. Beside the socket is a lock file that its owner
//! holds: it shows whether a former server's socket may be replaced, because a bound socket that does not listen yet
//! refuses connections as a dead one does.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown},
        net::{SocketAddr, UnixStream},
    },
    path::{Path, PathBuf},
};

use tokio::net::{UnixListener, UnixSocket};

use super::address::{BACKLOG_MAX, ListenError};

/// Permissions of a socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketPermissions {
    /// File mode.
    pub mode: u32,
    /// Owner and group, each by name or number; default: those of the process.
    pub user: Option<String>,
    /// See `user`.
    pub group: Option<String>,
}

/// A bound path, not listening yet: connections are refused.
#[derive(Debug)]
pub(super) struct BoundPath {
    socket: UnixSocket,
    files: SocketFiles,
}

/// The socket and its lock, removed on drop.
#[derive(Debug)]
pub(super) struct SocketFiles {
    path: PathBuf,
    lock: PathBuf,
    _held: File,
}

impl Drop for SocketFiles {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // Last, while the lock is held, so that the path is not taken in between.
        let _ = fs::remove_file(&self.lock);
    }
}

fn refuse_path(path: &Path, problem: impl Into<String>) -> ListenError {
    ListenError::Socket { path: path.to_owned(), problem: problem.into() }
}

/// The error with advice, if known.
fn to_listen_error(path: &Path, doing: &str, error: &io::Error) -> ListenError {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "; its folder has to exist",
        io::ErrorKind::PermissionDenied => "; callgate's user has to be allowed to",
        _ => "",
    };
    refuse_path(path, format!("cannot {doing}: {error}{remedy}"))
}

impl BoundPath {
    /// Binds `path`, replacing the socket of a dead server.
    pub(super) fn bind(path: &Path, access: &SocketPermissions) -> Result<Self, ListenError> {
        if SocketAddr::from_pathname(path).is_err() {
            return Err(refuse_path(
                path,
                "is empty, or longer than the path of a socket may be: choose a shorter one",
            ));
        }
        let (uid, gid) = owner(path, access)?;
        let lock = PathBuf::from(format!("{}.lock", path.display()));
        let held = acquire_lock(path, &lock)?;
        // The lock is removed on any failure from here on; the socket only once it is ours.
        make_way(path).inspect_err(|_| drop(fs::remove_file(&lock)))?;
        let files = SocketFiles { path: path.to_owned(), lock, _held: held };
        let socket = UnixSocket::new_stream().map_err(|error| to_listen_error(path, "be made", &error))?;
        socket.bind(path).map_err(|error| to_listen_error(path, "be made", &error))?;
        fs::set_permissions(path, Permissions::from_mode(access.mode))
            .map_err(|error| to_listen_error(path, "get its mode", &error))?;
        if uid.or(gid).is_some() {
            chown(path, uid, gid).map_err(|error| to_listen_error(path, "be given to --socket-owner", &error))?;
        }
        Ok(Self { socket, files })
    }

    pub(super) fn path(&self) -> &Path {
        &self.files.path
    }

    /// Starts listening.
    pub(super) fn listen(self) -> Result<(UnixListener, SocketFiles), ListenError> {
        let Self { socket, files } = self;
        let listener =
            socket.listen(BACKLOG_MAX).map_err(|error| to_listen_error(&files.path, "be listened on", &error))?;
        Ok((listener, files))
    }
}

/// Acquires the lock beside the socket.
fn acquire_lock(path: &Path, lock: &Path) -> Result<File, ListenError> {
    loop {
        let mut options = OpenOptions::new();
        let opened = options.create(true).truncate(false).write(true).mode(0o600).open(lock);
        let file = opened.map_err(|error| to_listen_error(path, "be locked", &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ListenError::SocketTaken(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(to_listen_error(path, "be locked", &error)),
        }
        // Its owner may have ended in between, and have removed the file that is locked now.
        let is_there =
            fs::metadata(lock).is_ok_and(|there| file.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
        if is_there {
            return Ok(file);
        }
    }
}

/// Removes the socket of a dead server; fails for any other file.
fn make_way(path: &Path) -> Result<(), ListenError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(to_listen_error(path, "be looked at", &error)),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(refuse_path(path, "is there already, and no socket: remove it, or choose another path"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ListenError::SocketTaken(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| to_listen_error(path, "be taken over from a dead server", &error))
        }
        Err(error) => Err(to_listen_error(path, "be tried", &error)),
    }
}

/// The ids of the socket's owner and group.
fn owner(path: &Path, access: &SocketPermissions) -> Result<(Option<u32>, Option<u32>), ListenError> {
    let id = |name: &Option<String>, list: &str| {
        let Some(name) = name else { return Ok(None) };
        let known = || {
            let text = fs::read_to_string(list).ok()?;
            let mut lines = text.lines().map(|line| line.split(':'));
            lines.find_map(|mut fields| (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten())
        };
        let id = name.parse().ok().or_else(known);
        id.map(Some).ok_or_else(|| {
            refuse_path(path, format!("cannot be given to --socket-owner: {list} has no {name:?}; give its number"))
        })
    };
    Ok((id(&access.user, "/etc/passwd")?, id(&access.group, "/etc/group")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: SocketPermissions = SocketPermissions { mode: 0o600, user: None, group: None };

    fn bind_error(path: &Path, access: &SocketPermissions) -> String {
        BoundPath::bind(path, access).expect_err("it cannot be taken").to_string()
    }

    #[tokio::test]
    async fn a_socket_has_one_owner_and_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let taken = BoundPath::bind(&path, &OWN).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let theirs = format!("cannot listen on unix:{}: another process listens there", path.display());
        assert!(UnixStream::connect(&path).is_err(), "nobody listens yet");
        assert!(bind_error(&path, &OWN).starts_with(&theirs), "though it looks like a dead one");
        let listening = taken.listen().unwrap();
        assert!(bind_error(&path, &OWN).starts_with(&theirs));
        UnixStream::connect(&path).unwrap();
        drop(listening);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays behind");
    }

    #[tokio::test]
    async fn the_socket_of_a_dead_server_is_taken_over_and_that_of_a_living_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        // One of another program, which knows nothing of our lock.
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(bind_error(&path, &OWN).contains("another process listens there"));
        UnixStream::connect(&path).unwrap();
        drop(other);
        let taken = BoundPath::bind(&path, &SocketPermissions { mode: 0o666, ..OWN }).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        drop(taken);
        fs::write(&path, "precious").unwrap();
        assert!(bind_error(&path, &OWN).contains("no socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nor a lock");
    }

    #[tokio::test]
    async fn invalid_socket_path_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        for (path, words) in [
            (dir.path().join("x".repeat(120)), "longer than the path of a socket may be"),
            (dir.path().join("none/s"), "its folder has to exist"),
        ] {
            let told = bind_error(&path, &OWN);
            assert!(told.contains(words) && told.contains(&path.display().to_string()), "{told}");
        }
        let nobody = SocketPermissions { user: Some("no such user".into()), ..OWN };
        assert!(bind_error(&dir.path().join("s"), &nobody).contains("/etc/passwd has no \"no such user\""));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_socket_is_given_to_whom_it_is_meant_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let ours = fs::metadata(dir.path()).unwrap();
        let given =
            SocketPermissions { user: Some(ours.uid().to_string()), group: Some(ours.gid().to_string()), ..OWN };
        let _taken = BoundPath::bind(&path, &given).unwrap();
        let there = fs::metadata(&path).unwrap();
        assert_eq!((there.uid(), there.gid()), (ours.uid(), ours.gid()));
        let root = SocketPermissions { user: Some("root".into()), group: Some("root".into()), ..OWN };
        assert_eq!(owner(&path, &root).unwrap(), (Some(0), Some(0)));
    }
}
