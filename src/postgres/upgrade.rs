//! Another major version's cluster in place of the one before, which is kept aside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::binaries;
use super::cluster;
use super::error::PrivatePostgresError;
use super::layout::{DirLock, Layout};
use super::{Settings, find_running, takeover};

/// Where the new cluster is made, as a data directory of its own.
const MADE_IN: &str = "upgrade";
/// What the cluster before is called then, with its major version.
const KEPT_AS: &str = "pg.old-";

/// How long a server whose callgate was killed may take to end.
const ENDING_LOOK_EVERY: Duration = Duration::from_millis(100);
const ENDING_LOOKS_MAX: u32 = 300;

/// A cluster that is to be moved to other programs.
#[derive(Debug)]
pub struct Upgrade {
    /// The data directory.
    pub data_dir: PathBuf,
    /// Its major version, and the programs of it.
    pub from: (u32, PathBuf),
    /// The version and the programs it moves to.
    pub to: (u32, PathBuf),
}

impl Upgrade {
    /// Finds out what is to be moved, and by what: `new` and `old` are directories of programs, searched for when
    /// `None`.
    ///
    /// # Errors
    ///
    /// [`PrivatePostgresError::NotRunning`]'s opposite, [`PrivatePostgresError::Runs`]; missing programs; no cluster.
    pub async fn plan(data_dir: &Path, new: Option<&Path>, old: Option<&Path>) -> Result<Self, PrivatePostgresError> {
        let layout = Layout::open(data_dir)?;
        let pgdata = &layout.pgdata;
        if let Some(kept) = kept(&layout.root).filter(|_| !pgdata.exists()) {
            return Err(PrivatePostgresError::HalfUpgraded { pgdata: pgdata.clone(), kept });
        }
        let Some(major) = cluster::major_of(pgdata)? else {
            let what = "holds no database yet: there is nothing to upgrade";
            return Err(PrivatePostgresError::ForeignData { path: layout.root, what });
        };
        match find_running(&layout.root).await {
            Ok(_) => return Err(PrivatePostgresError::Runs { data_dir: layout.root }),
            Err(PrivatePostgresError::NotRunning { .. }) => {}
            Err(error) => return Err(error),
        }
        let aside = layout.root.join(format!("{KEPT_AS}{major}"));
        if aside.exists() {
            let what = "is kept from an upgrade before";
            return Err(PrivatePostgresError::ForeignData { path: aside, what });
        }
        let newer = binaries::newer_than(new, major).await?;
        let older = binaries::find(old, Some((pgdata, major)), None).await?;
        Ok(Self { data_dir: layout.root, from: (major, older.dir), to: (newer.version.major, newer.dir) })
    }

    /// How the cluster before is started.
    #[must_use]
    pub fn old(&self) -> Settings {
        Settings { data_dir: self.data_dir.clone(), pg_bin: Some(self.from.1.clone()) }
    }

    /// How the new one is. What an interrupted attempt has left there is removed.
    ///
    /// # Errors
    ///
    /// [`PrivatePostgresError`] when it cannot be removed, or somebody is at work there.
    pub async fn new_one(&self) -> Result<Settings, PrivatePostgresError> {
        let data_dir = self.data_dir.join(MADE_IN);
        clear(&data_dir).await?;
        Ok(Settings { data_dir, pg_bin: Some(self.to.1.clone()) })
    }

    /// Puts the new cluster, which is stopped, in place of the one before; gives where that is kept.
    ///
    /// # Errors
    ///
    /// [`PrivatePostgresError`] when a directory cannot be renamed; its text says what to do.
    pub fn swap(&self) -> Result<PathBuf, PrivatePostgresError> {
        let layout = Layout::open(&self.data_dir)?;
        let _lock = DirLock::take(&layout)?;
        let made = self.data_dir.join(MADE_IN);
        let kept = self.data_dir.join(format!("{KEPT_AS}{}", self.from.0));
        let rename = |from: &Path, to: &Path| fs::rename(from, to).map_err(PrivatePostgresError::io("rename", from));
        rename(&layout.pgdata, &kept)?;
        // In between there is none: a start refuses to make an empty one beside what is kept.
        rename(&made.join("pg"), &layout.pgdata)?;
        cluster::sync(&self.data_dir)?;
        fs::remove_dir_all(&made).map_err(PrivatePostgresError::io("remove", &made))?;
        Ok(kept)
    }
}

/// Removes a data directory that was being made, unless somebody is at work there.
///
/// # Errors
///
/// [`PrivatePostgresError::Locked`], or what keeps it from being removed.
pub async fn clear(data_dir: &Path) -> Result<(), PrivatePostgresError> {
    // What it leads to is somebody else's, and a database would be made there.
    if data_dir.is_symlink() {
        let link = io::Error::new(io::ErrorKind::InvalidInput, "it is a link, and links are not followed here");
        return Err(PrivatePostgresError::io("remove", data_dir)(link));
    }
    if !data_dir.exists() {
        return Ok(());
    }
    let layout = Layout::open(data_dir)?;
    let _lock = DirLock::take(&layout)?;
    // Its callgate is gone, and so its server and its programs end: not in the same moment.
    for _ in 0..ENDING_LOOKS_MAX {
        let runs = matches!(takeover::running(&layout.pgdata).await, Ok(Some(_)));
        if !data_dir.exists() {
            return Ok(());
        }
        match if runs { Err(io::ErrorKind::ResourceBusy.into()) } else { fs::remove_dir_all(data_dir) } {
            Err(error) if is_busy(&error) => tokio::time::sleep(ENDING_LOOK_EVERY).await,
            removed => return removed.map_err(PrivatePostgresError::io("remove", data_dir)),
        }
    }
    Err(PrivatePostgresError::Runs { data_dir: data_dir.to_owned() })
}

/// Somebody is at work there, and has just made a file where all were removed, or removed one.
fn is_busy(error: &io::Error) -> bool {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound, ResourceBusy};
    matches!(error.kind(), DirectoryNotEmpty | NotFound | ResourceBusy)
}

/// A cluster that an upgrade has put aside.
pub(super) fn kept(root: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(root).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(KEPT_AS)))
}

/// True when nothing is there, or an empty directory.
///
/// # Errors
///
/// What keeps this user from looking.
pub fn is_vacant(data_dir: &Path) -> Result<bool, PrivatePostgresError> {
    match fs::read_dir(data_dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(PrivatePostgresError::io("read", data_dir)(error)),
    }
}
