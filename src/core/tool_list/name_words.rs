//! Words of tool names, and hints from their verbs. Guesses from names were wrong too often on recorded calls to be
//! enforced: they only serve advice and proposals.

/// Verbs of reads.
const READS: &[&str] = &[
    "get",
    "list",
    "search",
    "find",
    "fetch",
    "read",
    "query",
    "lookup",
    "show",
    "describe",
    "check",
    "count",
    "calculate",
    "compute",
    "browse",
    "retrieve",
    "view",
    "inspect",
    "compare",
    "estimate",
    "preview",
    "validate",
    "verify",
    "summarize",
    "explain",
    "download",
    "resolve",
    "convert",
    "analyze",
    "detect",
    "load",
    "head",
    "stat",
];
/// Verbs of writes.
const WRITES: &[&str] = &[
    "create",
    "add",
    "insert",
    "update",
    "edit",
    "modify",
    "set",
    "put",
    "patch",
    "write",
    "append",
    "send",
    "post",
    "submit",
    "book",
    "reserve",
    "place",
    "schedule",
    "reschedule",
    "upload",
    "assign",
    "move",
    "rename",
    "merge",
    "approve",
    "reject",
    "publish",
    "pay",
    "charge",
    "transfer",
    "refund",
    "purchase",
    "buy",
    "issue",
    "delete",
    "remove",
    "cancel",
    "destroy",
    "purge",
    "wipe",
    "erase",
    "drop",
    "terminate",
    "revoke",
    "close",
    "reopen",
    "enable",
    "disable",
    "archive",
    "restore",
    "lock",
    "unlock",
    "invite",
    "subscribe",
    "unsubscribe",
    "register",
    "reset",
    "exchange",
    "return",
    "change",
    "push",
    "save",
    "make",
    "mark",
    "apply",
    "deploy",
    "rollback",
    "reply",
    "start",
    "stop",
    "restart",
    "trigger",
    "launch",
    "replace",
    "upsert",
    "grant",
    "apply",
    "notify",
    "fork",
];
/// Verbs that stay verbs behind other words: `order_create`, `issue_read`.
const CLEAR: &[&str] = &["create", "delete", "update", "remove", "write", "read", "insert", "edit", "get", "cancel"];
/// Words that are often nouns in first place: `issue_read` issues nothing, `book_details` books nothing.
const NOUNS: &[&str] = &["issue", "book", "post", "return", "change", "exchange", "place", "fork", "schedule", "set"];
/// Destructive verbs.
const DESTROYS: &[&str] =
    &["delete", "destroy", "purge", "wipe", "erase", "drop", "terminate", "cancel", "revoke", "truncate", "uninstall"];
/// Verbs whose repetition does harm: payments, messages.
const HARMS: &[&str] = &[
    "pay", "charge", "refund", "transfer", "purchase", "buy", "send", "submit", "book", "place", "notify", "invite",
    "reply", "publish", "post",
];
/// Verbs whose repetition is harmless: the resulting state is the same.
const SETTLES: &[&str] = &[
    "set", "put", "update", "replace", "upsert", "delete", "remove", "cancel", "close", "enable", "disable", "archive",
    "lock", "unlock", "mark", "rename", "assign", "edit", "modify", "revoke",
];

/// Hint of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// A read.
    Reads,
    /// It changes something.
    Writes,
}

/// The words of a name, in lowercase: equal for `cancelOrder`, `cancel_order` and `orders.cancel-order`.
#[must_use]
pub fn split_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    let mut rest = name.chars().peekable();
    while let Some(now) = rest.next() {
        let starts = now.is_uppercase()
            && (before.is_lowercase() || before.is_numeric() || rest.peek().is_some_and(|next| next.is_lowercase()));
        if !now.is_alphanumeric() || (starts && before.is_alphanumeric()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| now.is_alphanumeric()) {
            word.extend(now.to_lowercase());
        }
        before = now;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The singular of a noun: `order` of `orders`, `entry` of `entries`. Only regular English plurals are known.
#[must_use]
pub fn singular(word: &str) -> String {
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 2) {
        return format!("{stem}y");
    }
    for ending in ["sses", "shes", "ches", "xes"] {
        if word.ends_with(ending) {
            return word[..word.len() - 2].to_owned();
        }
    }
    let keeps = ["ss", "us", "is"].iter().any(|ending| word.ends_with(ending)) || word.len() < 4;
    word.strip_suffix('s').filter(|_| !keeps).unwrap_or(word).to_owned()
}

/// The verb of a name's words, with its hint.
#[must_use]
pub fn verb(words: &[String]) -> Option<(&str, Hint)> {
    let hint = |word: &str| match word {
        _ if READS.contains(&word) => Some(Hint::Reads),
        _ if WRITES.contains(&word) => Some(Hint::Writes),
        _ => None,
    };
    let clear = words.iter().skip(1).find(|word| CLEAR.contains(&word.as_str()));
    let first = words.first().filter(|word| clear.is_none() || !NOUNS.contains(&word.as_str()));
    first.into_iter().chain(clear).find_map(|word| Some((word.as_str(), hint(word)?)))
}

/// True for a verb of either kind.
#[must_use]
pub fn is_verb(word: &str) -> bool {
    READS.contains(&word) || WRITES.contains(&word)
}

/// The nouns beside the verb, singular: `[order, line]` of `list_order_lines`.
#[must_use]
pub fn nouns(words: &[String]) -> Vec<String> {
    const EMPTY: &[&str] =
        &["a", "an", "the", "to", "of", "for", "by", "in", "on", "all", "and", "or", "from", "with", "manage"];
    let verb = verb(words).map(|(verb, _)| verb.to_owned());
    let rest = words.iter().filter(|word| Some(*word) != verb.as_ref() && !EMPTY.contains(&word.as_str()));
    rest.map(|word| singular(word)).collect()
}

/// True for a destructive verb.
#[must_use]
pub fn destroys(verb: &str) -> bool {
    DESTROYS.contains(&verb)
}

/// True for a verb whose repetition does harm.
#[must_use]
pub fn harms(verb: &str) -> bool {
    HARMS.contains(&verb)
}

/// True for a verb whose repetition leaves the same state.
#[must_use]
pub fn settles(verb: &str) -> bool {
    SETTLES.contains(&verb)
}

/// The word that marks a read by running something: `run_tests`, `lint`.
#[must_use]
pub fn checks(words: &[String]) -> Option<&str> {
    const RUNS: &[&str] = &["test", "tests", "lint", "linter", "typecheck", "compile"];
    let word = match words {
        [first, second, ..] if first == "run" => second,
        [first, ..] => first,
        [] => return None,
    };
    RUNS.contains(&word.as_str()).then_some(word)
}

/// The word that marks an intended repetition: `scroll_down`, `next_page`.
#[must_use]
pub fn repeats(words: &[String]) -> Option<&str> {
    const AGAIN: &[&str] = &["scroll", "append", "dequeue", "pop", "press", "next", "previous"];
    words.iter().map(String::as_str).find(|word| AGAIN.contains(word))
}

/// True for the words of a way out: it asks or tells a person, or ends the work.
#[must_use]
pub fn is_way_out(words: &[String]) -> bool {
    const WAYS: &[&[&str]] = &[
        &["clarify"],
        &["clarification"],
        &["ask", "user"],
        &["ask", "human"],
        &["ask", "customer"],
        &["ask", "question"],
        &["ask", "followup"],
        &["request", "input"],
        &["no", "tool"],
        &["final", "answer"],
        &["final", "response"],
        &["escalate"],
        &["handoff"],
        &["hand", "off"],
        &["transfer", "human"],
        &["transfer", "agent"],
        &["respond", "user"],
        &["reply", "user"],
        &["give", "up"],
    ];
    let has = |word: &&str| words.iter().any(|known| singular(known) == **word || known == *word);
    WAYS.iter().any(|way| way.iter().all(&has))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fall_into_words_however_they_are_written() {
        for (name, expected) in [
            ("cancel_order", "cancel order"),
            ("cancelOrder", "cancel order"),
            ("orders.cancel-order", "orders cancel order"),
            ("getHTTPStatus2xx", "get http status2xx"),
            ("ID", "id"),
            ("__", ""),
        ] {
            assert_eq!(split_name(name).join(" "), expected, "{name}");
        }
        for (plural, one) in
            [("orders", "order"), ("entries", "entry"), ("boxes", "box"), ("status", "status"), ("address", "address")]
        {
            assert_eq!(singular(plural), one);
        }
    }

    #[test]
    fn the_verb_is_found_and_nothing_is_made_up() {
        for (name, expected) in [
            ("get_order_for_update", "get Reads"),
            ("order_create", "create Writes"),
            ("order_status", "-"),
            ("issue_read", "read Reads"),
            ("issue_refund", "issue Writes"),
            ("book_flight", "book Writes"),
            ("run_workflow", "-"),
            ("think", "-"),
        ] {
            let words = split_name(name);
            let told = verb(&words).map_or("-".to_owned(), |(verb, hint)| format!("{verb} {hint:?}"));
            assert_eq!(told, expected, "{name}");
        }
        assert_eq!(nouns(&split_name("list_order_lines_for_customers")), ["order", "line", "customer"]);
        for (name, expected) in
            [("transfer_to_human_agents", true), ("askUser", true), ("transfer_funds", false), ("think", false)]
        {
            assert_eq!(is_way_out(&split_name(name)), expected, "{name}");
        }
    }
}
