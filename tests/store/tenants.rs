//! Tenants: created, suspended and deleted on one replica, known on all, each judged by its own policy.

use std::time::Duration;

use callgate_core::{
    domain::{
        audit::{Actor, AuditEvent, AuditOperation},
        call::Request,
        ids::{DEFAULT_TENANT, TenantId},
        rejection::EvaluateRejection,
        tenant::{Quota, Quotas, Tenant, TenantState},
    },
    policy::{self, Policy},
};
use callgate_server::gate::{Apply, ApplyOutcome, Author, Gate, GateError, NoAnswer, TenantChange};

use crate::common::{
    gates::{ask, evaluate, gate, policy, session, success, try_evaluate, two_gates},
    postgres::Postgres,
};

pub(crate) async fn create(gate: &Gate, name: &str) -> Tenant {
    match gate.identities.create_tenant(name, &Quotas::default(), &"olga".into()).await.expect("the database answers") {
        TenantChange::Done(tenant) => *tenant,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn asking(tenant: TenantId, call: &str) -> Request {
    let arguments = format!(r#"{{"of":"{call}"}}"#);
    Request { tenant, ..ask("s", call, "look", &arguments) }
}

async fn state(gate: &Gate, name: &str, state: TenantState) -> TenantChange {
    gate.identities.set_tenant_state(name, state, &"olga".into(), "a drill").await.expect("the database answers")
}

async fn expect_refusal(gate: &Gate, request: Request) -> NoAnswer {
    match try_evaluate(gate, request).await {
        Err(GateError::NoAnswer(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_served_by_every_replica_until_it_is_suspended() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &policy(&[])).await;
    assert_eq!(expect_refusal(&one, asking(TenantId(2), "c0")).await, NoAnswer::TenantUnknown);
    let acme = create(&one, "acme").await;
    assert_eq!((acme.id, acme.state), (TenantId(2), TenantState::Active));
    assert_eq!(
        one.identities.create_tenant("acme", &Quotas::default(), &"eve".into()).await.expect("an answer"),
        TenantChange::Taken
    );
    evaluate(&one, asking(acme.id, "c1")).await;
    assert_eq!(
        expect_refusal(&other, asking(acme.id, "c2")).await,
        NoAnswer::TenantUnknown,
        "it was not read there yet"
    );
    other.identities.read_tenants().await.expect("readable");
    evaluate(&other, asking(acme.id, "c2")).await;

    assert!(matches!(state(&one, "acme", TenantState::Suspended).await, TenantChange::Done(_)));
    other.identities.read_tenants().await.expect("readable");
    for gate in [&one, &other] {
        let why = NoAnswer::NotServed(TenantState::Suspended);
        assert_eq!(expect_refusal(gate, asking(acme.id, "c3")).await, why);
        let dry = gate.decisions.dry_run(asking(acme.id, "c3")).await.expect_err("refused");
        assert_eq!(dry, GateError::NoAnswer(why.clone()));
        assert_eq!(gate.approvals.open_questions(acme.id).await.expect_err("refused"), why);
        let seen = gate.decisions.record(acme.id, success("s", "c9", "ok"), Some(asking(acme.id, "c9"))).await;
        assert_eq!(seen.expect_err("refused"), GateError::NoAnswer(why), "what only says that something ran is new");
    }
    // A call permitted before is reported as done.
    let settled = other.decisions.record(acme.id, success("s", "c1", "ok"), None).await.expect("taken");
    assert!(!settled.replayed);
    assert!(matches!(state(&one, "acme", TenantState::Active).await, TenantChange::Done(_)));
    evaluate(&one, asking(acme.id, "c3")).await;
    assert_eq!(postgres.number("select count(*) from call where tenant_id = 2").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_deleted_once_it_is_suspended_and_the_planes_own_never() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&[])).await;
    let acme = create(&gate, "acme").await;
    assert_eq!(state(&gate, "acme", TenantState::Deleted).await, TenantChange::NotSuspended);
    for ended in [TenantState::Suspended, TenantState::Deleted] {
        assert_eq!(state(&gate, "default", ended).await, TenantChange::Own);
        assert!(matches!(state(&gate, "acme", ended).await, TenantChange::Done(_)));
        assert_eq!(expect_refusal(&gate, asking(acme.id, "c1")).await, NoAnswer::NotServed(ended));
    }
    let report = gate.decisions.record(acme.id, success("s", "c1", "ok"), None).await.expect_err("refused");
    assert_eq!(report, GateError::NoAnswer(NoAnswer::NotServed(TenantState::Deleted)));
    assert_eq!(state(&gate, "acme", TenantState::Active).await, TenantChange::Unknown, "nothing brings it back");
    let again = gate.identities.create_tenant("acme", &Quotas::default(), &"eve".into()).await.expect("an answer");
    assert_eq!(again, TenantChange::Taken, "its name names it in the audit");
    assert_eq!(create(&gate, "next").await.id, TenantId(acme.id.0 + 1), "nor is its number used again");
    evaluate(&gate, asking(DEFAULT_TENANT, "c1")).await;
    let told = "select what, who, why from audit_log where tenant_id = 1 order by number";
    let deeds = postgres.rows(told).await;
    assert_eq!(deeds.len(), 4, "{deeds:?}");
    assert_eq!(deeds[1..3], [r#"(acme,olga,"a drill")"#, r#"(acme,olga,"a drill")"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tenant_is_judged_by_its_own_policy() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &Policy::default()).await;
    let author = Author { by: &Actor::from("olga"), note: "", expected: None };
    let (acme, bora) = (create(&one, "acme").await.id, create(&one, "bora").await.id);
    let text = |tier: &str| {
        format!("policy_engine: {{authorization: {{tiers: [{{name: all, pattern: '*', action: {tier}}}]}}}}")
    };
    for (tenant, text) in [(acme, text("deny")), (DEFAULT_TENANT, text("allowlist"))] {
        let applied =
            Box::pin(one.policies.apply_policy(tenant, &text, &author, Apply::Activate)).await.expect("stored");
        assert!(matches!(applied, ApplyOutcome::Stored { revision: Some(_), .. }), "{applied:?}");
    }
    other.identities.read_tenants().await.expect("readable");
    for (n, gate) in [&one, &other].into_iter().enumerate() {
        let mut said = Vec::new();
        for tenant in [DEFAULT_TENANT, acme, bora] {
            let verdict = evaluate(gate, asking(tenant, &format!("c{n}"))).await.verdict;
            said.push(format!("{} {}", verdict.decision.as_str(), verdict.policy));
        }
        let version = |tier| policy::hash(&text(tier))[..16].to_owned();
        let expected = [format!("ALLOW {}", version("allowlist")), format!("DENY {}", version("deny"))];
        assert_eq!(said[..2], expected);
        assert_eq!(said[2], "ALLOW default", "the built-in one, until it has its own");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_whose_policy_this_build_cannot_read_is_judged_by_no_other() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &Policy::default()).await;
    let author = Author { by: &Actor::from("olga"), note: "", expected: None };
    let acme = create(&one, "acme").await.id;
    let good = "policy_engine: {}";
    let applied = Box::pin(one.policies.apply_policy(acme, good, &author, Apply::Activate)).await.expect("stored");
    assert!(matches!(applied, ApplyOutcome::Stored { .. }));
    // As a newer build would have stored it.
    let newer = "insert into policy (tenant_id, hash, text, applied_by, note)
        values (2, repeat('a', 64), 'policy_engine: {of_tomorrow: 1}', 'eve', '')";
    assert_eq!(postgres.tamper(newer).await, 1);
    let active = "insert into policy_activation (tenant_id, revision, hash, activated_by, note)
        values (2, 2, repeat('a', 64), 'eve', '')";
    assert_eq!(postgres.tamper(active).await, 1);
    for gate in [&one, &other] {
        gate.identities.read_tenants().await.expect("readable");
    }
    evaluate(&one, asking(acme, "c1")).await;
    assert_eq!(*one.server.policy(acme).version, policy::hash(good)[..16], "what judged before goes on");
    assert!(one.policies.watch_policies(), "which is an alarm");
    let rolled = Box::pin(one.policies.rollback_policy(acme, &author)).await.expect("stored");
    assert!(matches!(rolled, callgate_server::gate::ActivationOutcome::Active(_)), "{rolled:?}");
    assert!(!one.policies.watch_policies(), "until it is over");
    assert_eq!(expect_refusal(&other, asking(acme, "c2")).await, NoAnswer::PolicyUnreadable);
    assert!(other.policies.watch_policies());
    evaluate(&other, asking(DEFAULT_TENANT, "c1")).await;
}

async fn limit(gate: &Gate, quotas: Quotas) {
    let set = gate.identities.set_tenant_quotas("acme", &quotas, &"olga".into()).await.expect("the database answers");
    assert!(matches!(set, TenantChange::Done(_)), "{set:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_its_quota_a_tenant_is_told_so_and_others_are_not() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&[])).await;
    let acme = create(&gate, "acme").await.id;
    limit(&gate, Quotas { calls_per_second: Some(0), ..Quotas::default() }).await;
    assert_eq!(expect_refusal(&gate, asking(acme, "c1")).await, NoAnswer::Quota(Quota::CallsPerSecond));
    evaluate(&gate, asking(DEFAULT_TENANT, "c1")).await;
    limit(&gate, Quotas { sessions: Some(1), ..Quotas::default() }).await;
    evaluate(&gate, asking(acme, "c1")).await;
    gate.privacy.look_after_tenants().await.expect("counted");
    gate.identities.read_tenants().await.expect("readable");
    evaluate(&gate, asking(acme, "c2")).await;
    let another = Request { session: session("another"), ..asking(acme, "c1") };
    let told = try_evaluate(&gate, another.clone()).await.expect_err("one too many");
    assert_eq!(told, GateError::Rejected(EvaluateRejection::QuotaExceeded(Quota::Sessions)));
    limit(&gate, Quotas { stored_bytes: Some(1), ..Quotas::default() }).await;
    assert_eq!(expect_refusal(&gate, asking(acme, "c3")).await, NoAnswer::Quota(Quota::StoredBytes));
    gate.decisions.record(acme, success("s", "c2", "ok"), None).await.expect("a report is taken");
    limit(&gate, Quotas::default()).await;
    evaluate(&gate, another).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_tenant_is_erased_and_others_are_not() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&[])).await;
    let acme = create(&gate, "acme").await.id;
    for tenant in [acme, DEFAULT_TENANT] {
        evaluate(&gate, asking(tenant, "c1")).await;
        gate.decisions.record(tenant, success("s", "c1", "ok"), None).await.expect("stored");
    }
    let rows = "select sum(n) from (select count(*) n from call where tenant_id = $ union all
        select count(*) from outcome where tenant_id = $ union all select count(*) from call_tree where tenant_id = $
        union all select count(*) from session where tenant_id = $) t";
    let rows = async |tenant: &str| postgres.number(&rows.replace('$', tenant)).await;
    assert!(rows("2").await >= 4);
    let entry = AuditEvent::new(AuditOperation::SignedIn, Actor::from("eve"), "signed in");
    gate.store.append_audit_entry(acme, &entry).await.expect("stored");
    assert_eq!(export_audit(&gate, acme).await, [1]);
    for ended in [TenantState::Suspended, TenantState::Deleted] {
        assert!(matches!(state(&gate, "acme", ended).await, TenantChange::Done(_)));
    }
    for _ in 0..2 {
        gate.privacy.look_after_tenants().await.expect("erased");
    }
    assert_eq!(rows("2").await, 0);
    assert!(rows("1").await >= 4);
    assert_eq!(postgres.number("select count(*) from tenant where name = 'acme'").await, 1);
    assert_eq!(export_audit(&gate, acme).await, [0; 0], "nothing is exported again");
}

/// Exports all audit logs; returns the numbers of this tenant's entries.
async fn export_audit(gate: &Gate, tenant: TenantId) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(batch) = gate.store.claim_audit_batch(2, Duration::from_secs(60)).await.expect("readable") {
        let of_batch: Vec<u64> = batch.entries.iter().map(|entry| entry.number).collect();
        gate.store.settle_audit_batch(batch.tenant, *of_batch.last().expect("an entry")).await.expect("stored");
        numbers.extend(of_batch.into_iter().filter(|_| batch.tenant == tenant));
    }
    numbers
}
