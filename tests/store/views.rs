//! Explanatory views: attempts, approvals, operations, current activity, and flaws of tools.

use callgate_core::{
    domain::{
        audit::Actor,
        budget::Usage,
        call::Request,
        control::{Command, Operation},
        halt::HaltTarget,
        ids::DEFAULT_TENANT,
        report::OutcomeReport,
    },
    policy,
};
use callgate_server::gate::{Apply, Author};

use crate::common::{
    gates::{
        agent, ask, describe_answer, evaluate, failure, gate, policy as known, quality, record, run_call, session,
        success,
    },
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  unknown_tools: deny
  authorization:
    tiers:
      - {name: asks, pattern: reset, action: hitl, require_reason: true}
      - {name: rest, pattern: '*', action: allowlist}
  tool_schemas: {look: {effect: read}, reset: {effect: write}, pay: {once: true}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_says_why_and_who_let_it_through() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy::compile(POLICY).expect("a good policy")).await;
    let reset = |call: &str| Request {
        agent: agent("ops"),
        justification: Some("It hangs.".to_owned()),
        usage: Usage { input_tokens: 40, output_tokens: 2, ..Usage::default() },
        ..ask("s", call, "reset", r#"{"device":7}"#)
    };
    assert_eq!(
        describe_answer(&evaluate(&gate, ask("s", "bare", "reset", r#"{"device":7}"#)).await),
        "DENY validation_error"
    );
    let asked = evaluate(&gate, reset("c1")).await.verdict.approval.expect("a question").id;
    let open = "select state, pending_approvals from sessions_now";
    assert_eq!(postgres.rows(open).await, [r#"("waiting for a person",1)"#]);
    let pending = "select status, tool, justification, message is not null, answered_by from approvals";
    assert_eq!(postgres.rows(pending).await, [r#"(pending,reset,"It hangs.",t,)"#]);
    let operation = Operation::Answer { approval_id: asked, approve: true, clears: None, edited: None };
    let reason = Some("go ahead".to_owned());
    let command = Command { session: session("s"), by: "eve".into(), reason, operation };
    gate.decisions.control(DEFAULT_TENANT, &command).await.expect("an answer that is taken");
    assert_eq!(describe_answer(&evaluate(&gate, reset("c1")).await), "ALLOW");
    record(&gate, failure("s", "c1", "conflict")).await;
    evaluate(&gate, ask("s", "c2", "look", "{}")).await;
    gate.decisions.halt(DEFAULT_TENANT, &HaltTarget::Session(session("s")), "max", "a drill").await.expect("a halt");
    let why = "select call_id, rounds, justification, approved_by, deciding_finding ->> 'rule', message is not null,
        input_tokens, output_tokens, first_judged_at < judged_at, earlier_attempts from tool_call order by batch";
    let expected = ["(bare,1,,,tier,t,0,0,f,0)", r#"(c1,2,"It hangs.",eve,,f,40,2,t,0)"#, "(c2,1,,,,f,0,0,f,0)"];
    assert_eq!(postgres.rows(why).await, expected);
    let tries = "select call_id, attempt, outcome, failure, tokens from attempts order by seq";
    assert_eq!(postgres.rows(tries).await, ["(c1,1,error,conflict,0)", "(c2,1,running,,0)"]);
    let answered = "select status, answered_by, answer, waited_ms >= 0 from approvals";
    assert_eq!(postgres.rows(answered).await, [r#"(approved,eve,"go ahead",t)"#]);
    let did = "select actor, kind, session_id, subject, reason from operator_events order by at";
    assert_eq!(
        postgres.rows(did).await,
        [r#"(eve,answered,s,,"go ahead")"#, r#"(max,halted,s,"session s","a drill")"#]
    );
    assert_eq!(postgres.rows("select kind, name, halted_by, holds from halts").await, ["(session,s,max,t)"]);
    let now = "select state, last_tool, calls, refused, running, pending_approvals from sessions_now";
    assert_eq!(postgres.rows(now).await, ["(halted,look,3,2,1,0)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_says_whether_it_may_have_taken_effect_and_who_may_repeat_it() {
    let postgres = Postgres::start().await;
    let text = "policy_engine: {unknown_tools: allow, tool_schemas: {look: {effect: read}, pay: {once: true}}}";
    let gate = gate(&postgres, &policy::compile(text).expect("a good policy")).await;
    for (call, tool, kind) in [("c1", "pay", "timeout"), ("c2", "guess", "timeout"), ("c3", "look", "timeout")] {
        assert_eq!(describe_answer(&evaluate(&gate, ask(call, call, tool, "{}")).await), "ALLOW");
        record(&gate, failure(call, call, kind)).await;
    }
    evaluate(&gate, ask("c4", "c4", "look", r#"{"n":1}"#)).await;
    let repeats = |view| format!("select call_id, outcome, effect_open, repeat from {view} order by call_id");
    let expected = ["(c1,unknown,t,by_person)", "(c2,error,t,by_model)", "(c3,error,f,by_client)", "(c4,running,,)"];
    for view in ["attempts", "tool_call"] {
        assert_eq!(postgres.rows(&repeats(view)).await, expected, "{view}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_is_blamed_for_what_it_does_and_not_for_budgets_demands_or_names() {
    let postgres = Postgres::start().await;
    let text = format!("{POLICY}  budgets: {{run: {{max_calls_per_tool: 60}}}}\n  rules: {{growth: {{mode: off}}}}\n");
    let gate = gate(&postgres, &policy::compile(&text).expect("a good policy")).await;
    for n in 0..60 {
        let (in_session, arguments) = (format!("s{n}"), format!("{{\"n\":{n}}}"));
        evaluate(&gate, ask(&in_session, "c", "pay", &arguments)).await;
        record(&gate, failure(&in_session, "c", "permission")).await;
        run_call(&gate, ask("long", &format!("c{n}"), "look", &arguments), &format!("page {n}")).await;
    }
    // The policy's own demands: a budget, a justification, a name.
    assert_eq!(
        describe_answer(&evaluate(&gate, ask("long", "more", "look", r#"{"n":60}"#)).await),
        "DENY budget_exceeded"
    );
    assert_eq!(describe_answer(&evaluate(&gate, ask("long", "bare", "reset", "{}")).await), "DENY validation_error");
    for call in ["u1", "u2"] {
        assert_eq!(describe_answer(&evaluate(&gate, ask("other", call, "lookk", "{}")).await), "DENY unknown_tool");
    }
    let rates = "select tool, failure_rate, loop_rate, validation_failure_rate, validation_refusal_rate,
        round(budget_refusal_rate::numeric, 3), over_budget, worst, settled from tool_quality order by 1";
    let expected = [
        "(look,0,0,0,0,0.016,1,missing_is_complete_rate,60)",
        "(pay,1,0,0,0,0.000,0,failure_rate,60)",
        "(reset,,0,,0,0.000,0,,0)",
    ];
    assert_eq!(postgres.rows(rates).await, expected);
    let unknown = "select tool, calls, sessions, told from unknown_tools";
    let told = r#"(lookk,2,1,"Call look, or another of the tools that you were given.")"#;
    assert_eq!(postgres.rows(unknown).await, [told]);
    let report = quality(&gate, None, 7).await;
    let first = &report.tools[0];
    assert_eq!((first.tool.as_str(), first.worst().map(|flaw| flaw.rate())), ("pay", Some("failure_rate")));
    assert!(!first.evidence.is_empty() && report.loop_ends.is_empty(), "{report:?}");
    let names: Vec<(&str, u64)> = report.unknown_tools.iter().map(|one| (one.tool.as_str(), one.calls)).collect();
    assert_eq!(names, [("lookk", 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_that_fail_again_have_a_price() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &known(&[])).await;
    for (n, came_to) in ["timeout", "", "timeout"].into_iter().enumerate() {
        let in_session = format!("s{n}");
        evaluate(&gate, ask(&in_session, "first", "search", "{}")).await;
        record(&gate, failure(&in_session, "first", "timeout")).await;
        let usage = Usage { cost_micros: 1_000, input_tokens: 10, ..Usage::default() };
        evaluate(&gate, Request { usage, ..ask(&in_session, "again", "search", "{}") }).await;
        let paid = Usage { cost_micros: 500, ..Usage::default() };
        let report = match came_to {
            "" => success(&in_session, "again", "rows"),
            kind => failure(&in_session, "again", kind),
        };
        record(&gate, OutcomeReport { usage: paid, duration_ms: Some(30), ..report }).await;
    }
    let wasted = "select tool, failure, retries, wasted, cost_micros, tokens, lost_ms >= 60 from wasted_retries";
    assert_eq!(postgres.rows(wasted).await, ["(search,timeout,3,2,3000,20,t)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activation_is_shown_with_its_text_and_author() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &known(&[])).await;
    let author = Author { by: &Actor::from("eve"), note: "first", expected: None };
    let _ =
        Box::pin(gate.policies.apply_policy(DEFAULT_TENANT, POLICY, &author, Apply::Activate)).await.expect("applied");
    let active = "select revision, length(policy_version), activated_by, note, replaced_at, text like '%hitl%'
        from policy_activations";
    assert_eq!(postgres.rows(active).await, ["(1,16,eve,first,,t)"]);
    let did = "select actor, kind, reason from operator_events";
    assert_eq!(postgres.rows(did).await, ["(eve,policy_activated,first)"]);
}
