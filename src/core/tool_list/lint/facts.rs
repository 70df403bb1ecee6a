//! Input of lints: the list, and the policy's declarations of its tools.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{LintReport, prose};
use crate::{
    domain::{
        effect::{EffectKind, ResourceTemplate},
        tool::ToolSpec,
    },
    tool_list::{EffectSource, SchemaNode, SourcedEffect, ToolDoc, ToolList, name_words, nodes},
};

/// Declaration of a tool, as far as lints need it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolDeclaration {
    /// Effect on its resource.
    pub effect: EffectKind,
    /// A write whose repetition harms.
    pub once: bool,
    /// A write whose repetition is harmless.
    pub idempotent: bool,
    /// A write whose provider honors the idempotency key.
    pub key_honoured: bool,
    /// A write whose identical repetition is meant.
    pub repeatable: bool,
    /// Resource.
    pub resource: Option<ResourceTemplate>,
}

impl From<&ToolSpec> for ToolDeclaration {
    fn from(spec: &ToolSpec) -> Self {
        Self {
            effect: spec.kind(),
            once: spec.once,
            idempotent: spec.idempotent,
            key_honoured: spec.key_honoured,
            repeatable: spec.repeatable,
            resource: spec.resource.clone(),
        }
    }
}

/// Facts about a list.
#[derive(Debug)]
pub struct ListFacts<'a> {
    /// The tools, in the order of the list.
    pub tools: Vec<ToolFacts<'a>>,
    /// Their names.
    pub names: BTreeSet<&'a str>,
}

/// Facts about a tool.
#[derive(Debug)]
pub struct ToolFacts<'a> {
    /// Index in the list.
    pub index: usize,
    /// Documentation in the list.
    pub doc: &'a ToolDoc,
    /// Declaration in the policy.
    pub declared: Option<&'a ToolDeclaration>,
    /// Effect, with its source.
    pub told: Option<SourcedEffect>,
    /// The words of its name.
    pub words: Vec<String>,
    /// Nouns of its name, singular, without those of mere details.
    pub nouns: Vec<String>,
    /// Subschemas of its schema.
    pub nodes: Vec<SchemaNode<'a>>,
}

impl<'a> ListFacts<'a> {
    /// The facts of a list with the declarations of its tools, by name.
    #[must_use]
    pub fn new(list: &'a ToolList, declared: &'a BTreeMap<String, ToolDeclaration>) -> Self {
        let tools = list.tools.iter().zip(list.tool_name_words()).enumerate().map(|(index, (doc, words))| {
            let declared = declared.get(&doc.name);
            let by_policy = declared.filter(|declared| declared.effect != EffectKind::Unknown);
            ToolFacts {
                index,
                doc,
                declared,
                told: by_policy
                    .map(|declared| SourcedEffect { effect: declared.effect, by: EffectSource::Policy })
                    .or_else(|| SourcedEffect::of(doc, &words)),
                nouns: nouns_of(&words),
                words,
                nodes: nodes(&doc.input_schema),
            }
        });
        Self { tools: tools.collect(), names: list.tools.iter().map(|tool| tool.name.as_str()).collect() }
    }

    /// A report about the whole list.
    pub(super) fn report(&self, message: String, reason: &'static str, better: String) -> LintReport {
        LintReport { tool: None, pointer: String::new(), message, reason, better, guessed: false }
    }
}

impl<'a> ToolFacts<'a> {
    /// Its name.
    pub(super) fn name(&self) -> &'a str {
        &self.doc.name
    }

    /// The verb of its name; empty without one.
    pub(super) fn verb(&self) -> &str {
        name_words::verb(&self.words).map_or("", |(verb, _)| verb)
    }

    /// The subject of its name: `comment` of `add_ticket_comment_to_order`.
    pub(super) fn subject(&self) -> Option<String> {
        let is_link =
            |word: &String| matches!(word.as_str(), "to" | "for" | "of" | "by" | "in" | "on" | "from" | "with");
        let before: Vec<String> = self.words.iter().take_while(|word| !is_link(word)).cloned().collect();
        name_words::nouns(&before).pop()
    }

    /// Its name as a task: `cancel order`.
    pub(super) fn task(&self) -> String {
        self.words.join(" ")
    }

    /// Source of its effect, for a write; none for a way out, which changes nothing.
    pub(super) fn as_write(&self) -> Option<&SourcedEffect> {
        self.told.as_ref().filter(|told| told.effect == EffectKind::Write && !self.is_way_out())
    }

    /// True for a declared or guessed read.
    pub(super) fn is_reader(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.effect.is_look())
    }

    /// True for a way out, by its name: it asks or tells a person, or ends the work.
    pub(super) fn is_way_out(&self) -> bool {
        name_words::is_way_out(&self.words)
    }

    /// True when its description marks it as deprecated.
    pub(super) fn is_deprecated(&self) -> bool {
        self.doc.description.to_ascii_lowercase().contains("deprecated")
    }

    /// Its arguments and their nested properties, each once.
    pub(super) fn properties(&self) -> impl Iterator<Item = (&SchemaNode<'a>, &'a str)> {
        self.nodes.iter().filter_map(|node| Some((node, node.name?)))
    }

    /// The description of an argument; empty without one.
    pub(super) fn said_of(&self, schema: &'a Value) -> &'a str {
        prose::text(schema, "description")
    }

    /// A report about a part of it.
    pub(super) fn report(&self, pointer: &str, message: String, reason: &'static str, better: String) -> LintReport {
        LintReport { tool: Some(self.index), pointer: pointer.to_owned(), message, reason, better, guessed: false }
    }
}

fn nouns_of(words: &[String]) -> Vec<String> {
    name_words::nouns(words).into_iter().filter(|noun| !matches!(noun.as_str(), "detail" | "info")).collect()
}

impl LintReport {
    /// The report, reduced to a note when `told` is a guess.
    pub(super) fn by(self, told: &SourcedEffect) -> Self {
        Self { guessed: told.is_guess(), ..self }
    }
}
