//! The screen as people see it, in a terminal of 80 columns and in smaller ones.

use std::collections::BTreeMap;

use ratatui::{Terminal, backend::TestBackend};

use super::{
    figures::{Figures, Verdict},
    fleet::Fleet,
    lists::List,
    view::{Screen, Wish},
};
use callgate_core::domain::time::Timestamp;
use callgate_proto::v1::{
    Approval, BudgetDimension, BudgetLeft, BudgetScope, CallState, CallSummary, Cooldown, FailureKind, HaltScope,
    HaltState, ServerInfo, SessionState, SessionSummary,
};

const NOW_S: i64 = 1_700_000_000;

fn ago(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds: NOW_S - seconds, nanos: 0 })
}

fn fleet() -> Fleet {
    let session = |id: &str, calls, open_calls, halted| SessionSummary {
        session_id: id.into(),
        update_time: ago(75),
        calls,
        open_calls,
        halted,
        cost_micros: 1_230_000,
        ..SessionSummary::default()
    };
    let held = CallSummary { state: CallState::Held.into(), tool: "pay".into(), ..CallSummary::default() };
    let cooldown =
        Cooldown { tool: "get_weather".into(), failure: FailureKind::RateLimited.into(), expire_time: ago(-90) };
    let budget = |used| BudgetLeft {
        extra: 0,
        scope: BudgetScope::CallTree.into(),
        dimension: BudgetDimension::CostMicros.into(),
        used,
        limit: 50_000_000,
    };
    let state = SessionState {
        session_id: "desk-1".into(),
        calls: vec![held],
        cooldowns: vec![cooldown],
        budgets: vec![budget(45_000_000), budget(1)],
        ..SessionState::default()
    };
    let verdict = |decision: &str, rule: &str, tool: &str| Verdict {
        decision: decision.into(),
        rule: rule.into(),
        reason: "duplicate_call_blocked".into(),
        tool: tool.into(),
    };
    let verdicts = BTreeMap::from([
        (verdict("ALLOW", "none", "pay"), 100.0),
        (verdict("DENY", "same_call", "pay"), 7.0),
        (verdict("STOP", "budget", "search"), 9.0),
    ]);
    let rates = BTreeMap::from([(verdict("ALLOW", "none", "pay"), 12.0), (verdict("DENY", "same_call", "pay"), 0.5)]);
    Fleet {
        at: Timestamp::from_millis(NOW_S * 1_000),
        url: "http://127.0.0.1:7600".into(),
        server: ServerInfo {
            version: "0.1.0".into(),
            policy_version: "9f2c4b6a8d0e1f23".into(),
            enforced: true,
            ..ServerInfo::default()
        },
        is_ready: true,
        sessions: vec![session("desk-1", 12, 1, false), session("desk-2", 40, 0, true)],
        states: vec![state],
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
        figures: Some(Figures { verdicts, ..Figures::default() }),
        has_rates: true,
        rates,
        ..Fleet::default()
    }
}

fn drawn(screen: &Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| screen.draw(frame)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(line).collect()
}

#[test]
fn a_fleet_fits_into_eighty_columns() {
    let mut screen = Screen::default();
    assert!(drawn(&screen, 80, 24).starts_with("asking the server"));
    screen.see(fleet());
    let seen = drawn(&screen, 80, 24);
    for line in [
        "callgate 0.1.0  http://127.0.0.1:7600  policy 9f2c4b6a8d0e1f23  22:13:20Z\n",
        "calls/s   ALLOW 12.0  ASK 0.0  WAIT 0.0  REUSE 0.0  DENY 0.5  STOP 0.0\n",
        "plane     ready  judging 0  waiting 0  policy current\n",
        "sessions  2, calls open 1, held 1, stopped 0, halted 1  approvals 1, oldest 4m\n",
        " Sessions 2  Approvals 1  Refusals 2  Cooldowns 1  Budgets 1  Halts 1\n",
        "desk-1                                   1m     12      1     $1.23     held\n",
        "desk-2                                   1m     40      0     $1.23     halted\n",
    ] {
        assert!(seen.contains(line), "{line:?} is not in\n{seen}");
    }
    assert_eq!(screen.sort(), Wish::Nothing);
    assert_eq!(screen.sort(), Wish::Nothing);
    let seen = drawn(&screen, 80, 24);
    assert!(seen.find("desk-2") < seen.find("desk-1"), "by calls:\n{seen}");
}

#[test]
fn every_list_tells_its_rows() {
    let mut screen = Screen::default();
    screen.see(fleet());
    for (list, cells) in [
        (List::Approvals, vec!["4m", "1h", "pay", "desk-1", "anybody"]),
        (List::Refusals, vec!["pay", "DENY", "same_call", "duplicate_call_blocked", "0.5", "7"]),
        (List::Cooldowns, vec!["get_weather", "rate_limited", "1m", "desk-1"]),
        (List::Budgets, vec!["desk-1", "call_tree", "cost_micros", "$45.00", "$50.00", "90%"]),
        (List::Halts, vec!["tool", "drop_table", "1h", "eve"]),
    ] {
        screen.turn(1);
        assert_eq!(screen.list, list);
        let seen = drawn(&screen, 80, 24);
        let row = seen.lines().nth(6).unwrap_or_default();
        let mut rest = row;
        for cell in cells {
            let at = rest.find(cell).unwrap_or_else(|| panic!("{cell} is not in {row:?}"));
            rest = &rest[at + cell.len()..];
        }
        assert!(!seen.contains('\u{1b}'), "what agents send does not reach the terminal");
    }
    screen.turn(1);
    assert_eq!(screen.list, List::Sessions, "and round again");
}

#[test]
fn a_row_leads_to_its_session_and_back() {
    let mut screen = Screen::default();
    screen.see(fleet());
    screen.step(5);
    assert_eq!(screen.open(), Wish::Details("desk-2".into()));
    assert!(drawn(&screen, 80, 24).contains("desk-2  asking"));
    let call = CallSummary {
        tool: "get_order".into(),
        arguments: "{order_id: 42}".into(),
        state: CallState::Failed.into(),
        error_message: "slow down".into(),
        judge_time: ago(60),
        ..CallSummary::default()
    };
    let state = SessionState { is_stopped: true, calls: vec![call], ..SessionState::default() };
    screen.learn("another", Err("late".into()));
    screen.learn("desk-2", Ok(state));
    let seen = drawn(&screen, 80, 24);
    assert!(seen.contains("desk-2  run -; stopped: no call is let through"), "{seen}");
    assert!(seen.contains("22:12:20 failed    get_order {order_id: 42}"), "{seen}");
    screen.back();
    assert!(drawn(&screen, 80, 24).contains("desk-1"));
}

#[test]
fn a_server_that_is_away_is_told_of_and_no_figure_is_shown_that_may_be_old() {
    let mut screen = Screen::default();
    screen.see(fleet());
    screen.miss("no answer: connection refused".into());
    let seen = drawn(&screen, 80, 24);
    assert!(seen.starts_with("asking again: no answer: connection refused\n"), "{seen}");
    assert!(seen.contains("seen last at 2023-11-14 22:13:20Z") && !seen.contains("desk-1"), "{seen}");
    screen.see(fleet());
    assert!(!drawn(&screen, 80, 24).contains("asking again"));
}

#[test]
fn tools_that_metrics_do_not_tell_by_name_are_explained() {
    let mut screen = Screen::default();
    let mut fleet = fleet();
    let figures = fleet.figures.as_mut().expect("some");
    let others = figures.verdicts.keys().find(|verdict| verdict.decision == "DENY").cloned().expect("one");
    figures.verdicts = BTreeMap::from([(Verdict { tool: "_OTHER".into(), ..others }, 3.0)]);
    screen.see(fleet);
    screen.turn(2);
    let seen = drawn(&screen, 80, 24);
    assert!(seen.contains("(others): tools that the policy does not declare") && !seen.contains("_OTHER"), "{seen}");
}

#[test]
fn names_that_begin_alike_are_told_apart() {
    let (mut screen, mut fleet) = (Screen::default(), fleet());
    for (session, n) in fleet.sessions.iter_mut().zip(1..) {
        session.session_id = format!("{}-{n}", "nightly".repeat(9));
    }
    screen.see(fleet);
    let seen = drawn(&screen, 80, 24);
    assert!(seen.contains("nightly-1 ") && seen.contains("nightly-2 "), "{seen}");
}

#[test]
fn no_size_of_a_terminal_is_too_small() {
    let mut screen = Screen::default();
    screen.see(fleet());
    for (width, height) in [(1, 1), (10, 3), (40, 6), (200, 60)] {
        for _ in List::ALL {
            let _ = drawn(&screen, width, height);
            screen.turn(1);
        }
    }
    assert_eq!(screen.pause(), Wish::Pause(true));
    assert!(drawn(&screen, 80, 24).contains("paused"));
}
