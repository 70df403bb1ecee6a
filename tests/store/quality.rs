//! Tool quality: hourly counts equal the view's daily counts.

use callgate_core::{
    domain::{call::Request, quality::Flaw, report::OutcomeReport},
    policy,
};
use callgate_server::gate::{Gate, QualityReport};

use crate::common::{
    gates::{ask, describe_answer, evaluate, failure, gate, quality, record, success},
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  unknown_tools: deny
  validation: {coercion: repair}
  tool_schemas:
    look: {effect: read}
    pay: {once: true}
    search: {effect: read}
    order:
      effect: write
      schema:
        type: object
        properties:
          items: {type: array, items: {type: object, properties: {quantity: {type: integer, minimum: 1}}}}
";

/// As rows of the view would be.
fn rows(report: &QualityReport) -> Vec<String> {
    let mut rows: Vec<String> = report
        .tools
        .iter()
        .map(|told| {
            let c = &told.counts;
            format!(
                "({},{},{},{},{},{},{},{},{},{},{},{},{},{},{})",
                told.tool,
                c.calls,
                c.permitted,
                c.settled,
                c.successes,
                c.failed,
                c.retries,
                c.loops,
                c.duplicates,
                c.refused_arguments,
                c.bad_arguments,
                c.coercions,
                c.over_budget,
                c.unknown_outcomes,
                c.silent
            )
        })
        .collect();
    rows.sort_unstable();
    rows
}

fn view(days: u32) -> String {
    let sums = ["calls", "permitted", "settled", "successes", "failed", "retries", "loops", "duplicates"];
    let more = ["refused_arguments", "bad_arguments", "coercions", "over_budget", "unknown_outcomes", "silent"];
    let sums: Vec<String> = sums.into_iter().chain(more).map(|column| format!("sum({column})")).collect();
    format!(
        "select tool collate \"C\", {} from tool_quality
         where day > (now() at time zone 'utc')::date - {days} group by tool order by 1",
        sums.join(", ")
    )
}

/// Asks, and reports where it may run.
async fn call_it(gate: &Gate, request: Request, report: OutcomeReport) {
    if describe_answer(&evaluate(gate, request).await) == "ALLOW" {
        record(gate, report).await;
    }
}

/// A session in which everything happens that counts against a tool.
async fn bad_session(gate: &Gate, name: &str) {
    call_it(gate, ask(name, "p1", "pay", r#"{"sum":1}"#), failure(name, "p1", "conflict")).await;
    for call in ["s1", "s2"] {
        call_it(gate, ask(name, call, "search", r#"{"for":1}"#), failure(name, call, "timeout")).await;
    }
    for call in ["l1", "l2", "l3", "l4"] {
        call_it(gate, ask(name, call, "look", r#"{"at":1}"#), success(name, call, "nothing")).await;
    }
    evaluate(gate, ask(name, "o1", "order", r#"{"items":[{"quantity":"2"},{"quantity":"3"}]}"#)).await;
    evaluate(gate, ask(name, "o2", "order", r#"{"items":[{"quantity":0}]}"#)).await;
    evaluate(gate, ask(name, "u1", "lookk", "{}")).await;
}

/// Copies all calls to earlier hours, under other sessions.
async fn earlier(postgres: &Postgres, hours: u32) {
    for table in ["call", "outcome"] {
        let shifted = format!(
            "insert into callgate.{table} select x.* from callgate.{table} c cross join lateral jsonb_populate_record(c,
               jsonb_build_object('session_id', c.session_id || '-{hours}', 'root_id', c.root_id || '-{hours}',
                 'at', c.at - interval '{hours} hours')) x where c.session_id in ('a', 'b')"
        );
        postgres.tamper(&shifted).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hourly_counts_equal_the_daily_view() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy::compile(POLICY).expect("a good policy")).await;
    for session in ["a", "b"] {
        bad_session(&gate, session).await;
    }
    for hours in [1, 5, 23, 24, 25, 49, 120, 24 * 30] {
        earlier(&postgres, hours).await;
    }
    for days in [1, 2, 7, 90] {
        let report = quality(&gate, None, days).await;
        assert_eq!(rows(&report), postgres.rows(&view(days.unsigned_abs())).await, "{days} days");
        assert!(rows(&report).len() == 4 && report.unknown_tools.len() == 1, "{report:?}");
    }
    // New calls are added, and old ones are not counted again.
    bad_session(&gate, "c").await;
    let all = quality(&gate, None, 90).await;
    assert_eq!(rows(&all), postgres.rows(&view(90)).await);
    assert_eq!((all.unknown_tools[0].calls, all.unknown_tools[0].sessions), (19, 19));
    let order = &quality(&gate, Some("order"), 90).await.tools[0];
    assert_eq!(order.coerced, [("items[].quantity".to_owned(), 19)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_forgotten_is_shown_no_more() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy::compile(POLICY).expect("a good policy")).await;
    for session in ["a", "b"] {
        bad_session(&gate, session).await;
    }
    earlier(&postgres, 50).await;
    let shown = |report: QualityReport| {
        let [look] = &report.tools[..] else { panic!("{report:?}") };
        assert_eq!(look.worst(), Some(Flaw::Duplicates), "{look:?}");
        look.evidence.iter().map(|call| call.session.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(shown(quality(&gate, Some("look"), 7).await), ["b", "b", "b", "a", "a"]);
    for table in ["call", "outcome"] {
        postgres.tamper(&format!("delete from callgate.{table} where session_id in ('a', 'b-50')")).await;
    }
    let left = shown(quality(&gate, Some("look"), 7).await);
    assert_eq!(left, ["b", "b", "b"], "what was counted long ago is looked for again");
}
