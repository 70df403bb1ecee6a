//! The table of a fleet, as text.

use std::collections::BTreeMap;

use super::{
    figures::{ReplicaFigures, VerdictLabels},
    fleet::FleetSnapshot,
    render,
};
use callgate_core::domain::time::Timestamp;
use callgate_proto::v1::{
    Approval, BudgetDimension, BudgetScope, Decision, DecisionCount, FailureKind, Fleet, HaltScope, HaltState,
    NearBudget, ServerInfo, SessionStatus, SessionSummary, ToolTrouble,
};

const NOW_S: i64 = 1_700_000_000;

fn ago(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds: NOW_S - seconds, nanos: 0 })
}

fn verdict(decision: &str, rule: &str, tool: &str) -> VerdictLabels {
    VerdictLabels {
        decision: decision.into(),
        rule: rule.into(),
        reason: "duplicate_call_blocked".into(),
        tool: tool.into(),
    }
}

fn overview() -> Fleet {
    let trouble = ToolTrouble {
        tool: "get_weather".into(),
        circuit_breaker_failure: FailureKind::RateLimited.into(),
        circuit_breaker_open_end_time: ago(-90),
        ..ToolTrouble::default()
    };
    let budget = NearBudget {
        scope: BudgetScope::CallTree.into(),
        name: "desk-1".into(),
        dimension: BudgetDimension::CostMicros.into(),
        used: 45_000_000,
        limit: 50_000_000,
    };
    let count = |decision: Decision, count| DecisionCount { decision: decision.into(), count };
    Fleet {
        last_minute: vec![count(Decision::Allow, 720), count(Decision::Deny, 30)],
        open_calls: 1_001,
        active_trees: 1_234,
        held_sessions: 7,
        stopped_sessions: 3,
        open_approvals: 612,
        oldest_approval_time: ago(240),
        tools: vec![trouble],
        budgets: vec![budget],
        ..Fleet::default()
    }
}

fn fleet() -> FleetSnapshot {
    let session = |id: &str, calls, open_calls, status: SessionStatus| SessionSummary {
        session_id: id.into(),
        update_time: ago(75),
        calls,
        open_calls,
        status: status.into(),
        cost_micros: 1_230_000,
        ..SessionSummary::default()
    };
    let verdicts = BTreeMap::from([
        (verdict("ALLOW", "none", "pay"), 100.0),
        (verdict("DENY", "same_call", "pay"), 7.0),
        (verdict("STOP", "budget", "search"), 9.0),
    ]);
    let rates = BTreeMap::from([(verdict("ALLOW", "none", "pay"), 12.0), (verdict("DENY", "same_call", "pay"), 0.5)]);
    FleetSnapshot {
        at: Timestamp::from_millis(NOW_S * 1_000),
        url: "http://127.0.0.1:7600".into(),
        server: ServerInfo {
            version: "0.1.0".into(),
            policy_version: "9f2c4b6a8d0e1f23".into(),
            enforced: true,
            ..ServerInfo::default()
        },
        is_ready: true,
        sessions: vec![session("desk-1", 12, 1, SessionStatus::Held), session("desk-2", 40, 0, SessionStatus::Halted)],
        overview: overview(),
        halts: vec![HaltState {
            scope: HaltScope::Tool.into(),
            name: "drop_table".into(),
            by: "eve".into(),
            reason: "it\u{1b}[31m drops".into(),
            create_time: ago(3_700),
        }],
        approvals: vec![Approval {
            approval_id: "a1".into(),
            session_id: "desk-1".into(),
            tool: "pay".into(),
            create_time: ago(240),
            expire_time: ago(-3_600),
            ..Approval::default()
        }],
        figures: Some(ReplicaFigures { verdicts, ..ReplicaFigures::default() }),
        has_rates: true,
        rates,
        ..FleetSnapshot::default()
    }
}

fn render_fleet(fleet: &FleetSnapshot) -> String {
    anstream::adapter::strip_str(&render::text(fleet)).to_string()
}

#[test]
fn top_shows_the_summary_and_every_list_that_is_not_empty() {
    let text = render_fleet(&fleet());
    for line in [
        "callgate 0.1.0  http://127.0.0.1:7600  policy 9f2c4b6a  22:13:20Z\n",
        "calls/s   ALLOW 12.0  ASK 0.0  WAIT 0.0  REUSE 0.0  DENY 0.5  STOP 0.0\n",
        "server    ready  judging 0  queued 0  policy current\n",
        "fleet     trees 1234, open 1001, held 7, stopped 3, halts 1, approvals 612\n",
        "  desk-1   1m      12     1     $1.23  held\n",
        "  desk-2   1m      40     0     $1.23  halted\n",
        "  4m   1h       pay   desk-1   any approver\n",
        "Refusals by this replica, 1 of 2\n",
        "  pay   DENY      same_call  duplicate_call_blocked  0.5  7\n",
        "  get_weather  rate_limited  1m\n",
        "  desk-1  call_tree  cost_micros  $45.00  $50.00  90%\n",
        "  tool  drop_table  1h     eve  it [31m drops\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "text from agents has no control characters");
    assert!(!render_fleet(&FleetSnapshot { halts: vec![], ..fleet() }).contains("Halts"), "an empty list is left out");
}

#[test]
fn top_shows_no_old_figure_while_the_server_is_away() {
    let text = render::unavailable("connection refused", Some(&fleet()));
    let text = anstream::adapter::strip_str(&text).to_string();
    let expected = "No answer, retrying: connection refused\n\
        Last answer from http://127.0.0.1:7600: 2023-11-14 22:13:20Z.";
    assert_eq!(text, expected);
}

#[test]
fn top_fits_a_screen_and_says_how_much_it_leaves_out() {
    let one = fleet();
    let many = |session: &SessionSummary| vec![SessionSummary { session_id: "s".repeat(300), ..session.clone() }; 150];
    let full = FleetSnapshot {
        url: "https://callgate.agents.svc.cluster.example:7600".into(),
        sessions: many(&one.sessions[0]),
        has_more: true,
        approvals: vec![one.approvals[0].clone(); 500],
        halts: vec![one.halts[0].clone(); 40],
        ..fleet()
    };
    let text = render_fleet(&full);
    let lists = text.lines();
    assert!(lists.clone().count() <= 23 && lists.clone().all(|line| line.chars().count() <= 80), "{text}");
    for title in ["Sessions, 2 of 150+", "Approvals, 1 of 500", "Halts, 1 of 40"] {
        assert!(lists.clone().any(|line| line == title), "{title:?} is not in\n{text}");
    }
}
