//! Policy storage: texts unchanged, exclusive activation, and atomic switches.

use std::sync::{Arc, LazyLock};

use callgate_core::{
    domain::{audit::Actor, ids::DEFAULT_TENANT, revision::Revision},
    policy::{self, Policy},
};
use callgate_server::gate::{ActivationOutcome, Apply, ApplyOutcome, Author, Gate};

use crate::common::{
    all,
    gates::{ask, evaluate, gate, two_gates},
    postgres::Postgres,
};

static OLGA: LazyLock<Actor> = LazyLock::new(|| Actor::from("olga"));

fn anybody() -> Author<'static> {
    Author { by: &OLGA, note: "why not", expected: None }
}

/// A policy that differs from others by `n`, and by nothing that matters.
fn text(n: usize) -> String {
    format!("# {n}\npolicy_engine: {{tool_schemas: {{look: {{effect: read}}}}}}\n")
}

async fn apply_as(gate: &Gate, text: &str, author: &Author<'_>) -> ApplyOutcome {
    Box::pin(gate.policies.apply_policy(DEFAULT_TENANT, text, author, Apply::Activate))
        .await
        .expect("the database answers")
}

/// Applies it unconditionally; returns its revision.
async fn apply(gate: &Gate, text: &str) -> u64 {
    match apply_as(gate, text, &anybody()).await {
        ApplyOutcome::Stored { hash, revision: Some(revision), .. } if hash == policy::hash(text) => revision.number,
        other => panic!("{other:?}"),
    }
}

async fn activate(gate: &Gate, text: &str, expected: Option<u64>) -> ActivationOutcome {
    let author = Author { expected, ..anybody() };
    let activated = Box::pin(gate.policies.activate_policy(DEFAULT_TENANT, &policy::hash(text), &author)).await;
    activated.expect("the database answers")
}

async fn rollback(gate: &Gate) -> ActivationOutcome {
    Box::pin(gate.policies.rollback_policy(DEFAULT_TENANT, &anybody())).await.expect("the database answers")
}

fn version(text: &str) -> String {
    policy::hash(text)[..16].to_owned()
}

async fn history(postgres: &Postgres) -> Vec<String> {
    postgres.rows("select revision, left(hash, 8) from policy_activation order by revision").await
}

fn row(revision: u64, text: &str) -> String {
    format!("({revision},{})", &policy::hash(text)[..8])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_comes_back_with_the_same_hash() {
    let postgres = Postgres::start().await;
    let [gate, other] = two_gates(&postgres, &Policy::default()).await;
    // Text that a database, a driver or a YAML writer might normalize, and that a digest of results would mask.
    let text = "# Ä\u{301} 12ms 550e8400-e29b-41d4-a716-446655440000  \r\npolicy_engine:\r\n    tool_schemas: \
                {look: {effect: read}}\n\n\n";
    assert_eq!(apply(&gate, text).await, 1);
    let stored =
        other.policies.stored_policy(DEFAULT_TENANT, &policy::hash(text)).await.expect("readable").expect("stored");
    assert_eq!(stored, (policy::hash(text), text.to_owned()));
    assert_ne!(policy::hash(text), policy::hash(&text.replace("12ms", "13ms")));
    let same = "select hash = encode(sha256(convert_to(text, 'UTF8')), 'hex') as same, applied_by, note from policy";
    assert_eq!(postgres.rows(same).await, [r#"(t,olga,"why not")"#]);
    other.policies.read_policy(DEFAULT_TENANT).await.expect("readable");
    for gate in [&gate, &other] {
        assert_eq!(*gate.server.policy(DEFAULT_TENANT).version, *version(text));
        assert_eq!(gate.server.policy(DEFAULT_TENANT).tools().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_activations_on_one_revision_have_one_winner() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    let texts = [text(1), text(2)];
    for (gate, text) in gates.iter().zip(&texts) {
        apply(gate, text).await;
    }
    for round in 0..30_u64 {
        let expected = Some(2 + round);
        let racing = (0..2).map(|n| {
            let (gate, text) = (Arc::clone(&gates[n]), texts[n].clone());
            async move { activate(&gate, &text, expected).await }
        });
        let came = all(racing).await;
        let won = came
            .iter()
            .filter(|came| matches!(came, ActivationOutcome::Active(Revision { number, .. }) if *number == 3 + round));
        let lost = came.iter().filter(|came| **came == ActivationOutcome::Changed { revision: 3 + round });
        assert_eq!((won.count(), lost.count()), (1, 1), "{came:?}");
    }
    assert_eq!(postgres.number("select max(revision) from policy_activation").await, 32);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expected_revision_is_asked_of_the_active_policy_too() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &Policy::default()).await;
    let expecting = |revision: u64| Author { expected: Some(revision), ..anybody() };
    assert_eq!(apply_as(&gate, &text(1), &expecting(1)).await, ApplyOutcome::Changed { revision: 0 });
    let applied = apply_as(&gate, &text(1), &expecting(0)).await;
    assert!(matches!(applied, ApplyOutcome::Stored { revision: Some(Revision { number: 1, .. }), .. }), "{applied:?}");
    assert_eq!(apply_as(&gate, &text(1), &expecting(0)).await, ApplyOutcome::Changed { revision: 1 });
    assert_eq!(activate(&gate, &text(1), Some(7)).await, ActivationOutcome::Changed { revision: 1 });
    assert_eq!(apply(&gate, &text(1)).await, 1, "what is active stays so");
    assert_eq!(history(&postgres).await, [row(1, &text(1))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_apply_at_once_all_succeed() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &Policy::default()).await;
    let apply_all = async |texts: Vec<String>| {
        let applying = texts.into_iter().enumerate().map(|(n, text)| {
            let gate = Arc::clone(&gates[n % 2]);
            async move { apply(&gate, &text).await }
        });
        all(applying).await
    };
    // One file on a shared disk is one activation.
    assert_eq!(apply_all(vec![text(0); 6]).await, [1; 6]);
    let mut revisions = apply_all((1..=6).map(text).collect()).await;
    revisions.sort_unstable();
    assert_eq!(revisions, [2, 3, 4, 5, 6, 7]);
    let last = "select left(hash, 16) from policy_activation order by revision desc limit 1";
    let last = postgres.rows(last).await.remove(0);
    for gate in &gates {
        gate.policies.read_policy(DEFAULT_TENANT).await.expect("readable");
        assert_eq!(format!("({})", gate.server.policy(DEFAULT_TENANT).version), last);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_policy_is_rejected_and_not_stored() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &Policy::default()).await;
    apply(&gate, &text(1)).await;
    let bad = "policy_engine:\n  mode: loud\n  loops: {windw: 3}\n";
    let ApplyOutcome::Invalid(errors) = apply_as(&gate, bad, &anybody()).await else { panic!("applied") };
    let places: Vec<_> = errors.iter().map(|error| (error.line, error.path.as_str())).collect();
    assert_eq!(places.len(), 2, "{errors:?}");
    assert!(places.iter().all(|(line, path)| line.is_some() && path.starts_with("policy_engine.")), "{errors:?}");
    assert_eq!(*gate.server.policy(DEFAULT_TENANT).version, *version(&text(1)));
    assert_eq!(postgres.number("select count(*) from policy").await, 1);
    assert_eq!(history(&postgres).await, [row(1, &text(1))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_policy_that_this_build_cannot_read_never_judges() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &Policy::default()).await;
    apply(&gate, &text(1)).await;
    let newer = "policy_engine: {of_a_newer_build: true}\n";
    let store = format!(
        "insert into policy (tenant_id, hash, text, applied_by, note) values (1, '{}', '{newer}', 'newer', '')",
        policy::hash(newer)
    );
    postgres.tamper(&store).await;
    let ActivationOutcome::Invalid(errors) = activate(&gate, newer, None).await else { panic!("activated") };
    assert!(errors[0].to_string().contains("of_a_newer_build"), "{errors:?}");
    assert_eq!(history(&postgres).await, [row(1, &text(1))]);

    // A newer replica activates it.
    let activation = format!(
        "insert into policy_activation (tenant_id, revision, hash, activated_by, note) \
             values (1, 2, '{}', 'newer', '')",
        policy::hash(newer)
    );
    postgres.tamper(&activation).await;
    let read = gate.policies.read_policy(DEFAULT_TENANT).await.expect("readable");
    assert!(read[0].to_string().contains("of_a_newer_build"), "{read:?}");
    assert_eq!(*gate.server.policy(DEFAULT_TENANT).version, *version(&text(1)), "the old one stays");
    assert!(gate.policies.read_policy(DEFAULT_TENANT).await.expect("readable").is_empty(), "it is said once");
    assert_eq!(apply(&gate, &text(3)).await, 3);
    assert_eq!(*gate.server.policy(DEFAULT_TENANT).version, *version(&text(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_look_does_not_bring_an_older_policy_back() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &Policy::default()).await;
    apply(&gate, &text(1)).await;
    apply(&gate, &text(2)).await;
    // A read that began before the second activation and ends after it.
    postgres.tamper("delete from policy_activation where revision = 2").await;
    gate.policies.read_policy(DEFAULT_TENANT).await.expect("readable");
    assert_eq!(*gate.server.policy(DEFAULT_TENANT).version, *version(&text(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_activates_the_previous_different_policy() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &Policy::default()).await;
    assert_eq!(rollback(&gate).await, ActivationOutcome::Unknown, "nothing is active");
    apply(&gate, &text(1)).await;
    assert_eq!(rollback(&gate).await, ActivationOutcome::Unknown, "nothing was before");
    apply(&gate, &text(2)).await;
    activate(&gate, &text(2), None).await;
    for (revision, n) in [(4, 1), (5, 2)] {
        let ActivationOutcome::Active(active) = rollback(&gate).await else { panic!("not active") };
        assert_eq!((active.number, active.hash), (revision, policy::hash(&text(n))));
        assert_eq!(*gate.server.policy(DEFAULT_TENANT).version, *version(&text(n)));
    }
    let expected = [row(1, &text(1)), row(2, &text(2)), row(3, &text(2)), row(4, &text(1)), row(5, &text(2))];
    assert_eq!(history(&postgres).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stored_decision_names_the_one_policy_that_made_it() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &Policy::default()).await;
    let policies = [("read", 0), ("write", 1)].map(|(effect, n)| {
        format!(
            "policy_engine:\n  rules: {{growth: {{mode: off}}}}\n  tool_schemas: {{tool: {{effect: {effect}}}}} # {n}\n"
        )
    });
    apply(&gate, &policies[0]).await;
    evaluate(&gate, ask("before", "c1", "tool", "{}")).await;
    let asking = (0..4).map(|s| {
        let gate = Arc::clone(&gate);
        async move {
            for n in 0..60 {
                evaluate(&gate, ask(&format!("s{s}"), &format!("c{n}"), "tool", &format!(r#"{{"n":"{s}-{n}"}}"#)))
                    .await;
            }
        }
    });
    let swapping = async {
        for n in 1..40 {
            apply(&gate, &policies[n % 2]).await;
        }
    };
    tokio::join!(all(asking), swapping);
    apply(&gate, &policies[1]).await;
    evaluate(&gate, ask("after", "c1", "tool", "{}")).await;

    let of = async |session: &str| {
        postgres.rows(&format!("select effect, policy_version from call where session_id = '{session}'")).await
    };
    let row = |effect: &str, policy: &str| format!("({effect},{})", version(policy));
    let (before, after) = (of("before").await, of("after").await);
    assert!(before[0].ends_with(&format!(",{})", version(&policies[0]))), "{before:?}");
    assert!(after[0].ends_with(&format!(",{})", version(&policies[1]))), "{after:?}");
    let words = postgres
        .rows("select distinct t.effect, c.policy_version from tool_call t join call c using (session_id, call_id)")
        .await;
    let mut expected = vec![row("read", &policies[0]), row("write", &policies[1])];
    expected.sort_unstable();
    let mut words = words;
    words.sort_unstable();
    assert_eq!(words, expected, "no decision mixes the two");
}
