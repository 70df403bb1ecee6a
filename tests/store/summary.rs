//! Summary for a model without context: built from stored data alone, long after the call tree has evicted it, and
//! redacted.

use callgate_core::domain::{ids::DEFAULT_TENANT, outcome::OutcomeStatus, redaction::Redaction, session_state::Extent};

use crate::common::{
    gates::{ask, evaluate, failure, gate, policy, record, report, run_call, session},
    postgres::Postgres,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_is_made_from_what_is_stored() {
    let postgres = Postgres::start().await;
    let mut policy = policy(&["same_call"]);
    policy.redaction = Redaction::new(["iban"], [], Vec::new());
    let warm = gate(&postgres, &policy).await;
    run_call(&warm, ask("s", "paid", "pay", r#"{"iban":"DE99","order":"o-1"}"#), r#"{"id":"p-7","iban":"DE99"}"#).await;
    // More than a tree remembers.
    for n in 0..70 {
        run_call(&warm, ask("s", &format!("r{n}"), "look", &format!(r#"{{"at":{n}}}"#)), r#"["one","two"]"#).await;
    }
    evaluate(&warm, ask("s", "failed", "look", r#"{"at":"moon"}"#)).await;
    record(&warm, failure("s", "failed", "not_found")).await;
    evaluate(&warm, ask("s", "open", "look", r#"{"at":"sun"}"#)).await;
    evaluate(&warm, ask("s", "lost", "save", r#"{"n":1}"#)).await;
    record(&warm, report("s", "lost", OutcomeStatus::Unknown)).await;

    let cold = gate(&postgres, &policy).await;
    for gate in [&warm, &cold] {
        let state =
            gate.decisions.session_state(DEFAULT_TENANT, &session("s"), Extent::default()).await.expect("known");
        let summary = &state.summary_for_model;
        for told in [
            "- look {at: sun} is running since ",
            "- save {n: 1} got no answer and may have happened. Do not repeat it",
            "- pay {iban: [redacted], order: o-1} made p-7",
            "  - {at: 0}: 2 items: one, two",
            "  - {at: 69}: 2 items: one, two",
            "- look {at: moon} failed: \"not_found from the provider\" (not_found). The same call",
        ] {
            assert!(summary.contains(told), "{told} is missing in\n{summary}");
        }
        assert!(!summary.contains("DE99"), "{summary}");
        let newest = state.calls.first().expect("a call");
        assert_eq!((&*newest.arguments, &*newest.gist), ("{n: 1}", ""));
        let read = state.calls.iter().find(|told| told.call.call_id.as_str() == "r69").expect("one of the last");
        assert_eq!((&*read.arguments, &*read.gist), ("{at: 69}", "2 items: one, two"));
    }
}
