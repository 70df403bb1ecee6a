//! Unfinished data directories: removal and detection.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::error::PrivatePostgresError;
use super::layout::{DirLock, Layout};
use super::takeover;

/// Poll interval for the end of a killed callgate's server.
const ENDING_LOOK_EVERY: Duration = Duration::from_millis(100);
const ENDING_LOOKS_MAX: u32 = 300;

/// Removes an unfinished data directory, unless it is in use.
///
/// # Errors
///
/// [`PrivatePostgresError::Locked`], or the reason why it cannot be removed.
pub async fn clear(data_dir: &Path) -> Result<(), PrivatePostgresError> {
    // A symlink's target belongs to others, and a database would be created there.
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

/// True when another process creates or removes files there.
fn is_busy(error: &io::Error) -> bool {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound, ResourceBusy};
    matches!(error.kind(), DirectoryNotEmpty | NotFound | ResourceBusy)
}

/// True for a missing or empty directory.
///
/// # Errors
///
/// The reason why it cannot be read.
pub fn is_vacant(data_dir: &Path) -> Result<bool, PrivatePostgresError> {
    match fs::read_dir(data_dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(PrivatePostgresError::io("read", data_dir)(error)),
    }
}
