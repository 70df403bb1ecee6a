//! Gates on a test's database, with requests and reports for them.

use std::{fmt::Debug, sync::Arc, time::Duration};

use callgate_core::{
    domain::{
        call::Request,
        effect::EffectKind,
        failure::ErrorReport,
        finding::Decision,
        ids::{AgentId, CallId, DEFAULT_TENANT, RunId, SessionId, TenantId, ToolName},
        json,
        outcome::OutcomeStatus,
        report::OutcomeReport,
        tool::ToolSpec,
    },
    policy::Policy,
    rules::RULES,
};
use callgate_net::clock::Clock;
use callgate_server::{
    gate::{Decisions, EvaluateAnswer, EvaluateError, Gate, GateError, NoAnswer, QualityReport, RecordAnswer},
    telemetry::Metrics,
};
use callgate_store::{
    OpenError, Store, StoreSettings,
    sealing::{SealingKey, TenantKeys},
};
use sqlx::postgres::PgConnectOptions;

use super::{STEP, in_time, postgres::Postgres};

/// The one place that knows how metrics are made.
pub(crate) fn metrics() -> Metrics {
    Metrics::none()
}

pub(crate) async fn open(options: PgConnectOptions) -> Result<Store, OpenError> {
    Store::open(StoreSettings { options, on_commit: Arc::new(|_| {}), traced: Arc::new(()) }).await
}

pub(crate) async fn store(postgres: &Postgres) -> Store {
    open(postgres.options.clone()).await.expect("a store")
}

/// A replica: a gate with a cache, a writer and readers of its own.
pub(crate) async fn gate(postgres: &Postgres, policy: &Policy) -> Arc<Gate> {
    let gate = gate_on(store(postgres).await, policy);
    // All stories can run with encryption, with equal results.
    if std::env::var_os("CALLGATE_TEST_SEALED").is_some() {
        seal(&gate, &[("k", 1)]).await;
    }
    gate
}

/// Keys of those names, the newest first, each made of one byte.
pub(crate) fn keys(ids: &[(&str, u8)], fingerprint: u8) -> Arc<TenantKeys> {
    let key = |byte: u8| SealingKey::parse(hex::encode([byte; 32]).as_bytes()).expect("a key");
    let named = ids.iter().map(|(id, byte)| ((*id).to_owned(), key(*byte))).collect();
    Arc::new(TenantKeys::new(named, &key(fingerprint), false))
}

/// Enables encryption of the default tenant.
pub(crate) async fn seal(gate: &Gate, ids: &[(&str, u8)]) {
    gate.identities.set_tenant_keys([("default".to_owned(), keys(ids, 0xF1))].into()).await.expect("known");
    assert_eq!(gate.identities.key_problems(), [""; 0]);
}

pub(crate) fn gate_on(store: Store, policy: &Policy) -> Arc<Gate> {
    Arc::new(Gate::new(Arc::new(policy.clone()), store, metrics(), Clock::System))
}

/// Two replicas on one database.
pub(crate) async fn two_gates(postgres: &Postgres, policy: &Policy) -> [Arc<Gate>; 2] {
    [gate(postgres, policy).await, gate(postgres, policy).await]
}

/// The default policy with only these rules, and the tools of the tests: `pay` (once), `save` (a write), `put` (an
/// idempotent write), `look` (a read).
pub(crate) fn policy(rules: &[&str]) -> Policy {
    let mut policy = Policy::default();
    policy.rules.keep_only(rules);
    policy.declare("pay", ToolSpec { once: true, ..ToolSpec::default() });
    policy.declare("save", tool(EffectKind::Write));
    policy.declare("put", ToolSpec { idempotent: true, ..tool(EffectKind::Write) });
    policy.declare("look", tool(EffectKind::Read));
    policy
}

/// As [`policy`], as a text for a tenant of its own; `budgets` is that part of it.
pub(crate) fn policy_text(rules: &[&str], budgets: &str) -> String {
    let others = RULES.iter().filter(|rule| !rules.contains(&rule.id));
    let off: Vec<String> = others.map(|rule| format!("{}: {{mode: off}}", rule.id)).collect();
    format!(
        "policy_engine: {{rules: {{{}}}, budgets: {{{budgets}}}, tool_schemas: {{pay: {{once: true}},
           save: {{effect: write}}, put: {{effect: write, idempotent: true}}, look: {{effect: read}}}}}}",
        off.join(", ")
    )
}

pub(crate) fn tool(effect: EffectKind) -> ToolSpec {
    ToolSpec { effect, ..ToolSpec::default() }
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::parse("session", name).expect("a good name")
}

pub(crate) fn call_id(name: &str) -> CallId {
    CallId::parse("call_id", name).expect("a good name")
}

pub(crate) fn agent(name: &str) -> Option<AgentId> {
    Some(AgentId::parse("agent", name).expect("a good name"))
}

pub(crate) fn run(name: &str) -> Option<RunId> {
    Some(RunId::parse("run", name).expect("a good name"))
}

/// May `call` of `in_session` run `tool`?
pub(crate) fn ask(in_session: &str, call: &str, tool: &str, arguments: &str) -> Request {
    Request::new(
        DEFAULT_TENANT,
        session(in_session),
        call_id(call),
        ToolName::parse("tool", tool).expect("a good name"),
        json::parse(arguments).expect("good arguments"),
    )
}

pub(crate) fn report(in_session: &str, call: &str, status: OutcomeStatus) -> OutcomeReport {
    OutcomeReport::new(session(in_session), call_id(call), status)
}

pub(crate) fn success(in_session: &str, call: &str, result: &str) -> OutcomeReport {
    OutcomeReport { result: Some(result.to_owned()), ..report(in_session, call, OutcomeStatus::Success) }
}

/// An error of that kind, as a caller would report it.
pub(crate) fn failure(in_session: &str, call: &str, kind: &str) -> OutcomeReport {
    let error = ErrorReport {
        error_type: Some(kind.to_owned()),
        message: format!("{kind} from the provider"),
        ..ErrorReport::default()
    };
    OutcomeReport { error: Some(error), ..report(in_session, call, OutcomeStatus::Error) }
}

pub(crate) async fn try_evaluate(gate: &Gate, request: Request) -> Result<EvaluateAnswer, EvaluateError> {
    try_evaluate_on(&gate.decisions, request).await
}

pub(crate) async fn try_evaluate_on(decisions: &Decisions, request: Request) -> Result<EvaluateAnswer, EvaluateError> {
    let mut answers = Box::pin(decisions.evaluate(vec![request])).await?;
    assert_eq!(answers.len(), 1, "one answer a question");
    Ok(answers.remove(0))
}

/// An answer, asked for as a client does: a busy machine may miss a deadline of the store.
pub(crate) async fn evaluate(gate: &Gate, request: Request) -> EvaluateAnswer {
    insist(gate, &request).await
}

/// Evaluates like a client, with retries under the same call_id while the error is transient.
pub(crate) async fn insist(gate: &Gate, request: &Request) -> EvaluateAnswer {
    let tries = async {
        loop {
            if let Some(answer) = unless_passing(try_evaluate(gate, request.clone()).await) {
                return answer;
            }
            tokio::time::sleep(STEP).await;
        }
    };
    in_time("an answer", tries).await
}

/// Reports like a client, with retries while the error is transient.
pub(crate) async fn insist_on(gate: &Gate, report: &OutcomeReport) -> RecordAnswer {
    insist_on_of(gate, DEFAULT_TENANT, report).await
}

pub(crate) async fn insist_on_of(gate: &Gate, tenant: TenantId, report: &OutcomeReport) -> RecordAnswer {
    let tries = async {
        loop {
            if let Some(answer) = unless_passing(gate.decisions.record(tenant, report.clone(), None).await) {
                return answer;
            }
            tokio::time::sleep(STEP).await;
        }
    };
    Box::pin(in_time("an answer", tries)).await
}

fn unless_passing<T, R: Debug>(outcome: Result<T, GateError<R>>) -> Option<T> {
    match outcome {
        Ok(answer) => Some(answer),
        Err(GateError::NoAnswer(
            NoAnswer::OutOfReach(_) | NoAnswer::Overloaded(_) | NoAnswer::Crowded(_) | NoAnswer::Contention,
        )) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// A report, made as a client does.
pub(crate) async fn record(gate: &Gate, report: OutcomeReport) -> RecordAnswer {
    insist_on(gate, &report).await
}

/// Evaluates, expects an ALLOW, and records a success.
pub(crate) async fn run_call(gate: &Gate, request: Request, result: &str) {
    let (tenant, session, call) = (request.tenant, request.session.to_string(), request.call_id.to_string());
    let answer = evaluate(gate, request).await;
    assert_eq!(answer.verdict.decision, Decision::Allow, "{session} {call}: {:?}", answer.verdict.findings);
    insist_on_of(gate, tenant, &success(&session, &call, result)).await;
}

/// `DENY outcome_unknown`, `ALLOW`.
pub(crate) fn describe_answer(answer: &EvaluateAnswer) -> String {
    let reason = answer.verdict.winner().filter(|winner| winner.decision != Decision::Allow);
    let reason = reason.map(|winner| winner.reason.as_str()).unwrap_or_default();
    format!("{} {reason}", answer.verdict.decision.as_str()).trim_end().to_owned()
}

/// The key of the permit that was given, if one was.
pub(crate) fn key(answer: &EvaluateAnswer) -> Option<String> {
    answer.verdict.permit.as_ref().map(|permit| permit.idempotency_key.clone())
}

/// Number of permits, new or replayed.
pub(crate) fn count_permits(answers: &[EvaluateAnswer]) -> usize {
    answers.iter().filter(|answer| answer.verdict.decision == Decision::Allow).count()
}

/// Quality report of tools, after all counts are written.
pub(crate) async fn quality(gate: &Arc<Gate>, tool: Option<&str>, days: i32) -> QualityReport {
    let tool = tool.map(|tool| ToolName::parse("tool", tool).expect("a good name"));
    let asked = gate.store.now();
    for _ in 0..200 {
        let report = gate.insight.quality(DEFAULT_TENANT, tool.as_ref(), days).await.expect("a report");
        if report.counted_from.is_none() && report.as_of.is_some_and(|at| at >= asked) {
            return report;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it is not counted");
}
