//! The four methods: decode, ask the gate, encode.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::timeout;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use super::{decode, encode, status, v1};
use crate::{
    gate::{Gate, GateError},
    telemetry,
};

/// Longest time for one answer. tonic's own limit would surface as CANCELLED.
const DEADLINE: Duration = Duration::from_secs(8);

/// The service over a gate.
#[derive(Debug, Clone)]
pub(super) struct GateService {
    gate: Arc<Gate>,
}

impl GateService {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        Self { gate }
    }
}

/// The answer, or why there is none in time.
pub(super) async fn within<T>(answer: impl Future<Output = Result<T, GateError>>) -> Result<T, Status> {
    within_more(Duration::ZERO, answer).await
}

/// As [`within`], with time to wait for a person on top.
async fn within_more<T>(wait: Duration, answer: impl Future<Output = Result<T, GateError>>) -> Result<T, Status> {
    match timeout(DEADLINE + wait, answer).await {
        Ok(answer) => answer.map_err(status::gate),
        Err(_) => Err(status::deadline()),
    }
}

#[tonic::async_trait]
impl v1::gate_service_server::GateService for GateService {
    async fn evaluate(&self, request: Request<v1::EvaluateRequest>) -> Result<Response<v1::EvaluateResponse>, Status> {
        let span = telemetry::evaluate_span(request.metadata().as_ref());
        let message = request.into_inner();
        let question = decode::evaluate(&message).map_err(|status| *status)?;
        let wait = decode::max_wait(message.max_wait_ms).map_err(|status| *status)?;
        let call_id = question.call_id.to_string();
        let answer = within_more(wait, async {
            if message.dry_run {
                return self.gate.dry_run(question).await.map(|answer| vec![answer]);
            }
            self.gate.evaluate_and_wait(question, wait).await
        });
        let mut answers = answer.instrument(span).await?;
        let verdict = answers.pop().map(|answer| encode::verdict(answer, call_id));
        Ok(Response::new(v1::EvaluateResponse { verdict }))
    }

    async fn batch_evaluate(
        &self,
        request: Request<v1::BatchEvaluateRequest>,
    ) -> Result<Response<v1::BatchEvaluateResponse>, Status> {
        let span = telemetry::batch_span(request.metadata().as_ref());
        let questions = decode::batch(&request.into_inner()).map_err(|status| *status)?;
        let call_ids: Vec<String> = questions.iter().map(|question| question.call_id.to_string()).collect();
        let answers = within(Box::pin(self.gate.evaluate(questions))).instrument(span).await?;
        let verdicts = answers.into_iter().zip(call_ids).map(|(answer, call_id)| encode::verdict(answer, call_id));
        Ok(Response::new(v1::BatchEvaluateResponse { verdicts: verdicts.collect() }))
    }

    async fn record(&self, request: Request<v1::RecordRequest>) -> Result<Response<v1::RecordResponse>, Status> {
        let span = telemetry::record_span(request.metadata().as_ref());
        let now = self.gate.now().as_millis();
        let (report, observed) = decode::record(&request.into_inner(), now).map_err(|status| *status)?;
        let answer = within(Box::pin(self.gate.record(decode::tenant(), report, observed))).instrument(span).await?;
        Ok(Response::new(encode::recorded(answer)))
    }

    async fn get_session_state(
        &self,
        request: Request<v1::GetSessionStateRequest>,
    ) -> Result<Response<v1::GetSessionStateResponse>, Status> {
        let message = request.into_inner();
        let (session, last_calls) = decode::session_state(&message).map_err(|status| *status)?;
        let state = within(self.gate.session_state(decode::tenant(), &session, last_calls)).await?;
        Ok(Response::new(encode::session_state(message.session_id, state)))
    }
}
