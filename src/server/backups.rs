//! Backups in one directory (`callgate backup --in DIR`), named by their times.

use std::path::Path;

use callgate_core::domain::time::Timestamp;

/// Prefix of names.
const PREFIX: &str = "callgate-";
/// Time format of names, in UTC.
const TIME: &str = "%Y%m%dT%H%M%SZ";
/// Written last: a folder without it is no complete backup.
pub const MANIFEST: &str = "manifest.json";

/// The name of a backup of that time; none for a time out of range.
#[must_use]
pub fn name(made: Timestamp) -> Option<String> {
    let made = chrono::DateTime::from_timestamp(made.as_millis() / 1_000, 0)?;
    Some(format!("{PREFIX}{}", made.format(TIME)))
}

/// The time in such a name.
#[must_use]
pub fn made_at(name: &str) -> Option<Timestamp> {
    let time = chrono::NaiveDateTime::parse_from_str(name.strip_prefix(PREFIX)?, TIME).ok()?;
    let made = Timestamp::from_millis(time.and_utc().timestamp_millis());
    (self::name(made).as_deref() == Some(name)).then_some(made)
}

/// The time of the newest complete backup in a directory.
#[must_use]
pub fn newest(shelf: &Path) -> Option<Timestamp> {
    let folders = std::fs::read_dir(shelf).ok()?.filter_map(Result::ok);
    let complete = folders.filter(|folder| folder.path().join(MANIFEST).is_file());
    complete.filter_map(|folder| made_at(folder.file_name().to_str()?)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_backup_is_a_complete_one() {
        let shelf = tempfile::tempdir().expect("a folder");
        assert_eq!(newest(shelf.path()), None);
        for (name, is_complete) in [
            ("callgate-20261101T000000Z", true),
            ("callgate-20261102T000000Z", true),
            ("callgate-20261103T000000Z", false),
            ("callgate-20261104T000000Z.unfinished-abc", true),
            ("before-the-move", true),
        ] {
            let folder = shelf.path().join(name);
            std::fs::create_dir(&folder).expect("made");
            if is_complete {
                std::fs::write(folder.join(MANIFEST), "{}").expect("written");
            }
        }
        assert_eq!(newest(shelf.path()).and_then(name).as_deref(), Some("callgate-20261102T000000Z"));
        assert_eq!(newest(&shelf.path().join("nowhere")), None);
    }
}
