//! Learning in Postgres: features of each follow-up, exactly-once rollups, views with the engine's numbers, and the
//! tools' health shared by replicas.

mod counting;
mod facts;
mod health;
mod races;
mod view;

use callgate_server::gate::Gate;

use crate::common::{
    gates::{ask, describe_answer, evaluate, failure, record, run_call},
    postgres::Postgres,
};

/// A failed call of `tool` and a retry of it that succeeds or fails, in one session: one trial.
pub(crate) async fn trial(gate: &Gate, in_session: &str, n: usize, tool: &str, ok: bool) {
    let arguments = format!(r#"{{"n":{n}}}"#);
    let (first, second) = (format!("{tool} {n} first"), format!("{tool} {n} second"));
    fails(gate, in_session, &first, tool, &arguments).await;
    if ok {
        run_call(gate, ask(in_session, &second, tool, &arguments), "ok").await;
    } else {
        fails(gate, in_session, &second, tool, &arguments).await;
    }
}

/// A permitted call that times out.
async fn fails(gate: &Gate, in_session: &str, call: &str, tool: &str, arguments: &str) {
    assert_eq!(
        describe_answer(&evaluate(gate, ask(in_session, call, tool, arguments)).await),
        "ALLOW",
        "{in_session} {call}"
    );
    record(gate, failure(in_session, call, "timeout")).await;
}

/// Trials that wait to be counted.
async fn waiting(postgres: &Postgres) -> i64 {
    postgres.number("select count(*) from retry_trial").await
}
