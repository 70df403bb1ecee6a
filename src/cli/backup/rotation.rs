//! Rotating backups: named by time, the oldest removed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::folder;
use callgate_net::clock::Clock;
use callgate_server::backups;

/// The name of a new backup.
pub(super) fn next(shelf: &Path) -> anyhow::Result<PathBuf> {
    if !shelf.is_dir() {
        bail!("{} is not a directory: create it, accessible only to the user that makes backups", shelf.display());
    }
    let name = backups::name(Clock::System.now()).context("the clock's time is out of range")?;
    Ok(shelf.join(name))
}

/// True for such a name.
pub(super) fn is_ours(name: &str) -> bool {
    backups::made_at(name).is_some()
}

/// Removes the oldest backups beyond `keep`, never `made`. Folders with other names or other contents stay. Returns the
/// removed ones.
pub(super) fn prune(shelf: &Path, keep: usize, made: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut others = folder::folders(shelf, is_ours)?;
    others.retain(|path| path.file_name() != made.file_name() && folder::is_finished(path));
    others.sort_unstable();
    others.truncate((others.len() + 1).saturating_sub(keep));
    others.iter().try_for_each(|path| folder::remove(path))?;
    Ok(others)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cli::backup::folder::{DUMP, Manifest, ROLES};

    fn backup(shelf: &Path, name: &str) -> PathBuf {
        let made = shelf.join(name);
        let unfinished = folder::create_unfinished(&made).expect("a folder");
        folder::write(&unfinished.path().join(DUMP), b"dump").expect("written");
        folder::write(&unfinished.path().join(ROLES), b"create role a;\n").expect("written");
        let manifest = Manifest::of(unfinished.path(), 15, Some(130), Some(130)).expect("a manifest");
        folder::seal(&unfinished, &manifest).expect("sealed");
        folder::finish(unfinished, &made).expect("finished");
        made
    }

    fn names(shelf: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(shelf)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn oldest_backups_are_removed_and_no_other_files() {
        let shelf = tempfile::tempdir().expect("a folder");
        let shelf = shelf.path();
        let days: Vec<PathBuf> = (1..=5).map(|day| backup(shelf, &format!("callgate-2026110{day}T000000Z"))).collect();
        // Foreign entries: another name, other contents, no manifest, a file, a link.
        backup(shelf, "callgate-20261101");
        backup(shelf, "before-the-move");
        let noted = backup(shelf, "callgate-20261031T000000Z");
        fs::write(noted.join("README"), "the last one before the move").expect("written");
        fs::create_dir(shelf.join("callgate-20261030T000000Z")).expect("made");
        fs::write(shelf.join("callgate-20261029T000000Z"), "").expect("written");
        std::os::unix::fs::symlink(&days[4], shelf.join("callgate-20261028T000000Z")).expect("linked");
        let before = names(shelf);
        assert!(prune(shelf, 5, &days[4]).expect("read").is_empty());
        assert_eq!(names(shelf), before);
        assert_eq!(prune(shelf, 2, &days[4]).expect("pruned"), days[..3]);
        let gone: Vec<&str> =
            days[..3].iter().filter_map(|path| path.file_name().and_then(|name| name.to_str())).collect();
        let after: Vec<String> = before.into_iter().filter(|name| !gone.contains(&name.as_str())).collect();
        assert_eq!(names(shelf), after);
        // The one that was just made stays, also by a clock that was put back.
        assert_eq!(prune(shelf, 1, &days[3]).expect("pruned"), days[4..]);
        assert!(folder::is_finished(&days[3]));
    }

    #[test]
    fn interrupted_backup_is_removed_and_a_running_one_stays() {
        let shelf = tempfile::tempdir().expect("a folder");
        let shelf = shelf.path();
        let at_work = folder::create_unfinished(&shelf.join("callgate-20261101T000000Z")).expect("a folder");
        let left = shelf.join("callgate-20261031T000000Z.unfinished-abc");
        fs::create_dir(&left).expect("made");
        fs::write(left.join(DUMP), "half").expect("written");
        fs::create_dir(shelf.join("mine.unfinished-abc")).expect("made");
        folder::clear_unfinished(shelf, is_ours).expect("cleared");
        assert!(!left.exists() && at_work.path().exists() && shelf.join("mine.unfinished-abc").exists());
    }

    #[test]
    fn a_name_is_a_time() {
        assert!(is_ours("callgate-20261101T235959Z"));
        for other in
            ["callgate-2026111T235959Z", "callgate-20261301T000000Z", "callgate-", "callgate-20261101T235959Z.x"]
        {
            assert!(!is_ours(other), "{other}");
        }
        let shelf = tempfile::tempdir().expect("a folder");
        let next = next(shelf.path()).expect("a name");
        assert!(is_ours(&next.file_name().expect("a name").to_string_lossy()));
    }
}
