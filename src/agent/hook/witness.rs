//! Witness of a file that a call reads or writes, from file system metadata.

use std::{fs, io::ErrorKind, path::Path, sync::mpsc, thread, time::Duration};

use crate::hosts::HostFile;
use callgate_net::clock::Clock;

/// Timeout of a metadata query; an unresponsive file system yields no witness.
const LOOK_MAX: Duration = Duration::from_millis(100);
/// Minimum age of a change, in milliseconds: within it, another change may get the same time stamp.
const SETTLED_MS: i64 = 2_000;
/// Folders whose files change without a new time stamp.
const UNSTAMPED: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The state of a file; none if unknown, and for a read also if just changed: equal states must mean equal files.
pub(super) fn of(file: HostFile) -> Option<String> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(read_witness(&file, Clock::System.now().as_millis())));
    told.recv_timeout(LOOK_MAX).ok().flatten()
}

fn read_witness(file: &HostFile, now_ms: i64) -> Option<String> {
    let (HostFile::Read(path) | HostFile::Written(path)) = file;
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(problem) => return (problem.kind() == ErrorKind::NotFound).then(|| "absent".to_owned()),
    };
    if UNSTAMPED.iter().any(|folder| path.starts_with(folder)) {
        return None;
    }
    let (stamps, changed_ms) = stamps(&path)?;
    let is_settled = changed_ms + SETTLED_MS < now_ms;
    (is_settled || matches!(file, HostFile::Written(_))).then_some(stamps)
}

/// Identity, size, times of the last changes, and the later of these in milliseconds.
#[cfg(unix)]
fn stamps(path: &Path) -> Option<(String, i64)> {
    use std::os::unix::fs::MetadataExt as _;
    let file = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let (written, changed) = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
    let (seconds, nanoseconds) = written.max(changed);
    let stamps = format!(
        "{}:{} {} bytes, written {}.{:09}, changed {}.{:09}",
        file.dev(),
        file.ino(),
        file.size(),
        written.0,
        written.1,
        changed.0,
        changed.1
    );
    Some((stamps, seconds * 1_000 + nanoseconds / 1_000_000))
}

#[cfg(not(unix))]
fn stamps(path: &Path) -> Option<(String, i64)> {
    let file = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let written = file.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some((format!("{} bytes, written {}", file.len(), written.as_nanos()), written.as_millis() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later than any write of a test.
    const LATER_MS: i64 = 60_000;

    fn at(file: &HostFile, after_ms: i64) -> Option<String> {
        read_witness(file, Clock::System.now().as_millis() + after_ms)
    }

    #[test]
    fn a_state_is_equal_for_an_equal_file_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let named = path.to_str().expect("a name").to_owned();
        let (read, written) = (HostFile::Read(named.clone()), HostFile::Written(named));
        assert_eq!(at(&read, LATER_MS).as_deref(), Some("absent"));
        fs::write(&path, "one").expect("written");
        let first = at(&read, LATER_MS).expect("settled");
        assert_eq!(at(&read, LATER_MS), Some(first.clone()), "nothing happened");
        assert_eq!(at(&read, 0), None, "it has just changed");
        assert_eq!(at(&written, 0), Some(first.clone()));
        // The same size, and the original time stamp.
        let time = fs::metadata(&path).and_then(|file| file.modified()).expect("a time");
        fs::write(&path, "two").expect("written");
        fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(time)).expect("set back");
        let second = at(&read, LATER_MS).expect("settled");
        assert!(!cfg!(unix) || second != first, "{second}");
        // Another file in its place.
        let other = folder.path().join("b");
        fs::write(&other, "one").expect("written");
        fs::rename(&other, &path).expect("moved");
        assert_ne!(at(&read, LATER_MS), Some(first));
    }

    #[test]
    fn file_without_timestamps_has_no_witness() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(at(&HostFile::Read(folder.path().to_string_lossy().into_owned()), LATER_MS), None, "a folder");
        if cfg!(target_os = "linux") {
            assert_eq!(at(&HostFile::Read("/proc/self/status".to_owned()), LATER_MS), None);
            assert_eq!(of(HostFile::Read("/dev/null".to_owned())), None);
        }
    }
}
