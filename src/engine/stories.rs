//! Whole stories against all rules: `tests/traces/*.trace`, one a file.

use crate::rules::testing::check_folder;

#[test]
fn every_story_ends_as_told() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces");
    assert!(check_folder(folder) >= 14, "stories are missing from {folder}");
}
