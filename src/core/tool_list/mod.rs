//! Lists of tools as model providers and MCP servers write them, read into one form. This room knows the shapes; it
//! must not know files (text comes in), and what it guesses of a tool it marks as a guess.

mod identity;
mod import;
pub mod lint;
mod params;
mod read;
mod told;
pub mod words;

use serde_json::Value;

pub use self::{
    identity::{Identity, proposed_resource},
    import::{import, import_trusting},
    params::{Node, forms, is_bound, is_only, nodes, types},
    read::read,
    told::{By, Told},
};
use crate::domain::ids::Invalid;

/// Longest text of a list, in bytes.
pub const LIST_BYTES_MAX: usize = 4 << 20;
/// Tools of all lists together.
pub const TOOLS_MAX: usize = 1_000;
/// Longest description of a tool, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 32_768;
/// Longest schema of a tool's arguments, in bytes of JSON.
pub const SCHEMA_BYTES_MAX: usize = 262_144;
/// Schemas within the schema of one tool.
pub const NODES_MAX: usize = 5_000;
/// Tools of a file from which a first word that they share is taken for their server's name.
const PREFIXED_MIN: usize = 3;
/// Problems of a list that are told one by one.
pub const PROBLEMS_MAX: usize = 20;

/// Tools, in the order of their files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolList {
    /// The tools. Their names are distinct.
    pub tools: Vec<ToolDoc>,
    /// Types of entries that a provider runs itself (`web_search`) or that take plain text: they have no schema.
    pub built_in: Vec<String>,
}

/// What a list says of one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDoc {
    /// Its name, as the model calls it.
    pub name: String,
    /// What the model is told of it; empty when nothing.
    pub description: String,
    /// JSON Schema of its arguments: always an object, with its keys sorted.
    pub input_schema: Value,
    /// What an MCP server says of its effect.
    pub hints: Hints,
    /// In which shape it was written.
    pub shape: Shape,
    /// The file it stands in, as given to [`read`].
    pub source: String,
    /// The line of that file on which it begins, from 1.
    pub line: u64,
}

/// The annotations of an MCP tool; what is absent was not said.
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

/// Who writes tools that way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `{"type":"function","function":{"name","description","parameters"}}`, or the same without the inner object.
    OpenAi,
    /// `{"name","description","input_schema"}`
    Anthropic,
    /// `{"name","description","inputSchema","annotations"}`
    Mcp,
}

impl ToolList {
    /// The words of each tool's name. A first word that all tools of a file share (`slack` of `slack_post_message`)
    /// names their server and says nothing of them: it is left out.
    #[must_use]
    pub fn words(&self) -> Vec<Vec<String>> {
        let mut all: Vec<Vec<String>> = self.tools.iter().map(|tool| words::words(&tool.name)).collect();
        let mut start = 0;
        for tools in self.tools.chunk_by(|a, b| a.source == b.source) {
            let names = &mut all[start..start + tools.len()];
            start += tools.len();
            let first = names.first().and_then(|words| words.first()).cloned().unwrap_or_default();
            let is_shared = names.iter().all(|words| words.len() > 1 && words.first() == Some(&first));
            if names.len() >= PREFIXED_MIN && is_shared && !words::is_verb(&first) {
                names.iter_mut().for_each(|words| drop(words.remove(0)));
            }
        }
        all
    }

    /// Takes the tools of another list behind its own.
    ///
    /// # Errors
    /// Each tool that is in both by name, and too many tools. The list is then left as it was.
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
