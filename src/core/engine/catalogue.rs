//! Catalogue of all texts for models, by reason and situation: generated from `tests/texts/situations.trace` into
//! `tests/texts/catalogue.md` for review. `UPDATE=1 cargo nextest run --lib catalogue` regenerates it.
#![expect(clippy::disallowed_methods, reason = "tests read files")]

use std::fs;

use crate::{domain::reason::Reason, rules::testing::told_last};

const TEXTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/texts");
/// Reasons outside the engine: one of the gate when the database is unavailable, and one that is never a refusal.
const WITHOUT_STATUS: [Reason; 2] = [Reason::StoreUnavailable, Reason::DoubleEffect];

fn catalogue() -> String {
    let stories = fs::read_to_string(format!("{TEXTS}/situations.trace")).expect("readable");
    let (head, situations) = stories.split_once("## ").expect("a situation");
    let mut text = String::from(
        "# What a model is told\n\nWritten by a test (`src/core/engine/catalogue.rs`); read it as a model would.\n",
    );
    for situation in situations.split("\n## ") {
        let (name, story) = situation.split_once('\n').expect("a name and a story");
        let told = told_last(&format!("{head}\n{story}")).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        text.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", told.trim()));
    }
    text
}

#[test]
fn the_catalogue_of_texts_is_as_reviewed() {
    let (path, text) = (format!("{TEXTS}/catalogue.md"), catalogue());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).expect("written");
    }
    let reviewed = fs::read_to_string(&path).unwrap_or_default();
    let first = text.lines().zip(reviewed.lines()).find(|(now, then)| now != then);
    assert!(
        reviewed == text,
        "UPDATE=1 writes it anew; then review it. The first new line and its old one: {first:#?}"
    );
}

#[test]
fn every_reason_is_in_the_catalogue() {
    let text = fs::read_to_string(format!("{TEXTS}/catalogue.md")).expect("readable");
    let is_told = |reason: Reason| text.contains(&format!("status: \"{}\"", reason.as_str()));
    let untold = Reason::ALL.into_iter().filter(|reason| !WITHOUT_STATUS.contains(reason));
    let untold: Vec<&str> = untold.filter(|reason| !is_told(*reason)).map(Reason::as_str).collect();
    assert!(untold.is_empty(), "tests/texts/situations.trace has no situation for {untold:?}");
}
