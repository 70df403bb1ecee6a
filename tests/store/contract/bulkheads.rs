//! Leases under limits of calls in flight.

use std::sync::Arc;

use callgate_core::domain::{
    bulkhead::{BulkheadClaim, BulkheadTurn},
    fingerprint::Fingerprint,
    ids::{DEFAULT_TENANT, TenantId},
};
use callgate_store::{DecisionStore, StoreError};

use super::Replicas;
use crate::common::gates::{call_id, session};

fn claim(store: &dyn DecisionStore, of: &str, call: &str) -> BulkheadClaim {
    BulkheadClaim {
        limit: "search:tool:search".into(),
        max: 2,
        session: session(of),
        call_id: call_id(call),
        fingerprint: Fingerprint([of.len() as u8; 32]),
        until: store.now().plus_ms(60_000),
    }
}

/// Two leases at most, the earliest waiting call next, a place under another call_id, and leases that end.
pub(super) async fn bulkhead_leases_are_exact_and_queued_in_order([one, other]: &Replicas) {
    let turn = async |at: &Arc<dyn DecisionStore>, tenant, of: &str, call: &str| {
        at.claim_bulkhead(tenant, &claim(&**at, of, call)).await.expect("a turn")
    };
    let (new, known) = (BulkheadTurn::InFlight { is_new: true }, BulkheadTurn::InFlight { is_new: false });
    let queued = |place| BulkheadTurn::Queued { place };
    let tenant = DEFAULT_TENANT;
    assert_eq!(turn(one, tenant, "a", "1").await, new);
    assert_eq!(turn(other, tenant, "a", "1").await, known, "the same call is counted once");
    assert_eq!(turn(other, tenant, "bb", "1").await, new);
    assert_eq!(turn(one, tenant, "ccc", "1").await, queued(1));
    one.skip(1);
    other.skip(1);
    assert_eq!(turn(other, tenant, "dddd", "1").await, queued(2));
    assert_eq!(turn(one, tenant, "ccc", "2").await, queued(1), "another id keeps the place");
    assert_eq!(turn(one, TenantId(7), "a", "1").await, new, "another tenant has its own");
    other.release_bulkheads(tenant, &session("a"), &call_id("1")).await.expect("released");
    assert_eq!(turn(other, tenant, "dddd", "1").await, queued(1), "the earlier one goes first");
    assert_eq!(turn(one, tenant, "ccc", "2").await, new);
    let until = one.now().plus_ms(120_000);
    one.extend_bulkheads(tenant, &session("bb"), &call_id("1"), until).await.expect("extended");
    one.skip(90_000);
    other.skip(90_000);
    assert_eq!(turn(other, tenant, "dddd", "1").await, new, "a lease is over");
    assert_eq!(turn(other, tenant, "e", "1").await, queued(1), "an extended one is not");
}

/// Fifty calls claim at once, in two replicas.
pub(super) async fn bulkhead_claims_at_once_stay_within_the_limit(replicas: &Replicas) {
    for round in 0..2 {
        let claims = (0..50).map(|n| {
            let store = Arc::clone(&replicas[n % 2]);
            tokio::spawn(async move {
                let claim = claim(&*store, &format!("s{n}"), "1");
                loop {
                    match store.claim_bulkhead(DEFAULT_TENANT, &claim).await {
                        // A busy machine answers so many at once late.
                        Err(StoreError::Overloaded(_)) => {}
                        turn => return turn.expect("a turn"),
                    }
                }
            })
        });
        let (mut in_flight, mut places) = (0, Vec::new());
        for claim in claims.collect::<Vec<_>>() {
            match claim.await.expect("no panic") {
                BulkheadTurn::InFlight { .. } => in_flight += 1,
                BulkheadTurn::Queued { place } => places.push(place),
            }
        }
        places.sort_unstable();
        assert_eq!((in_flight, places.len()), (2, 48));
        // In the first round a call may pass one that arrived after it and claimed before it.
        assert!(round == 0 || places == (1..=48).collect::<Vec<u64>>(), "{places:?}");
    }
}
