//! Data directory: its files, the lock against a second callgate, and the socket's location.
//!
//! As root the directory itself stays root's and is only traversable; the parts that the database writes belong to its
//! account. So that account cannot plant a link where root opens a file.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::account::{self, Account};
use super::error::PrivatePostgresError;

/// The longest socket path every system accepts: macOS has 104 bytes with the final zero, Linux 108.
const SOCKET_PATH_BYTES_MAX: usize = 103;

/// The name PostgreSQL gives its socket; the number is never used on a network.
pub(super) const PORT: u16 = 5432;

const PRIVATE: u32 = 0o700;
const PASS_THROUGH: u32 = 0o711;
const PASS_BITS: u32 = 0o011;
/// Forbidden mode bits of group and others.
const WRITE_BITS: u32 = 0o022;
const OWNER_ONLY: u32 = 0o600;

/// The parts of the data directory.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The data directory itself, absolute and free of links.
    pub(super) root: PathBuf,
    /// The database cluster.
    pub(super) pgdata: PathBuf,
    pub(super) log_dir: PathBuf,
    pub(super) password: PathBuf,
    /// PostgreSQL's `hba_file`.
    pub(super) rules: PathBuf,
    lock: PathBuf,
    socket_dir: PathBuf,
}

impl Layout {
    /// Creates the data directory where it does not exist yet.
    pub(super) fn prepare(data_dir: &Path) -> Result<Self, PrivatePostgresError> {
        let as_root = account::is_root();
        if !data_dir.is_dir() {
            if let Some(parent) = data_dir.parent() {
                fs::create_dir_all(parent).map_err(PrivatePostgresError::io("create", parent))?;
            }
            make_dir(data_dir, if as_root { PASS_THROUGH } else { PRIVATE })?;
        }
        let root = fs::canonicalize(data_dir).map_err(PrivatePostgresError::io("open the data directory", data_dir))?;
        if root.join("PG_VERSION").exists() {
            let what = "is itself a PostgreSQL cluster, not a directory of callgate's";
            return Err(PrivatePostgresError::ForeignData { path: root, what });
        }
        keep_private(&root, as_root)?;
        Ok(Self::of(root))
    }

    /// The parts of an existing data directory.
    fn of(root: PathBuf) -> Self {
        Self {
            pgdata: root.join("pg"),
            log_dir: root.join("log"),
            password: root.join("password"),
            rules: root.join("pg_hba.conf"),
            lock: root.join("callgate.lock"),
            socket_dir: root.join("run"),
            root,
        }
    }

    /// A data directory that an earlier start has made.
    pub(super) fn open(data_dir: &Path) -> Result<Self, PrivatePostgresError> {
        let root = fs::canonicalize(data_dir).map_err(PrivatePostgresError::io("open the data directory", data_dir))?;
        Ok(Self::of(root))
    }

    /// Creates the directories inside, and checks that the account can reach them.
    pub(super) fn prepare_parts(&self, account: Option<&Account>) -> Result<SocketDir, PrivatePostgresError> {
        if let Some(account) = account
            && let Some(dir) = account::first_blocking(&self.root, account)
        {
            return Err(PrivatePostgresError::Blocked { account: account.name.clone(), dir, flag: "--data-dir" });
        }
        if !self.log_dir.is_dir() {
            make_dir(&self.log_dir, PRIVATE)?;
        }
        SocketDir::prepare(&self.socket_dir, account)
    }
}

/// The socket's directory: private to the account that the database runs as.
#[derive(Debug)]
pub(super) struct SocketDir {
    path: PathBuf,
    /// Removes the directory when callgate ends.
    _temporary: Option<TempDir>,
}

impl SocketDir {
    fn prepare(wanted: &Path, account: Option<&Account>) -> Result<Self, PrivatePostgresError> {
        if fits(wanted) {
            if !wanted.is_dir() {
                make_dir(wanted, PRIVATE)?;
            }
            hand_over(wanted, account)?;
            return Ok(Self { path: wanted.to_owned(), _temporary: None });
        }
        let mut bases = vec![std::env::temp_dir(), PathBuf::from("/tmp")];
        if account.is_none() {
            bases.splice(0..0, std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
        }
        let usable = |base: &PathBuf| {
            base.is_absolute()
                && fits(&base.join("callgate-123456"))
                && account.is_none_or(|account| account::first_blocking(base, account).is_none())
        };
        let mut failure = io::Error::new(io::ErrorKind::InvalidFilename, "no short private place for the socket");
        for base in bases.into_iter().filter(usable) {
            match private_dir_in(&base, "callgate-") {
                Ok(temporary) => {
                    hand_over(temporary.path(), account)?;
                    return Ok(Self { path: temporary.path().to_owned(), _temporary: Some(temporary) });
                }
                Err(error) => failure = error,
            }
        }
        Err(PrivatePostgresError::io("make a directory for the socket instead of", wanted)(failure))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes files of a killed server. Safe only while no server of this data directory runs.
    pub(super) fn clear(&self) -> Result<(), PrivatePostgresError> {
        for name in [socket_name(), format!("{}.lock", socket_name())] {
            let path = self.path.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(PrivatePostgresError::io("remove", path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing the file alone leaves the lock to a child that was forked by another thread and has not exec'd yet.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "could not release the lock of the data directory");
        }
    }
}

fn socket_name() -> String {
    format!(".s.PGSQL.{PORT}")
}

fn fits(dir: &Path) -> bool {
    dir.join(socket_name()).as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}

/// The proof that no other callgate uses the data directory; it lasts as long as this value.
#[derive(Debug)]
pub(super) struct DirLock {
    file: File,
}

impl DirLock {
    /// Takes the lock, or returns its holder as an error.
    pub(super) fn take(layout: &Layout) -> Result<Self, PrivatePostgresError> {
        let path = &layout.lock;
        let io = |action| PrivatePostgresError::io(action, path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY);
        let mut file = options.open(path).map_err(io("open"))?;
        let meta = file.metadata().map_err(io("open"))?;
        if account::effective_uid().is_some_and(|own| own != meta.uid()) {
            return Err(PrivatePostgresError::OtherOwner { path: path.clone(), owner: meta.uid() });
        }
        // Anyone who may open the file may lock it.
        if meta.mode() & 0o777 != OWNER_ONLY {
            file.set_permissions(Permissions::from_mode(OWNER_ONLY)).map_err(io("change the mode of"))?;
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(io("lock")(error)),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
                let holder = pid.map_or_else(|| "its pid is not known".to_owned(), |pid| format!("pid {pid}"));
                return Err(PrivatePostgresError::Locked { data_dir: layout.root.clone(), holder });
            }
        }
        file.set_len(0).map_err(io("write"))?;
        writeln!(file, "{}", std::process::id()).map_err(io("write"))?;
        Ok(Self { file })
    }
}

/// A new directory with six random letters after `prefix`, removed with the value.
pub(super) fn private_dir_in(base: &Path, prefix: &str) -> io::Result<TempDir> {
    let private = Permissions::from_mode(PRIVATE);
    tempfile::Builder::new().prefix(prefix).rand_bytes(6).permissions(private).tempdir_in(base)
}

/// Fails if others can write to the data directory, because they could replace the lock or the password.
fn keep_private(root: &Path, as_root: bool) -> Result<(), PrivatePostgresError> {
    let meta = fs::metadata(root).map_err(PrivatePostgresError::io("open the data directory", root))?;
    let own = account::effective_uid();
    if own.is_some_and(|own| own != meta.uid()) {
        return Err(PrivatePostgresError::OtherOwner { path: root.to_owned(), owner: meta.uid() });
    }
    let mode = meta.mode() & 0o7777;
    let wanted = (if as_root { mode | PASS_BITS } else { mode }) & !WRITE_BITS;
    if wanted == mode {
        return Ok(());
    }
    let set = fs::set_permissions(root, Permissions::from_mode(wanted));
    set.map_err(PrivatePostgresError::io("change the mode of", root))
}

fn make_dir(path: &Path, mode: u32) -> Result<(), PrivatePostgresError> {
    DirBuilder::new().mode(mode).create(path).map_err(PrivatePostgresError::io("create", path))?;
    // The umask may have taken bits from the mode.
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(PrivatePostgresError::io("change the mode of", path))
}

/// Makes a directory the account's own, as root; otherwise it is ours already.
pub(super) fn hand_over(path: &Path, account: Option<&Account>) -> Result<(), PrivatePostgresError> {
    let Some(account) = account else { return Ok(()) };
    lchown(path, Some(account.uid), Some(account.gid)).map_err(PrivatePostgresError::io("change the owner of", path))
}

/// Makes a directory and all in it the account's own. Links are not followed: what they point to stays as it is.
pub(super) fn hand_over_all(dir: &Path, account: &Account) -> Result<(), PrivatePostgresError> {
    for entry in fs::read_dir(dir).map_err(PrivatePostgresError::io("read", dir))? {
        let entry = entry.map_err(PrivatePostgresError::io("read", dir))?;
        let is_dir = entry.file_type().map_err(PrivatePostgresError::io("read", entry.path()))?.is_dir();
        if is_dir {
            hand_over_all(&entry.path(), account)?;
        } else {
            hand_over(&entry.path(), Some(account))?;
        }
    }
    // Last: a directory that has the account is whole, and one that was interrupted is handed over again.
    hand_over(dir, Some(account))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_names_its_holder_and_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::prepare(dir.path()).unwrap();
        let held = DirLock::take(&layout).unwrap();
        let error = DirLock::take(&layout).unwrap_err().to_string();
        assert!(error.contains(layout.root.to_str().unwrap()), "{error}");
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(held);
        assert!(DirLock::take(&layout).is_ok());
    }

    #[test]
    fn directory_is_private_to_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("callgate.lock");
        fs::write(&lock, "").unwrap();
        for (path, mode) in [(dir.path(), 0o777), (&*lock, 0o644)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let _held = DirLock::take(&Layout::prepare(dir.path()).unwrap()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(dir.path()), mode(&lock)), (0o755, OWNER_ONLY));
        if account::is_root() {
            lchown(&lock, Some(1), None).unwrap();
            let error = DirLock::take(&Layout::prepare(dir.path()).unwrap()).unwrap_err().to_string();
            assert!(error.contains("callgate.lock belongs to another user (uid 1)"), "{error}");
            lchown(dir.path(), Some(1), None).unwrap();
            let error = Layout::prepare(dir.path()).unwrap_err().to_string();
            assert!(error.contains("belongs to another user (uid 1)"), "{error}");
        }
    }

    #[test]
    fn a_deep_directory_gets_its_socket_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let near = Layout::prepare(&dir.path().join("near")).unwrap();
        let socket = SocketDir::prepare(&near.socket_dir, None).unwrap();
        assert_eq!(socket.path(), near.socket_dir);
        let deep = Layout::prepare(&dir.path().join("d".repeat(90))).unwrap();
        let socket = SocketDir::prepare(&deep.socket_dir, None).unwrap();
        assert!(!socket.path().starts_with(&deep.root));
        assert!(fits(socket.path()));
        assert_eq!(fs::metadata(socket.path()).unwrap().mode() & 0o777, PRIVATE);
        let path = socket.path().to_owned();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_cluster_given_as_data_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("PG_VERSION"), "15\n").unwrap();
        let error = Layout::prepare(dir.path()).unwrap_err().to_string();
        assert!(error.contains("is itself a PostgreSQL cluster"), "{error}");
    }
}
