//! Hosts: conversion between each host's hook dialect and common types (docs/hooks.md#answers-to-the-host). Pure text
//! in, text out: this module must not know the server or the connection.
//!
//! An unexpected word makes a host run the tool. So each dialect has a file of its own, with only words that the host
//! was observed to accept.

mod claude_code;
mod codex;
mod cursor;
mod gemini;
mod input;
#[cfg(test)]
mod tests;
mod texts;

use serde_json::{Map, Value};

use self::input::Input;
pub(crate) use self::texts::quote_word;
pub use self::texts::{CHARS_MAX, describe_lifting, truncate_text};

/// A host of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// Claude Code.
    ClaudeCode,
    /// OpenAI's Codex CLI.
    Codex,
    /// Google's Gemini CLI.
    Gemini,
    /// Cursor.
    Cursor,
}

/// Parsed input of a hook.
#[derive(Debug, Clone, PartialEq)]
pub struct HookInput {
    /// The event's name in the host.
    pub name: String,
    /// Session, or the sub-agent's part of it.
    pub session: String,
    /// For a sub-agent: its parent session.
    pub parent: Option<String>,
    /// User turn, if the host numbers them.
    pub run: Option<String>,
    /// Event.
    pub event: HostEvent,
}

/// Event of a host.
#[derive(Debug, Clone, PartialEq)]
pub enum HostEvent {
    /// A tool is about to run.
    Before(HostCall),
    /// A tool has ended, or will never run.
    After(HostCall, CallResult),
    /// The host's prompt asks the user about a call of this tool, which has not started.
    AtPrompt(String),
    /// User input: a new run starts.
    Prompted,
    /// The model has answered: all its calls are finished.
    TurnEnded,
    /// The session has ended.
    Ended,
    /// The context is being compacted.
    Compacted {
        /// True where [`HostEvent::Restarted`] follows.
        restarts: bool,
    },
    /// The session continues with a compacted context, and accepts an added text.
    Restarted,
    /// Irrelevant.
    Other,
}

/// A tool call in a host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostCall {
    /// The host's id, if any.
    pub id: Option<String>,
    /// Name for the model.
    pub tool: String,
    /// The model's arguments, with the hook's additions.
    pub arguments: Map<String, Value>,
    /// The model's justification.
    pub justification: Option<String>,
    /// The file of the call, for its witness.
    pub file: Option<HostFile>,
}

/// A file by its absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostFile {
    /// Read.
    Read(String),
    /// Written.
    Written(String),
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallResult {
    /// Success, as far as the host shows.
    Success(String),
    /// Failure.
    Error(String),
    /// Cancellation.
    Cancelled {
        /// True where the host shows that it never ran.
        not_started: bool,
    },
}

/// Answer to a host.
#[derive(Debug, Clone, PartialEq)]
pub enum HostAnswer {
    /// Continue as without a hook.
    Nothing,
    /// Run the call.
    Run {
        /// Without asking the user.
        grant: bool,
        /// Text for the model.
        context: Option<String>,
        /// Replacement arguments.
        arguments: Option<Map<String, Value>>,
    },
    /// Ask the host's user by the host's prompt; without a prompt, refuse.
    Ask(String),
    /// Refuse the call, with a reason for the model.
    Refuse(String),
    /// Text for the model.
    Tell(String),
}

/// Output of a hook process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookOutput {
    /// Standard output; empty is no opinion.
    pub out: String,
    /// Standard error.
    pub error: String,
    /// Exit code: 0 continues, 2 blocks.
    pub code: u8,
}

/// Unreadable input of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// True when it may be about a tool's start.
    pub is_before: bool,
    /// The problem, in a line.
    pub problem: String,
}

impl Host {
    /// Every host.
    pub const ALL: [Self; 4] = [Self::ClaudeCode, Self::Codex, Self::Gemini, Self::Cursor];

    /// Name in commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
        }
    }

    /// Product name.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Cursor => "Cursor",
        }
    }

    /// Default timeout of the host's hooks, in seconds.
    #[must_use]
    pub const fn patience_s(self) -> u64 {
        match self {
            Self::ClaudeCode | Self::Codex => 600,
            Self::Gemini | Self::Cursor => 60,
        }
    }

    /// True if a text before a tool reaches the model.
    #[must_use]
    pub const fn hears_before(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::Codex)
    }

    /// True if a hook can open the host's own prompt, and the tool was observed to wait for it.
    #[must_use]
    pub const fn has_prompt(self) -> bool {
        matches!(self, Self::ClaudeCode)
    }

    /// True if the host reports that a tool failed.
    #[must_use]
    pub const fn shows_failures(self) -> bool {
        !matches!(self, Self::Codex)
    }

    /// Name of the event before a tool.
    const fn before(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::Codex => "PreToolUse",
            Self::Gemini => "BeforeTool",
            Self::Cursor => "preToolUse",
        }
    }

    /// Parses a hook's input. Unknown fields are ignored.
    ///
    /// # Errors
    /// [`Unreadable`] for invalid JSON or a missing field.
    pub fn read(self, text: &str) -> Result<HookInput, Unreadable> {
        let input: Input = serde_json::from_str(text).map_err(|error| {
            let name = input::event_of(text);
            let is_before = name.is_none_or(|name| name == self.before());
            Unreadable { is_before, problem: format!("cannot read the hook's input from {}: {error}", self.title()) }
        })?;
        let event = match self {
            Self::ClaudeCode => claude_code::event(&input),
            Self::Codex => codex::event(&input),
            Self::Gemini => gemini::event(&input),
            Self::Cursor => cursor::event(&input),
        };
        let name = input.hook_event_name.clone();
        let is_before = name.is_empty() || name == self.before();
        let missing = |field: &str| Unreadable {
            is_before,
            problem: format!("the hook's input from {} has no {field}", self.title()),
        };
        if name.is_empty() {
            return Err(missing("hook_event_name"));
        }
        let event = event.ok_or_else(|| missing("tool_name"))?;
        let (session, parent) = match input.session() {
            Some(places) => places,
            None if event == HostEvent::Other => (String::new(), None),
            None => return Err(missing("session_id")),
        };
        Ok(HookInput { name, session, parent, run: input.run(), event })
    }

    /// The answer in the host's dialect, for this event.
    #[must_use]
    pub fn to_output(self, name: &str, answer: &HostAnswer) -> HookOutput {
        let out = match self {
            Self::ClaudeCode => claude_code::render_answer(name, answer),
            Self::Codex => codex::render_answer(name, answer),
            Self::Gemini => gemini::render_answer(name, answer),
            Self::Cursor => cursor::render_answer(name, answer),
        };
        HookOutput { out: out.map_or_else(String::new, |out| out.to_string()), ..HookOutput::default() }
    }
}

/// A refusal by exit code, which every host accepts.
#[must_use]
pub fn block_call(why: &str) -> HookOutput {
    HookOutput { out: String::new(), error: why.to_owned(), code: 2 }
}
