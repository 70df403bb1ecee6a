//! undo: a write whose description does not state whether it can be undone.
//!
//! Reports a write whose description mentions neither undoing nor finality. If only its name shows that it writes, the
//! report is advice.
//!
//! Why: a model that knows that a write is final asks first, and one that knows how to undo it fixes its own mistake in
//! time. The same holds for an approver.
//!
//! Known problems: it reads only English, and cannot verify the description.

use std::sync::LazyLock;

use regex::Regex;

use super::{LintReport, ListFacts, ToolFacts, prose};

const REASON: &str = "who knows that a step is final asks first; who knows how to take it back mends a mistake in time";

static SAYS: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r"(?i)\bun(do|does|done|doing|delete[ds]?|cancel(led)?)\b|revers|revert|roll(ed)? ?back",
        r"|restor|recover|permanent|irrevocabl|\bfinal\b|\b(can|may|could)(not|n['’]t",
        r"| not| still| later)? be (cancel|chang|edit|delet|remov|withdraw|amend|reopen",
        r"|correct|(\w+ )?back\b)|\bwithin \d+ (minutes?|hours?|days?)\b|trash|recycle bin",
    ))
});

/// Inverse verbs.
const PAIRS: &[(&str, &str)] = &[
    ("create", "delete"),
    ("create", "cancel"),
    ("add", "remove"),
    ("book", "cancel"),
    ("place", "cancel"),
    ("schedule", "cancel"),
    ("pay", "refund"),
    ("charge", "refund"),
    ("lock", "unlock"),
    ("enable", "disable"),
    ("close", "reopen"),
    ("archive", "restore"),
    ("subscribe", "unsubscribe"),
    ("grant", "revoke"),
];

/// One report a tool.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in &facts.tools {
        let Some(told) = tool.as_write().filter(|_| !SAYS.is_match(&tool.doc.description)) else { continue };
        let message = format!("is a write ({}), and does not say whether it can be undone", told.by);
        let better = match inverse(facts, tool) {
            Some(inverse) => {
                format!("add: \"Can be undone with {inverse} within (how long).\", or \"Cannot be undone.\"")
            }
            None => "add: \"Cannot be undone.\", or how it can be and for how long".to_owned(),
        };
        reports.push(tool.report("/description", message, REASON, better).by(told));
    }
    reports
}

/// The inverse tool of the list.
fn inverse(facts: &ListFacts<'_>, tool: &ToolFacts<'_>) -> Option<String> {
    let (verb, nouns) = (tool.verb(), &tool.nouns);
    let takes_back = |other: &&ToolFacts<'_>| {
        let is_pair = |(one, two): &(&str, &str)| {
            (*one == verb && *two == other.verb()) || (*two == verb && *one == other.verb() && verb != "cancel")
        };
        let is_partner = PAIRS.iter().any(is_pair) && other.nouns == *nouns;
        other.index != tool.index && verb != "delete" && is_partner
    };
    facts.tools.iter().find(takes_back).map(|other| format!("`{}`", other.name()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn a_write_that_is_silent_on_undoing_is_reported() {
        reports(
            "undo",
            "
            - {name: book_room, description: Books a room., policy: {effect: write}}
            - {name: cancel_room, description: Cancels a room., annotations: {destructiveHint: true}}
            - {name: send_mail, description: Sends a mail.}
            ",
            "warning book_room /description: is a write (the policy declares it), \
             and does not say whether it can be undone
             better: add: \"Can be undone with `cancel_room` within (how long).\", or \"Cannot be undone.\"
             warning cancel_room /description: is a write (its annotations say destructiveHint: true), \
             and does not say whether it can be undone
             better: add: \"Cannot be undone.\", or how it can be and for how long
             note send_mail /description: is a write (a guess from `send` in its name), \
             and does not say whether it can be undone
             better: add: \"Cannot be undone.\", or how it can be and for how long",
        );
    }

    #[test]
    fn any_word_on_it_suffices() {
        silent(
            "undo",
            "
            - {name: book_room, description: 'Books a room. It can be cancelled within 24 hours.'}
            - {name: send_mail, description: Sends a mail. This cannot be undone.}
            - {name: delete_file, description: Moves a file to the trash.}
            - {name: drop_table, description: Permanently removes a table.}
            - {name: set_price, description: Sets a price. It can be set back.}
            - {name: get_room, description: Reads a room.}
            ",
        );
    }
}
