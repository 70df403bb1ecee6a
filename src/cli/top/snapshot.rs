//! One look at a fleet, without a screen.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{
    fleet::Fleet,
    lists::{self, List, Order, dollars, standing},
    view,
};
use crate::cli::remote::at;
use callgate_proto::time::unix_ms;

/// As text: the lines of the screen's head, and each list that is not empty.
pub(super) fn text(fleet: &Fleet) -> String {
    let mut text = String::new();
    for line in view::summary(fleet) {
        let _ = writeln!(text, "{}", line.to_string().trim_end());
    }
    for list in List::ALL {
        let rows = list.rows(fleet, Order::default());
        if rows.is_empty() {
            continue;
        }
        let note = list.note(&rows);
        let names = list.columns().iter().map(|(name, _)| (*name).to_owned()).collect();
        let lines: Vec<Vec<String>> = std::iter::once(names).chain(rows.into_iter().map(|row| row.cells)).collect();
        let widest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..list.columns().len()).map(widest).collect();
        let _ = writeln!(text, "\n{}", list.title());
        for line in &lines {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ").replace(char::is_control, " ");
            let _ = writeln!(text, "  {}", line.trim_end());
        }
        if let Some(note) = note {
            let _ = writeln!(text, "  {note}");
        }
    }
    text
}

/// As JSON; the names are promised (docs/cli.md#top).
pub(super) fn json(fleet: &Fleet) -> Value {
    const DECISIONS: [&str; 6] = ["ALLOW", "ASK", "WAIT", "REUSE", "DENY", "STOP"];
    let time = |time: Option<&prost_types::Timestamp>| time.map(|time| at(Some(time)).replacen(' ', "T", 1));
    let now = prost_types::Timestamp { seconds: fleet.at.as_millis() / 1_000, nanos: 0 };
    let rates: Map<String, Value> =
        DECISIONS.into_iter().map(|decision| (decision.to_owned(), json!(fleet.rate(decision)))).collect();
    let are = |what: &str| fleet.sessions.iter().filter(|session| standing(fleet, session) == what).count();
    let oldest = fleet.approvals.iter().min_by_key(|approval| unix_ms(approval.create_time.as_ref()));
    let refused = lists::refused(fleet).into_iter().map(|(verdict, rate, count)| {
        json!({"tool": verdict.tool, "decision": verdict.decision, "rule": verdict.rule, "reason": verdict.reason,
            "perSecond": fleet.has_rates.then_some(rate), "count": count})
    });
    let cooling = lists::cooling(fleet)
        .into_iter()
        .map(|(tool, failure, until, _)| json!({"tool": tool, "failure": failure, "until": time(until)}));
    let near = lists::near(fleet).into_iter().map(|(session, scope, dimension, used, limit)| {
        json!({"sessionId": session, "scope": scope, "dimension": dimension, "used": used, "limit": limit})
    });
    let sessions = fleet.sessions.iter().map(|session| {
        json!({"sessionId": session.session_id, "updateTime": time(session.update_time.as_ref()),
            "calls": session.calls, "openCalls": session.open_calls, "cost": dollars(session.cost_micros),
            "state": standing(fleet, session)})
    });
    let figures = fleet.figures.as_ref();
    json!({
        "at": time(Some(&now)),
        "server": fleet.url,
        "version": fleet.server.version,
        "policyVersion": fleet.server.policy_version,
        "policyRevision": fleet.revision.as_ref().map(|one| one.revision),
        "enforced": fleet.server.enforced,
        "ready": fleet.is_ready,
        "callsPerSecond": fleet.has_rates.then_some(rates),
        "judging": figures.map(|figures| figures.at_work),
        "waiting": figures.map(|figures| figures.waiting),
        "turnedAwayPerSecond": fleet.has_rates.then_some(fleet.turned_away),
        "commitMs": fleet.commit_ms,
        "policyBehind": figures.map(|figures| figures.policy_behind),
        "sessionsHeld": are("held"),
        "sessionsStopped": are("stopped"),
        "sessionsHalted": are("halted"),
        "sessionsHasMore": fleet.has_more,
        "sessions": sessions.collect::<Vec<_>>(),
        "halts": fleet.halts.len(),
        "approvalsOpen": fleet.approvals.len(),
        "approvalsOldestTime": oldest.and_then(|approval| time(approval.create_time.as_ref())),
        "refusals": refused.collect::<Vec<_>>(),
        "cooldowns": cooling.collect::<Vec<_>>(),
        "budgets": near.collect::<Vec<_>>(),
    })
}
