//! Revocation of tokens during a database outage: revoked tokens stay so on every replica, and unverifiable ones are
//! rejected meanwhile.

use std::{sync::Arc, time::Duration};

use callgate_core::domain::{
    audit::Actor,
    identity::{MappedIdentity, Role},
    ids::DEFAULT_TENANT,
};
use callgate_server::gate::{CredentialRejection, Gate, PresentedCredential};
use tokio::time::Instant;

use super::Replicas;
use crate::common::{STEP, all, gates::policy, until};

/// A revocation holds everywhere by then.
const HOLDS_BY: Duration = Duration::from_secs(2);
const TOKENS: usize = 24;

/// A new token: what its holder shows, and its id.
async fn token(gate: &Gate, n: usize) -> (String, String) {
    let holder = MappedIdentity { name: format!("desk-{n}"), roles: vec![Role::Agent], ..MappedIdentity::default() };
    let (text, token) =
        gate.identities.create_token(DEFAULT_TENANT, holder, None, &Actor::from("root")).await.expect("a token");
    (text, token.id)
}

/// As the way in asks.
async fn present_token(gate: &Gate, token: &str) -> Result<(), CredentialRejection> {
    match gate.identities.identity(PresentedCredential::Bearer(token), None) {
        Some(known) => known.map(drop),
        None => gate.identities.looked_up(token, None).await.map(drop),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_cut_off_from_the_database_lets_nobody_in_whom_another_has_revoked() {
    let replicas = Replicas::start(&policy(&["same_call"])).await;
    let [away, one, _] = &replicas.gates;
    let ((gone, id), (stays, _)) = (token(one, 0).await, token(one, 1).await);
    for token in [&gone, &stays] {
        present_token(away, token).await.expect("it holds");
    }
    replicas.proxies[0].hole();
    one.identities.revoke_token(DEFAULT_TENANT, &id, &Actor::from("root")).await.expect("revoked");
    let revoked = Instant::now();
    assert!(matches!(present_token(one, &gone).await, Err(CredentialRejection::Unknown(_))), "here at once");
    // A recent result is valid for two seconds; then no token can be verified.
    let mut unchecked = false;
    while revoked.elapsed() < HOLDS_BY * 2 {
        let known = away.identities.identity(PresentedCredential::Bearer(&gone), None);
        assert!(revoked.elapsed() < HOLDS_BY || known.is_none(), "{known:?} after {:?}", revoked.elapsed());
        unchecked |= known.is_none();
        tokio::time::sleep(STEP).await;
    }
    assert!(unchecked);
    for token in [&gone, &stays] {
        assert_eq!(present_token(away, token).await, Err(CredentialRejection::Unchecked));
    }
    replicas.proxies[0].heal_for_new_lines();
    until("the replica to know again", async || present_token(away, &stays).await.is_ok()).await;
    assert!(matches!(present_token(away, &gone).await, Err(CredentialRejection::Unknown(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_crashes_forgets_no_revocation_that_was_acknowledged() {
    let replicas = Replicas::start(&policy(&["same_call"])).await;
    let mut tokens = Vec::new();
    for n in 0..TOKENS {
        tokens.push(token(&replicas.gates[0], n).await);
    }
    let revoking = tokens.iter().enumerate().map(|(n, (_, id))| {
        let (gate, id) = (Arc::clone(&replicas.gates[n % 3]), id.clone());
        async move {
            tokio::time::sleep(STEP * n as u32).await;
            gate.identities.revoke_token(DEFAULT_TENANT, &id, &Actor::from("root")).await.is_ok()
        }
    });
    let revoked = "select count(*) from token where revoked_at is not null";
    let crash = async {
        until("the first revocations", async || replicas.postgres.number(revoked).await > 2).await;
        replicas.postgres.crash().await;
    };
    let (acknowledged, ()) = tokio::join!(all(revoking.collect::<Vec<_>>()), crash);
    assert!(acknowledged.contains(&true), "some were told before the crash");
    for gate in &replicas.gates {
        for ((token, id), acknowledged) in tokens.iter().zip(&acknowledged) {
            // The others are in either state.
            let mut told = Err(CredentialRejection::Unchecked);
            until("the database", async || {
                told = present_token(gate, token).await;
                told != Err(CredentialRejection::Unchecked)
            })
            .await;
            assert!(
                !acknowledged || matches!(told, Err(CredentialRejection::Unknown(_))),
                "{id} was revoked: {told:?}"
            );
        }
    }
    // Each has an audit entry, or did not happen.
    let told = "select count(*) from audit where kind = 'token_revoked'";
    assert_eq!(replicas.postgres.number(told).await, replicas.postgres.number(revoked).await);
}
