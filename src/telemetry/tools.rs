//! tools: by which tools figures are told. Only what a policy declares has a name there, and no more than a hundred:
//! what an agent calls a tool is anything at all, and every label is a time series for ever.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
};

use opentelemetry::StringValue;

use super::names::OTHER;
use crate::domain::ids::ToolName;

/// Tools that have figures of their own.
const TOOLS_MAX: usize = 100;

/// The tools that have figures of their own, the first ones that were seen. Clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools(Arc<RwLock<BTreeSet<ToolName>>>);

impl Tools {
    /// The label of a tool, which a policy declares or not.
    pub(super) fn label(&self, tool: &ToolName, is_declared: bool) -> StringValue {
        let is_known = || self.0.read().unwrap_or_else(PoisonError::into_inner).contains(tool);
        if is_declared && (is_known() || self.has_room_for(tool)) { tool.to_string().into() } else { OTHER.into() }
    }

    fn has_room_for(&self, tool: &ToolName) -> bool {
        let mut tools = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let has_room = tools.len() < TOOLS_MAX || tools.contains(tool);
        if has_room {
            tools.insert(tool.clone());
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_declared_tools_have_figures_of_their_own() {
        let tools = Tools::default();
        let name = |n: usize| ToolName::parse("tool", &format!("t{n}")).expect("a name");
        assert_eq!(tools.label(&name(0), false).as_str(), OTHER, "what an agent made up");
        for n in 0..TOOLS_MAX {
            assert_eq!(tools.label(&name(n), true).as_str(), name(n).as_str());
        }
        assert_eq!(tools.label(&name(TOOLS_MAX), true).as_str(), OTHER);
        assert_eq!(tools.label(&name(7), true).as_str(), "t7");
    }
}
