//! The server's log: a file of bounded size, and its end kept in memory for error texts.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::error::PrivatePostgresError;
use super::process::last_lines;

/// The file is turned over at this size; one older file is kept beside it, so the log never exceeds about twice this.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Maximum length of the log's end in an error text.
const TAIL_BYTES_MAX: usize = 4096;

const TAIL_LINES_MAX: usize = 20;

const READ_BYTES: usize = 16 * 1024;

/// Where the server's messages go.
#[derive(Debug)]
pub(super) struct ServerLog {
    path: PathBuf,
    file_bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    bytes: u64,
    tail: VecDeque<u8>,
}

impl ServerLog {
    /// Opens `postgres.log` in `dir` for appending.
    pub(super) fn open(dir: &Path) -> Result<Self, PrivatePostgresError> {
        Self::with_limit(dir, FILE_BYTES_MAX)
    }

    fn with_limit(dir: &Path, file_bytes_max: u64) -> Result<Self, PrivatePostgresError> {
        let path = dir.join("postgres.log");
        let file = append_to(&path).map_err(PrivatePostgresError::io("open", &path))?;
        let bytes = file.metadata().map_or(0, |meta| meta.len());
        Ok(Self { path, file_bytes_max, state: Mutex::new(State { file, bytes, tail: VecDeque::new() }) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies everything from `source` until its end, because a server with a full log pipe blocks.
    pub(super) fn copy_from(&self, mut source: impl Read) {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match source.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => self.append(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Clears the end kept in memory, so that [`Self::tail`] covers the coming start only.
    pub(super) fn forget_tail(&self) {
        self.lock().tail.clear();
    }

    /// The last lines since [`Self::forget_tail`].
    pub(super) fn tail(&self) -> String {
        let bytes: Vec<u8> = self.lock().tail.iter().copied().collect();
        last_lines(&String::from_utf8_lossy(&bytes), TAIL_LINES_MAX)
    }

    fn append(&self, bytes: &[u8]) {
        let mut state = self.lock();
        let overflow = (state.tail.len() + bytes.len()).saturating_sub(TAIL_BYTES_MAX).min(state.tail.len());
        state.tail.drain(..overflow);
        let recent = &bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..];
        state.tail.extend(recent);

        let full = state.bytes >= self.file_bytes_max;
        if full && let Ok(file) = self.turn_over() {
            state.file = file;
            state.bytes = 0;
        }
        // On a full disk the database must continue; only its log is lost, and clients get the same errors.
        if state.file.write_all(bytes).is_ok() {
            state.bytes += bytes.len() as u64;
        }
    }

    fn turn_over(&self) -> io::Result<File> {
        fs::rename(&self.path, self.path.with_extension("log.1"))?;
        append_to(&self.path)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_stay_bounded_and_lose_nothing_recent() {
        let dir = tempfile::tempdir().unwrap();
        let log = ServerLog::with_limit(dir.path(), 100).unwrap();
        for line in 0..50 {
            log.copy_from(format!("line {line:02}\n").as_bytes());
        }
        let newest = fs::read_to_string(dir.path().join("postgres.log")).unwrap();
        let older = fs::read_to_string(dir.path().join("postgres.log.1")).unwrap();
        assert!(newest.len() <= 108 && older.len() <= 108, "{} and {} bytes", newest.len(), older.len());
        assert!(format!("{older}{newest}").ends_with("line 47\nline 48\nline 49\n"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_tail_is_bounded_and_starts_anew() {
        let dir = tempfile::tempdir().unwrap();
        let log = ServerLog::open(dir.path()).unwrap();
        log.copy_from("x".repeat(3 * TAIL_BYTES_MAX).as_bytes());
        log.copy_from("\nthe end\n".as_bytes());
        assert!(log.tail().ends_with("x\nthe end"));
        assert!(log.tail().len() <= TAIL_BYTES_MAX);
        log.forget_tail();
        assert_eq!(log.tail(), "");
    }

    #[test]
    fn an_existing_log_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        ServerLog::open(dir.path()).unwrap().copy_from("first\n".as_bytes());
        let log = ServerLog::open(dir.path()).unwrap();
        log.copy_from("second\n".as_bytes());
        assert_eq!(fs::read_to_string(log.path()).unwrap(), "first\nsecond\n");
    }
}
