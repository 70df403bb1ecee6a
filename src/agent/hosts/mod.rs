//! The places where agents live: what each says to a hook, and hears from it (docs/hooks.md#answers-to-the-host). This
//! room translates texts into texts; it must not know who is asked, or how.
//!
//! A word that a host does not expect lets the tool run. So each dialect is written out in a file of its own, and no
//! host is told more than it was seen to take.

mod claude_code;
mod codex;
mod cursor;
mod gemini;
mod input;
#[cfg(test)]
mod tests;
mod words;

use serde_json::{Map, Value};

use self::input::Input;
pub use self::words::{CHARS_MAX, cut, refusal};

/// A place where agents live.
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

/// What a hook is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The event, as the host spells it.
    pub name: String,
    /// The conversation, or the sub-agent's part of it.
    pub session: String,
    /// For a sub-agent: the conversation that started it.
    pub parent: Option<String>,
    /// The user's turn, where the host numbers them.
    pub run: Option<String>,
    /// What happens.
    pub event: Event,
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A tool is about to run.
    Before(Call),
    /// It has ended, or will never run.
    After(Call, Came),
    /// The host's user is asked about a call of this tool, by the host's own prompt: it has not started.
    AtPrompt(String),
    /// The user has said something: a new run begins.
    Prompted,
    /// The model has answered: what it has called is over.
    TurnEnded,
    /// The conversation is over.
    Ended,
    /// The context is being compacted; `restarts` where the host then says that the session starts anew.
    Compacted {
        /// True where [`Event::Restarted`] follows.
        restarts: bool,
    },
    /// The session goes on with a compacted context, to which a text may be added.
    Restarted,
    /// Nothing that concerns us.
    Other,
}

/// A tool call, as its host has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The host's id for it; none where it has none.
    pub id: Option<String>,
    /// As the model calls it.
    pub tool: String,
    /// What the model wrote, and what the hook adds.
    pub arguments: Map<String, Value>,
    /// Why the model wants it, where it says so.
    pub justification: Option<String>,
    /// The file that it is about: where somebody can look, its state is the call's witness.
    pub file: Option<File>,
}

/// A file that a call is about, by an absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum File {
    /// It is read.
    Read(String),
    /// It is written.
    Written(String),
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Came {
    /// It did what it should, as far as the host shows that.
    Success(String),
    /// It failed.
    Error(String),
    /// It was called off; `not_started` where it never ran.
    Cancelled {
        /// True where the host shows that it never ran.
        not_started: bool,
    },
}

/// What a host is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Go on as if nobody had been asked.
    Nothing,
    /// The call may run.
    Run {
        /// Without asking the user.
        grant: bool,
        /// What the model is to know.
        context: Option<String>,
        /// What to run it with instead of what the model wrote.
        arguments: Option<Map<String, Value>>,
    },
    /// The host's user is asked, by the host's own prompt; where there is none, the call must not run.
    Ask(String),
    /// The call must not run, and the model is told why.
    Refuse(String),
    /// The model is told something.
    Tell(String),
}

/// What a hook says: its output, its errors, and its exit code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// For standard output; empty is no opinion.
    pub out: String,
    /// For standard error.
    pub error: String,
    /// 0 goes on, 2 blocks.
    pub code: u8,
}

/// What a hook is told cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// True when a tool may be about to run.
    pub is_before: bool,
    /// What is wrong, in a line.
    pub problem: String,
}

impl Host {
    /// Every host.
    pub const ALL: [Self; 4] = [Self::ClaudeCode, Self::Codex, Self::Gemini, Self::Cursor];

    /// As commands name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
        }
    }

    /// As people call it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Cursor => "Cursor",
        }
    }

    /// How long the host waits for a hook, unless its settings say otherwise, in seconds.
    #[must_use]
    pub const fn patience_s(self) -> u64 {
        match self {
            Self::ClaudeCode | Self::Codex => 600,
            Self::Gemini | Self::Cursor => 60,
        }
    }

    /// Does what is said before a tool reach the model?
    #[must_use]
    pub const fn hears_before(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::Codex)
    }

    /// Is there a prompt of its own that a hook can open, and that was seen to hold the tool back?
    #[must_use]
    pub const fn has_prompt(self) -> bool {
        matches!(self, Self::ClaudeCode)
    }

    /// The event before a tool, as the host spells it.
    const fn before(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::Codex => "PreToolUse",
            Self::Gemini => "BeforeTool",
            Self::Cursor => "preToolUse",
        }
    }

    /// Reads what a hook is told. Fields that nobody knows are passed over.
    ///
    /// # Errors
    /// [`Unreadable`], when it is no JSON, or lacks what a call needs.
    pub fn read(self, text: &str) -> Result<Seen, Unreadable> {
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
            None if event == Event::Other => (String::new(), None),
            None => return Err(missing("session_id")),
        };
        Ok(Seen { name, session, parent, run: input.run(), event })
    }

    /// An answer in the host's dialect, to the event of this name.
    #[must_use]
    pub fn said(self, name: &str, answer: &Answer) -> Said {
        let out = match self {
            Self::ClaudeCode => claude_code::said(name, answer),
            Self::Codex => codex::said(name, answer),
            Self::Gemini => gemini::said(name, answer),
            Self::Cursor => cursor::said(name, answer),
        };
        Said { out: out.map_or_else(String::new, |out| out.to_string()), ..Said::default() }
    }
}

/// The call is blocked, in every host's way that needs no JSON.
#[must_use]
pub fn blocked(why: &str) -> Said {
    Said { out: String::new(), error: why.to_owned(), code: 2 }
}
