//! What becomes of a file of settings, by its text and what is remembered of it. `None` is no file.

use imara_diff::{Algorithm, BasicLineDiffPrinter, Diff, InternedInput, UnifiedDiffConfig};
use serde::{Deserialize, Serialize};

use super::{plan::Plan, settings::Settings};
use crate::hosts::Host;
use callgate_core::domain::digest;

/// What is remembered of a file that was written, so that it can be given back byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// The file that this is about: for who finds it.
    pub(super) file: String,
    /// Its text without callgate.
    pub(super) before: Option<String>,
    /// The digest of what was written.
    pub(super) after: String,
    /// True when its folder was made for it.
    pub(super) has_made_folder: bool,
}

/// The text without callgate: as it was before, where nobody else has written since, else what the others wrote.
pub(super) fn without(host: Host, text: Option<&str>, memory: Option<&Memory>) -> anyhow::Result<Option<String>> {
    let Some(text) = text else { return Ok(None) };
    if let Some(memory) = memory.filter(|memory| memory.after == digest::of_text(text)) {
        return Ok(memory.before.clone());
    }
    let settings = Settings::read(host, text)?;
    if !settings.take_away() {
        return Ok(Some(text.to_owned()));
    }
    let is_ours_alone = settings.is_empty() && memory.is_some_and(|memory| memory.before.is_none());
    Ok((!is_ours_alone).then(|| settings.text()))
}

/// The text with what the plan wants, and what it was without; none when all of it is there.
pub(super) fn with(
    plan: &Plan,
    text: Option<&str>,
    memory: Option<&Memory>,
) -> anyhow::Result<Option<(Option<String>, String)>> {
    if Settings::read(plan.host, text.unwrap_or_default())?.holds(plan) {
        return Ok(None);
    }
    let before = without(plan.host, text, memory)?;
    let settings = Settings::read(plan.host, before.as_deref().unwrap_or_default())?;
    settings.add(plan);
    Ok(Some((before, settings.text())))
}

/// The difference as patches show it.
pub(super) fn diff(name: &str, before: Option<&str>, after: Option<&str>) -> String {
    let side = |text: Option<&str>| if text.is_some() { name.to_owned() } else { "/dev/null".to_owned() };
    let lines = InternedInput::new(before.unwrap_or_default(), after.unwrap_or_default());
    let mut diff = Diff::compute(Algorithm::Myers, &lines);
    diff.postprocess_lines(&lines);
    let printer = BasicLineDiffPrinter(&lines.interner);
    let hunks = diff.unified_diff(&printer, UnifiedDiffConfig::default(), &lines);
    format!("--- {}\n+++ {}\n{hunks}", side(before), side(after))
}
