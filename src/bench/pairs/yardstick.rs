//! Yardsticks: servers of the same contract in a process of their own, without rules and cache.
//!
//! `echo` responds at once, and shows the cost of the transport. `tx` and `cte` store both halves of a pair in
//! PostgreSQL first, as a straightforward implementation would ([`calls`]). All send responses of callgate's size.

mod calls;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use prost::Message as _;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use self::calls::Calls;
use callgate_net::listener::{BoundListener, ConnectionLimits, ListenerContext, TransportSettings};
use callgate_proto::v1::{
    BatchEvaluateRequest, BatchEvaluateResponse, ConnectRequest, ConnectResponse, DescribeToolsRequest,
    DescribeToolsResponse, EvaluateRequest, EvaluateResponse, GetSessionStateRequest, GetSessionStateResponse,
    RecordRequest, RecordResponse, ReportToolsRequest, ReportToolsResponse,
    gate_service_server::{GateService, GateServiceServer},
};
use callgate_server::grpc::Front;

/// Environment variable with the database's URL, because command lines are visible to all users.
pub(super) const DATABASE: &str = "CALLGATE_DATABASE_URL";
const EVALUATE: &str = "evaluate.bin";
const RECORD: &str = "record.bin";

/// A server to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Yardstick {
    /// The same messages through an empty handler.
    Echo,
    /// One transaction of five round trips a call.
    Tx,
    /// One statement a call.
    Cte,
}

impl Yardstick {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Tx => "tx",
            Self::Cte => "cte",
        }
    }
}

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub(crate) struct YardstickArgs {
    /// The yardstick to serve
    #[arg(value_enum)]
    kind: Yardstick,
    /// Directory of the answers
    #[arg(long, value_name = "DIR")]
    answers: PathBuf,
    /// The database of tx and cte
    #[arg(long, value_name = "URL", env = DATABASE, hide_env_values = true)]
    database_url: Option<String>,
}

/// Responses to a pair.
#[derive(Debug, Clone)]
pub(super) struct PairAnswers {
    pub(super) evaluate: EvaluateResponse,
    pub(super) record: RecordResponse,
}

impl PairAnswers {
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let written = fs::write(folder.join(EVALUATE), self.evaluate.encode_to_vec());
        written.and_then(|()| fs::write(folder.join(RECORD), self.record.encode_to_vec())).context("the answers")
    }

    fn read(folder: &Path) -> anyhow::Result<Self> {
        let bytes = |name: &str| fs::read(folder.join(name)).with_context(|| format!("the answers have no {name}"));
        let evaluate = EvaluateResponse::decode(&*bytes(EVALUATE)?)?;
        Ok(Self { evaluate, record: RecordResponse::decode(&*bytes(RECORD)?)? })
    }
}

/// Serves until stopped.
pub(crate) async fn run(args: YardstickArgs) -> anyhow::Result<()> {
    let calls = match (args.kind, &args.database_url) {
        (Yardstick::Echo, _) => None,
        (kind, Some(url)) => Some(Calls::open(kind == Yardstick::Cte, url).await?),
        (kind, None) => anyhow::bail!("{} needs --database-url", kind.name()),
    };
    let bound = BoundListener::bind(([127, 0, 0, 1], 0).into(), &TransportSettings::default())?;
    let address = bound.address();
    let service = GateServiceServer::new(Service { answers: PairAnswers::read(&args.answers)?, calls });
    let listener = bound.listen()?;
    outln!("{} serves gRPC on {address}", args.kind.name());
    let (_end, ending) = watch::channel(false);
    let server = ListenerContext::new(ConnectionLimits::default());
    tokio::select! {
        () = server.serve(listener, Front(service), ending) => anyhow::bail!("the yardstick ended"),
        () = callgate_client::signal::stop() => Ok(()),
    }
}

#[derive(Debug)]
struct Service {
    answers: PairAnswers,
    calls: Option<Calls>,
}

#[tonic::async_trait]
impl GateService for Service {
    async fn evaluate(&self, request: Request<EvaluateRequest>) -> Result<Response<EvaluateResponse>, Status> {
        let question = request.into_inner();
        if let Some(calls) = &self.calls {
            calls.evaluate(&question).await.map_err(to_status)?;
        }
        Ok(Response::new(self.answers.evaluate.clone()))
    }

    async fn batch_evaluate(
        &self,
        _: Request<BatchEvaluateRequest>,
    ) -> Result<Response<BatchEvaluateResponse>, Status> {
        Err(Status::unimplemented("a yardstick judges one call at a time"))
    }

    async fn record(&self, request: Request<RecordRequest>) -> Result<Response<RecordResponse>, Status> {
        let report = request.into_inner();
        if let Some(calls) = &self.calls {
            calls.record(&report).await.map_err(to_status)?;
        }
        Ok(Response::new(self.answers.record.clone()))
    }

    async fn get_session_state(
        &self,
        _: Request<GetSessionStateRequest>,
    ) -> Result<Response<GetSessionStateResponse>, Status> {
        Err(Status::unimplemented("a yardstick keeps no sessions"))
    }

    async fn describe_tools(
        &self,
        _: Request<DescribeToolsRequest>,
    ) -> Result<Response<DescribeToolsResponse>, Status> {
        Err(Status::unimplemented("a yardstick has no policy"))
    }

    async fn report_tools(&self, _: Request<ReportToolsRequest>) -> Result<Response<ReportToolsResponse>, Status> {
        Err(Status::unimplemented("a yardstick stores no descriptions"))
    }

    type ConnectStream = tokio_stream::Empty<Result<ConnectResponse, Status>>;

    async fn connect(&self, _: Request<Streaming<ConnectRequest>>) -> Result<Response<Self::ConnectStream>, Status> {
        Err(Status::unimplemented("a yardstick answers call by call"))
    }
}

fn to_status(error: sqlx::Error) -> Status {
    Status::internal(error.to_string())
}
