//! Fleet overview: counts equal events, tenants are separated, and concurrent readers share one query.

use callgate_core::{
    domain::identity::{MappedIdentity, Role},
    policy,
};
use callgate_proto::v1::{
    self, BudgetDimension, BudgetScope, Decision, HaltScope, OutcomeStatus,
    approval_service_client::ApprovalServiceClient, fleet_service_client::FleetServiceClient,
    session_service_client::SessionServiceClient,
};
use callgate_server::gate::TenantChange;
use tonic::{Code, transport::Channel};

use crate::{
    common::{
        all, until,
        wire::{Client, Plane, call, caller, evaluate, from, outcome, question, record, success},
    },
    credentials::{bearer, token, who},
    people::{answer, open_request, resolve},
};

/// Five calls per tree; reads, a refused write, and one that needs approval.
pub(crate) const POLICY: &str = "policy_engine:
  budgets: {call_tree: {max_tool_calls: 5}}
  authorization:
    tiers:
      - {name: none, pattern: 'drop_*', action: deny}
      - {name: asks, pattern: 'delete_*', action: hitl}
      - {name: rest, pattern: '*', action: allowlist}
  unknown_tools: allow
  tool_schemas:
    get_order: {effect: read}
    delete_order: {effect: write, side_effect_resource: 'order/{id}', canonical_fields: [id]}
";

pub(crate) type Fleets = FleetServiceClient<Channel>;

async fn now(fleets: &mut Fleets) -> v1::Fleet {
    fleets.get_fleet(v1::GetFleetRequest::default()).await.expect("an answer").into_inner().fleet.expect("a fleet")
}

/// One call of this fleet, with its verdict.
async fn evaluate_call(client: &mut Client, session: &str, call_id: &str, tool: &str, n: u32) -> Decision {
    let call = call(call_id, tool, &format!(r#"{{"id":{n}}}"#));
    let caller = v1::Caller { agent_id: "robot".into(), ..caller(session) };
    evaluate(client, v1::EvaluateRequest { caller: Some(caller), ..question(session, call) }).await.decision()
}

/// Two reads, one with a reported cost, each repeated; a denial, twice; an approval request; a running call; a session
/// with an exhausted budget, and one near its limit; a failing tool. Returns the approval request.
pub(crate) async fn story(client: &mut Client) -> String {
    assert_eq!(evaluate_call(client, "one", "c1", "get_order", 1).await, Decision::Allow);
    let usage = v1::Usage { input_tokens: 900, output_tokens: 100, cost_micros: 20_000, ..Default::default() };
    record(client, v1::RecordRequest { usage: Some(usage), ..success("one", "c1", r#"{"state":"sent"}"#) }).await;
    assert_eq!(evaluate_call(client, "one", "c2", "get_order", 2).await, Decision::Allow);
    record(client, success("one", "c2", r#"{"state":"new"}"#)).await;
    assert_eq!(evaluate_call(client, "one", "c3", "get_order", 1).await, Decision::Reuse);
    assert_eq!(evaluate_call(client, "one", "c4", "get_order", 2).await, Decision::Reuse);
    for _ in 0..2 {
        assert_eq!(evaluate_call(client, "one", "c5", "drop_all", 1).await, Decision::Deny);
    }
    assert_eq!(evaluate_call(client, "one", "c6", "get_order", 3).await, Decision::Allow, "it runs on");
    for n in 0..5 {
        let id = format!("c{n}");
        assert_eq!(evaluate_call(client, "two", &id, "get_order", n).await, Decision::Allow);
        record(client, success("two", &id, &format!(r#"{{"state":{n}}}"#))).await;
    }
    assert_eq!(evaluate_call(client, "two", "c5", "get_order", 5).await, Decision::Stop);
    for n in 0..4 {
        let (id, session) = (format!("c{n}"), "three");
        assert_eq!(evaluate_call(client, session, &id, &format!("send_{n}"), n).await, Decision::Allow);
        let error = v1::ToolError { message: "the mail is full".into(), ..Default::default() };
        let failed = v1::RecordRequest { error: Some(error), ..outcome(session, &id, OutcomeStatus::Error) };
        record(client, failed).await;
    }
    open_request(client, "four", "d1", r#"{"id":7}"#).await
}

fn counts(counts: &[v1::DecisionCount]) -> Vec<(Decision, u64)> {
    counts.iter().map(|one| (one.decision(), one.count)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_figures_equal_the_events() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    let asked = story(&mut client).await;
    let halt = v1::HaltRequest { scope: HaltScope::Tool.into(), name: "pay".into(), reason: "a drill".into() };
    SessionServiceClient::new(plane.channel().await).halt(from("eve", halt)).await.expect("a halt");

    let mut fleets = Fleets::new(plane.channel().await);
    let fleet = now(&mut fleets).await;
    let decided =
        [(Decision::Allow, 12), (Decision::Ask, 1), (Decision::Reuse, 2), (Decision::Deny, 1), (Decision::Stop, 1)];
    assert_eq!(counts(&fleet.last_minute), decided, "each judgement counts; one that is told again is none");
    let minutes: u64 = fleet.minutes.iter().flat_map(|minute| &minute.decisions).map(|one| one.count).sum();
    assert_eq!((fleet.minutes.len(), minutes), (60, 17));
    assert_eq!((fleet.open_calls, fleet.calling_trees, fleet.active_trees), (1, 1, 4));
    assert_eq!((fleet.held_sessions, fleet.open_approvals, fleet.stopped_sessions), (1, 1, 1));
    let last = fleet.minutes.last().expect("a minute");
    assert_eq!((last.open_approvals, last.held_sessions), (1, 1), "until now");
    assert_eq!(fleet.minutes[0].open_approvals, 0, "an hour ago nobody had asked");
    let (oldest, told) = (fleet.oldest_approval_time.expect("one is open"), fleet.as_of_time.expect("a time"));
    assert!((oldest.seconds, oldest.nanos) <= (told.seconds, told.nanos), "{oldest:?} {told:?}");
    assert_eq!(fleet.halts.iter().map(|halt| halt.name.as_str()).collect::<Vec<_>>(), ["pay"]);

    let saved = fleet.saved.expect("savings");
    assert_eq!((saved.reused_calls, saved.denied_calls, saved.stopped_calls), (2, 1, 1), "a call counts once");
    assert_eq!((saved.priced_calls, saved.cost_micros), (1, Some(20_000)), "what its first execution had cost");
    assert_eq!((saved.token_calls, saved.tokens), (1, Some(1_000)));
    let told = |one: &v1::NearBudget| (one.scope(), one.name.clone(), one.dimension(), one.used, one.limit);
    let near: Vec<_> = fleet.budgets.iter().map(told).collect();
    let tree = |name: &str, used| (BudgetScope::CallTree, name.to_owned(), BudgetDimension::ToolCalls, used, 5);
    assert_eq!(near, [tree("two", 5), tree("three", 4)]);
    let plane_health = fleet.server.expect("the plane");
    assert_eq!((plane_health.policy_behind, plane_health.queued, plane_health.enforced), (0, Some(0), true));
    assert_eq!(plane_health.policy_revision, None, "none was ever activated");

    resolve(ApprovalServiceClient::new(plane.channel().await), answer(&asked, "eve", true, "")).await.expect("a yes");
    until("nobody to wait", async || now(&mut fleets).await.open_approvals == 0).await;
    let fleet = now(&mut fleets).await;
    assert_eq!((fleet.held_sessions, fleet.oldest_approval_time), (0, None));
    // The earlier and the new count add up.
    let saved = fleet.saved.expect("savings");
    assert_eq!((saved.reused_calls, saved.denied_calls, saved.cost_micros), (2, 1, Some(20_000)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_figure_is_not_zero() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    assert_eq!(evaluate_call(&mut client, "one", "c1", "get_order", 1).await, Decision::Allow);
    record(&mut client, success("one", "c1", r#"{"state":"sent"}"#)).await;
    assert_eq!(evaluate_call(&mut client, "one", "c2", "get_order", 1).await, Decision::Reuse);
    let saved = now(&mut Fleets::new(plane.channel().await)).await.saved.expect("savings");
    assert_eq!((saved.reused_calls, saved.priced_calls, saved.cost_micros, saved.tokens), (1, 0, None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_save_the_cost_that_the_policy_expects_where_none_was_reported() {
    let priced = "    get_order: {effect: read, cost_usd: 0.30}\n    drop_all: {effect: write, cost_usd: 2}\n";
    let text = POLICY.replace("    get_order: {effect: read}\n", priced);
    let plane = Plane::start(&policy::compile(&text).expect("a good policy")).await;
    let mut client = plane.client().await;
    assert_eq!(evaluate_call(&mut client, "one", "c1", "get_order", 1).await, Decision::Allow);
    record(&mut client, success("one", "c1", r#"{"state":"sent"}"#)).await;
    assert_eq!(evaluate_call(&mut client, "one", "c2", "get_order", 1).await, Decision::Reuse);
    assert_eq!(evaluate_call(&mut client, "one", "c3", "drop_all", 1).await, Decision::Deny);
    let saved = now(&mut Fleets::new(plane.channel().await)).await.saved.expect("savings");
    assert_eq!((saved.reused_calls, saved.denied_calls), (1, 1));
    assert_eq!((saved.priced_calls, saved.cost_micros), (2, Some(2_300_000)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_fails_for_all_is_told_of_until_it_works() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    let error = |_| v1::ToolError { message: "503".into(), http_status: Some(503), ..Default::default() };
    // A further one would be told to wait.
    for n in 0..3 {
        let session = format!("s{n}");
        assert_eq!(evaluate_call(&mut client, &session, "c1", "get_order", n).await, Decision::Allow);
        let failed = v1::RecordRequest { error: Some(error(n)), ..outcome(&session, "c1", OutcomeStatus::Error) };
        record(&mut client, failed).await;
    }
    plane.gate.decisions.share_health().await.expect("told");
    let mut fleets = Fleets::new(plane.channel().await);
    let fleet = now(&mut fleets).await;
    let told: Vec<_> = fleet.tools.iter().map(|one| (one.tool.as_str(), one.failures)).collect();
    assert_eq!(told, [("get_order", 3)]);
    assert!(fleet.tools[0].failing_start_time.is_some());
    plane.postgres.tamper("update tool_health set failures = 0, failing_since = null, cooldown_failure = null").await;
    until("it to work", async || now(&mut fleets).await.tools.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_is_its_tenants_and_of_people_alone() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    story(&mut plane.client().await).await;
    let made =
        plane.gate.identities.create_tenant("acme", &Default::default(), &"root".into()).await.expect("an answer");
    let TenantChange::Done(acme) = made else { panic!("{made:?}") };
    let is = MappedIdentity { name: "mallory".into(), roles: vec![Role::Operator], ..MappedIdentity::default() };
    let (theirs, _) = plane.gate.identities.create_token(acme.id, is, None, &"root".into()).await.expect("a token");
    let (ours, _) = token(&plane.gate, who("ada", &[Role::Approver])).await;
    let mut fleets = Fleets::new(plane.channel().await);
    let mut shown = async |token: &str| {
        let fleet =
            fleets.get_fleet(bearer(token, v1::GetFleetRequest::default())).await.expect("an answer").into_inner();
        fleet.fleet.expect("a fleet")
    };
    assert_eq!(shown(&ours).await.open_approvals, 1);
    let fleet = shown(&theirs).await;
    assert!(fleet.last_minute.is_empty() && fleet.budgets.is_empty() && fleet.halts.is_empty(), "{fleet:?}");
    assert_eq!((fleet.open_approvals, fleet.open_calls, fleet.active_trees, fleet.stopped_sessions), (0, 0, 0, 0));
    assert_eq!(fleet.saved.expect("savings").denied_calls, 0);
    assert!(fleet.minutes.iter().all(|minute| minute.server.is_none()), "how busy the plane is tells what others do");
    assert_eq!(fleet.server.expect("the plane").judging, None);
    let (agent, _) = token(&plane.gate, who("desk", &[Role::Agent])).await;
    let refused =
        fleets.get_fleet(bearer(&agent, v1::GetFleetRequest::default())).await.expect_err("agents do not look");
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_look_at_once_are_told_one_answer() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    story(&mut plane.client().await).await;
    let channel = plane.channel().await;
    let looks = (0..50).map(|_| {
        let mut fleets = Fleets::new(channel.clone());
        async move { now(&mut fleets).await.as_of_time.expect("a time") }
    });
    let mut times: Vec<_> = all(looks).await.into_iter().map(|at| (at.seconds, at.nanos)).collect();
    times.dedup();
    // One, or two where the second in which an answer is shared ends between them.
    assert!(times.len() <= 2, "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hour_is_told_from_what_is_stored() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    story(&mut plane.client().await).await;
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    for name in ["pay", "ship"] {
        let halt = v1::HaltRequest { scope: HaltScope::Tool.into(), name: name.into(), reason: "a drill".into() };
        sessions.halt(from("eve", halt)).await.expect("a halt");
    }
    let lift = v1::ResumeRequest { scope: HaltScope::Tool.into(), name: "pay".into(), reason: "over".into() };
    sessions.resume(from("eve", lift)).await.expect("lifted");
    // All of it ten minutes ago: the halts a minute after the calls, one lifted two minutes later, when the stopped
    // session was permitted again.
    let base = plane.postgres.number("select extract(epoch from date_trunc('minute', now()))::bigint - 600").await;
    let at = |second: i64| format!("to_timestamp({})", base + second);
    plane.postgres.tamper(&format!("update call set at = {}", at(10))).await;
    plane.postgres.tamper(&format!("update halt set halted_at = {}", at(70))).await;
    let lifted = format!("update halt set resumed_at = {} where resumed_at is not null", at(200));
    plane.postgres.tamper(&lifted).await;
    let later = format!(
        "insert into call select (jsonb_populate_record(c, jsonb_build_object(
           'seq', c.seq + 1, 'decision', 0, 'call_id', 'later', 'at', {}))).* from call c where c.decision = 5",
        at(200)
    );
    plane.postgres.tamper(&later).await;

    let fleet = now(&mut Fleets::new(plane.channel().await)).await;
    let start = |minute: &v1::FleetMinute| minute.start_time.map_or(0, |at| at.seconds);
    let first = fleet.minutes.iter().position(|minute| start(minute) == base - 60).expect("within the hour");
    let minutes = &fleet.minutes[first..first + 7];
    let halts: Vec<u64> = minutes.iter().map(|minute| minute.halts).collect();
    assert_eq!(halts, [0, 0, 2, 2, 1, 1, 1], "one was lifted");
    let stopped: Vec<u64> = minutes.iter().map(|minute| minute.stopped_sessions).collect();
    assert_eq!((stopped.as_slice(), fleet.stopped_sessions), (&[0, 1, 1, 1, 0, 0, 0][..], 0), "it went on");
    let oldest: Vec<_> = minutes.iter().map(|minute| minute.oldest_approval_time.map(|at| at.seconds)).collect();
    assert_eq!((oldest[0], oldest[1], oldest[6]), (None, Some(base + 10), Some(base + 10)));
    let saved: Vec<_> = minutes.iter().map(|minute| minute.saved.expect("counted")).collect();
    let calls = |saved: &v1::Savings| (saved.reused_calls, saved.denied_calls, saved.stopped_calls);
    assert_eq!((calls(&saved[0]), calls(&saved[1]), calls(&saved[2])), ((0, 0, 0), (2, 1, 1), (0, 0, 0)));
    assert_eq!((saved[1].cost_micros, saved[1].tokens), (Some(20_000), Some(1_000)));
    assert_eq!((saved[0].cost_micros, saved[2].tokens), (None, None), "of nothing nothing is known");
    let day = fleet.saved.expect("savings");
    assert!(calls(&day) == (2, 1, 1) || start(&minutes[1]) < day.start_time.map_or(0, |at| at.seconds), "{day:?}");
    assert!(fleet.minutes.iter().all(|minute| minute.open_circuit_breakers.is_none()), "nobody looked");

    // Past minutes are reported again.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let again = now(&mut Fleets::new(plane.channel().await)).await;
    let again = again.minutes.iter().find(|minute| start(minute) == base).expect("within the hour");
    let told = (again.stopped_sessions, again.halts, calls(&again.saved.expect("counted")));
    assert_eq!(told, (1, 0, (2, 1, 1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory_figures_come_from_each_replica() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    story(&mut client).await;
    let limited = v1::ToolError {
        message: "429".into(),
        http_status: Some(429),
        retry_after: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..Default::default()
    };
    assert_eq!(evaluate_call(&mut client, "five", "c1", "ship", 1).await, Decision::Allow);
    record(&mut client, v1::RecordRequest { error: Some(limited), ..outcome("five", "c1", OutcomeStatus::Error) })
        .await;
    plane.gate.decisions.share_health().await.expect("told");
    plane.gate.identities.read_tenants().await.expect("known");
    plane.gate.insight.take_stock().await.expect("counted");
    plane.gate.insight.tell_load();

    let fleet = now(&mut Fleets::new(plane.channel().await)).await;
    let seen: Vec<_> = fleet.minutes.iter().filter_map(|minute| minute.open_circuit_breakers).collect();
    assert_eq!(seen.iter().max(), Some(&1), "{fleet:?}");
    assert!(seen.len() <= 2, "minutes before it ran are not told as none: {seen:?}");
    assert_eq!(fleet.minutes.iter().filter_map(|minute| minute.near_budgets).max(), Some(2));
    let plane_seen: Vec<_> = fleet.minutes.iter().filter_map(|minute| minute.server).collect();
    assert!(plane_seen.iter().any(|plane| plane.database_time.is_some()), "{plane_seen:?}");
    assert_eq!(plane_seen.iter().map(|plane| plane.unanswered).sum::<u64>(), 0);

    // Another server has not seen it.
    let other = plane.postgres_gate(&policy::compile(POLICY).expect("a good policy")).await;
    let fleet = now(&mut Fleets::new(other)).await;
    assert!(fleet.minutes.iter().all(|minute| minute.open_circuit_breakers.is_none() && minute.server.is_none()));
}
