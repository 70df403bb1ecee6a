//! Rollouts on replicas that know different things: a tree that began elsewhere, a step that was read late.

use std::{sync::Arc, time::Duration};

use callgate_core::{
    domain::{
        call::Request,
        control::{Command, Control, Operation},
        ids::DEFAULT_TENANT,
        rollout::{RolloutChange, RolloutState},
        session_state::Extent,
    },
    policy::{self, Policy},
};
use callgate_server::gate::{EvaluateAnswer, Gate, RolloutOutcome};

use super::{SOON_MS, done, end, furnish, judges, part, read_page, start, text, try_start, version};
use crate::common::{
    gates::{agent, ask, describe_answer, evaluate, gate, session, success, try_evaluate, two_gates},
    postgres::Postgres,
    until,
};

/// A tree that began by the rolled-out policy on the second gate, by a call of `billing`, while the first one has an
/// empty tree of that name from a dry run.
async fn begin_unseen(gates: &[Arc<Gate>; 2], root: &str, tool: &str) -> EvaluateAnswer {
    let [one, other] = gates;
    Box::pin(one.decisions.dry_run(ask(root, "dry", "look", "{}"))).await.expect("a verdict");
    let first = evaluate(other, Request { agent: agent("billing"), ..ask(root, "c1", tool, "{}") }).await;
    assert_eq!(*first.verdict.policy, *version("new"));
    first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_reports_and_reads_go_by_the_policy_of_the_stored_tree() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    let [one, other] = &gates;
    furnish(one).await;
    start(&gates, &part(0, &["billing"])).await;
    let approval_id = begin_unseen(&gates, "asks", "drop").await.verdict.approval.expect("a request").id;
    let operation = Operation::Answer { approval_id, approve: true, clears: None, edited: None };
    let command = Command { session: session("asks"), by: "eve".into(), reason: None, operation };
    let answered = one.decisions.control(DEFAULT_TENANT, &command).await.expect("taken").control;
    let needs_two = matches!(answered, Control::Seconded { .. });
    let again = Request { agent: agent("billing"), ..ask("asks", "c1", "drop", "{}") };
    let again = describe_answer(&evaluate(other, again).await);
    begin_unseen(&gates, "reports", "look").await;
    let found = one.decisions.record(DEFAULT_TENANT, success("reports", "c1", ""), None).await.expect("recorded");
    let is_suspect = found.text.json.contains("which this tool rarely means");
    begin_unseen(&gates, "read", "look").await;
    let state = one.decisions.session_state(DEFAULT_TENANT, &session("read"), Extent::default()).await;
    let has_limit = state.expect("known").left.iter().any(|left| left.limit == 7);
    let all = (needs_two, again.as_str(), is_suspect, has_limit);
    assert_eq!(all, (true, "ASK approval_required", true, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_a_tree_that_began_elsewhere_by_the_other_version_is_judged_by_that() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    furnish(&gates[0]).await;
    start(&gates, &part(0, &["billing"])).await;
    begin_unseen(&gates, "s", "look").await;
    assert_eq!(judges(&gates[0], read_page("s", 2)).await, version("new"));
    // A release of the first claim in the background might have taken the lease of the second.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let leases = "select count(*) from bulkhead_lease where session_id = 's' and call_id = 'c2' and in_flight";
    assert_eq!(postgres.number(leases).await, 1);
}

/// The calls of an earlier rollout of the same policy do not assign a tree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_of_an_aborted_rollout_stays_with_the_active_policy_in_the_next_one() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    furnish(&gates[0]).await;
    start(&gates, &part(10_000, &[])).await;
    assert_eq!(judges(&gates[0], read_page("s", 1)).await, version("new"));
    end(&gates[0], false).await;
    start(&gates, &part(10_000, &[])).await;
    postgres.tamper("update policy_rollout set started_at = now() + interval '1 minute' where step = 3").await;
    let later = gate(&postgres, &Policy::default()).await;
    later.identities.read_tenants().await.expect("readable");
    later.store.skip(60_000 + SOON_MS);
    assert_eq!(judges(&later, read_page("s", 2)).await, version("old"));
    assert_eq!(judges(&later, read_page("t", 1)).await, version("new"));
}

/// A replica reads an activation before the step that it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_that_is_half_known_refuses_no_call() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    let one = &gates[0];
    furnish(one).await;
    assert_eq!(judges(one, read_page("before", 1)).await, version("old"));
    start(&gates, &part(10_000, &[])).await;
    assert_eq!(judges(one, read_page("after", 1)).await, version("new"));
    let activate = "insert into policy_activation (tenant_id, revision, hash, activated_by, note)
        select tenant_id, revision + 1, '#', activated_by, note from policy_activation";
    postgres.tamper(&activate.replace('#', &policy::hash(&text("new")))).await;
    one.policies.read_policy(DEFAULT_TENANT).await.expect("readable");
    for name in ["before", "after", "begins"] {
        let answer = try_evaluate(one, read_page(name, 2)).await.expect("a verdict");
        assert_eq!(*answer.verdict.policy, *version("new"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_answers_with_its_own_step() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &Policy::default()).await;
    furnish(&gate).await;
    let started = done(try_start(&gate, "new", &part(10_000, &[])).await);
    // A colleague changes the share between the read of the rollout and the activation.
    let mut colleague = postgres.connect().await;
    let change = "begin; select from tenant where tenant_id = 1 for no key update;
        insert into policy_rollout select tenant_id, 2, hash, baseline, 5000, agents, state, started_at, now(), 'otto',
        '' from policy_rollout";
    sqlx::raw_sql(change).execute(&mut colleague).await.expect("changed");
    let late = tokio::spawn({
        let gate = Arc::clone(&gate);
        async move { end(&gate, true).await }
    });
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    until("the promotion to wait", async || postgres.number(waiting).await == 1).await;
    sqlx::raw_sql("commit").execute(&mut colleague).await.expect("committed");
    assert_eq!(late.await.expect("no panic"), RolloutOutcome::Change(RolloutChange::Changed));
    // The next rollout begins as soon as this one is promoted.
    let next = "create function next_rollout() returns trigger language plpgsql as $$ begin
        insert into callgate.policy_rollout select new.tenant_id, new.step + 1, repeat('f', 64), new.hash, 1,
          new.agents, 'running', now(), now(), 'otto', ''; return null; end $$;
        create trigger next_rollout after insert on policy_rollout for each row when (new.state = 'promoted')
        execute function next_rollout()";
    sqlx::raw_sql(next).execute(&mut colleague).await.expect("created");
    let ended = done(end(&gate, true).await);
    let revision = gate.store.active_revision(DEFAULT_TENANT).await.expect("readable").expect("active");
    let own = (ended.step, ended.hash, ended.state, ended.part.share, ended.started_at, ended.at, ended.by, ended.note);
    let (share, at) = (5_000, started.started_at);
    let (by, note) = ("olga".to_owned(), "why not".to_owned());
    assert_eq!(own, (3, started.hash, RolloutState::Promoted, share, at, revision.at, by, note));
}
