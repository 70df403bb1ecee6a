//! Snapshot of a fleet, read from one server.

use std::{collections::BTreeMap, future::poll_fn, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Limited};
use tonic::{Request, body::Body, client::GrpcService as _};

use super::figures::{ReplicaFigures, VerdictLabels};
use callgate_client::remote::{AuthenticatedChannel, into_response};
use callgate_core::domain::time::Timestamp;
use callgate_net::clock::Clock;
use callgate_proto::v1::{
    Approval, ApprovalState, DecisionCount, Fleet, FleetPart, GetFleetRequest, GetServerInfoRequest, HaltState,
    ListApprovalsRequest, ListHaltsRequest, ListPoliciesRequest, ListSessionsRequest, PolicyRevision, ServerInfo,
    SessionSummary, approval_service_client::ApprovalServiceClient, fleet_service_client::FleetServiceClient,
    policy_service_client::PolicyServiceClient, server_service_client::ServerServiceClient,
    session_service_client::SessionServiceClient,
};

/// Maximum number of sessions, the most recently active.
const SESSIONS: u32 = 200;
const APPROVALS: u32 = 500;
/// Parts of the overview that are shown.
const PARTS: [FleetPart; 6] = [
    FleetPart::Decisions,
    FleetPart::Approvals,
    FleetPart::Running,
    FleetPart::Stopped,
    FleetPart::Tools,
    FleetPart::Budgets,
];
/// Timeout of a response.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Maximum size of metrics.
const FIGURES_BYTES_MAX: usize = 16 << 20;

/// A fleet at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct FleetSnapshot {
    pub(super) at: Timestamp,
    pub(super) url: String,
    pub(super) server: ServerInfo,
    /// True while the replica accepts calls.
    pub(super) is_ready: bool,
    /// Active policy revision.
    pub(super) revision: Option<PolicyRevision>,
    /// Counts of the whole deployment, its tools in trouble, and its budgets near their limit.
    pub(super) overview: Fleet,
    /// Root sessions: the numbers of a child session are those of its call tree.
    pub(super) sessions: Vec<SessionSummary>,
    /// True if more sessions exist than listed.
    pub(super) has_more: bool,
    pub(super) halts: Vec<HaltState>,
    pub(super) approvals: Vec<Approval>,
    /// Metrics of the replica.
    pub(super) figures: Option<ReplicaFigures>,
    /// Reason of missing metrics.
    pub(super) without_figures: String,
    /// True after a previous snapshot.
    pub(super) has_rates: bool,
    /// Verdicts per second since the previous snapshot.
    pub(super) rates: BTreeMap<VerdictLabels, f64>,
    /// Shed Evaluates per second.
    pub(super) turned_away: f64,
    /// Mean commit duration since the previous snapshot, in milliseconds.
    pub(super) commit_ms: Option<f64>,
}

/// A connection to the server.
#[derive(Debug)]
pub(super) struct FleetClient {
    wire: AuthenticatedChannel,
    url: String,
}

fn with_timeout<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(ANSWER_MAX);
    request
}

impl FleetClient {
    pub(super) fn new(wire: AuthenticatedChannel, url: String) -> Self {
        Self { wire, url }
    }

    /// Takes a snapshot.
    pub(super) async fn take_snapshot(&self, before: Option<&FleetSnapshot>) -> anyhow::Result<FleetSnapshot> {
        let mut servers = ServerServiceClient::new(self.wire.clone());
        let mut sessions = SessionServiceClient::new(self.wire.clone());
        let mut approvals = ApprovalServiceClient::new(self.wire.clone());
        let mut policies = PolicyServiceClient::new(self.wire.clone());
        let server = into_response(servers.get_server_info(with_timeout(GetServerInfoRequest {})).await);
        let server = server.with_context(|| self.url.clone())?.server.unwrap_or_default();
        let (ready, _) = self.page("/readyz").await?;
        let is_ready = ready == 200;
        let mut fleet = FleetSnapshot {
            at: Clock::System.now(),
            url: self.url.clone(),
            server,
            is_ready,
            ..FleetSnapshot::default()
        };
        match self.page("/metrics").await? {
            (200, text) => fleet.figures = Some(ReplicaFigures::read(&text)),
            (status, text) if text.trim().is_empty() => fleet.without_figures = format!("/metrics returned {status}"),
            (_, text) => fleet.without_figures = text.trim().to_owned(),
        }
        fleet.compare(before);
        let request = ListSessionsRequest { page_size: SESSIONS, ..ListSessionsRequest::default() };
        let page = into_response(sessions.list_sessions(with_timeout(request)).await)?;
        (fleet.sessions, fleet.has_more) = (page.sessions, !page.next_page_token.is_empty());
        fleet.sessions.retain(|session| session.parent_session_id.is_empty());
        let request = GetFleetRequest { parts: PARTS.map(Into::into).to_vec(), ..GetFleetRequest::default() };
        let overview = FleetServiceClient::new(self.wire.clone()).get_fleet(with_timeout(request)).await;
        fleet.overview = into_response(overview)?.fleet.unwrap_or_default();
        fleet.halts = into_response(sessions.list_halts(with_timeout(ListHaltsRequest::default())).await)?.halts;
        let state = ApprovalState::Pending.into();
        let request = ListApprovalsRequest { state, page_size: APPROVALS, ..ListApprovalsRequest::default() };
        fleet.approvals = into_response(approvals.list_approvals(with_timeout(request)).await)?.approvals;
        let request = ListPoliciesRequest { page_size: 1, ..ListPoliciesRequest::default() };
        fleet.revision =
            into_response(policies.list_policies(with_timeout(request)).await)?.revisions.into_iter().next();
        Ok(fleet)
    }

    /// Status and text of an HTTP path.
    async fn page(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let mut wire = self.wire.clone();
        let answer = async {
            let request = http::Request::get(path).body(Body::empty())?;
            poll_fn(|context| wire.poll_ready(context)).await?;
            let response = wire.call(request).await?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), FIGURES_BYTES_MAX).collect().await;
            let body = body.map_err(|error| anyhow!("cannot read {path}: {error}"))?.to_bytes();
            anyhow::Ok((status, String::from_utf8_lossy(&body).into_owned()))
        };
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(answer) => answer,
            Err(_) => bail!("{path}: no answer within {} s", ANSWER_MAX.as_secs()),
        }
    }
}

impl FleetSnapshot {
    /// Computes rates since the previous snapshot; none after a restart of the replica.
    fn compare(&mut self, before: Option<&Self>) {
        let Some(before) = before else { return };
        let (Some(now), Some(then)) = (&self.figures, &before.figures) else { return };
        let seconds = self.at.since_ms(before.at) as f64 / 1_000.0;
        let all = |figures: &ReplicaFigures| figures.verdicts.values().sum::<f64>();
        if seconds <= 0.0 || all(now) < all(then) {
            return;
        }
        let since = |verdict: &VerdictLabels, count: f64| {
            (count - then.verdicts.get(verdict).copied().unwrap_or_default()).max(0.0) / seconds
        };
        self.rates = now.verdicts.iter().map(|(verdict, count)| (verdict.clone(), since(verdict, *count))).collect();
        self.turned_away = (now.turned_away - then.turned_away).max(0.0) / seconds;
        let commits = now.commits - then.commits;
        self.commit_ms = (commits > 0.0).then(|| (now.commit_s - then.commit_s).max(0.0) * 1_000.0 / commits);
        self.has_rates = true;
    }

    /// Judgements per second with this decision, of the whole deployment in the last minute.
    pub(super) fn rate(&self, decision: &str) -> f64 {
        let is_it = |one: &&DecisionCount| one.decision().as_str_name().strip_prefix("DECISION_") == Some(decision);
        self.overview.last_minute.iter().filter(is_it).map(|one| one.count).sum::<u64>() as f64 / 60.0
    }
}
