//! token_waste: a description that costs more than it says.
//!
//! Reports filler (`This tool allows you to`), a description whose sentences beside USE WHEN and the boundaries to
//! other tools cost more than 150 tokens, and one that describes arguments a second time that have their own
//! descriptions. Tokens are counted in o200k; USE WHEN and boundary sentences are counted apart and never reported.
//!
//! Why: every description is sent with every turn. Fifty tools with a hundred needless tokens each cost five thousand a
//! turn, and bury the sentences by which the model chooses.
//!
//! Known problems: other models count some ten percent otherwise.

use std::sync::LazyLock;

use regex::Regex;

use super::{LintReport, ListFacts, ToolFacts, prose};

/// Maximum tokens of a tool's purpose and behavior; the rest belongs in the arguments' descriptions or the
/// documentation.
const TOKENS_MAX: usize = 150;
/// Maximum characters of an improved description in a report.
const SHOWN_CHARS_MAX: usize = 160;
const REASON: &str = "it is sent with every turn, and buries the sentences by which the model chooses";

static FILLER: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r"(?i)\b(this|the) (tool|function|endpoint|api|method) (allows|enables|lets",
        r"|is used|can be used|is designed|provides the ability|will|is responsible)( you",
        r"| users?| the (user|model|agent))?( for| to)? ?|\bplease note that |\bit is important to note that ",
        r"|\ba powerful (tool|way) (for|to) |\b(seamlessly|effortlessly|simply|basically) ",
    ))
});
static ARGUMENTS: LazyLock<Regex> =
    LazyLock::new(|| prose::pattern(r"(?im)^\s*(args|arguments|parameters|params)\s*:\s*$"));

/// Cost of a description, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Sentences on when to use the tool, when not, or on other tools.
    pub choice: usize,
    /// All others.
    pub rest: usize,
}

/// The cost of a tool's description.
#[must_use]
pub fn cost(facts: &ListFacts<'_>, tool: &ToolFacts<'_>) -> Cost {
    let mut cost = Cost::default();
    for sentence in prose::sentences(&tool.doc.description) {
        let is_edge = |c: char| !c.is_alphanumeric();
        let named = |word: &str| facts.names.get(word.trim_matches(is_edge)).is_some_and(|name| *name != tool.name());
        let names_another = || sentence.split_whitespace().any(named);
        let is_choice = prose::says_when(sentence) || prose::says_when_not(sentence) || names_another();
        let tokens = prose::tokens(sentence);
        if is_choice {
            cost.choice += tokens;
        } else {
            cost.rest += tokens;
        }
    }
    cost
}

/// One report a tool.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in facts.tools.iter().filter(|tool| !tool.doc.description.is_empty()) {
        let cost = cost(facts, tool);
        let counts = format!("{} tokens, and {} that say when to use it", cost.rest, cost.choice);
        if let Some(better) = without_filler(&tool.doc.description) {
            let message = format!("has filler in its description ({counts})");
            reports.push(tool.report("/description", message, REASON, better));
        } else if repeats_arguments(tool) {
            let message = format!("describes its arguments twice ({counts})");
            let better = "remove the list of arguments from the description: each has its own".to_owned();
            reports.push(tool.report("/description", message, REASON, better));
        } else if cost.rest > TOKENS_MAX {
            let message = format!("has a long description ({counts})");
            let does = prose::first_sentence(&tool.doc.description);
            let better =
                format!("keep \"{does}.\" and when to use it; move the rest to the arguments or the documentation");
            reports.push(tool.report("/description", message, REASON, better));
        }
    }
    reports
}

/// The description without filler; none if there is none.
fn without_filler(said: &str) -> Option<String> {
    if !FILLER.is_match(said) {
        return None;
    }
    let mended = prose::sentences(said).into_iter().map(|sentence| {
        let mended = FILLER.replace_all(sentence, "");
        let mut chars = mended.trim_start().chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    });
    let mended = mended.collect::<Vec<_>>().join(" ");
    let shown: String = mended.chars().take(SHOWN_CHARS_MAX).collect();
    let cut = if shown.len() < mended.len() { "…" } else { "" };
    Some(format!("\"{shown}{cut}\""))
}

fn repeats_arguments(tool: &ToolFacts<'_>) -> bool {
    let mut described = tool.properties().filter(|(node, _)| node.top);
    ARGUMENTS.is_match(&tool.doc.description) && described.any(|(node, _)| !tool.said_of(node.schema).is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn filler_repetition_and_length_are_noted_with_their_cost() {
        let long = "The order is read from the main store. ".repeat(20);
        let list = format!(
            "
            - {{name: get_a, description: 'This tool allows you to get an A. Use when asked.'}}
            - name: get_b
              description: |
                Gets a B.
                Args:
                  b: The B.
              input_schema: {{properties: {{b: {{type: string, description: The B.}}}}}}
            - {{name: get_c, description: 'Gets a C. {long}'}}
            "
        );
        reports(
            "token_waste",
            &list,
            "note get_a /description: has filler in its description (9 tokens, and 4 that say when to use it)
             better: \"Get an A. Use when asked.\"
             note get_b /description: describes its arguments twice \
             (11 tokens, and 0 that say when to use it)
             better: remove the list of arguments from the description: each has its own
             note get_c /description: has a long description (184 tokens, and 0 that say when to use it)
             better: keep \"Gets a C.\" and when to use it; move the rest to the arguments or the documentation",
        );
    }

    #[test]
    fn sentences_that_help_to_choose_cost_nothing() {
        let boundaries = "Do not use for refunds: use `refund` instead. ".repeat(30);
        silent("token_waste", &format!("- {{name: a, description: 'Cancels an order. {boundaries}'}}"));
    }
}
