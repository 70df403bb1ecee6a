//! One way to a server.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tonic::{Status, transport::Channel};
use tonic_types::StatusExt as _;

use crate::{
    cli::remote::reason,
    grpc::v1::{EvaluateRequest, RecordRequest, RecordResponse, Verdict, gate_service_client::GateServiceClient},
};

/// How long a caller that is turned away waits before it goes on, unless it is told.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A connection, shared by the agents on it.
#[derive(Debug, Clone)]
pub(super) struct Link(GateServiceClient<Channel>);

impl Link {
    pub(super) async fn connect(url: &str) -> anyhow::Result<Self> {
        let endpoint = Channel::from_shared(url.to_owned()).with_context(|| format!("{url} is not a URL"))?;
        let channel = endpoint.connect().await.map_err(|_| anyhow!("no server answers at {url}"))?;
        Ok(Self(GateServiceClient::new(channel)))
    }

    pub(super) async fn evaluate(&mut self, question: EvaluateRequest) -> Result<Verdict, Status> {
        Ok(self.0.evaluate(question).await?.into_inner().verdict.unwrap_or_default())
    }

    pub(super) async fn record(&mut self, report: RecordRequest) -> Result<RecordResponse, Status> {
        Ok(self.0.record(report).await?.into_inner())
    }
}

/// A refusal as it is counted.
pub(super) fn named(status: &Status) -> String {
    let code = format!("{:?}", status.code());
    reason(status).map_or(code.clone(), |reason| format!("{code} {reason}"))
}

/// How long the server asks to stay away.
pub(super) fn pause(status: &Status) -> Duration {
    let told = status.get_details_retry_info().and_then(|info| info.retry_delay);
    told.unwrap_or(PAUSE).clamp(PAUSE, PAUSE_MAX)
}
