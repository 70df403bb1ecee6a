//! Change of a settings file, computed from its text and the memory of its original. `None` is no file.

use imara_diff::{Algorithm, BasicLineDiffPrinter, Diff, InternedInput, UnifiedDiffConfig};
use serde::{Deserialize, Serialize};

use super::{plan::SettingsPlan, settings::HostSettings};
use crate::hosts::Host;
use callgate_core::domain::digest;

/// Memory of a written file, for an exact restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileBackup {
    /// Path of the file, for people.
    pub(super) file: String,
    /// Text without callgate.
    pub(super) before: Option<String>,
    /// Digest of the written text.
    pub(super) after: String,
    /// True when its folder was created for it.
    pub(super) has_made_folder: bool,
}

/// The text without callgate: the original if unchanged since, otherwise the current one without callgate's parts.
pub(super) fn without(host: Host, text: Option<&str>, memory: Option<&FileBackup>) -> anyhow::Result<Option<String>> {
    let Some(text) = text else { return Ok(None) };
    if let Some(memory) = memory.filter(|memory| memory.after == digest::of_text(text)) {
        return Ok(memory.before.clone());
    }
    let settings = HostSettings::read(host, text)?;
    if !settings.take_away() {
        return Ok(Some(text.to_owned()));
    }
    let is_ours_alone = settings.is_empty() && memory.is_some_and(|memory| memory.before.is_none());
    Ok((!is_ours_alone).then(|| settings.text()))
}

/// The text with the plan, and the text without; none when the plan is installed.
pub(super) fn with(
    plan: &SettingsPlan,
    text: Option<&str>,
    memory: Option<&FileBackup>,
) -> anyhow::Result<Option<(Option<String>, String)>> {
    if HostSettings::read(plan.host, text.unwrap_or_default())?.holds(plan) {
        return Ok(None);
    }
    let before = without(plan.host, text, memory)?;
    let settings = HostSettings::read(plan.host, before.as_deref().unwrap_or_default())?;
    settings.add(plan);
    Ok(Some((before, settings.text())))
}

/// Unified diff.
pub(super) fn diff(name: &str, before: Option<&str>, after: Option<&str>) -> String {
    let side = |text: Option<&str>| if text.is_some() { name.to_owned() } else { "/dev/null".to_owned() };
    let lines = InternedInput::new(before.unwrap_or_default(), after.unwrap_or_default());
    let mut diff = Diff::compute(Algorithm::Myers, &lines);
    diff.postprocess_lines(&lines);
    let printer = BasicLineDiffPrinter(&lines.interner);
    let hunks = diff.unified_diff(&printer, UnifiedDiffConfig::default(), &lines);
    format!("--- {}\n+++ {}\n{hunks}", side(before), side(after))
}
