//! tamper_protection: the agent is about to change what guards it.
//!
//! Fires, with the preset `coding_agents`, for a write to the settings of a coding agent's host, to callgate's own
//! folders, to git's hooks or configuration, and for a shell line that runs `callgate`: it needs approval. Reads do
//! not, nor does `git config --get` or a setting of `user.*`.
//!
//! Why: hooks run as the agent's user, so that one edit of the host's settings ends all control; and an agent that runs
//! `callgate approvals` approves its own requests.
//!
//! Known problems: it is a guard rail, no security boundary. A program or script that the agent writes may do the same
//! undetected (docs/security.md#an-agent-of-the-same-user).

use std::collections::BTreeMap;

use crate::domain::{
    finding::{Decision, Finding, Wording},
    json::Json,
    reason::Reason,
};

use super::{RecordedCall, Rule, RuleContext, RuleLogic, context::ASKED_FOR, explained_call::NOTHING};

/// The rule. It has no keys: the preset enables it, its mode is under `rules`.
pub const RULE: Rule = Rule::of::<Params>("tamper_protection").section("rules");

/// Path fragments in lowercase, with descriptions.
const GUARDED: [(&str, &str); 18] = [
    (".claude/settings", HOST),
    (".claude.json", HOST),
    (".mcp.json", HOST),
    (".codex/config.toml", HOST),
    (".codex/hooks", HOST),
    (".gemini/settings", HOST),
    (".cursor/hooks", HOST),
    (".cursor/mcp.json", HOST),
    (".cursor/cli-config", HOST),
    ("managed-settings.json", HOST),
    (".config/callgate", OWN),
    (".local/share/callgate", OWN),
    (".local/state/callgate", OWN),
    (".cache/callgate", OWN),
    (".git/hooks", GIT),
    (".git/config", GIT),
    (".gitconfig", GIT),
    (".config/git/", GIT),
];
const HOST: &str = "change the settings of the agent's host";
const OWN: &str = "change callgate's own files";
const GIT: &str = "change git's hooks or configuration";
/// Commands that run another command.
const BEFORE: [&str; 9] = ["sudo", "doas", "env", "exec", "nohup", "time", "command", "then", "do"];
/// Shell flags before a line.
const LINES: [&str; 4] = ["-c", "-lc", "-ic", "-ec"];
/// Git subcommands that store files unchanged.
const STORES: [&str; 4] = ["add", "commit", "push", "tag"];
/// Flags before a text without effect.
const TEXTS: [&str; 6] = ["-m", "-am", "--message", "-b", "--body", "--title"];

/// Activation, and the arguments that are shell lines.
#[derive(Debug, Clone, Default)]
pub struct Params {
    pub(crate) is_on: bool,
    /// The shell line's argument, by tool.
    pub(crate) lines: BTreeMap<String, String>,
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        let what = self.is_on.then(|| self.find_protected(cx)).flatten()?;
        let situation = format!("{} was not run: it would {what}. A person must approve it.", cx.tool());
        Some(Finding::new(RULE.id, Decision::Ask, Reason::ApprovalRequired, Wording::new(situation, ASKED_FOR)))
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        if self.is_on {
            asked.describe_approver().unwrap_or_else(|| NOTHING.to_owned())
        } else {
            "no preset asks for it".to_owned()
        }
    }
}

impl Params {
    /// The protected thing that the call would change; none if it changes none.
    fn find_protected(&self, cx: &RuleContext<'_>) -> Option<&'static str> {
        let effect = &cx.proposal.effect;
        if effect.kind.is_look() {
            return None;
        }
        // Beside the line are its folder and the model's description, without effect.
        match self.lines.get(cx.tool()).and_then(|name| cx.proposal.request.arguments.get(name)) {
            Some(Json::String(line)) => in_line(line),
            _ => protected_name(effect.resource.as_ref()?.as_str()),
        }
    }
}

fn protected_name(path: &str) -> Option<&'static str> {
    let path = path.to_ascii_lowercase();
    let begins = |at: usize| at == 0 || !path.as_bytes()[at - 1].is_ascii_alphanumeric();
    let holds = |part: &str| path.match_indices(part).any(|(at, _)| begins(at));
    GUARDED.iter().find(|(part, _)| holds(part)).map(|(_, what)| *what)
}

/// The protected thing that a shell line changes, in one pass over its words.
fn in_line(line: &str) -> Option<&'static str> {
    let mut words = LineWords { rest: line };
    let (mut is_first, mut before) = (true, "");
    while let Some(word) = words.next() {
        let is_command = is_first || LINES.contains(&before);
        is_first = match word {
            "" => true,
            _ => is_command && (BEFORE.contains(&word) || word.contains('=') || word.starts_with('-')),
        };
        let name = word.rsplit('/').next().unwrap_or_default();
        if is_command && name == "callgate" {
            return Some("run callgate itself");
        }
        if is_command && name == "git" {
            if sets_configuration(&mut words) {
                return Some(GIT);
            }
            if words.next_if(|word| STORES.contains(&word)).is_some() {
                while words.next_if(|word| !word.is_empty()).is_some() {}
            }
        }
        if let Some(what) = protected_name(word) {
            return Some(what);
        }
        if TEXTS.contains(&word) {
            words.skip_text();
        }
        before = word;
    }
    None
}

/// True for `git config` with a setting other than `user.*`; consumes the words it reads.
fn sets_configuration(words: &mut LineWords<'_>) -> bool {
    if words.next_if(|word| word == "config").is_none() {
        return false;
    }
    let (mut names, mut edits) = (Vec::new(), false);
    while let Some(word) = words.next_if(|word| !word.is_empty()) {
        match word {
            "--get" | "--get-all" | "--get-regexp" | "--list" | "-l" | "get" | "list" => return false,
            "--unset" | "--unset-all" | "--add" | "--edit" | "-e" | "--replace-all" => edits = true,
            "set" | "unset" | "edit" if names.is_empty() => edits = true,
            _ if word.starts_with('-') => {}
            _ => names.push(word),
        }
    }
    (edits || names.len() > 1) && !names.first().is_some_and(|name| name.starts_with("user."))
}

/// Words of a line without quotes; an empty one separates commands.
#[derive(Clone)]
struct LineWords<'a> {
    rest: &'a str,
}

impl<'a> LineWords<'a> {
    fn next_if(&mut self, holds: impl FnOnce(&str) -> bool) -> Option<&'a str> {
        let mut next = self.clone();
        let word = next.next().filter(|word| holds(word))?;
        *self = next;
        Some(word)
    }

    /// Skips a quoted text or a word.
    fn skip_text(&mut self) {
        let rest = self.rest.trim_start_matches([' ', '\t']);
        let Some(quote) = rest.chars().next().filter(|char| is_quote(*char)) else {
            self.next_if(|word| !word.is_empty());
            return;
        };
        let behind = rest[1..].split_once(quote).map_or("", |(_, behind)| behind);
        self.rest = behind;
    }
}

impl<'a> Iterator for LineWords<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start_matches(|char| matches!(char, ' ' | '\t') || is_quote(char));
        let first = self.rest.chars().next()?;
        if is_separator(first) {
            self.rest = &self.rest[first.len_utf8()..];
            return Some("");
        }
        let is_end = |char: char| char.is_whitespace() || is_separator(char) || is_quote(char);
        let end = self.rest.find(is_end).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end.max(first.len_utf8()));
        self.rest = rest;
        Some(word)
    }
}

const fn is_quote(char: char) -> bool {
    matches!(char, '\'' | '"')
}

const fn is_separator(char: char) -> bool {
    matches!(char, ';' | '&' | '|' | '(' | ')' | '\n' | '\r' | '`' | '<' | '>' | '{' | '}' | '$')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::check;

    #[test]
    fn lines_that_change_what_guards_the_agent_are_told_by_their_words() {
        for line in [
            "callgate approvals list",
            "cd /w && sudo /usr/local/bin/callgate approve x",
            "CALLGATE_TOKEN=x callgate tokens create y",
            "bash -lc 'callgate approve x'",
            "if true; then callgate halt; fi",
            "echo $(callgate approve x)",
            "echo '{}' > ~/.claude/settings.json",
            "sed -i s/a/b/ .claude/settings.local.json",
            "rm -rf \"$HOME/.local/state/callgate\"",
            "cp evil .git/hooks/pre-commit",
            "tee .GIT/HOOKS/pre-push",
            "git config core.hooksPath /tmp/x",
            "git config --global alias.st '!x'",
            "git config --unset core.hooksPath",
            "git add a; rm .git/hooks/pre-commit",
            "git checkout HEAD~1 -- .claude/settings.json",
        ] {
            assert!(in_line(line).is_some(), "{line}");
        }
        for line in [
            "git config user.name me",
            "git config --get core.hooksPath",
            "git config core.hooksPath",
            "git commit -m 'write .claude/settings.json'",
            "cd /src/callgate && make",
            "cargo run -p callgate -- demo",
            "grep -rn callgate src > out",
            "npm install callgate",
            "rm -rf notes.git/hooks-old",
            "git push origin main",
            "git add .claude/settings.local.json && git status",
            "mv a.gitconfigs b",
        ] {
            assert_eq!(in_line(line), None, "{line}");
        }
    }

    #[test]
    fn each_word_takes_a_part_of_its_line() {
        for unit in ["git config ", "callgat", ".git/hook", "'\"", "$(", "a=", "-c ", "-m '", "\u{e9}"] {
            let line = unit.repeat(1_000);
            let mut words = LineWords { rest: &line };
            while let left @ 1.. = words.rest.len() {
                words.next();
                assert!(words.rest.len() < left, "{unit:?}");
                words.skip_text();
            }
            in_line(&line);
        }
    }

    #[test]
    fn only_with_the_preset_and_until_a_person_says_yes() {
        check(
            "policy
               presets: [coding_agents]
             end
             rules tamper_protection
             Write {\"file_path\":\"/w/.claude/settings.json\"} => ask approval_required as w1
             approve
             Write {\"file_path\":\"/w/.claude/settings.json\"} => allow as w1
             Read {\"file_path\":\"/w/.claude/settings.json\"} => allow
             Bash {\"command\":\"cat .git/hooks/pre-commit\"} => allow
             Bash {\"command\":\"make\",\"description\":\"callgate hook into .git/hooks\"} => allow
             Bash {\"command\":\"make\",\"cwd\":\"/w/.config/callgate\"} => allow
             Bash {\"command\":\"cp x .git/hooks/pre-commit\"} => ask approval_required",
        );
        check("rules tamper_protection\n Write {\"file_path\":\"/w/.claude/settings.json\"} => allow");
    }
}
