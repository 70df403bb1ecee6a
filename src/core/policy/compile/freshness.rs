//! Compiler of freshness.

use super::{Common, Compiler, compile_storage};
use crate::{
    domain::{
        effect::{EffectKind, Freshness},
        tool::StorageMode,
    },
    policy::file::{CaseKeys, EffectKey, FreshKey, ToolSection},
};

/// Maximum freshness, in milliseconds: a year.
const FRESH_MS_MAX: u64 = 366 * 86_400_000;

impl Compiler {
    pub(super) fn fresh(&mut self, path: &str, common: &Common, keys: &ToolSection, effect: EffectKind) -> Freshness {
        let reads = effect == EffectKind::Read || keys.effects.iter().any(|case| case.effect == EffectKey::Read);
        for key in [("fresh_ms", keys.fresh_ms.is_some()), ("private_to_call_tree", keys.private_to_call_tree)] {
            if key.1 && !reads {
                self.wrong(format!("{path}.{}", key.0), "is for a read: set effect: read");
            }
        }
        if keys.private_to_call_tree && keys.fresh_ms.is_some() {
            self.wrong(
                format!("{path}.private_to_call_tree"),
                "says how long an answer holds, and so does fresh_ms: set one",
            );
        }
        let fresh = match keys.fresh_ms {
            _ if keys.private_to_call_tree => Freshness::BySession,
            Some(key) => self.fresh_key(path, key),
            None => Freshness::Usual,
        };
        // A model without the context needs the result itself.
        let results = keys.storage.results.map_or(common.stored.1, |key| compile_storage(Some(key)));
        if matches!(fresh, Freshness::BySession | Freshness::Always)
            && matches!(results, StorageMode::Redacted | StorageMode::Hash)
        {
            let problem =
                "must be full: results of a read private_to_call_tree or always are given again to other runs";
            self.wrong(format!("{path}.storage.results"), problem);
        }
        fresh
    }

    pub(super) fn fresh_of_case(&mut self, path: &str, keys: &CaseKeys) -> Option<Freshness> {
        let key = keys.fresh_ms?;
        if keys.effect != EffectKey::Read {
            self.wrong(format!("{path}.fresh_ms"), "is for a read: set effect: read");
        }
        Some(self.fresh_key(path, key))
    }

    fn fresh_key(&mut self, path: &str, key: FreshKey) -> Freshness {
        let FreshKey::Ms(ms) = key else { return Freshness::Always };
        if ms > FRESH_MS_MAX {
            self.wrong(format!("{path}.fresh_ms"), format!("must be {FRESH_MS_MAX} or less, or always"));
        }
        Freshness::For(ms)
    }
}
