//! Cancellation storm: hundreds of clients time out after milliseconds; the server loses nothing, and other callers are
//! unaffected.

use std::time::Duration;

use callgate_core::domain::{
    audit::Actor,
    identity::Role,
    ids::{DEFAULT_TENANT, TenantId},
    tenant::Quotas,
};
use callgate_proto::v1::{Decision, EvaluateRequest, RecordRequest, Verdict};
use callgate_server::gate::{Apply, Author, TenantChange};

use crate::{
    common::{
        all,
        gates::{policy, policy_text},
        invariants::{gapless_of, good, one_open_permit, sums_of},
        wire::{Client, Plane, call, evaluate_as, question, record_as, success, with_token},
        within,
    },
    credentials::who,
};

const CALLS: usize = 200;
const SESSIONS: usize = 10;
/// Maximum duration of an uncancelled call; a server that waits in vain takes longer.
const SOON: Duration = Duration::from_secs(5);

/// A caller: local, or with a token.
#[derive(Clone)]
struct Caller {
    tenant: TenantId,
    token: Option<String>,
}

/// The calls of all callers: those of one number are the same, in sessions of the same names.
#[derive(Clone)]
struct Calls(Vec<Caller>);

impl Calls {
    fn caller(&self, n: usize) -> &Caller {
        &self.0[n % self.0.len()]
    }

    fn token(&self, n: usize) -> Option<&str> {
        self.caller(n).token.as_deref()
    }

    fn names(&self, n: usize) -> (String, String) {
        let n = n / self.0.len();
        (format!("s{}", n % SESSIONS), format!("c{n}"))
    }

    fn evaluate_request(&self, n: usize) -> EvaluateRequest {
        let (session, id) = self.names(n);
        let tool = ["pay", "work"][n / self.0.len() / SESSIONS % 2];
        question(&session, call(&id, tool, &format!(r#"{{"n":{}}}"#, n / self.0.len())))
    }

    fn success_report(&self, n: usize) -> RecordRequest {
        let (session, id) = self.names(n);
        success(&session, &id, &format!("done by {:?}", self.caller(n).tenant))
    }
}

fn impatience(n: usize) -> Duration {
    Duration::from_millis(1 + n as u64 % 5)
}

/// Gives up by closing the stream, or by a deadline that the server knows of.
async fn hasty_evaluate(mut client: Client, calls: Calls, n: usize) -> Option<Verdict> {
    let mut request = with_token(calls.token(n), calls.evaluate_request(n));
    if n.is_multiple_of(3) {
        request.set_timeout(impatience(n));
        return client.evaluate(request).await.ok()?.into_inner().verdict;
    }
    let answer = tokio::time::timeout(impatience(n), client.evaluate(request)).await;
    answer.ok()?.ok()?.into_inner().verdict
}

async fn hasty_record(mut client: Client, calls: Calls, n: usize) -> bool {
    let told = client.record(with_token(calls.token(n), calls.success_report(n)));
    tokio::time::timeout(impatience(n), told).await.is_ok_and(|answer| answer.is_ok())
}

async fn cancelled_calls(plane: &Plane, calls: &Calls) {
    let (mut client, mut stormy) = (plane.client().await, plane.client().await);
    let hasty = all((0..CALLS).map(|n| hasty_evaluate(stormy.clone(), calls.clone(), n))).await;
    // On the connection of the storm, and on one that had no part in it.
    for (id, client) in [("c1", &mut stormy), ("c2", &mut client)] {
        let calm = question("calm", call(id, "look", &format!(r#"{{"id":"{id}"}}"#)));
        let next = evaluate_as(calls.token(0), client, calm);
        assert_eq!(within(SOON, "the next call", next).await.decision(), Decision::Allow);
    }

    // A caller without an answer retries on the same server, and gets the stored answer, if any.
    for (n, first) in hasty.iter().enumerate() {
        let again = evaluate_as(calls.token(n), &mut client, calls.evaluate_request(n));
        let again = within(SOON, "an answer", again).await;
        assert_eq!(again.decision(), Decision::Allow, "{again:?}");
        if let Some(first) = first {
            assert!(again.replayed && again.permit == first.permit, "{first:?} then {again:?}");
        }
    }
    let permits = "select count(*), count(distinct idempotency_key) from call where attempt is not null";
    assert_eq!(plane.postgres.rows(permits).await, [format!("({},{})", CALLS + 2, CALLS + 2)]);
    good([one_open_permit(&plane.postgres).await]);

    let hasty = all((0..CALLS).map(|n| hasty_record(stormy.clone(), calls.clone(), n))).await;
    for (n, answered) in hasty.into_iter().enumerate() {
        let again = record_as(calls.token(n), &mut client, calls.success_report(n));
        let again = within(SOON, "an answer", again).await;
        assert!(again.replayed || !answered, "call {n} was recorded twice");
    }
    assert_eq!(plane.postgres.number("select count(*) from outcome").await, CALLS as i64);
    for Caller { tenant, .. } in &calls.0 {
        let mine = format!("select count(*) from outcome where tenant_id = {} and result like", tenant.0);
        let told = plane.postgres.number(&format!("{mine} 'done by {tenant:?}'")).await;
        assert_eq!(told, (CALLS / calls.0.len()) as i64, "each has its own");
        for n in 0..SESSIONS {
            let root = format!("s{n}");
            good([gapless_of(&plane.postgres, *tenant, &root).await, sums_of(&plane.postgres, *tenant, &root).await]);
        }
    }
    let stuck = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    assert_eq!(plane.postgres.number(stuck).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_cancelled_calls_harms_nobody() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    cancelled_calls(&plane, &Calls(vec![Caller { tenant: DEFAULT_TENANT, token: None }])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_cancelled_calls_of_two_tenants_harms_neither() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let (gate, root) = (&plane.gate, Actor::from("root"));
    let made = gate.identities.create_tenant("acme", &Quotas::default(), &root).await.expect("an answer");
    let TenantChange::Done(acme) = made else { panic!("{made:?}") };
    let (author, text) = (Author { by: &root, note: "", expected: None }, policy_text(&["same_call"], ""));
    Box::pin(gate.policies.apply_policy(acme.id, &text, &author, Apply::Activate)).await.expect("a policy");
    let mut callers = Vec::new();
    for tenant in [DEFAULT_TENANT, acme.id] {
        let (token, _) =
            gate.identities.create_token(tenant, who("fleet", &[Role::Agent]), None, &root).await.expect("a token");
        callers.push(Caller { tenant, token: Some(token) });
    }
    cancelled_calls(&plane, &Calls(callers)).await;
}
