//! The cards of the page: one figure each, with its severity and a link.

use chrono::{DateTime, Utc};
use prost_types::Timestamp;

use super::{count, find_problem, link, one_or_many, span};
use crate::console::{filters, frame::Frame, pages::unhealthy_tools::is_cooling};
use callgate_core::domain::time::wait_in_words;
use callgate_proto::{
    time::{millis, unix_ms},
    v1::{Decision, Fleet, FleetPart, HaltScope, ServerHealth},
};

/// Age from which an open request counts as overlooked, in milliseconds.
const OVERLOOKED_MS: i64 = 300_000;
/// Time without confirmation of the active policy from which the card warns, in milliseconds.
const UNCONFIRMED_MS: u64 = 10_000;
/// Calls in a minute from which a majority of refusals is significant.
const MANY: u64 = 20;

/// Decisions, in their order on the page.
const DECISIONS: [(Decision, &str); 6] = [
    (Decision::Allow, "ALLOW"),
    (Decision::Ask, "ASK"),
    (Decision::Wait, "WAIT"),
    (Decision::Reuse, "REUSE"),
    (Decision::Deny, "DENY"),
    (Decision::Stop, "STOP"),
];

/// One figure, with its severity and a link to act.
pub(super) struct Card {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) figure: String,
    /// Its severity: a class, and the word for it.
    pub(super) tone: &'static str,
    pub(super) verdict: &'static str,
    pub(super) says: String,
    /// Since when that is so, where it counts up.
    pub(super) since: Option<ElapsedTime>,
    pub(super) link: Option<(String, &'static str)>,
}

/// A time that counts up.
pub(super) struct ElapsedTime {
    pub(super) machine: String,
    pub(super) words: String,
}

fn since(at: Option<&Timestamp>, now: i64) -> Option<ElapsedTime> {
    let ms = unix_ms(Some(at?));
    let machine = DateTime::<Utc>::from_timestamp_millis(ms)?.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    Some(ElapsedTime { machine, words: span(now - ms) })
}

pub(super) fn list_cards(frame: &Frame, fleet: &Fleet, plane: &ServerHealth, at: i64) -> Vec<Card> {
    let [held, stopped, halts, running] = sessions(frame, fleet);
    let (approvals, tools, budgets) = (approvals(frame, fleet, at), tools(fleet, at), budgets(fleet));
    let cards = [
        (Some(FleetPart::Decisions), calls(frame, fleet)),
        (Some(FleetPart::Approvals), approvals),
        (Some(FleetPart::Approvals), held),
        (Some(FleetPart::Stopped), stopped),
        (None, halts),
        (Some(FleetPart::Running), running),
        (Some(FleetPart::Tools), tools),
        (Some(FleetPart::Budgets), budgets),
        (None, health(frame, plane)),
    ];
    let known = |(part, card): (Option<FleetPart>, Card)| match part.and_then(|part| find_problem(fleet, &[part])) {
        Some(problem) => card.unavailable(&problem),
        None => card,
    };
    cards.into_iter().map(known).collect()
}

impl Card {
    fn new(id: &'static str, title: &'static str, count: u64, (tone, verdict): (&'static str, &'static str)) -> Self {
        let figure = filters::group_thousands(count);
        Self { id, title, figure, tone, verdict, says: String::new(), since: None, link: None }
    }

    fn saying(self, says: impl Into<String>) -> Self {
        Self { says: says.into(), ..self }
    }

    fn leading(self, path: Option<String>, text: &'static str) -> Self {
        Self { link: path.map(|path| (path, text)), ..self }
    }

    /// The card without its figure, which could not be read.
    fn unavailable(self, problem: &str) -> Self {
        let says = format!("Data unavailable: {problem}. Retrying automatically.");
        Self { figure: "–".to_owned(), tone: "muted", verdict: "unknown", says, since: None, ..self }
    }

    /// Text for the list of items that need attention.
    pub(super) fn need(&self) -> String {
        format!("{}: {}", self.title.to_lowercase(), self.figure)
    }
}

fn unless_none(count: u64, tone: &'static str, verdict: &'static str) -> (&'static str, &'static str) {
    if count > 0 { (tone, verdict) } else { ("good", "ok") }
}

fn approvals(frame: &Frame, fleet: &Fleet, at: i64) -> Card {
    let oldest = fleet.oldest_approval_time.as_ref();
    let tone = match oldest.is_some_and(|asked| at - unix_ms(Some(asked)) > OVERLOOKED_MS) {
        true => ("bad", "over 5 min"),
        false => unless_none(fleet.open_approvals, "ask", "waiting"),
    };
    let says = if oldest.is_some() { "The oldest is open for" } else { "None is open." };
    let card = Card::new("approvals", "Open approval requests", fleet.open_approvals, tone).saying(says);
    Card { since: since(oldest, at), ..card }.leading(link(frame, "/approvals", ""), "Review")
}

/// Sessions held and stopped, halts, and running calls.
fn sessions(frame: &Frame, fleet: &Fleet) -> [Card; 4] {
    let path = |state: &str| link(frame, "/sessions", &format!("?state={state}"));
    let halts = fleet.halts.len() as u64;
    let all = fleet.halts.iter().any(|halt| halt.scope() == HaltScope::Tenant);
    let halted = if all { ("bad", "everything halted") } else { unless_none(halts, "warn", "active") };
    let trees = one_or_many(fleet.calling_trees, "call tree", "call trees");
    let mut running = format!("Allowed and not reported yet, in {trees}.");
    if find_problem(fleet, &[FleetPart::Budgets]).is_none() {
        let active = one_or_many(fleet.active_trees, "call tree was", "call trees were");
        running = format!("{running} {active} active in the last hour.");
    }
    let (held, stopped) = (fleet.held_sessions, fleet.stopped_sessions);
    [
        Card::new("held", "Sessions waiting", held, unless_none(held, "ask", "for approval"))
            .saying("Each waits for the answer to an approval request.")
            .leading(path("held"), "View"),
        Card::new("stopped", "Sessions stopped", stopped, unless_none(stopped, "warn", "check"))
            .saying("In the last hour, by a budget, a loop or a halt. No call was allowed since.")
            .leading(path("stopped"), "View"),
        Card::new("halts", "Halts", halts, halted)
            .saying("Sessions, agents and tools that an operator halted, until they are resumed.")
            .leading(path("halted"), "Halt or resume"),
        Card::new("running", "Calls running", fleet.open_calls, ("", ""))
            .saying(running)
            .leading(path("running"), "View"),
    ]
}

fn tools(fleet: &Fleet, at: i64) -> Card {
    let cooling = fleet.tools.iter().filter(|tool| is_cooling(tool, at)).count() as u64;
    let count = fleet.tools.len() as u64;
    let says = match count {
        0 => "No open circuit breaker and no repeated failures.".to_owned(),
        _ => format!("{cooling} with an open circuit breaker, {} failing or half-open.", count - cooling),
    };
    let card = Card::new("tools", "Unhealthy tools", count, unless_none(count, "warn", "degraded")).saying(says);
    card.leading((count > 0).then(|| "#troubles".to_owned()), "Details")
}

fn budgets(fleet: &Fleet) -> Card {
    let count = fleet.budgets.len() as u64;
    let over = fleet.budgets.iter().filter(|one| one.used >= one.limit).count();
    let (tone, says) = match over {
        0 => (
            unless_none(count, "warn", "80 % used"),
            "Of the tenant and its agents today (UTC), and of call trees of the last hour. The pages of sessions show \
             the budgets of single runs."
                .to_owned(),
        ),
        over => (("bad", "exhausted"), format!("{over} exhausted: their calls are stopped.")),
    };
    let card = Card::new("budgets", "Budgets near their limit", count, tone).saying(says);
    card.leading((count > 0).then(|| "#spent".to_owned()), "Details")
}

fn calls(frame: &Frame, fleet: &Fleet) -> Card {
    let total: u64 = fleet.last_minute.iter().map(|one| one.count).sum();
    let refused = count(&fleet.last_minute, Decision::Deny) + count(&fleet.last_minute, Decision::Stop);
    let told = DECISIONS.map(|(decision, name)| (name, count(&fleet.last_minute, decision)));
    let told: Vec<String> = told
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {}", filters::group_thousands(count)))
        .collect();
    let (tone, verdict) = match total {
        0 => ("muted", "idle"),
        _ if total >= MANY && refused * 2 > total => ("bad", "most refused"),
        _ => ("good", "ok"),
    };
    let says = match total {
        0 => "No call in the last minute.".to_owned(),
        _ => format!("{} in the last minute: {}.", filters::group_thousands(total), told.join(", ")),
    };
    Card {
        id: "calls",
        title: "Calls per second",
        figure: format!("{:.1}", total as f64 / 60.0),
        tone,
        verdict,
        says,
        since: None,
        link: link(frame, "/sessions", "").map(|path| (path, "Sessions")),
    }
}

/// Health of the service. The page itself shows that server and database respond.
fn health(frame: &Frame, plane: &ServerHealth) -> Card {
    let unconfirmed = millis(plane.policy_unconfirmed.as_ref());
    let (figure, tone, verdict, says) = if plane.policy_behind > 0 {
        let says = "This server cannot read the active policy, and evaluates by an older one. Check its log.";
        ("Old policy", "bad", "check the log", says.to_owned())
    } else if unconfirmed > UNCONFIRMED_MS {
        let says = format!("The active policy could not be confirmed for {}.", wait_in_words(unconfirmed));
        ("Policy unconfirmed", "bad", "check the log", says)
    } else if plane.queued() > 0 {
        let waiting = one_or_many(plane.queued(), "call is queued", "calls are queued");
        ("Busy", "warn", "queue", format!("{waiting} on this server: the load exceeds its capacity."))
    } else if !plane.enforced {
        ("Shadow mode", "warn", "shadow", "The policy refuses nothing. Its decisions are only recorded.".to_owned())
    } else {
        ("Healthy", "good", "ok", "Server, database and active policy respond.".to_owned())
    };
    Card {
        id: "plane",
        title: "Service",
        figure: figure.to_owned(),
        tone,
        verdict,
        says,
        since: None,
        link: link(frame, "/policy", "").map(|path| (path, "Policy")),
    }
}
