//! Policy checks and backtests on stored calls: results, permissions, and their end.

use std::collections::BTreeMap;

use callgate_core::{
    domain::{
        identity::{MappedIdentity, Role},
        ids::{DEFAULT_TENANT, TenantId},
    },
    policy,
};
use callgate_proto::v1::{
    self, BacktestChangeKind, BacktestPolicyRequest, BacktestProgress, BacktestResult, CheckPolicyRequest,
    CheckPolicyResponse, Decision, PolicyProblemSeverity, UnlistedToolsDecision, backtest_policy_request::Policy,
    backtest_policy_response::Event, policy_service_client::PolicyServiceClient,
    session_service_client::SessionServiceClient,
};
use callgate_server::gate::TenantChange;
use tokio_stream::StreamExt as _;
use tonic::{Code, Request, Status, transport::Channel};

use crate::{
    common::{
        in_time, until,
        wire::{Plane, call, evaluate_as, from, outcome, pair, question, record_as, success},
    },
    credentials::{bearer, token, who},
};

type Client = PolicyServiceClient<Channel>;

const OLD: &str = "policy_engine:
  tool_schemas:
    get_order: {effect: read}
    pay: {effect: write, idempotent: true}
";
const NEW: &str = "policy_engine:
  authorization:
    tiers:
      - {name: reads, pattern: 'get_*', action: allowlist}
      - {name: money, pattern: pay, action: deny}
      - {name: rest, pattern: '*', action: hitl}
  tool_schemas:
    get_order: {effect: read}
    pay: {effect: write, idempotent: true}
";

async fn plane() -> Plane {
    Plane::start(&policy::compile(OLD).expect("a good policy")).await
}

/// Sessions that read and pay an order.
async fn story(plane: &Plane, token: Option<&str>, sessions: u32) {
    let mut client = plane.client().await;
    for n in 0..sessions {
        let session = format!("s{n}");
        for (id, tool) in [("c1", "get_order"), ("c2", "pay")] {
            let asked = question(&session, call(id, tool, &format!(r#"{{"id":{n}}}"#)));
            let verdict = evaluate_as(token, &mut client, asked).await;
            assert_eq!(verdict.decision(), Decision::Allow, "{verdict:?}");
            record_as(token, &mut client, success(&session, id, "done")).await;
        }
    }
}

fn trying(text: &str) -> BacktestPolicyRequest {
    BacktestPolicyRequest { policy: Some(Policy::Text(text.to_owned())), ..Default::default() }
}

/// The result of a whole backtest.
async fn run_backtest(
    client: &mut Client,
    request: Request<BacktestPolicyRequest>,
) -> Result<(Vec<BacktestProgress>, BacktestResult), Status> {
    let mut told = in_time("an answer", client.backtest_policy(request)).await?.into_inner();
    let (mut progress, mut result) = (Vec::new(), None);
    while let Some(next) = in_time("the next", told.next()).await {
        assert_eq!(result, None, "the result is the last");
        match next?.event.expect("something is told") {
            Event::Progress(how_far) => progress.push(how_far),
            Event::Result(done) => result = Some(done),
        }
    }
    Ok((progress, result.expect("a result")))
}

async fn check(client: &mut Client, text: &str) -> Result<CheckPolicyResponse, Status> {
    let asked = CheckPolicyRequest { text: text.to_owned() };
    Ok(in_time("an answer", client.check_policy(asked)).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_is_checked_with_each_problem_at_its_place_and_nothing_is_stored() {
    let plane = plane().await;
    let mut client = Client::new(plane.channel().await);
    let bad = check(&mut client, "policy_engine:\n  mode: loud\n  loops: {windw: 3}\n").await.expect("an answer");
    assert!(!bad.valid && bad.problem_count == 2 && !bad.stored, "{bad:?}");
    let places: Vec<_> = bad.problems.iter().map(|one| (one.line, one.column, one.path.as_str())).collect();
    assert_eq!(places, [(2, 3, "policy_engine.mode"), (3, 11, "policy_engine.loops.windw")]);
    assert!(bad.problems.iter().all(|one| one.severity() == PolicyProblemSeverity::Error && !one.problem.is_empty()));
    assert_eq!(bad.unlisted_tools(), UnlistedToolsDecision::Unspecified);
    let none = check(&mut client, "a: [").await.expect("an answer");
    assert!(!none.valid && none.problems[0].line == 1 && none.problems[0].column > 0, "{none:?}");

    let good = check(&mut client, NEW).await.expect("an answer");
    assert!(good.valid && good.hash == policy::hash(NEW) && !good.stored, "{good:?}");
    assert_eq!(good.unlisted_tools(), UnlistedToolsDecision::Deny);
    assert_eq!(good.unlisted_tools_reason, "unknown_tools: deny");
    let odd = "policy_engine:
  authorization: {tiers: [{name: reads, pattern: 'get_*', action: allowlist}]}
  unknown_tools: allow
  tool_schemas: {pay: {effect: write}}
";
    let odd = check(&mut client, odd).await.expect("an answer");
    assert_eq!((odd.valid, odd.tools_without_tier.as_slice()), (true, &["pay".to_owned()][..]));
    assert_eq!(odd.unlisted_tools(), UnlistedToolsDecision::Ask);
    assert!(odd.problems.iter().all(|one| one.severity() == PolicyProblemSeverity::Warning), "{odd:?}");
    assert_eq!(plane.postgres.number("select count(*) from policy").await, 0);

    let applied = v1::ApplyPolicyRequest { text: NEW.to_owned(), ..Default::default() };
    client.apply_policy(from("olga", applied)).await.expect("applied");
    let again = check(&mut client, NEW).await.expect("an answer");
    assert!(again.stored && again.revision.is_some_and(|revision| revision.revision == 1));

    let many: String = (0..300).map(|n| format!("    tool_{n}: {{effekt: read}}\n")).collect();
    let many = check(&mut client, &format!("policy_engine:\n  tool_schemas:\n{many}")).await.expect("an answer");
    assert_eq!((many.problems.len(), many.problem_count), (200, 300));
    for text in [String::new(), "#".repeat((1 << 20) + 1)] {
        let refused = check(&mut client, &text).await.expect_err("refused");
        assert_eq!(pair(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_tried_on_stored_calls_and_says_what_it_changes() {
    let plane = plane().await;
    story(&plane, None, 20).await;
    let mut client = Client::new(plane.channel().await);
    let before = plane.row_count().await;
    let (progress, done) = run_backtest(&mut client, Request::new(trying(NEW))).await.expect("tried");
    assert_eq!(progress[0], BacktestProgress { calls_judged: 0, calls_total: 40 });
    assert_eq!((done.calls, done.sessions, done.calls_changed, done.sessions_changed), (40, 20, 20, 20));
    assert_eq!((done.calls_unreadable, done.more_calls), (0, false));
    assert_eq!((done.hash.as_str(), done.baseline_hash.as_str()), (&*policy::hash(NEW), ""));
    assert!(done.first_call_time.is_some() && done.last_call_time.is_some());
    let [change] = &done.changes[..] else { panic!("{:?}", done.changes) };
    assert_eq!(change.kind(), BacktestChangeKind::NewlyRefused);
    assert_eq!((change.rule.as_str(), change.tool.as_str(), change.calls, change.lost), ("tier", "pay", 20, 20));
    assert_eq!(change.examples.len(), 3);
    let example = &change.examples[0];
    assert_eq!((example.session_id.as_str(), example.call_id.as_str()), ("s0", "c2"));
    assert_eq!((example.before(), example.after()), (Decision::Allow, Decision::Deny));
    assert!(example.message.contains("the policy does not allow it"), "{example:?}");
    let decisions: Vec<_> = done.decisions.iter().map(|one| (one.before(), one.after(), one.calls)).collect();
    assert_eq!(decisions, [(Decision::Allow, Decision::Allow, 20), (Decision::Allow, Decision::Deny, 20)]);
    assert_eq!(plane.row_count().await, before, "nothing is stored");

    // The newest calls; of another time none; a stored one against another.
    let few = BacktestPolicyRequest { max_calls: 6, ..trying(NEW) };
    let (_, few) = run_backtest(&mut client, Request::new(few)).await.expect("tried");
    assert_eq!((few.calls, few.sessions, few.more_calls), (6, 3, true));
    assert_eq!(few.changes[0].examples[0].session_id, "s17");
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let long_ago = BacktestPolicyRequest { end_time: at(1_000_000_000), ..trying(NEW) };
    let (_, none) = run_backtest(&mut client, Request::new(long_ago)).await.expect("tried");
    assert_eq!((none.calls, none.first_call_time, none.changes.len()), (0, None, 0));
    for text in [OLD, NEW] {
        let applied = v1::ApplyPolicyRequest { text: text.to_owned(), ..Default::default() };
        client.apply_policy(from("olga", applied)).await.expect("applied");
    }
    let stored = BacktestPolicyRequest {
        policy: Some(Policy::Hash(policy::hash(OLD)[..8].to_owned())),
        ..BacktestPolicyRequest::default()
    };
    let (_, back) = run_backtest(&mut client, Request::new(stored.clone())).await.expect("tried");
    assert_eq!(back.baseline_hash, policy::hash(NEW), "the active one");
    assert_eq!((back.changes[0].kind(), back.changes[0].calls), (BacktestChangeKind::NewlyAllowed, 20));
    let same = BacktestPolicyRequest { baseline_hash: policy::hash(OLD), ..stored };
    let (_, same) = run_backtest(&mut client, Request::new(same)).await.expect("tried");
    assert_eq!((same.calls, same.calls_changed, same.changes.len()), (40, 0, 0));
    // A tree with more calls than are read at a time.
    let mut agent = plane.client().await;
    for n in 0..70 {
        let asked = question("long", call(&format!("c{n}"), "look", &format!(r#"{{"n":{n}}}"#)));
        evaluate_as(None, &mut agent, asked).await;
    }
    let (_, long) = run_backtest(&mut client, Request::new(trying(OLD))).await.expect("tried");
    assert_eq!((long.calls, long.sessions, long.calls_unreadable), (110, 21, 0), "{long:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_backtest_has_its_documented_error_and_takes_no_slot() {
    let plane = plane().await;
    let mut client = Client::new(plane.channel().await);
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let hash = |hash: &str| BacktestPolicyRequest { policy: Some(Policy::Hash(hash.to_owned())), ..trying("") };
    for (request, code, reason) in [
        (BacktestPolicyRequest::default(), Code::InvalidArgument, "INVALID_FIELD"),
        (trying(""), Code::InvalidArgument, "INVALID_FIELD"),
        (trying(&"#".repeat((1 << 20) + 1)), Code::InvalidArgument, "INVALID_FIELD"),
        (hash("xyz"), Code::InvalidArgument, "INVALID_FIELD"),
        (
            BacktestPolicyRequest { baseline_hash: "1".to_owned(), ..trying(NEW) },
            Code::InvalidArgument,
            "INVALID_FIELD",
        ),
        (BacktestPolicyRequest { max_calls: 100_001, ..trying(NEW) }, Code::InvalidArgument, "INVALID_FIELD"),
        (
            BacktestPolicyRequest { start_time: at(20), end_time: at(20), ..trying(NEW) },
            Code::InvalidArgument,
            "INVALID_FIELD",
        ),
        (trying("policy_engine: {mode: loud}"), Code::InvalidArgument, "INVALID_POLICY"),
        (hash("00000000"), Code::NotFound, "POLICY_UNKNOWN"),
        (BacktestPolicyRequest { baseline_hash: "0".repeat(8), ..trying(NEW) }, Code::NotFound, "POLICY_UNKNOWN"),
    ] {
        let refused = run_backtest(&mut client, Request::new(request.clone())).await.expect_err("refused");
        assert_eq!(pair(&refused), (code, reason.to_owned()), "{request:?}");
        assert!(plane.gate.policies.backtest_slot(DEFAULT_TENANT).is_some(), "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_a_tenant_is_tried_at_a_time_and_whoever_closes_the_stream_frees_the_slot() {
    let plane = plane().await;
    story(&plane, None, 3).await;
    let mut client = Client::new(plane.channel().await);
    // The calls cannot be read until this goes.
    let mut lock = plane.postgres.connect().await;
    sqlx::raw_sql("begin; lock table callgate.outcome in access exclusive mode")
        .execute(&mut lock)
        .await
        .expect("held");
    let mut first = in_time("an answer", client.backtest_policy(trying(NEW))).await.expect("begun").into_inner();
    let told = in_time("progress", first.next()).await.expect("something").expect("no error").event;
    assert!(matches!(told, Some(Event::Progress(BacktestProgress { calls_judged: 0, calls_total: 6 }))), "{told:?}");
    let second = in_time("an answer", client.backtest_policy(trying(NEW))).await.expect_err("refused");
    assert_eq!(pair(&second), (Code::ResourceExhausted, "BACKTEST_RUNNING".to_owned()));
    assert!(tonic_types::StatusExt::get_details_retry_info(&second).is_some(), "{second:?}");
    assert!(plane.gate.policies.backtest_slot(DEFAULT_TENANT).is_none());
    assert!(plane.gate.policies.backtest_slot(TenantId(77)).is_some(), "another tenant has its own");
    drop(first);
    until("the slot to be free", async || plane.gate.policies.backtest_slot(DEFAULT_TENANT).is_some()).await;
    sqlx::raw_sql("rollback").execute(&mut lock).await.expect("given back");
    let (_, done) = run_backtest(&mut client, Request::new(trying(NEW))).await.expect("tried");
    assert_eq!(done.calls, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_another_tenant_are_never_tried_and_agents_try_nothing() {
    let plane = plane().await;
    let made =
        plane.gate.identities.create_tenant("acme", &Default::default(), &"root".into()).await.expect("an answer");
    let TenantChange::Done(acme) = made else { panic!("{made:?}") };
    let is = |name: &str, roles: &[Role]| MappedIdentity { any_session: true, ..who(name, roles) };
    let roles = [Role::Agent, Role::Analyst];
    let (theirs, _) = plane
        .gate
        .identities
        .create_token(acme.id, is("mallory", &roles), None, &"root".into())
        .await
        .expect("a token");
    let (ours, _) = token(&plane.gate, is("ada", &roles)).await;
    story(&plane, Some(&ours), 3).await;
    let mut client = Client::new(plane.channel().await);
    let (_, none) = run_backtest(&mut client, bearer(&theirs, trying(NEW))).await.expect("tried");
    assert_eq!((none.calls, none.sessions, none.changes.len()), (0, 0, 0), "{none:?}");
    // Sessions of the same names.
    let mut agent = plane.client().await;
    evaluate_as(Some(&theirs), &mut agent, question("s0", call("c1", "their_tool", r#"{"n":1}"#))).await;
    let (_, own) = run_backtest(&mut client, bearer(&theirs, trying(NEW))).await.expect("tried");
    assert_eq!((own.calls, own.sessions), (1, 1), "{own:?}");
    let told = format!("{own:?}");
    assert!(told.contains("their_tool") && !told.contains("pay") && !told.contains("get_order"), "{told}");
    let (_, ours_alone) = run_backtest(&mut client, bearer(&ours, trying(NEW))).await.expect("tried");
    assert_eq!(ours_alone.calls, 6);
    assert!(!format!("{ours_alone:?}").contains("their_tool"), "{ours_alone:?}");

    let (approver, _) = token(&plane.gate, who("eve", &[Role::Approver])).await;
    let (agent, _) = token(&plane.gate, who("desk", &[Role::Agent])).await;
    for shown in [&approver, &agent] {
        let refused = run_backtest(&mut client, bearer(shown, trying(NEW))).await.expect_err("not theirs");
        assert_eq!(pair(&refused), (Code::PermissionDenied, "ROLE_MISSING".to_owned()));
    }
    let asked = || CheckPolicyRequest { text: NEW.to_owned() };
    assert!(client.check_policy(bearer(&approver, asked())).await.expect("theirs to read").into_inner().valid);
    let refused = client.check_policy(bearer(&agent, asked())).await.expect_err("not theirs");
    assert_eq!(pair(&refused), (Code::PermissionDenied, "ROLE_MISSING".to_owned()));
}

/// A backtest of the judging policy must reproduce its decisions, to be credible for others: budgets with reported
/// costs, complete answers, and retry estimates are replayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_that_judged_decides_again_as_it_did_and_in_shadow_mode_nothing_holds() {
    let text = "policy_engine:
  unknown_tools: allow
  budgets: {run: {max_total_cost_usd: 5}}
  tool_schemas: {get_order: {effect: read}, get_quote: {effect: read}}
";
    let plane = Plane::start(&policy::compile(text).expect("a good policy")).await;
    let mut client = plane.client().await;
    let mut decided = BTreeMap::new();
    let mut ask = async |session: &str, id: &str, tool: &str, used: u64| {
        let usage = (used > 0).then(|| v1::Usage { cost_micros: used, ..Default::default() });
        let asked = v1::EvaluateRequest { usage, ..question(session, call(id, tool, "{}")) };
        let verdict = evaluate_as(None, &mut client, asked).await;
        *decided.entry(verdict.decision() as i32).or_insert(0u64) += 1;
        let report = match (verdict.decision(), tool) {
            (Decision::Allow, "get_quote") => v1::RecordRequest {
                error: Some(v1::ToolError { http_status: Some(500), message: "it broke".into(), ..Default::default() }),
                ..outcome(session, id, v1::OutcomeStatus::Error)
            },
            (Decision::Allow, _) => v1::RecordRequest { is_complete: Some(true), ..success(session, id, "[]") },
            _ => return,
        };
        record_as(None, &mut client, report).await;
    };
    for (id, tool, used) in
        [("c1", "search", 0), ("c2", "search", 0), ("c3", "get_order", 6_000_000), ("c4", "look", 0)]
    {
        ask("s", id, tool, used).await;
    }
    // Their retries come before anything is learned of one another.
    for session in ["q1", "q2", "q3", "q4", "q5", "q6"] {
        ask(session, "c1", "get_quote", 0).await;
    }
    for session in ["q1", "q2", "q3", "q4", "q5", "q6"] {
        ask(session, "c2", "get_quote", 0).await;
    }
    assert!(decided.len() >= 3, "answers from memory, waits and an end: {decided:?}");

    let mut client = Client::new(plane.channel().await);
    let (_, same) = run_backtest(&mut client, Request::new(trying(text))).await.expect("a result");
    assert_eq!((same.calls_changed, same.changes.len()), (0, 0), "{same:?}");
    let again: BTreeMap<i32, u64> = same.decisions.iter().map(|one| (one.before, one.calls)).collect();
    assert_eq!(again, decided);
    assert_eq!((same.calls_judged_before, same.calls_decided_otherwise), (same.calls, 0), "{same:?}");
    let watched = text.replace("policy_engine:", "policy_engine:\n  mode: shadow");
    let (_, watched) = run_backtest(&mut client, Request::new(trying(&watched))).await.expect("a result");
    let refused: u64 =
        decided.iter().filter(|(decision, _)| **decision != Decision::Allow as i32).map(|(_, n)| n).sum();
    assert_eq!(watched.calls_changed, refused, "{watched:?}");
    assert!(watched.changes.iter().all(|one| one.kind() == BacktestChangeKind::NewlyAllowed), "{watched:?}");

    // Operations of people are not replayed, but counted.
    let halt = v1::HaltRequest { name: "look".into(), reason: "a drill".into(), scope: v1::HaltScope::Tool.into() };
    SessionServiceClient::new(plane.channel().await).halt(from("eve", halt)).await.expect("a halt");
    let verdict = evaluate_as(None, &mut plane.client().await, question("t", call("c1", "look", "{}"))).await;
    assert_eq!(verdict.decision(), Decision::Deny);
    let (_, after) = run_backtest(&mut client, Request::new(trying(text))).await.expect("a result");
    assert_eq!((after.calls_judged_before, after.calls_decided_otherwise), (same.calls + 1, 1), "{after:?}");
    // Another policy has judged none of them.
    let other = v1::ApplyPolicyRequest { text: format!("{text}# new\n"), ..Default::default() };
    client.apply_policy(from("eve", other)).await.expect("applied");
    let (_, other) = run_backtest(&mut client, Request::new(trying(text))).await.expect("a result");
    assert_eq!((other.calls_judged_before, other.calls_decided_otherwise), (0, 0), "{other:?}");
}
