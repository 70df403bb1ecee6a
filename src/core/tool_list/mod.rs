//! Tool lists of model providers and MCP servers, parsed into one form. This module knows the formats; it must not know
//! files (text comes in), and marks guesses about a tool as such.

mod identity;
mod import;
pub mod lint;
pub mod name_words;
mod params;
mod read;
mod tool_effect;

use serde_json::Value;

pub use self::{
    identity::{IdentityArgument, proposed_resource},
    import::{import, import_trusting},
    params::{SchemaNode, forms, is_bound, is_only, nodes, types},
    read::read,
    tool_effect::{EffectSource, SourcedEffect},
};
use crate::domain::ids::Invalid;

/// Maximum size of a list, in bytes.
pub const LIST_BYTES_MAX: usize = 4 << 20;
/// Maximum number of tools in all lists.
pub const TOOLS_MAX: usize = 1_000;
/// Maximum length of a tool's description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 32_768;
/// Maximum size of an argument schema, in bytes of JSON.
pub const SCHEMA_BYTES_MAX: usize = 262_144;
/// Maximum number of subschemas of one tool.
pub const NODES_MAX: usize = 5_000;
/// Minimum number of tools in a file for a common first word to be their server's name.
const PREFIXED_MIN: usize = 3;
/// Maximum number of listed problems.
pub const PROBLEMS_MAX: usize = 20;

/// Tools, in the order of their files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolList {
    /// The tools. Their names are distinct.
    pub tools: Vec<ToolDoc>,
    /// Types of provider-run entries (`web_search`) and plain-text ones, which have no schema.
    pub built_in: Vec<String>,
}

/// Documentation of one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDoc {
    /// Its name, as the model calls it.
    pub name: String,
    /// Description for the model; may be empty.
    pub description: String,
    /// JSON Schema of its arguments: always an object, with its keys sorted.
    pub input_schema: Value,
    /// Annotations of an MCP server.
    pub hints: Hints,
    /// Format of the entry.
    pub shape: EntryFormat,
    /// Source file, as given to [`read`].
    pub source: String,
    /// First line in that file, from 1.
    pub line: u64,
}

/// Annotations of an MCP tool; absent if not given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// `readOnlyHint`
    pub read_only: Option<bool>,
    /// `destructiveHint`
    pub destructive: Option<bool>,
    /// `idempotentHint`
    pub idempotent: Option<bool>,
    /// `openWorldHint`
    pub open_world: Option<bool>,
}

/// Format of a tool entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryFormat {
    /// `{"type":"function","function":{"name","description","parameters"}}`, or the same without the inner object.
    OpenAi,
    /// `{"name","description","input_schema"}`
    Anthropic,
    /// `{"name","description","inputSchema","annotations"}`
    Mcp,
}

impl ToolList {
    /// The words of each tool's name, without a server's name: a first word that all tools of a file share (`slack` of
    /// `slack_post_message`).
    #[must_use]
    pub fn tool_name_words(&self) -> Vec<Vec<String>> {
        let mut all: Vec<Vec<String>> = self.tools.iter().map(|tool| name_words::split_name(&tool.name)).collect();
        let mut start = 0;
        for tools in self.tools.chunk_by(|a, b| a.source == b.source) {
            let names = &mut all[start..start + tools.len()];
            start += tools.len();
            let first = names.first().and_then(|words| words.first()).cloned().unwrap_or_default();
            let is_shared = names.iter().all(|words| words.len() > 1 && words.first() == Some(&first));
            if names.len() >= PREFIXED_MIN && is_shared && !name_words::is_verb(&first) {
                names.iter_mut().for_each(|words| drop(words.remove(0)));
            }
        }
        all
    }

    /// Appends the tools of another list.
    ///
    /// # Errors
    /// Each duplicate name, and too many tools. The list is unchanged then.
    pub fn append(&mut self, other: Self) -> Result<(), Vec<Invalid>> {
        let count = self.tools.len() + other.tools.len();
        if count > TOOLS_MAX {
            return Err(vec![Invalid::new("tools", format!("are {count}; at most {TOOLS_MAX} can be read at once"))]);
        }
        let twice = other.tools.iter().filter_map(|tool| {
            let known = self.tools.iter().find(|known| known.name == tool.name)?;
            Some(Invalid::new(
                format!("line {}: {}", tool.line, tool.name),
                format!("is also a tool of {}, line {}: names must be distinct", known.source, known.line),
            ))
        });
        let twice: Vec<Invalid> = twice.take(PROBLEMS_MAX).collect();
        if !twice.is_empty() {
            return Err(twice);
        }
        self.tools.extend(other.tools);
        self.built_in.extend(other.built_in);
        Ok(())
    }
}
