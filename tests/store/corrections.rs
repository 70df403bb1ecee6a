//! Self-corrections of models after refusals for their arguments: counted in SQL, shared by replicas, and mentioned to
//! the next model. And coerced values.

use callgate_core::domain::{finding::Decision, violation::OnViolation};
use callgate_server::gate::{EvaluateAnswer, Gate};

use crate::common::{
    gates::{ask, evaluate, gate, two_gates},
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  validation: {coercion: repair}
  tool_schemas:
    order:
      effect: write
      schema:
        type: object
        properties:
          deliver_on: {type: string, format: date}
          items: {type: array, items: {type: object, properties: {quantity: {type: integer, minimum: 1}}}}
";

async fn order(gate: &Gate, session: &str, call: &str, arguments: &str) -> EvaluateAnswer {
    evaluate(gate, ask(session, call, "order", arguments)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_that_models_never_correct_asks_the_user_on_every_replica() {
    let postgres = Postgres::start().await;
    let policy = callgate_core::policy::compile(POLICY).expect("a good policy");
    let [one, other] = two_gates(&postgres, &policy).await;
    for n in 0..11 {
        let session = format!("s{n}");
        for (call, arguments) in [
            ("a", r#"{"deliver_on":"soon","items":[{"quantity":0}]}"#),
            ("b", r#"{"deliver_on":"later","items":[{"quantity":2}]}"#),
        ] {
            let refused = order(&one, &session, call, arguments).await.verdict;
            assert_eq!(refused.decision, Decision::Deny, "{refused:?}");
            let told = refused.findings.iter().flat_map(|finding| &finding.violations);
            assert!(told.into_iter().all(|violation| violation.on_violation == OnViolation::SelfCorrect));
        }
    }
    let counted = "select string_agg(field || ' ' || rule || ' ' || corrected || '/' || refusals, ', ' order by field)
                   from callgate.self_corrections where tool = 'order'";
    assert_eq!(postgres.rows(counted).await, [r#"("deliver_on format 0/11, items[].quantity minimum 11/11")"#]);
    other.decisions.learn_self_corrections().await.expect("counts");
    let late = gate(&postgres, &policy).await;
    for (gate, session) in [(&other, "knows"), (&late, "starts late")] {
        let refused = order(gate, session, "a", r#"{"deliver_on":"soon","items":[{"quantity":0}]}"#).await;
        let text = refused.text.expect("a text for the model").json;
        assert!(text.contains(r#""retryable_after_correction":false"#), "{text}");
        assert!(text.contains("Ask the user what deliver_on should be"), "{text}");
        assert!(!text.contains("Ask the user what items"), "{text}");
    }
    // A refusal that asks the user is no evidence about models.
    assert_eq!(order(&other, "knows", "b", r#"{"deliver_on":"2026-12-24"}"#).await.verdict.decision, Decision::Allow);
    assert_eq!(postgres.rows(counted).await, [r#"("deliver_on format 0/11, items[].quantity minimum 12/12")"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coercions_are_counted_by_tool_and_field() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &callgate_core::policy::compile(POLICY).expect("a good policy")).await;
    order(&gate, "s", "a", r#"{"items":[{"quantity":"2"},{"quantity":"3"}]}"#).await;
    order(&gate, "s", "b", r#"{"items":[{"quantity":4}]}"#).await;
    let counted = "select string_agg(tool || ' ' || field || ' ' || calls, ', ') from callgate.coercions";
    assert_eq!(postgres.rows(counted).await, [r#"("order items[].quantity 1")"#]);
    assert_eq!(postgres.rows("select coercion_rate::text from callgate.tool_quality").await, ["(0.5)"]);
}
