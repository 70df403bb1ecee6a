//! Truncated results: the beginning is stored, with size and digest of the whole.

use callgate_core::{
    domain::{
        digest,
        ids::DEFAULT_TENANT,
        session_state::{CallState, Extent},
        time::Timestamp,
    },
    policy,
};

use crate::common::{
    gates::{ask, call_id, describe_answer, evaluate, gate, record, run_call, session, success},
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  storage: {result_bytes_max: 2000}
  tool_schemas:
    look: {effect: read}
    pay: {once: true}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_is_too_large_is_stored_cut_and_known_by_all_of_it() {
    let postgres = Postgres::start().await;
    let policy = policy::compile(POLICY).expect("a good policy");
    let warm = gate(&postgres, &policy).await;
    // The cut falls into a character, and a secret lies on either side of it.
    let rows = |last: &str| {
        let near = r#""password":"hunter-near-1","rows":""#;
        let far = r#","secret":"hunter-far-22","z":"#;
        let rows = "é".repeat(1_500) + "far-beyond" + &"é".repeat(500);
        format!(r#"{{{near}{rows}"{far}"{last}"}}"#)
    };
    let given = rows("end");
    run_call(&warm, ask("s", "c1", "pay", r#"{"n":1}"#), &given).await;
    let whole = given.replace("hunter-near-1", "[redacted]").replace("hunter-far-22", "[redacted]");
    let stored = "select count(*) from outcome where octet_length(result) = 1999 and result_bytes > 4000
        and whole_bytes is not null";
    assert_eq!(postgres.number(stored).await, 1);
    let dump = postgres.dump().await;
    for gone in ["hunter", "far-beyond"] {
        assert!(!dump.contains(gone), "{gone}");
    }

    let cold = gate(&postgres, &policy).await;
    for (gate, n) in [(&warm, 1), (&cold, 2)] {
        let again = evaluate(gate, ask("s", &format!("again{n}"), "pay", r#"{"n":1}"#)).await;
        assert_eq!(describe_answer(&again), "REUSE duplicate_call_blocked");
        let text: serde_json::Value = serde_json::from_str(&again.text.expect("a text").json).expect("JSON");
        assert_eq!(text["previous_result_truncated"], true);
        assert_eq!(text["previous_result_bytes"], whole.len());
        assert_eq!(text["previous_result_sha256"], digest::of_text(&whole));
        let beginning = text["previous_result"].as_str().expect("the beginning, as text");
        assert!(whole.starts_with(beginning) && beginning.len() == 1_999, "{beginning}");
        let message = text["message"].as_str().expect("a message");
        assert!(
            message.contains("only its first 1999 bytes are stored") && message.contains("ask for less"),
            "{message}"
        );
    }

    // Rules compare the whole: a different end is a different result.
    assert!(record(&cold, success("s", "c1", &given)).await.replayed);
    for (call, last) in [("a", "one"), ("b", "two"), ("c", "two")] {
        run_call(&cold, ask("s", call, "look", &format!(r#"{{"of":"{call}"}}"#)), &rows(last)).await;
    }
    let digests = "select count(distinct digest) from outcome where call_id in ('a', 'b', 'c')";
    assert_eq!(postgres.number(digests).await, 2);

    let state = cold.decisions.session_state(DEFAULT_TENANT, &session("s"), Extent::default()).await.expect("a state");
    let told = state.calls.iter().find(|told| told.call.call_id == call_id("c1")).expect("it is among them");
    assert_eq!((told.state, told.is_cut, told.result_bytes), (CallState::Succeeded, true, Some(given.len() as u64)));
    let calls = cold.insight.stored_calls(DEFAULT_TENANT, Timestamp::from_millis(0), None, Some(&call_id("c1"))).await;
    let cut = calls.expect("readable")[0].whole.expect("it was cut");
    assert_eq!((cut.bytes, digest::in_hexadecimal(&cut.sha256)), (whole.len() as u64, digest::of_text(&whole)));
    let seen =
        "select result_whole_bytes, result_whole_sha256 from tool_call where call_id = 'c1' and result_truncated";
    assert_eq!(postgres.rows(seen).await, [format!("({},{})", whole.len(), digest::of_text(&whole))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_fits_is_stored_whole() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy::compile(POLICY).expect("a good policy")).await;
    run_call(&gate, ask("s", "c1", "pay", "{}"), &"x".repeat(2_000)).await;
    let whole = "select count(*) from outcome where length(result) = 2000 and whole_bytes is null";
    assert_eq!(postgres.number(whole).await, 1);
    let again = evaluate(&gate, ask("s", "c2", "pay", "{}")).await.text.expect("a text").json;
    assert!(!again.contains("previous_result_truncated") && again.contains("xxxx"), "{again}");
}
