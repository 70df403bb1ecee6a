//! Facts about hosts: locations of settings, hook events, and peculiarities.

use std::path::{Path, PathBuf};

use crate::hosts::Host;

/// Scope of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingsScope {
    User,
    Project,
}

/// Hook settings for one event.
#[derive(Debug)]
pub(super) struct HookEvent {
    pub(super) name: &'static str,
    /// The host's timeout for the hook.
    pub(super) timeout_s: u32,
    /// True where the tool waits for the hook.
    pub(super) is_guard: bool,
    /// True where the host supports an HTTP hook.
    pub(super) has_http: bool,
}

/// Facts about one host.
#[derive(Debug)]
pub(super) struct HostFacts {
    /// Program with a version flag.
    pub(super) program: &'static str,
    pub(super) folder: &'static str,
    pub(super) file: &'static str,
    /// The host allows comments in its settings. Others reject such a file, and run no hook of it.
    pub(super) has_comments: bool,
    /// True for hooks in groups with a matcher, false for hooks directly below their event.
    pub(super) is_grouped: bool,
    pub(super) events: &'static [HookEvent],
    /// Remaining step for the user.
    pub(super) caution: &'static str,
}

/// Timeout of a blocking hook, in seconds, which includes waiting for an approval.
const GUARD_TIMEOUT_S: u32 = 600;
/// Timeout of a non-blocking hook, in seconds.
const TELL_TIMEOUT_S: u32 = 30;

const fn guard(name: &'static str) -> HookEvent {
    HookEvent { name, timeout_s: GUARD_TIMEOUT_S, is_guard: true, has_http: true }
}

const fn notify_event(name: &'static str) -> HookEvent {
    HookEvent { name, timeout_s: TELL_TIMEOUT_S, is_guard: false, has_http: true }
}

const CLAUDE_CODE: HostFacts = HostFacts {
    program: "claude",
    folder: ".claude",
    file: "settings.json",
    has_comments: false,
    is_grouped: true,
    events: &[
        guard("PreToolUse"),
        notify_event("PostToolUse"),
        notify_event("PostToolUseFailure"),
        notify_event("UserPromptSubmit"),
        HookEvent { has_http: false, ..notify_event("SessionStart") },
        notify_event("PreCompact"),
        notify_event("PostCompact"),
        notify_event("PermissionRequest"),
        notify_event("PermissionDenied"),
        notify_event("Stop"),
        notify_event("StopFailure"),
        notify_event("SubagentStop"),
        notify_event("SessionEnd"),
    ],
    caution: "restart running sessions: they load the hooks at their start",
};

const CODEX: HostFacts = HostFacts {
    program: "codex",
    folder: ".codex",
    file: "hooks.json",
    has_comments: false,
    is_grouped: true,
    events: &[
        guard("PreToolUse"),
        notify_event("PostToolUse"),
        notify_event("UserPromptSubmit"),
        notify_event("SessionStart"),
        notify_event("PreCompact"),
        notify_event("PostCompact"),
        notify_event("Stop"),
    ],
    caution: "Codex runs a hook only after you have trusted it: open Codex and enter /hooks. After a hook's timeout \
              Codex runs the tool",
};

const GEMINI: HostFacts = HostFacts {
    program: "gemini",
    folder: ".gemini",
    file: "settings.json",
    has_comments: true,
    is_grouped: true,
    events: &[
        guard("BeforeTool"),
        notify_event("AfterTool"),
        notify_event("BeforeAgent"),
        notify_event("AfterAgent"),
        notify_event("SessionStart"),
        notify_event("PreCompress"),
        notify_event("SessionEnd"),
    ],
    caution: "after a hook's timeout Gemini runs the tool; hooks of a project run only in a folder that Gemini \
              trusts",
};

const CURSOR: HostFacts = HostFacts {
    program: "cursor",
    folder: ".cursor",
    file: "hooks.json",
    has_comments: false,
    is_grouped: false,
    events: &[
        guard("preToolUse"),
        notify_event("postToolUse"),
        notify_event("postToolUseFailure"),
        notify_event("sessionStart"),
        notify_event("stop"),
        notify_event("sessionEnd"),
    ],
    caution: "Cursor also runs Claude Code's hooks when its setting for third-party hooks is on: install into one of \
              both. Its hooks get no compaction event: none is documented",
};

impl Host {
    pub(super) const fn facts(self) -> &'static HostFacts {
        match self {
            Self::ClaudeCode => &CLAUDE_CODE,
            Self::Codex => &CODEX,
            Self::Gemini => &GEMINI,
            Self::Cursor => &CURSOR,
        }
    }
}

/// Settings folders.
#[derive(Debug)]
pub(super) struct SettingsFolders {
    pub(super) home: PathBuf,
    pub(super) project: PathBuf,
    /// `CLAUDE_CONFIG_DIR`
    pub(super) claude: Option<PathBuf>,
    /// `CODEX_HOME`
    pub(super) codex: Option<PathBuf>,
    /// `GEMINI_CLI_HOME`: replaces the home folder
    pub(super) gemini: Option<PathBuf>,
}

impl SettingsFolders {
    /// The settings file with the host's hooks.
    pub(super) fn file(&self, host: Host, scope: SettingsScope) -> PathBuf {
        let facts = host.facts();
        let below = |folder: &Path| folder.join(facts.folder).join(facts.file);
        match (scope, host) {
            (SettingsScope::Project, _) => Some(below(&self.project)),
            (SettingsScope::User, Host::ClaudeCode) => self.claude.as_ref().map(|folder| folder.join(facts.file)),
            (SettingsScope::User, Host::Codex) => self.codex.as_ref().map(|folder| folder.join(facts.file)),
            (SettingsScope::User, Host::Gemini) => self.gemini.as_deref().map(below),
            (SettingsScope::User, Host::Cursor) => None,
        }
        .unwrap_or_else(|| below(&self.home))
    }
}
