//! Sets of well-known tools. Nothing is ever guessed from a name: an owner asks for a set because the tools are theirs.

use crate::policy::file::{CaseKeys, EffectKey, PresetKey, Tool};

/// The tools of a preset, by name.
pub(super) fn tools(preset: PresetKey) -> Vec<(String, Tool)> {
    match preset {
        PresetKey::CommandPolls => vec![
            ("command_status".to_owned(), Tool { effect: Some(EffectKey::Poll), ..Tool::default() }),
            ("process.poll".to_owned(), Tool { effect: Some(EffectKey::Poll), ..Tool::default() }),
            ("process.log".to_owned(), Tool { effect: Some(EffectKey::Poll), ..Tool::default() }),
            ("process".to_owned(), Tool { effects: vec![polls("action", "^(poll|log)$")], ..Tool::default() }),
        ],
    }
}

fn polls(field: &str, matches: &str) -> CaseKeys {
    CaseKeys {
        when: None,
        field: Some(field.to_owned()),
        matches: Some(matches.to_owned()),
        effect: EffectKey::Poll,
        side_effect_resource: None,
    }
}
