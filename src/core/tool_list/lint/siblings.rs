//! siblings: tools that are easily taken for each other and do not name each other.
//!
//! Reports a tool whose description does not name a sibling, for each sibling. Siblings have verbs of one kind
//! (`search` and `find`, `delete` and `archive`) and the same nouns in their names, or names that differ in one word
//! and descriptions that share most of their words and do not say the word in which the names differ.
//!
//! Why: when two tools could both be meant, a model takes the one whose name is nearer to the user's words, and loops
//! when it was the other one. The boundary has to stand in both descriptions, with the other one's name.
//!
//! Known problems: siblings by meaning whose names share nothing are not seen. A tool whose description calls it
//! deprecated is left alone.

use std::collections::BTreeSet;

use super::{LintReport, ListFacts, ToolFacts, prose};
use crate::tool_list::name_words;

/// Minimum share of common words of two descriptions whose tool names differ in one word.
const ALIKE_MIN: f64 = 0.5;
/// Maximum number of siblings in a report.
const SIBLINGS_MAX: usize = 5;
const REASON: &str =
    "where two tools could both be meant, a model guesses; the boundary must stand in both descriptions";

/// Synonymous verbs.
const KINDS: &[&[&str]] = &[
    &["search", "find", "query", "lookup", "list", "browse"],
    &["get", "fetch", "retrieve", "read", "show", "view", "describe", "load"],
    &["create", "add", "insert", "make", "register"],
    &["update", "edit", "modify", "change", "patch", "set", "replace"],
    &["delete", "remove", "destroy", "erase", "purge", "drop", "archive", "deactivate", "disable", "trash"],
    &["send", "post", "notify", "submit"],
];

/// One report a tool, which names all siblings that its description leaves out.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let known: Vec<Sibling> = facts.tools.iter().map(Sibling::of).collect();
    let mut reports = Vec::new();
    for (tool, me) in facts.tools.iter().zip(&known) {
        let is_left_out = |other: &&ToolFacts<'_>| {
            other.index != tool.index
                && me.is_sibling(&known[other.index])
                && !prose::mentions(&tool.doc.description, other.name())
        };
        let left_out: Vec<&ToolFacts<'_>> = facts.tools.iter().filter(is_left_out).take(SIBLINGS_MAX).collect();
        if left_out.is_empty() {
            continue;
        }
        let names: Vec<&str> = left_out.iter().map(|other| other.name()).collect();
        let message = format!("does not name its sibling{} {}", plural(names.len()), prose::list_names(&names));
        let boundaries = left_out.iter().map(|other| {
            let does = prose::first_sentence(&other.doc.description);
            let does = if does.is_empty() { other.task() } else { does.to_owned() };
            format!("DO NOT USE for what `{}` does ({does}): use that instead.", other.name())
        });
        let better = format!("add: \"{}\"", boundaries.collect::<Vec<_>>().join(" "));
        reports.push(tool.report("/description", message, REASON, better));
    }
    reports
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Features of a sibling.
struct Sibling {
    verb: Option<usize>,
    nouns: Vec<String>,
    words: Vec<String>,
    /// The words, singular.
    singular: Vec<String>,
    said: BTreeSet<String>,
    is_left_alone: bool,
}

impl Sibling {
    fn of(tool: &ToolFacts<'_>) -> Self {
        let said = name_words::split_name(&tool.doc.description).into_iter().filter(|word| word.len() > 3);
        let mut nouns = name_words::nouns(&tool.words);
        nouns.sort();
        Self {
            verb: KINDS.iter().position(|kind| kind.contains(&tool.verb())),
            nouns,
            words: tool.words.clone(),
            singular: tool.words.iter().map(|word| name_words::singular(word)).collect(),
            said: said.map(|word| name_words::singular(&word)).collect(),
            is_left_alone: tool.is_way_out() || tool.is_deprecated(),
        }
    }

    fn is_sibling(&self, other: &Self) -> bool {
        if self.is_left_alone || other.is_left_alone || self.nouns.is_empty() || other.nouns.is_empty() {
            return false;
        }
        // `get_user` and `get_users` are distinguished by their number.
        let by_number = self.words != other.words && self.singular == other.singular;
        let same_kind = self.verb.is_some() && self.verb == other.verb && !by_number;
        (same_kind && self.nouns == other.nouns)
            || (self.differs_in_a_word(other) && self.similarity(other) >= ALIKE_MIN)
    }

    /// True for names of one length, three words or more, that differ in one word, which is not the verb.
    fn differs_in_a_word(&self, other: &Self) -> bool {
        let pairs = || self.words.iter().zip(&other.words);
        let differing = || pairs().filter(|(mine, theirs)| mine != theirs);
        self.words.len() == other.words.len()
            && self.words.len() > 2
            && differing().count() == 1
            && differing().all(|(mine, theirs)| !name_words::is_verb(mine) && !name_words::is_verb(theirs))
            // Descriptions with their own distinguishing words state the boundary.
            && differing().any(|(mine, theirs)| !self.says(mine) || !other.says(theirs))
    }

    fn says(&self, word: &str) -> bool {
        word.len() > 3 && self.said.contains(&name_words::singular(word))
    }

    /// The share of the descriptions' words that both contain.
    fn similarity(&self, other: &Self) -> f64 {
        let shared = self.said.intersection(&other.said).count();
        let all = self.said.union(&other.said).count();
        if all == 0 { 0.0 } else { shared as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn siblings_by_verb_and_by_description_must_name_each_other() {
        reports(
            "siblings",
            "
            - {name: search_orders, description: Finds orders by text.}
            - {name: list_orders, description: 'Lists orders. For text use `search_orders`.'}
            - {name: search_direct_flight, description: Search flights between two cities on a date.}
            - {name: search_onestop_flight, description: Search flights between two cities on a given date.}
            - {name: delete_user, description: Removes a user.}
            - {name: archive_user, description: Puts a user away. To remove one for good use `delete_user`.}
            ",
            "warning search_orders /description: does not name its sibling `list_orders`
             better: add: \"DO NOT USE for what `list_orders` does (Lists orders): use that instead.\"
             warning search_direct_flight /description: does not name its sibling `search_onestop_flight`
             better: add: \"DO NOT USE for what `search_onestop_flight` does \
             (Search flights between two cities on a given date): use that instead.\"
             warning search_onestop_flight /description: does not name its sibling `search_direct_flight`
             better: add: \"DO NOT USE for what `search_direct_flight` does \
             (Search flights between two cities on a date): use that instead.\"
             warning delete_user /description: does not name its sibling `archive_user`
             better: add: \"DO NOT USE for what `archive_user` does (Puts a user away): use that instead.\"",
        );
    }

    #[test]
    fn tools_that_cannot_be_confused_need_not() {
        silent(
            "siblings",
            "
            - {name: get_order, description: Reads one order.}
            - {name: list_orders, description: Lists orders.}
            - {name: get_user, description: Reads one user.}
            - {name: get_users, description: Reads all users.}
            - {name: read_user, description: 'Deprecated, use get_user.'}
            - {name: get_user_info, description: Reads who made a user and when.}
            - {name: update_issue_title, description: Updates the title of an issue.}
            - {name: update_issue_labels, description: Updates the labels of an issue.}
            - {name: cancel_order, description: Cancels an order.}
            - {name: update_order_address, description: Changes where an order is sent.}
            - {name: update_order_items, description: 'Swaps goods of a basket, paying the difference.'}
            ",
        );
    }
}
