//! A fleet as a plain table and as JSON.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value, json};

use super::{
    fleet::FleetSnapshot,
    lists::{self, ListKind, dollars, standing},
    screen,
};
use callgate_client::remote::{at, member_name};

/// The summary, and each list that is not empty, on one screen. Text from agents loses its control characters; colors
/// are removed where standard output is no terminal.
pub(super) fn text(fleet: &FleetSnapshot) -> String {
    let mut text = summary(fleet);
    let lists = ListKind::ALL.map(|list| (list, list.rows(fleet)));
    let lists: Vec<_> = lists.into_iter().filter(|(_, rows)| !rows.is_empty()).collect();
    let counts: Vec<usize> = lists.iter().map(|(_, rows)| rows.len()).collect();
    let shares = screen::shares(&counts, screen::LINES - text.lines().count());
    for ((list, rows), shown) in lists.iter().zip(shares) {
        let more = if *list == ListKind::Sessions && fleet.has_more { "+" } else { "" };
        let of = if shown < rows.len() || !more.is_empty() {
            format!(", {shown} of {}{more}", rows.len())
        } else {
            String::new()
        };
        let _ = writeln!(text, "{}{of}", list.title());
        for line in screen::table(list.columns(), &rows[..shown]) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// The text in place of a table while the server gives no answer.
pub(super) fn unavailable(problem: &str, last: Option<&FleetSnapshot>) -> String {
    let red = colored_style(AnsiColor::Red);
    let mut text = format!("{red}No answer, retrying: {problem}{red:#}");
    if let Some(last) = last {
        let _ = write!(text, "\nLast answer from {}: {}.", last.url, at(Some(&moment(last))));
    }
    text
}

const fn colored_style(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(color)))
}

fn moment(fleet: &FleetSnapshot) -> prost_types::Timestamp {
    callgate_proto::time::timestamp(fleet.at.as_millis())
}

/// Four lines: the server, verdicts a second, its health, the deployment.
fn summary(fleet: &FleetSnapshot) -> String {
    let policy = match fleet.server.policy_version.as_str() {
        "default" => "built-in policy".to_owned(),
        hash => format!("policy {}", hash.get(..8).unwrap_or(hash)),
    };
    let revision = fleet.revision.as_ref().map(|one| format!(" rev {}", one.revision)).unwrap_or_default();
    let mode = if fleet.server.enforced { "" } else { "  shadow" };
    let (bold, yellow) = (Style::new().bold(), colored_style(AnsiColor::Yellow));
    let now = at(Some(&moment(fleet)));
    format!(
        "{bold}callgate {}{bold:#}  {}  {policy}{revision}{yellow}{mode}{yellow:#}  {}\n{}\n{}\n{}\n",
        fleet.server.version,
        screen::clipped(&fleet.url, 28),
        now.get(11..).unwrap_or_default(),
        calls(fleet),
        health(fleet),
        deployment(fleet),
    )
}

fn calls(fleet: &FleetSnapshot) -> String {
    let decisions = [
        ("ALLOW", AnsiColor::Green),
        ("ASK", AnsiColor::Magenta),
        ("WAIT", AnsiColor::Yellow),
        ("REUSE", AnsiColor::Cyan),
        ("DENY", AnsiColor::Red),
        ("STOP", AnsiColor::BrightRed),
    ];
    let cells = decisions.map(|(decision, color)| {
        let rate = fleet.rate(decision);
        let style = if rate > 0.0 { colored_style(color) } else { Style::new().dimmed() };
        format!("{style}{decision} {rate:.1}{style:#}")
    });
    format!("calls/s   {}", cells.join("  "))
}

fn health(fleet: &FleetSnapshot) -> String {
    let (green, red) = (colored_style(AnsiColor::Green), colored_style(AnsiColor::Red));
    let ready = if fleet.is_ready { format!("{green}ready{green:#}") } else { format!("{red}not ready{red:#}") };
    let Some(figures) = &fleet.figures else { return format!("server    {ready}  {}", fleet.without_figures) };
    let mut text = format!("server    {ready}  judging {:.0}  queued {:.0}", figures.at_work, figures.waiting);
    if let Some(ms) = fleet.commit_ms {
        let _ = write!(text, "  commit {ms:.1} ms");
    }
    if fleet.turned_away > 0.0 {
        let _ = write!(text, "  {red}shed {:.1}/s{red:#}", fleet.turned_away);
    }
    let _ = if figures.policy_behind > 0.0 {
        write!(text, "  {red}policy {:.0} behind{red:#}", figures.policy_behind)
    } else if figures.policy_unconfirmed_s > 5.0 {
        write!(text, "  {red}policy unconfirmed {:.0} s{red:#}", figures.policy_unconfirmed_s)
    } else {
        write!(text, "  policy current")
    };
    text
}

fn deployment(fleet: &FleetSnapshot) -> String {
    let all = &fleet.overview;
    let style = if all.open_approvals > 0 { colored_style(AnsiColor::Yellow) } else { Style::new() };
    let missing = list_unavailable(fleet);
    let red = colored_style(AnsiColor::Red);
    let missing = match missing.is_empty() {
        true => String::new(),
        false => format!("  {red}unavailable: {}{red:#}", missing.join(", ")),
    };
    format!(
        "fleet     trees {}, open {}, held {}, stopped {}, halts {}, {style}approvals {}{style:#}{missing}",
        all.active_trees,
        all.open_calls,
        all.held_sessions,
        all.stopped_sessions,
        fleet.halts.len(),
        all.open_approvals,
    )
}

/// Names of the parts that the server could not read: their figures are zero, and mean nothing.
fn list_unavailable(fleet: &FleetSnapshot) -> Vec<String> {
    let missing = fleet.overview.unavailable.iter();
    missing.map(|one| member_name(one.part().as_str_name(), "FLEET_PART_")).collect()
}

/// As JSON; the names are promised (docs/cli.md#top).
pub(super) fn json(fleet: &FleetSnapshot) -> Value {
    const DECISIONS: [&str; 6] = ["ALLOW", "ASK", "WAIT", "REUSE", "DENY", "STOP"];
    let time = |time: Option<&prost_types::Timestamp>| time.map(|time| at(Some(time)).replacen(' ', "T", 1));
    let rates: Map<String, Value> =
        DECISIONS.into_iter().map(|decision| (decision.to_owned(), json!(fleet.rate(decision)))).collect();
    let halted = fleet.sessions.iter().filter(|session| standing(session) == "halted").count();
    let refused = lists::list_refusals(fleet).into_iter().map(|(verdict, rate, count)| {
        json!({"tool": verdict.tool, "decision": verdict.decision, "rule": verdict.rule, "reason": verdict.reason,
            "perSecond": fleet.has_rates.then_some(rate), "count": count})
    });
    let cooling = lists::cooling(fleet)
        .into_iter()
        .map(|(tool, failure, until)| json!({"tool": tool, "failure": failure, "until": time(until)}));
    let near = lists::near(fleet).into_iter().map(|(name, scope, dimension, used, limit)| {
        json!({"name": name, "scope": scope, "dimension": dimension, "used": used, "limit": limit})
    });
    let sessions = fleet.sessions.iter().map(|session| {
        json!({"sessionId": session.session_id, "updateTime": time(session.update_time.as_ref()),
            "calls": session.calls, "openCalls": session.open_calls, "cost": dollars(session.cost_micros),
            "state": standing(session)})
    });
    let figures = fleet.figures.as_ref();
    json!({
        "at": time(Some(&moment(fleet))),
        "server": fleet.url,
        "version": fleet.server.version,
        "policyVersion": fleet.server.policy_version,
        "policyRevision": fleet.revision.as_ref().map(|one| one.revision),
        "enforced": fleet.server.enforced,
        "ready": fleet.is_ready,
        "callsPerSecond": rates,
        "judging": figures.map(|figures| figures.at_work),
        "queued": figures.map(|figures| figures.waiting),
        "shedPerSecond": fleet.has_rates.then_some(fleet.turned_away),
        "commitMs": fleet.commit_ms,
        "policyBehind": figures.map(|figures| figures.policy_behind),
        "callTreesActive": fleet.overview.active_trees,
        "callsOpen": fleet.overview.open_calls,
        "sessionsHeld": fleet.overview.held_sessions,
        "sessionsStopped": fleet.overview.stopped_sessions,
        "sessionsHalted": halted,
        "sessionsHasMore": fleet.has_more,
        "sessions": sessions.collect::<Vec<_>>(),
        "halts": fleet.halts.len(),
        "approvalsOpen": fleet.overview.open_approvals,
        "approvalsOldestTime": time(fleet.overview.oldest_approval_time.as_ref()),
        "refusals": refused.collect::<Vec<_>>(),
        "openCircuitBreakers": cooling.collect::<Vec<_>>(),
        "budgets": near.collect::<Vec<_>>(),
        "unavailable": list_unavailable(fleet),
    })
}
