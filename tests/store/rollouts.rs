//! Rollouts: which version judges a call tree, on every replica, and what an end does to what is in flight.

mod replicas;

use std::sync::{Arc, LazyLock};

use callgate_core::{
    domain::{
        audit::Actor,
        call::Request,
        finding::Decision,
        ids::{DEFAULT_TENANT, TenantId},
        rollout::{Comparison, Rollout, RolloutChange, RolloutPart, RolloutState},
    },
    policy::{self, Policy},
};
use callgate_server::gate::{ActivationOutcome, Apply, ApplyOutcome, Author, Gate, RolloutOutcome};

use crate::common::{
    gates::{agent, ask, call_id, describe_answer, evaluate, gate, insist_on, session, success, two_gates},
    postgres::Postgres,
};

static OLGA: LazyLock<Actor> = LazyLock::new(|| Actor::from("olga"));

/// Longer than a step takes to hold for new trees.
const SOON_MS: u64 = 2_100;

fn author() -> Author<'static> {
    Author { by: &OLGA, note: "why not", expected: None }
}

/// The policy that is active, and the one that is rolled out: `drop` needs an approval by both, of two people by the
/// second, and `spend` by the second.
fn text(of: &str) -> String {
    let (spend, people, empty, calls) =
        if of == "new" { ("HIGH", 2, "suspect", 7) } else { ("LOW", 1, "no_matches", 6) };
    format!(
        "# {of}\npolicy_engine:\n  approvals: {{routes: [{{tools: drop, required_approvals: {people}}}]}}
  tool_schemas: {{look: {{effect: read, risk_level: LOW, empty_means: {empty}}}, drop: {{risk_level: HIGH}},
    spend: {{risk_level: {spend}}}}}
  bulkhead: {{limits: [{{name: all, tools: look, max_in_flight: 1000, per: tenant}}]}}
  budgets: {{run: {{max_tool_calls: {calls}}}}}\n"
    )
}

fn version(of: &str) -> String {
    policy::hash(&text(of))[..16].to_owned()
}

async fn apply(gate: &Gate, tenant: TenantId, of: &str, apply: Apply) {
    let applied = Box::pin(gate.policies.apply_policy(tenant, &text(of), &author(), apply)).await;
    assert!(matches!(applied, Ok(ApplyOutcome::Stored { .. })), "{applied:?}");
}

/// The first policy is active, the second one stored.
async fn furnish(gate: &Gate) {
    apply(gate, DEFAULT_TENANT, "old", Apply::Activate).await;
    apply(gate, DEFAULT_TENANT, "new", Apply::Store).await;
}

fn part(share: u16, agents: &[&str]) -> RolloutPart {
    RolloutPart { share, agents: agents.iter().filter_map(|name| agent(name)).collect() }
}

async fn try_start(gate: &Gate, of: &str, part: &RolloutPart) -> RolloutOutcome {
    let (hash, text) = (policy::hash(&text(of)), text(of));
    Box::pin(gate.policies.start_rollout(DEFAULT_TENANT, (&hash, &text), part, &author())).await.expect("an answer")
}

/// Starts it, and waits on every replica until it holds for new trees.
async fn start(gates: &[Arc<Gate>], part: &RolloutPart) -> Rollout {
    let started = done(try_start(&gates[0], "new", part).await);
    for gate in gates {
        gate.identities.read_tenants().await.expect("readable");
        gate.store.skip(SOON_MS);
    }
    started
}

async fn end(gate: &Gate, promotes: bool) -> RolloutOutcome {
    Box::pin(gate.policies.end_rollout(DEFAULT_TENANT, "", promotes, &author())).await.expect("an answer")
}

fn done(outcome: RolloutOutcome) -> Rollout {
    match outcome {
        RolloutOutcome::Change(RolloutChange::Done(rollout)) => *rollout,
        other => panic!("{other:?}"),
    }
}

async fn compared(gate: &Gate) -> Comparison {
    gate.policies.compare_rollout(DEFAULT_TENANT).await.expect("readable").expect("a rollout").1
}

/// The version that judges a new call of a session.
async fn judges(gate: &Gate, request: Request) -> String {
    evaluate(gate, request).await.verdict.policy.to_string()
}

fn read_page(in_session: &str, n: u32) -> Request {
    ask(in_session, &format!("c{n}"), "look", &format!(r#"{{"n":{n}}}"#))
}

fn child(request: Request, parent: &str) -> Request {
    Request { parent: Some(session(parent)), ..request }
}

async fn steps(postgres: &Postgres) -> Vec<String> {
    postgres.rows("select step, left(hash, 16), share, state from policy_rollout order by step").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_tree_keeps_its_version_while_the_rollout_runs() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    let [one, other] = &gates;
    furnish(one).await;
    assert_eq!(judges(one, read_page("before", 1)).await, version("old"));
    start(&gates, &part(10_000, &[])).await;
    assert_eq!(judges(other, read_page("before", 2)).await, version("old"), "it runs already");
    assert_eq!(judges(one, child(read_page("child of before", 1), "before")).await, version("old"));
    assert_eq!(judges(one, read_page("after", 1)).await, version("new"));
    assert_eq!(judges(other, read_page("after", 2)).await, version("new"), "on the other replica");
    assert_eq!(judges(other, child(read_page("child of after", 1), "after")).await, version("new"));
    // A smaller share is one of trees that begin.
    start(&gates, &part(1, &[])).await;
    assert_eq!(judges(one, read_page("after", 3)).await, version("new"));
    assert_eq!(judges(other, read_page("later", 1)).await, version("old"));
    let mixed = "select root_id from call group by root_id having count(distinct policy_version) > 1";
    assert_eq!(postgres.rows(mixed).await, [""; 0]);
    // A replica that loads the tree cold comes to the same.
    let cold = gate(&postgres, &Policy::default()).await;
    cold.identities.read_tenants().await.expect("readable");
    cold.store.skip(SOON_MS);
    assert_eq!(judges(&cold, read_page("after", 4)).await, version("new"));
    assert_eq!(judges(&cold, read_page("before", 3)).await, version("old"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_is_that_part_of_the_sessions_and_grows() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    furnish(&gates[0]).await;
    let names: Vec<String> = (0..200).map(|n| format!("session-{n}")).collect();
    let mut before = Vec::new();
    for (share, bounds) in [(1_000, 8..=36), (5_000, 75..=125)] {
        let part = part(share, &[]);
        start(&gates, &part).await;
        let mut taken = Vec::new();
        for (n, name) in names.iter().enumerate() {
            let is_in = part.takes(&session(name), None);
            if judges(&gates[n % 2], read_page(name, u32::from(share))).await == version("new") {
                taken.push(name.clone());
            }
            assert!(is_in || !taken.contains(name), "{name}");
        }
        assert!(before.iter().all(|name| taken.contains(name)), "those of the smaller share stay");
        if share == 1_000 {
            assert!(bounds.contains(&taken.len()), "{}", taken.len());
        } else {
            assert_eq!(taken, before, "the others have begun");
            let new = (0..200).map(|n| read_page(&format!("later-{n}"), 1));
            let mut count = 0;
            for (n, request) in new.enumerate() {
                count += usize::from(judges(&gates[n % 2], request).await == version("new"));
            }
            assert!(bounds.contains(&count), "{count}");
        }
        before = taken;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_agent_takes_its_call_trees_with_it() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    furnish(&gates[0]).await;
    start(&gates, &part(0, &["billing"])).await;
    let by = |name: &str, request: Request| Request { agent: agent(name), ..request };
    assert_eq!(judges(&gates[0], by("billing", read_page("b", 1))).await, version("new"));
    assert_eq!(judges(&gates[1], by("clerk", child(read_page("b's", 1), "b"))).await, version("new"), "its sub-agent");
    assert_eq!(judges(&gates[0], by("clerk", read_page("c", 1))).await, version("old"));
    assert_eq!(judges(&gates[1], by("billing", child(read_page("c's", 1), "c"))).await, version("old"));
    assert_eq!(judges(&gates[1], read_page("d", 1)).await, version("old"), "an agent without a name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tenant_is_not_touched() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    furnish(&gates[0]).await;
    gates[0].identities.create_tenant("acme", &Default::default(), &OLGA).await.expect("made");
    let acme = TenantId(2);
    start(&gates, &part(10_000, &[])).await;
    for gate in &gates {
        let request = Request { tenant: acme, ..read_page("theirs", 1) };
        assert_eq!(judges(gate, request).await, "default");
        assert_eq!(gate.policies.compare_rollout(acme).await.expect("readable"), None);
        let ended = Box::pin(gate.policies.end_rollout(acme, "", false, &author())).await.expect("an answer");
        assert_eq!(ended, RolloutOutcome::Change(RolloutChange::NotRunning));
    }
    assert_eq!(judges(&gates[1], read_page("ours", 1)).await, version("new"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_returns_at_once_and_keeps_what_is_in_flight() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    let [one, other] = &gates;
    furnish(one).await;
    start(&gates, &part(10_000, &[])).await;
    for n in 1..=3 {
        assert_eq!(judges(one, read_page("s", n)).await, version("new"));
    }
    let held = evaluate(one, ask("s", "spend", "spend", "{}")).await;
    assert_eq!(describe_answer(&held), "ASK approval_required");
    assert_eq!(done(end(one, false).await).state, RolloutState::Aborted);
    assert_eq!(judges(one, read_page("s", 4)).await, version("old"), "the next call");
    other.identities.read_tenants().await.expect("readable");
    assert_eq!(judges(other, read_page("t", 1)).await, version("old"));
    // Its permits hold, and its reports are taken.
    assert!(!insist_on(other, &success("s", "c1", "found")).await.replayed);
    // A call that waits for an answer waits on, by a request of the policy in force.
    let again = evaluate(one, ask("s", "spend", "spend", "{}")).await;
    assert_eq!(describe_answer(&again), "ASK approval_required");
    let ids = [held, again].map(|answer| answer.verdict.approval.expect("a request").id);
    assert_ne!(ids[0], ids[1]);
    // Calls of both versions are counted by the budgets of the one in force.
    for n in 5..=6 {
        assert_eq!(describe_answer(&evaluate(one, read_page("s", n)).await), "ALLOW");
    }
    let seventh = evaluate(one, read_page("s", 7)).await;
    assert_eq!(describe_answer(&seventh), "STOP budget_exceeded", "{:?}", seventh.verdict.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_activates_it_and_ends_the_rollout_in_one_transaction() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    let [one, other] = &gates;
    furnish(one).await;
    evaluate(one, read_page("old", 1)).await;
    let mine = evaluate(one, ask("old", "drop", "drop", "{}")).await.verdict.approval.expect("a request");
    start(&gates, &part(10_000, &[])).await;
    let theirs = evaluate(one, ask("new", "drop", "drop", "{}")).await.verdict.approval.expect("a request");
    assert_eq!((&*mine.policy, &*theirs.policy), (version("old").as_str(), version("new").as_str()));
    assert_eq!(done(end(one, true).await).state, RolloutState::Promoted);
    let active = "select a.revision, r.state from policy_activation a, policy_rollout r
        where left(a.hash, 16) = '#' and r.step = 2";
    assert_eq!(postgres.rows(&active.replace('#', &version("new"))).await, ["(2,promoted)"]);
    other.identities.read_tenants().await.expect("readable");
    for gate in &gates {
        assert_eq!(*gate.server.policy(DEFAULT_TENANT).version, *version("new"));
    }
    // The request of the version that is active now stays the same; the other one is made again.
    let again = evaluate(other, ask("new", "drop", "drop", "{}")).await.verdict.approval.expect("a request");
    assert_eq!(again.id, theirs.id);
    let anew = evaluate(other, ask("old", "drop", "drop", "{}")).await.verdict.approval.expect("a request");
    assert_ne!(anew.id, mine.id);
    assert!(!insist_on(other, &success("old", "c1", "found")).await.replayed, "its permit holds");
    let logged = "select words[5] from audit where kind = 'policy_activated' order by number desc limit 1";
    let logged = postgres.rows(logged).await.remove(0);
    assert!(logged.contains("as revision 2; rollout of policy"), "{logged}");
    assert!(logged.contains("promoted"), "{logged}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_change_nothing() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &Policy::default()).await;
    furnish(&gate).await;
    apply(&gate, DEFAULT_TENANT, "third", Apply::Store).await;
    let change = |change| RolloutOutcome::Change(change);
    let all = part(10_000, &[]);
    assert_eq!(try_start(&gate, "never stored", &all).await, change(RolloutChange::Unknown));
    assert_eq!(try_start(&gate, "old", &all).await, change(RolloutChange::Active));
    for promotes in [true, false] {
        assert_eq!(end(&gate, promotes).await, change(RolloutChange::NotRunning));
    }
    assert_eq!(steps(&postgres).await, [""; 0]);
    let started = done(try_start(&gate, "new", &all).await);
    assert_eq!(done(try_start(&gate, "new", &all).await), started, "the same again is no step");
    let other = change(RolloutChange::Other(policy::hash(&text("new"))));
    assert_eq!(try_start(&gate, "third", &all).await, other);
    let (third, author) = (version("third"), author());
    let of_third = Box::pin(gate.policies.end_rollout(DEFAULT_TENANT, &third, true, &author)).await;
    assert_eq!(of_third.expect("an answer"), change(RolloutChange::NotRunning));
    let expecting = Author { expected: Some(7), ..author };
    let late = Box::pin(gate.policies.end_rollout(DEFAULT_TENANT, "", true, &expecting)).await.expect("an answer");
    assert_eq!(late, RolloutOutcome::Activation(ActivationOutcome::Changed { revision: 1 }));
    assert_eq!(steps(&postgres).await, [format!("(1,{},10000,running)", version("new"))]);
    assert_eq!(postgres.number("select count(*) from policy_activation").await, 1);
    // An activation of another policy is meant for all sessions.
    apply(&gate, DEFAULT_TENANT, "third", Apply::Activate).await;
    assert_eq!(steps(&postgres).await[1..], [format!("(2,{},10000,aborted)", version("new"))]);
    gate.store.skip(SOON_MS);
    assert_eq!(judges(&gate, read_page("s", 1)).await, version("third"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_takes_no_tree_before_every_replica_knows_it() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &Policy::default()).await;
    furnish(&one).await;
    other.identities.read_tenants().await.expect("readable");
    done(try_start(&one, "new", &part(10_000, &[])).await);
    assert_eq!(judges(&one, read_page("s", 1)).await, version("old"), "the other one has not read it");
    assert_eq!(judges(&other, read_page("s", 2)).await, version("old"));
    for gate in [&one, &other] {
        gate.identities.read_tenants().await.expect("readable");
        gate.store.skip(SOON_MS);
        assert_eq!(judges(gate, read_page("s", 3)).await, version("old"));
    }
    assert_eq!(judges(&other, read_page("t", 1)).await, version("new"));
    // After a change no new tree is taken for that time, also none of the former part.
    done(try_start(&one, "new", &part(9_999, &[])).await);
    postgres.tamper("update policy_rollout set changed_at = now() + interval '1 minute' where step = 2").await;
    let later = gate(&postgres, &Policy::default()).await;
    later.identities.read_tenants().await.expect("readable");
    assert_eq!(judges(&later, read_page("u", 1)).await, version("old"));
    later.store.skip(60_000 + SOON_MS);
    assert_eq!(judges(&later, read_page("v", 1)).await, version("new"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comparison_counts_calls_and_sessions_of_both() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    let gate = &gates[0];
    furnish(gate).await;
    evaluate(gate, ask("early", "c1", "spend", "{}")).await;
    start(&gates, &part(5_000, &[])).await;
    for n in 0..120 {
        let name = format!("s{n}");
        evaluate(gate, read_page(&name, 1)).await;
        evaluate(gate, ask(&name, "spend", "spend", "{}")).await;
    }
    let compared = compared(gate).await;
    let all = (compared.rollout, compared.baseline);
    assert_eq!((all.0.calls, all.1.calls), (2 * all.0.sessions, 2 * all.1.sessions), "{compared:?}");
    assert_eq!(all.0.sessions + all.1.sessions, 120, "the early session is not counted");
    let asked = compared.calls.iter().find(|calls| calls.decision == Decision::Ask).expect("asked for");
    assert_eq!((asked.rule.as_deref(), asked.reason.as_deref()), (Some("tier"), Some("approval_required")));
    assert_eq!((asked.rollout.calls, asked.baseline.calls), (all.0.sessions, 0));
    assert_eq!(asked.examples.len(), 3, "{asked:?}");
    assert!(compared.differs(asked));
    let of_examples = asked.examples.iter().all(|(_, call)| *call == call_id("spend").to_string());
    assert!(of_examples, "{asked:?}");
}
