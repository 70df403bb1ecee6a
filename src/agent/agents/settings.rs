//! Text editor of host settings: adds and removes hooks, and preserves everything else.

use anyhow::{anyhow, bail};
use jsonc_parser::{
    ParseOptions,
    cst::{CstNode, CstObject, CstRootNode},
};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::plan::{self, SettingsPlan, is_ours};
use crate::hosts::Host;

/// Key of all hooks.
const HOOKS: &str = "hooks";
/// Key of Cursor's format version.
const VERSION: &str = "version";

/// Parsed settings.
#[derive(Debug)]
pub(super) struct HostSettings {
    host: Host,
    root: CstRootNode,
    object: CstObject,
}

/// A handler in the settings.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) event: String,
    pub(super) value: Value,
    pub(super) is_ours: bool,
}

impl HostSettings {
    /// Parses with the host's rules; an empty text is a new file.
    pub(super) fn read(host: Host, text: &str) -> anyhow::Result<Self> {
        let text = if text.trim().is_empty() { "{\n}\n" } else { text };
        let unread = |place: String| anyhow!("{place}; {} loads no hooks from an invalid file", host.title());
        if !host.facts().has_comments {
            serde_json::from_str::<IgnoredAny>(text).map_err(|error| unread(error.to_string()))?;
        }
        let root = CstRootNode::parse(text, &STRICT).map_err(|error| unread(error.to_string()))?;
        let Some(object) = root.object_value() else { bail!("line 1: the settings are not an object") };
        let settings = Self { host, root, object };
        settings.check()?;
        Ok(settings)
    }

    /// Rejects settings that cannot be extended unambiguously.
    fn check(&self) -> anyhow::Result<()> {
        once(&self.object, HOOKS)?;
        let Some(hooks) = self.object.get(HOOKS) else { return Ok(()) };
        let Some(hooks) = hooks.object_value() else { bail!("{HOOKS}: is not an object") };
        for property in hooks.properties() {
            let event = property.decoded_name().unwrap_or_default();
            once(&hooks, &event)?;
            let is_wanted = self.host.facts().events.iter().any(|known| known.name == event);
            if is_wanted && property.array_value().is_none() {
                bail!("{HOOKS}.{event}: is not a list");
            }
        }
        Ok(())
    }

    /// All handlers, in file order.
    pub(super) fn handlers(&self) -> Vec<Handler> {
        let mut found = Vec::new();
        let hooks = self.object.object_value(HOOKS);
        for property in hooks.iter().flat_map(CstObject::properties) {
            let event = property.decoded_name().unwrap_or_default();
            let entries = property.array_value().map_or_else(Vec::new, |list| list.elements());
            let nodes = entries.into_iter().flat_map(|entry| match entry.as_object() {
                Some(group) if self.host.facts().is_grouped => {
                    group.array_value(HOOKS).map_or_else(Vec::new, |list| list.elements())
                }
                _ => vec![entry],
            });
            found.extend(nodes.map(|node| {
                let value = node.to_serde_value().unwrap_or_default();
                Handler { event: event.clone(), is_ours: is_ours(self.host, &value), value }
            }));
        }
        found
    }

    /// True when callgate's handlers equal the plan's.
    pub(super) fn holds(&self, plan: &SettingsPlan) -> bool {
        let sorted = |mut all: Vec<(String, String)>| {
            all.sort();
            all
        };
        let ours = self.handlers().into_iter().filter(|handler| handler.is_ours);
        let held = ours.map(|handler| (handler.event, handler.value.to_string())).collect();
        let wanted = plan.handlers.iter().map(|(event, json)| ((*event).to_owned(), plan::value(json).to_string()));
        sorted(held) == sorted(wanted.collect())
    }

    /// Appends the plan's handlers.
    pub(super) fn add(&self, plan: &SettingsPlan) {
        if self.host == Host::Cursor && self.object.get(VERSION).is_none() {
            self.object.insert(0, VERSION, 1_u32.into());
        }
        // Unsuitable settings were rejected by the parser.
        let hooks = self.object.object_value_or_set(HOOKS);
        for (event, handler) in &plan.handlers {
            let list = hooks.array_value_or_set(event);
            list.ensure_multiline();
            list.append(plan.entry(handler));
        }
    }

    /// Removes callgate's handlers with emptied groups, lists and the object; true if there were any.
    pub(super) fn take_away(&self) -> bool {
        let Some(hooks) = self.object.object_value(HOOKS) else { return false };
        let mut is_found = false;
        for property in hooks.properties() {
            let Some(list) = property.array_value() else { continue };
            let taken = list.elements().into_iter().filter(|entry| self.take_from(entry.clone())).count();
            is_found |= taken > 0;
            if taken > 0 && list.elements().is_empty() {
                property.remove();
            }
        }
        if let Some(property) = self.object.get(HOOKS).filter(|_| is_found && hooks.properties().is_empty()) {
            property.remove();
        }
        is_found
    }

    /// True if the entry was or contained a handler of callgate.
    fn take_from(&self, entry: CstNode) -> bool {
        let is_ours = |node: &CstNode| is_ours(self.host, &node.to_serde_value().unwrap_or_default());
        let list = entry.as_object().and_then(|group| group.array_value(HOOKS));
        let Some(list) = list.filter(|_| self.host.facts().is_grouped) else {
            let is_taken = is_ours(&entry);
            if is_taken {
                entry.remove();
            }
            return is_taken;
        };
        let ours: Vec<CstNode> = list.elements().into_iter().filter(is_ours).collect();
        let is_taken = !ours.is_empty();
        ours.into_iter().for_each(CstNode::remove);
        if is_taken && list.elements().is_empty() {
            entry.remove();
        }
        is_taken
    }

    /// A setting that disables all hooks.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        let settings = self.object.to_serde_value().unwrap_or_default();
        let is = |pointer: &str, value: bool| settings.pointer(pointer) == Some(&Value::Bool(value));
        match self.host {
            Host::ClaudeCode if is("/disableAllHooks", true) => Some("`disableAllHooks` is true: no hook runs"),
            Host::Gemini if is("/hooksConfig/enabled", false) => Some("`hooksConfig.enabled` is false: no hook runs"),
            _ => None,
        }
    }

    /// True for empty settings.
    pub(super) fn is_empty(&self) -> bool {
        let is_version = |name: &Option<String>| self.host == Host::Cursor && name.as_deref() == Some(VERSION);
        self.object.properties().iter().all(|property| is_version(&property.decoded_name()))
    }

    pub(super) fn text(&self) -> String {
        self.root.to_string()
    }
}

/// Rejects a duplicate name, because parsers disagree on which one counts.
fn once(object: &CstObject, name: &str) -> anyhow::Result<()> {
    let count = object.properties().iter().filter(|property| property.decoded_name().as_deref() == Some(name)).count();
    if count > 1 {
        bail!("{name}: occurs {count} times");
    }
    Ok(())
}

/// JSON with comments.
const STRICT: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};
