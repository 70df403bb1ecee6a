//! Converters of recorded sessions in `deploy/traces`: each one's sample gives the expected rows, which replay reads.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use callgate::cli::{replay::run_on, source::RowSource};
use callgate_core::policy::Policy;
use serde_json::Value;

/// A folder for each converter, with its input and the rows that it should print.
const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/replay/converters");

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<_> = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    found.sort();
    found
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

#[test]
fn converter_prints_the_expected_rows_of_its_sample() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/traces");
    let entries = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let converters: Vec<_> = entries.filter(|name| name.to_string_lossy().starts_with("from-")).collect();
    assert!(!converters.is_empty());
    for name in converters {
        let sample = Path::new(SAMPLES).join(&name);
        let (expected, input): (Vec<_>, Vec<_>) =
            files(&sample).into_iter().partition(|path| path.ends_with("expected.jsonl"));
        let ran = Command::new("python3").arg(folder.join(&name)).args(&input).output().expect("python3");
        let printed = String::from_utf8(ran.stdout).expect("UTF-8");
        assert!(ran.status.success(), "{name:?}: {}", String::from_utf8_lossy(&ran.stderr));
        let wanted = fs::read_to_string(&expected[0]).expect("readable");
        assert_eq!(rows(&printed), rows(&wanted), "{name:?}");
        let source = RowSource::new("printed", std::io::Cursor::new(printed.into_bytes()));
        let summary = run_on([source], Policy::default(), false, &mut std::io::sink()).expect("good rows");
        assert_eq!(summary.calls as usize, rows(&wanted).len(), "{name:?}");
    }
}
