//! The cards of the page: one figure each, and what to make of it.

use chrono::{DateTime, Utc};
use prost_types::Timestamp;

use super::{count, link, one_or_many, span};
use crate::console::{filters, frame::Frame, pages::troubles::is_cooling};
use callgate_core::domain::time::wait_in_words;
use callgate_proto::{
    time::{millis, unix_ms},
    v1::{Decision, Fleet, HaltScope, PlaneHealth},
};

/// An open question that nobody has answered for so long has been overlooked, in milliseconds.
const OVERLOOKED_MS: i64 = 300_000;
/// For how long a server may go without word of the active policy before somebody should look, in milliseconds.
const UNCONFIRMED_MS: u64 = 10_000;
/// From how many calls in a minute on it means something that most of them are refused.
const MANY: u64 = 20;

/// Decisions, in the order in which they are told.
const DECISIONS: [(Decision, &str); 6] = [
    (Decision::Allow, "ALLOW"),
    (Decision::Ask, "ASK"),
    (Decision::Wait, "WAIT"),
    (Decision::Reuse, "REUSE"),
    (Decision::Deny, "DENY"),
    (Decision::Stop, "STOP"),
];

/// One figure, whether it is bad, and where one does something about it.
pub(super) struct Card {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) figure: String,
    /// Whether that is bad: a class, and the word for it.
    pub(super) tone: &'static str,
    pub(super) verdict: &'static str,
    pub(super) says: String,
    /// Since when that is so, where it counts up.
    pub(super) since: Option<Since>,
    pub(super) link: Option<(String, &'static str)>,
}

/// A time that counts up.
pub(super) struct Since {
    pub(super) machine: String,
    pub(super) words: String,
}

fn since(at: Option<&Timestamp>, now: i64) -> Option<Since> {
    let ms = unix_ms(Some(at?));
    let machine = DateTime::<Utc>::from_timestamp_millis(ms)?.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    Some(Since { machine, words: span(now - ms) })
}

pub(super) fn all(frame: &Frame, fleet: &Fleet, plane: &PlaneHealth, at: i64) -> Vec<Card> {
    let [held, stopped, halts, running] = sessions(frame, fleet);
    let (approvals, tools, budgets) = (approvals(frame, fleet, at), tools(fleet, at), budgets(fleet));
    vec![calls(frame, fleet), approvals, held, stopped, halts, running, tools, budgets, health(frame, plane)]
}

impl Card {
    fn new(id: &'static str, title: &'static str, count: u64, (tone, verdict): (&'static str, &'static str)) -> Self {
        let figure = filters::grouped(count);
        Self { id, title, figure, tone, verdict, says: String::new(), since: None, link: None }
    }

    fn saying(self, says: impl Into<String>) -> Self {
        Self { says: says.into(), ..self }
    }

    fn leading(self, path: Option<String>, text: &'static str) -> Self {
        Self { link: path.map(|path| (path, text)), ..self }
    }

    /// In the sentence that says what needs somebody.
    pub(super) fn need(&self) -> String {
        format!("{}: {}", self.title.to_lowercase(), self.figure)
    }
}

fn unless_none(count: u64, tone: &'static str, verdict: &'static str) -> (&'static str, &'static str) {
    if count > 0 { (tone, verdict) } else { ("good", "fine") }
}

fn approvals(frame: &Frame, fleet: &Fleet, at: i64) -> Card {
    let oldest = fleet.oldest_approval_time.as_ref();
    let tone = match oldest.is_some_and(|asked| at - unix_ms(Some(asked)) > OVERLOOKED_MS) {
        true => ("bad", "overlooked?"),
        false => unless_none(fleet.open_approvals, "ask", "to be answered"),
    };
    let says = if oldest.is_some() { "The oldest is open for" } else { "Nobody is asked anything." };
    let card = Card::new("approvals", "Open approvals", fleet.open_approvals, tone).saying(says);
    Card { since: since(oldest, at), ..card }.leading(link(frame, "/approvals", ""), "Answer them")
}

/// Sessions held and stopped, what is halted, and what runs.
fn sessions(frame: &Frame, fleet: &Fleet) -> [Card; 4] {
    let path = |state: &str| link(frame, "/sessions", &format!("?state={state}"));
    let halts = fleet.halts.len() as u64;
    let all = fleet.halts.iter().any(|halt| halt.scope() == HaltScope::Tenant);
    let halted = if all { ("bad", "everything is halted") } else { unless_none(halts, "warn", "by a person") };
    let running = format!(
        "Let through and not reported yet, in {}. {} heard of in the last hour.",
        one_or_many(fleet.calling_trees, "call tree", "call trees"),
        one_or_many(fleet.active_trees, "call tree was", "call trees were"),
    );
    let (held, stopped) = (fleet.held_sessions, fleet.stopped_sessions);
    [
        Card::new("held", "Sessions held", held, unless_none(held, "ask", "wait for a person"))
            .saying("Each waits for the answer to a question.")
            .leading(path("waits"), "Look at them"),
        Card::new("stopped", "Sessions stopped", stopped, unless_none(stopped, "warn", "look why"))
            .saying("In the last hour, by a budget, a loop or a halt; nothing was let through since.")
            .leading(path("stopped"), "Look at them"),
        Card::new("halts", "Halts", halts, halted)
            .saying("Sessions, agents and tools that a person halted, until a person resumes them.")
            .leading(path("halted"), "Halt or resume"),
        Card::new("running", "Calls running", fleet.open_calls, ("", ""))
            .saying(running)
            .leading(path("running"), "Look at them"),
    ]
}

fn tools(fleet: &Fleet, at: i64) -> Card {
    let cooling = fleet.tools.iter().filter(|tool| is_cooling(tool, at)).count() as u64;
    let count = fleet.tools.len() as u64;
    let says = match count {
        0 => "No tool is left alone, and none keeps failing.".to_owned(),
        _ => format!("{cooling} left alone for a while, {} failing or being tried out.", count - cooling),
    };
    let card = Card::new("tools", "Tools in trouble", count, unless_none(count, "warn", "they fail")).saying(says);
    card.leading((count > 0).then(|| "#troubles".to_owned()), "Which, and until when")
}

fn budgets(fleet: &Fleet) -> Card {
    let count = fleet.budgets.len() as u64;
    let over = fleet.budgets.iter().filter(|one| one.used >= one.limit).count();
    let (tone, says) = match over {
        0 => (
            unless_none(count, "warn", "four fifths used"),
            "Of the tenant and its agents today, and of call trees of the last hour. What single runs have used is on \
             the pages of their sessions."
                .to_owned(),
        ),
        over => (("bad", "used up"), format!("{over} used up: what they cover is stopped.")),
    };
    let card = Card::new("budgets", "Budgets near their end", count, tone).saying(says);
    card.leading((count > 0).then(|| "#spent".to_owned()), "Whose")
}

fn calls(frame: &Frame, fleet: &Fleet) -> Card {
    let total: u64 = fleet.last_minute.iter().map(|one| one.count).sum();
    let refused = count(&fleet.last_minute, Decision::Deny) + count(&fleet.last_minute, Decision::Stop);
    let told = DECISIONS.map(|(decision, name)| (name, count(&fleet.last_minute, decision)));
    let told: Vec<String> = told
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {}", filters::grouped(count)))
        .collect();
    let (tone, verdict) = match total {
        0 => ("muted", "quiet"),
        _ if total >= MANY && refused * 2 > total => ("bad", "most are refused"),
        _ => ("good", "fine"),
    };
    let says = match total {
        0 => "No call in the last minute.".to_owned(),
        _ => format!("{} in the last minute: {}.", filters::grouped(total), told.join(", ")),
    };
    Card {
        id: "calls",
        title: "Calls a second",
        figure: format!("{:.1}", total as f64 / 60.0),
        tone,
        verdict,
        says,
        since: None,
        link: link(frame, "/sessions", "").map(|path| (path, "Sessions")),
    }
}

/// Whether the plane itself is well; that the page is there says that server and database answer.
fn health(frame: &Frame, plane: &PlaneHealth) -> Card {
    let unconfirmed = millis(plane.policy_unconfirmed.as_ref());
    let (figure, tone, verdict, says) = if plane.policy_behind > 0 {
        let says = "This server cannot read the active policy, and judges by an older one: see its log.";
        ("Old policy", "bad", "see the log", says.to_owned())
    } else if unconfirmed > UNCONFIRMED_MS {
        let says =
            format!("For {} nobody could confirm that the policy is the active one.", wait_in_words(unconfirmed));
        ("Policy unconfirmed", "bad", "see the log", says)
    } else if plane.waiting() > 0 {
        let waiting = one_or_many(plane.waiting(), "call waits", "calls wait");
        (
            "Busy",
            "warn",
            "a queue",
            format!("{waiting} for their turn on this server: more is asked than it can judge."),
        )
    } else if !plane.enforced {
        ("Only watching", "warn", "shadow", "The policy refuses nothing; it is only told what it would do.".to_owned())
    } else {
        ("Well", "good", "fine", "Server and database answer, and the active policy judges.".to_owned())
    };
    Card {
        id: "plane",
        title: "The plane",
        figure: figure.to_owned(),
        tone,
        verdict,
        says,
        since: None,
        link: link(frame, "/policy", "").map(|path| (path, "Policy")),
    }
}
