//! Input of all hosts: fields with common or host-specific names, none of them required.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{HostCall, HostFile, texts::cut_bytes};

/// Maximum length of a justification, in bytes.
const JUSTIFICATION_BYTES_MAX: usize = 2_000;
/// Shell tools with the argument of their folder, matching the preset.
const SHELLS: [(&str, &str); 2] = [("Bash", "cwd"), ("run_shell_command", "dir_path")];
/// Argument with the model's description of a shell line, excluded from the call's identity.
const DESCRIPTION: &str = "description";
/// File tools with the argument of their path: reads and writes.
const READS: [(&str, &str); 4] =
    [("Read", "file_path"), ("NotebookRead", "notebook_path"), ("read_file", "file_path"), ("view_image", "path")];
const WRITES: [(&str, &str); 6] = [
    ("Edit", "file_path"),
    ("MultiEdit", "file_path"),
    ("Write", "file_path"),
    ("NotebookEdit", "notebook_path"),
    ("write_file", "file_path"),
    ("replace", "file_path"),
];

/// Input of a hook.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Input {
    pub(super) hook_event_name: String,
    session_id: Option<String>,
    conversation_id: Option<String>,
    /// Sub-agent of the session.
    agent_id: Option<String>,
    prompt_id: Option<String>,
    turn_id: Option<String>,
    generation_id: Option<String>,
    cwd: Option<String>,
    workspace_roots: Vec<String>,
    tool_name: Option<String>,
    tool_input: Value,
    tool_use_id: Option<String>,
    pub(super) tool_response: Value,
    pub(super) tool_output: Value,
    pub(super) error: Option<String>,
    pub(super) error_message: Option<String>,
    pub(super) failure_type: Option<String>,
    pub(super) is_interrupt: Option<bool>,
    pub(super) source: Option<String>,
    pub(super) trigger: Option<String>,
}

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

impl Input {
    /// The session and its parent.
    pub(super) fn session(&self) -> Option<(String, Option<String>)> {
        let session = non_empty(self.conversation_id.as_ref()).or(non_empty(self.session_id.as_ref()))?.to_owned();
        Some(match non_empty(self.agent_id.as_ref()) {
            Some(agent) => (format!("{session}/{agent}"), Some(session)),
            None => (session, None),
        })
    }

    pub(super) fn run(&self) -> Option<String> {
        let named = [&self.prompt_id, &self.turn_id, &self.generation_id];
        named.into_iter().find_map(|id| non_empty(id.as_ref())).map(str::to_owned)
    }

    /// The call of the event.
    pub(super) fn call(&self) -> Option<HostCall> {
        let tool = non_empty(self.tool_name.as_ref())?.to_owned();
        let mut arguments = self.arguments();
        let folder = non_empty(self.cwd.as_ref()).or(self.workspace_roots.first().map(String::as_str));
        let mut justification = None;
        if let Some((_, place)) = SHELLS.iter().find(|(name, _)| *name == tool) {
            justification = arguments.remove(DESCRIPTION).and_then(|text| text.as_str().map(str::to_owned));
            if let Some(folder) = folder {
                arguments.entry(*place).or_insert_with(|| folder.into());
            }
        }
        let justification = justification.filter(|text| !text.is_empty());
        Some(HostCall {
            id: non_empty(self.tool_use_id.as_ref()).map(str::to_owned),
            file: file(&tool, &arguments, folder),
            justification: justification.map(|text| cut_bytes(&text, JUSTIFICATION_BYTES_MAX).to_owned()),
            tool,
            arguments,
        })
    }

    /// The model's arguments; some hosts send them as a text.
    fn arguments(&self) -> Map<String, Value> {
        match &self.tool_input {
            Value::Object(arguments) => arguments.clone(),
            Value::String(text) => {
                serde_json::from_str(text).unwrap_or_else(|_| single_argument("input", text.clone().into()))
            }
            Value::Null => Map::new(),
            other => single_argument("input", other.clone()),
        }
    }
}

fn single_argument(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}

fn file(tool: &str, arguments: &Map<String, Value>, folder: Option<&str>) -> Option<HostFile> {
    let of = |files: &[(&str, &str)]| {
        let (_, field) = files.iter().find(|(name, _)| *name == tool)?;
        let path = Path::new(arguments.get(*field)?.as_str()?);
        let path = folder.map_or_else(|| path.to_owned(), |folder| Path::new(folder).join(path));
        path.is_absolute().then(|| path.to_string_lossy().into_owned())
    };
    of(&READS).map(HostFile::Read).or_else(|| of(&WRITES).map(HostFile::Written))
}

impl HostCall {
    /// Repaired arguments in the host's form: without added ones, with removed ones.
    #[must_use]
    pub fn to_host_arguments(&self, mut arguments: Map<String, Value>) -> Map<String, Value> {
        let added = SHELLS.iter().filter(|(name, _)| *name == self.tool).map(|(_, place)| *place);
        added.for_each(|name| drop(arguments.remove(name)));
        arguments.extend(self.justification.clone().map(|text| (DESCRIPTION.to_owned(), text.into())));
        arguments
    }
}

/// The event named in a text that is no JSON.
pub(super) fn event_of(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("\"hook_event_name\"")?;
    rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split('"').next()
}

/// A result as the model sees it: texts unchanged, text blocks joined, others as JSON.
pub(super) fn text_of(value: &Value) -> String {
    let blocks = value.as_array().filter(|blocks| !blocks.is_empty());
    let texts = blocks.and_then(|blocks| blocks.iter().map(|block| block.get("text")?.as_str()).collect());
    match (value, texts) {
        (Value::String(text), _) => text.clone(),
        (Value::Null, _) => String::new(),
        (_, Some::<Vec<&str>>(texts)) => texts.join("\n"),
        (other, None) => other.to_string(),
    }
}
