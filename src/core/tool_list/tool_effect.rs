//! Effect of a tool, with its source: policy, annotation or name.

use std::fmt;

use super::{
    ToolDoc,
    name_words::{self, Hint},
};
use crate::domain::effect::EffectKind;

/// Effect with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcedEffect {
    /// Effect; never unknown.
    pub effect: EffectKind,
    /// Source.
    pub by: EffectSource,
}

/// Source of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectSource {
    /// The policy declares it.
    Policy,
    /// Annotations of its MCP server; the name of the annotation.
    Annotation(&'static str),
    /// Guess, from this word of its name.
    Name(String),
}

impl SourcedEffect {
    /// The effect by annotations, otherwise by the words of the name; none for a way out.
    #[must_use]
    pub fn of(tool: &ToolDoc, words: &[String]) -> Option<Self> {
        let annotated = match (tool.hints.read_only, tool.hints.destructive) {
            (Some(true), _) => Some((EffectKind::Read, "readOnlyHint: true")),
            (_, Some(true)) => Some((EffectKind::Write, "destructiveHint: true")),
            (Some(false), _) => Some((EffectKind::Write, "readOnlyHint: false")),
            (None, _) => None,
        };
        if let Some((effect, annotation)) = annotated {
            return Some(Self { effect, by: EffectSource::Annotation(annotation) });
        }
        if name_words::is_way_out(words) {
            return None;
        }
        if let Some(word) = name_words::checks(words) {
            return Some(Self { effect: EffectKind::Check, by: EffectSource::Name(word.to_owned()) });
        }
        let (verb, hint) = name_words::verb(words)?;
        let effect = match hint {
            Hint::Reads if polls(words) => EffectKind::Poll,
            Hint::Reads => EffectKind::Read,
            Hint::Writes => EffectKind::Write,
        };
        Some(Self { effect, by: EffectSource::Name(verb.to_owned()) })
    }

    /// True for a guess.
    #[must_use]
    pub fn is_guess(&self) -> bool {
        matches!(self.by, EffectSource::Name(_))
    }

    /// True when the policy declares that effect.
    #[must_use]
    pub fn is_declared(&self) -> bool {
        self.by == EffectSource::Policy
    }
}

impl fmt::Display for EffectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("the policy declares it"),
            Self::Annotation(annotation) => write!(f, "its annotations say {annotation}"),
            Self::Name(word) => write!(f, "a guess from `{word}` in its name"),
        }
    }
}

/// True for the words of a tool that watches a running job: `get_job_status`.
fn polls(words: &[String]) -> bool {
    const WORK: &[&str] = &[
        "job",
        "task",
        "run",
        "build",
        "deployment",
        "export",
        "import",
        "batch",
        "operation",
        "pipeline",
        "workflow",
    ];
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&name_words::singular(word).as_str()));
    has(&["status", "progress", "state"]) && has(WORK)
}
