//! A host's settings as text: hooks are put in and taken out, and everything else stays as it is written.

use anyhow::{anyhow, bail};
use jsonc_parser::{
    ParseOptions,
    cst::{CstNode, CstObject, CstRootNode},
};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::plan::{self, Plan, is_ours};
use crate::hosts::Host;

/// Where all hooks stand.
const HOOKS: &str = "hooks";
/// Cursor's version of the file's form.
const VERSION: &str = "version";

/// Settings that could be read.
#[derive(Debug)]
pub(super) struct Settings {
    host: Host,
    root: CstRootNode,
    object: CstObject,
}

/// A handler that stands in the settings.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) event: String,
    pub(super) value: Value,
    pub(super) is_ours: bool,
}

impl Settings {
    /// Reads what the host would read; an empty text is that of a new file.
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

    /// Finds what callgate could not add to without guessing.
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

    /// Every handler, in the file's order.
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

    /// True when callgate's handlers are exactly those of the plan.
    pub(super) fn holds(&self, plan: &Plan) -> bool {
        let sorted = |mut all: Vec<(String, String)>| {
            all.sort();
            all
        };
        let ours = self.handlers().into_iter().filter(|handler| handler.is_ours);
        let held = ours.map(|handler| (handler.event, handler.value.to_string())).collect();
        let wanted = plan.handlers.iter().map(|(event, json)| ((*event).to_owned(), plan::value(json).to_string()));
        sorted(held) == sorted(wanted.collect())
    }

    /// Puts the handlers of the plan behind those that are there.
    pub(super) fn add(&self, plan: &Plan) {
        if self.host == Host::Cursor && self.object.get(VERSION).is_none() {
            self.object.insert(0, VERSION, 1_u32.into());
        }
        // What could not be added to was refused when it was read.
        let hooks = self.object.object_value_or_set(HOOKS);
        for (event, handler) in &plan.handlers {
            let list = hooks.array_value_or_set(event);
            list.ensure_multiline();
            list.append(plan.entry(handler));
        }
    }

    /// Takes callgate's handlers away, with the groups, lists and object that are empty then. True if there was one.
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

    /// True if the entry was, or had, a handler of callgate's.
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

    /// Something that keeps the host from running any hook.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        let settings = self.object.to_serde_value().unwrap_or_default();
        let is = |pointer: &str, value: bool| settings.pointer(pointer) == Some(&Value::Bool(value));
        match self.host {
            Host::ClaudeCode if is("/disableAllHooks", true) => Some("`disableAllHooks` is true: no hook runs"),
            Host::Gemini if is("/hooksConfig/enabled", false) => Some("`hooksConfig.enabled` is false: no hook runs"),
            _ => None,
        }
    }

    /// True when nothing is set.
    pub(super) fn is_empty(&self) -> bool {
        let is_version = |name: &Option<String>| self.host == Host::Cursor && name.as_deref() == Some(VERSION);
        self.object.properties().iter().all(|property| is_version(&property.decoded_name()))
    }

    pub(super) fn text(&self) -> String {
        self.root.to_string()
    }
}

/// A name that stands twice is read by some as its first value, by others as its last.
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
