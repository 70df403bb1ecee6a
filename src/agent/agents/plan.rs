//! Planned hook settings of a host, and recognition of callgate's own handlers.

use std::path::Path;

use jsonc_parser::cst::CstInputValue as Json;
use serde_json::Value;

use super::host::{HookEvent, HostFacts};
use crate::{
    host::is_hook_program,
    hosts::{Host, quote_word},
};

/// Connection from a hook to callgate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HookTransport {
    /// This program, by its absolute path, with the arguments beside host and timeout.
    Command { program: String, args: Vec<String> },
    /// HTTP to its server; the token comes from the host's environment.
    Http { url: String, shows_token: bool },
}

/// Path of a server's hooks for Claude Code.
pub(super) const HTTP_PATH: &str = "/hooks/claude-code";
/// Environment variable with the token of an HTTP hook.
const TOKEN: &str = "CALLGATE_TOKEN";

/// Planned settings.
#[derive(Debug)]
pub(super) struct SettingsPlan {
    pub(super) host: Host,
    /// Events, each with its handler.
    pub(super) handlers: Vec<(&'static str, Json)>,
}

impl SettingsPlan {
    pub(super) fn new(host: Host, way: &HookTransport) -> Self {
        let facts = host.facts();
        let heard = facts.events.iter().filter(|event| event.has_http || matches!(way, HookTransport::Command { .. }));
        Self { host, handlers: heard.map(|event| (event.name, handler(host, facts, event, way))).collect() }
    }

    /// The entry below an event: the handler, grouped where the host groups.
    pub(super) fn entry(&self, handler: &Json) -> Json {
        if !self.host.facts().is_grouped {
            return handler.clone();
        }
        object([("hooks", Json::Array(vec![handler.clone()]))])
    }
}

fn handler(host: Host, facts: &HostFacts, event: &HookEvent, way: &HookTransport) -> Json {
    let mut members: Vec<(&str, Json)> = Vec::new();
    match way {
        HookTransport::Http { url, shows_token } => {
            members.extend([("type", "http".into()), ("url", url.as_str().into())]);
            if *shows_token {
                members.push(("headers", object([("Authorization", format!("Bearer ${TOKEN}").into())])));
                members.push(("allowedEnvVars", Json::Array(vec![TOKEN.into()])));
            }
        }
        // Without a shell between, nothing in a path is read as anything else.
        HookTransport::Command { program, args } if host == Host::ClaudeCode => {
            let args = arguments(host, event, program, args).into_iter().map(Json::from).collect();
            members.extend([("type", "command".into()), ("command", program.as_str().into())]);
            members.push(("args", Json::Array(args)));
        }
        HookTransport::Command { program, args } => {
            if host == Host::Gemini {
                members.push(("name", "callgate".into()));
            }
            if facts.is_grouped {
                members.push(("type", "command".into()));
            }
            let words = std::iter::once(program.clone()).chain(arguments(host, event, program, args));
            let words: Vec<String> = words.map(|word| quote_word(&word)).collect();
            members.push(("command", words.join(" ").into()));
        }
    }
    let units = if host == Host::Gemini { 1_000 } else { 1 };
    members.push(("timeout", (event.timeout_s * units).into()));
    match host {
        Host::ClaudeCode if event.is_guard => members.push(("onFailure", "block".into())),
        Host::Cursor if event.is_guard => members.push(("failClosed", true.into())),
        _ => {}
    }
    object(members)
}

/// Arguments with the host's timeout, so that the hook answers in time.
fn arguments(host: Host, event: &HookEvent, program: &str, args: &[String]) -> Vec<String> {
    let command = (!is_hook_program(Path::new(program))).then(|| "hook".to_owned());
    let timeout = ["--timeout".to_owned(), event.timeout_s.to_string()];
    command.into_iter().chain([host.as_str().to_owned()]).chain(args.iter().cloned()).chain(timeout).collect()
}

fn object<'a>(members: impl IntoIterator<Item = (&'a str, Json)>) -> Json {
    Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// True for a handler of callgate, with any program path.
pub(super) fn is_ours(host: Host, handler: &Value) -> bool {
    let text = |name: &str| handler.get(name).and_then(Value::as_str);
    if let Some(url) = text("url") {
        return host == Host::ClaudeCode && url.ends_with(HTTP_PATH);
    }
    let Some(command) = text("command") else { return false };
    let name = host.as_str();
    if let Some(args) = handler.get("args").and_then(Value::as_array) {
        let mut args = args.iter().filter_map(Value::as_str);
        let is_ours = is_hook_program(Path::new(command)) || is_callgate(command) && args.next() == Some("hook");
        return is_ours && args.next() == Some(name);
    }
    let Some((program, rest)) = command.split_once(&format!(" {name}")) else { return false };
    let is_ours = match program.strip_suffix(" hook") {
        Some(program) => is_callgate(program),
        None => is_hook_program(Path::new(program.trim_matches('\''))),
    };
    is_ours && (rest.is_empty() || rest.starts_with(' '))
}

fn is_callgate(path: &str) -> bool {
    path.trim_matches('\'').rsplit('/').next() == Some("callgate")
}

/// The value for comparison.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(is) => Value::Bool(*is),
        Json::Number(text) => serde_json::from_str(text).unwrap_or_default(),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::Array(items.iter().map(value).collect()),
        Json::Object(members) => members.iter().map(|(name, member)| (name.clone(), value(member))).collect(),
    }
}
