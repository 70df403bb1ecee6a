//! Settings file on disk: read and replaced atomically, preserving owner, permissions and links. Its original is kept
//! in the user's state folder, because it may hold secrets and a project's folder is shared.

use std::{
    fs::{self, Permissions},
    io::{ErrorKind, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use tempfile::Builder;

use super::change::FileBackup;
use callgate_core::domain::digest;

/// Mode of a new file, before the umask.
const NEW_FILE_MODE: u32 = 0o666;
/// Mode of memory files: owner only.
const MEMORY_MODE: u32 = 0o600;

/// A file as read.
#[derive(Debug)]
pub(super) struct SettingsFile {
    /// Path as given.
    pub(super) path: PathBuf,
    pub(super) text: Option<String>,
    pub(super) memory: Option<FileBackup>,
    memory_path: PathBuf,
}

impl SettingsFile {
    /// Reads the file, and its memory below `state`.
    pub(super) fn open(path: &Path, state: &Path) -> anyhow::Result<Self> {
        let text = read(path)?;
        let name = digest::of_text(&path.to_string_lossy());
        let memory_path = state.join(format!("{name}.json"));
        let known = read(&memory_path)?;
        // An unreadable memory is dropped; the file itself marks callgate's parts.
        let memory = known.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Self { path: path.to_owned(), text, memory, memory_path })
    }

    /// Replaces the text; `before` is the text without callgate.
    pub(super) fn install(&self, before: Option<String>, text: &str) -> anyhow::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let made = self.memory.as_ref().is_some_and(|memory| memory.has_made_folder);
        let memory = FileBackup {
            file: self.path.display().to_string(),
            before,
            after: digest::of_text(text),
            has_made_folder: made || !folder.exists(),
        };
        self.check_unchanged()?;
        // Before the file: remembered in vain it does no harm.
        replace(&self.memory_path, &serde_json::to_string_pretty(&memory)?, MEMORY_MODE)?;
        replace(&self.path, text, NEW_FILE_MODE)
    }

    /// Writes the text without callgate, or removes a file of callgate alone, and drops its memory.
    pub(super) fn uninstall(&self, text: Option<&str>) -> anyhow::Result<()> {
        self.check_unchanged()?;
        match text {
            Some(text) => replace(&self.path, text, NEW_FILE_MODE)?,
            None => {
                ignore_missing(fs::remove_file(&self.path)).with_context(|| self.path.display().to_string())?;
                let made = self.memory.as_ref().is_some_and(|memory| memory.has_made_folder);
                if let Some(folder) = self.path.parent().filter(|_| made) {
                    // Others may have put something into it.
                    let _ = fs::remove_dir(folder);
                }
            }
        }
        ignore_missing(fs::remove_file(&self.memory_path)).with_context(|| self.memory_path.display().to_string())
    }

    /// Fails if the host changed the file since it was read.
    fn check_unchanged(&self) -> anyhow::Result<()> {
        if read(&self.path)? != self.text {
            bail!(
                "{}: another program changed it meanwhile; nothing was written, run the command again",
                self.path.display()
            );
        }
        Ok(())
    }
}

fn ignore_missing(removed: std::io::Result<()>) -> std::io::Result<()> {
    removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{}: cannot be read", path.display())),
    }
}

/// Replaces a file that exists.
pub(crate) fn replace_file(path: &Path, text: &str) -> anyhow::Result<()> {
    replace(path, text, NEW_FILE_MODE)
}

/// Replaces a file atomically: no partial reads, and a full disk leaves the old file.
fn replace(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let written = || -> anyhow::Result<()> {
        // A symlink stays; its target is written.
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(_) if path.is_symlink() => bail!("it is a broken symbolic link"),
            Err(_) => path.to_owned(),
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let old = fs::metadata(&path).ok();
        let mut file = Builder::new().permissions(Permissions::from_mode(mode)).tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        if let Some(old) = &old {
            let own = file.as_file().metadata()?;
            if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
                chown(file.path(), Some(old.uid()), Some(old.gid()))?;
            }
            file.as_file().set_permissions(old.permissions())?;
        }
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    };
    written().with_context(|| format!("{}: cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, state) = (folder.path().join("settings.json"), folder.path().join("state"));
        for was in [None, Some("{}")] {
            was.iter().for_each(|text| fs::write(&path, text).expect("writable"));
            let file = SettingsFile::open(&path, &state).expect("readable");
            fs::write(&path, "{\"theirs\": 1}").expect("writable");
            for done in [file.install(None, "{\"ours\": 1}"), file.uninstall(None)] {
                let error = done.expect_err("a change").to_string();
                assert!(error.contains("another program changed it meanwhile"), "{error}");
            }
            assert_eq!(fs::read_to_string(&path).expect("readable"), "{\"theirs\": 1}");
            assert!(!state.exists(), "something was remembered");
        }
    }
}
