//! Pending calls on disk, below the user's own state: a file for each call that a server is asked about, with the
//! report that cancels it. The file is locked while its process lives, so that the next process knows the files of dead
//! ones.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
};

use callgate_proto::v1::RecordRequest;
use etcetera::BaseStrategy as _;
use prost::Message as _;

/// A pending call of this process, its own or taken over.
#[derive(Debug)]
pub(super) struct PendingCall {
    file: File,
    path: PathBuf,
}

/// Folder below the user's state folder.
pub(super) fn folder(name: &str) -> Option<PathBuf> {
    let home = etcetera::choose_base_strategy().ok()?;
    Some(home.state_dir().unwrap_or_else(|| home.data_dir()).join("callgate").join(name))
}

/// Boot id, if known. With it, removals need no fsync: files of an earlier boot are invalid.
fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

impl PendingCall {
    /// Records a call. None where nothing can be written; the call proceeds regardless.
    pub(super) fn note(folder: &Path, cancellation: &RecordRequest) -> Option<Self> {
        fs::create_dir_all(folder).ok()?;
        let mut file = tempfile::Builder::new().prefix(".").tempfile_in(folder).ok()?;
        file.as_file().lock().ok()?;
        file.write_all(&cancellation.encode_to_vec()).ok()?;
        // Under its own name it is whole.
        let name = file.path().file_name()?.to_str()?.trim_start_matches('.').to_owned();
        let path = folder.join(name).with_extension(boot().unwrap_or_default());
        Some(Self { file: file.persist(&path).ok()?, path })
    }

    /// Adds fields to the record, replacing existing ones.
    pub(super) fn add(&mut self, more: &RecordRequest) -> bool {
        self.file.write_all(&more.encode_to_vec()).is_ok()
    }

    /// Takes over the pending calls of killed processes in a folder, with their reports.
    pub(super) fn take_abandoned(folder: &Path) -> Vec<(Self, RecordRequest)> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| Self::take_file(entry.path())).collect()
    }

    fn take_file(path: PathBuf) -> Option<(Self, RecordRequest)> {
        if path.extension().unwrap_or_default() != &*boot().unwrap_or_default() {
            // Its call may have started before the machine did.
            let _ = fs::remove_file(path);
            return None;
        }
        let file = File::options().append(true).open(&path).ok()?;
        file.try_lock().ok()?;
        // A record deleted after its opening has no name.
        let report = RecordRequest::decode(&*fs::read(&path).ok()?).ok()?;
        (!report.call_id.is_empty()).then_some((Self { file, path }, report))
    }

    /// Deletes the record: the call is not cancelled any more.
    pub(super) fn forget(self) {
        let _ = fs::remove_file(self.path);
    }

    /// Deletes the record durably before the call runs: it is never cancelled, not even after a power loss.
    pub(super) fn starts(self) -> io::Result<()> {
        if boot().is_none() {
            self.file.set_len(0)?;
            self.file.sync_all()?;
        }
        fs::remove_file(self.path)
    }

    /// Its file, and the lock as the standard input of another process, which takes it over.
    pub(super) fn handed_on(self) -> (PathBuf, Stdio) {
        (self.path, self.file.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandoned_call_is_taken_once_and_a_running_one_never() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |id: &str| RecordRequest { call_id: id.to_owned(), ..RecordRequest::default() };
        let note = |id: &str| PendingCall::note(folder.path(), &of(id)).expect("noted");
        let left = || PendingCall::take_abandoned(folder.path());
        let mut living = note("a");
        assert!(left().is_empty(), "its process lives");
        assert!(living.add(&RecordRequest { not_started: true, ..RecordRequest::default() }));
        drop(living);
        let taken = left();
        assert_eq!(taken[0].1, RecordRequest { not_started: true, ..of("a") });
        assert!(left().is_empty(), "it is somebody's again");
        let (path, lock) = taken.into_iter().next().expect("one").0.handed_on();
        assert!(left().is_empty(), "it is handed on");
        drop(lock);
        assert_eq!(left().len(), 1);
        fs::remove_file(path).expect("there");

        let started = note("b");
        started.starts().expect("written");
        note("c").forget();
        assert!(left().is_empty());
        // A record of an earlier boot, whose call may have run.
        drop(note("d"));
        let (old, _) = left().into_iter().next().expect("one").0.handed_on();
        fs::rename(&old, old.with_extension("earlier")).expect("moved");
        assert!(left().is_empty());
    }
}
