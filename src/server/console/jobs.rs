//! Backtests that were started on a page: they continue without a viewer, and their result is kept for an hour, in
//! memory. Every user who may start one sees those of their tenant.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use prost_types::Timestamp;
use tokio::{sync::Notify, time::sleep};
use tonic::{Status, Streaming};

use super::{fault::PageError, session, visitor::Visitor};
use callgate_proto::v1::{
    BacktestPolicyRequest, BacktestPolicyResponse, BacktestProgress, BacktestResult, Role,
    backtest_policy_request::Policy, backtest_policy_response::Event, policy_service_client::PolicyServiceClient,
};

/// Time for which the result of a backtest is kept.
const KEPT: Duration = Duration::from_secs(3_600);
/// Most that are kept of one tenant, and of all; the oldest make room.
const OF_TENANT_MAX: usize = 8;
const ALL_MAX: usize = 64;
const ID_BYTES: usize = 16;

/// Roles that may start, view and cancel one, as the service requires.
pub(super) const ROLES: &[Role] = &[Role::Operator, Role::Analyst];

/// Status of a backtest.
#[derive(Debug, Clone)]
pub(super) enum JobStatus {
    Running(BacktestProgress),
    Done(Arc<BacktestResult>),
    Failed(String),
    Cancelled,
}

/// One that was begun.
#[derive(Debug, Clone)]
pub(super) struct BacktestJob {
    pub(super) id: String,
    tenant: String,
    pub(super) by: String,
    pub(super) began: Option<Timestamp>,
    /// The tried policy.
    pub(super) policy: Policy,
    pub(super) standing: JobStatus,
    /// Its place among all.
    number: u64,
    cancel: Arc<Notify>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<BTreeMap<String, BacktestJob>>);

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BacktestJob>> {
        self.0.lock()
    }

    /// Starts one as this visitor, and returns its id.
    pub(super) async fn begin(
        self: &Arc<Self>,
        visitor: &Visitor,
        request: BacktestPolicyRequest,
        began: Timestamp,
    ) -> Result<String, PageError> {
        let Some(policy) = request.policy.clone() else { return Err(PageError::field("text: enter a policy")) };
        let mut policies = PolicyServiceClient::new(visitor.calls.clone());
        let told = policies.backtest_policy(request).await?.into_inner();
        let mut id = [0; ID_BYTES];
        getrandom::fill(&mut id).map_err(|_| PageError::from(Status::internal("no random bytes can be had")))?;
        let id = session::text(&id);
        let cancel = Arc::new(Notify::new());
        let job = BacktestJob {
            id: id.clone(),
            tenant: visitor.known.caller.tenant.clone(),
            by: visitor.known.caller.name.clone(),
            began: Some(began),
            policy,
            standing: JobStatus::Running(BacktestProgress::default()),
            number: 0,
            cancel: Arc::clone(&cancel),
        };
        self.put_job(job);
        let (jobs, of) = (Arc::clone(self), id.clone());
        tokio::spawn(async move {
            let standing = tokio::select! {
                standing = jobs.follow(&of, told) => standing,
                () = cancel.notified() => JobStatus::Cancelled,
            };
            jobs.stands(&of, standing);
            sleep(KEPT).await;
            jobs.lock().remove(&of);
        });
        Ok(id)
    }

    fn put_job(&self, job: BacktestJob) {
        let mut all = self.lock();
        let number = all.values().map(|job| job.number + 1).max().unwrap_or(0);
        let oldest = |of: &dyn Fn(&&BacktestJob) -> bool, max: usize, all: &BTreeMap<String, BacktestJob>| {
            let known: Vec<&BacktestJob> = all.values().filter(of).collect();
            let over = known.len() >= max;
            over.then(|| known.into_iter().min_by_key(|job| job.number).map(|job| job.id.clone())).flatten()
        };
        let gone =
            oldest(&|one| one.tenant == job.tenant, OF_TENANT_MAX, &all).or_else(|| oldest(&|_| true, ALL_MAX, &all));
        if let Some(gone) = gone.and_then(|id| all.remove(&id)) {
            gone.cancel.notify_one();
        }
        all.insert(job.id.clone(), BacktestJob { number, ..job });
    }

    /// Follows the stream to its end.
    async fn follow(&self, id: &str, mut told: Streaming<BacktestPolicyResponse>) -> JobStatus {
        loop {
            match told.message().await {
                Ok(Some(BacktestPolicyResponse { event: Some(Event::Result(result)) })) => {
                    return JobStatus::Done(Arc::new(result));
                }
                Ok(Some(BacktestPolicyResponse { event: Some(Event::Progress(how_far)) })) => {
                    self.stands(id, JobStatus::Running(how_far));
                }
                Ok(Some(_)) => {}
                Ok(None) => return JobStatus::Failed("it ended without a result; start it again".to_owned()),
                Err(status) => return JobStatus::Failed(status.message().to_owned()),
            }
        }
    }

    fn stands(&self, id: &str, standing: JobStatus) {
        if let Some(job) = self.lock().get_mut(id).filter(|job| job.is_running()) {
            job.standing = standing;
        }
    }

    /// One of the visitor's tenant.
    pub(super) fn find(&self, visitor: &Visitor, id: &str) -> Result<BacktestJob, PageError> {
        let known = self.lock().get(id).cloned();
        let theirs = known.filter(|job| job.tenant == visitor.known.caller.tenant && visitor.is_one_of(ROLES));
        theirs.ok_or_else(|| {
            let message = "unknown backtest: a result is kept for an hour, in the memory of the replica that ran it, \
                           and a restart loses it";
            PageError::new(http::StatusCode::NOT_FOUND, message)
        })
    }

    /// Ends one; one that is over stays as it is.
    pub(super) fn cancel(&self, visitor: &Visitor, id: &str) -> Result<(), PageError> {
        let job = self.find(visitor, id)?;
        if job.is_running() {
            self.stands(id, JobStatus::Cancelled);
            job.cancel.notify_one();
        }
        Ok(())
    }

    /// Those of the visitor's tenant, the newest first.
    pub(super) fn of(&self, visitor: &Visitor) -> Vec<BacktestJob> {
        if !visitor.is_one_of(ROLES) {
            return Vec::new();
        }
        let mut jobs: Vec<BacktestJob> =
            self.lock().values().filter(|job| job.tenant == visitor.known.caller.tenant).cloned().collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.number));
        jobs
    }
}

impl BacktestJob {
    pub(super) const fn is_running(&self) -> bool {
        matches!(self.standing, JobStatus::Running(_))
    }

    /// Its status, in a word.
    pub(super) fn word(&self) -> &'static str {
        match self.standing {
            JobStatus::Running(_) => "running",
            JobStatus::Done(_) => "done",
            JobStatus::Failed(_) => "failed",
            JobStatus::Cancelled => "cancelled",
        }
    }

    /// The tried policy, in words.
    pub(super) fn describe_policy(&self) -> String {
        match &self.policy {
            Policy::Text(text) => format!("text of {} lines", text.lines().count()),
            Policy::Hash(hash) => format!("policy {}", hash.get(..16).unwrap_or(hash)),
        }
    }

    /// Path of the page that shows its text.
    pub(super) fn origin(&self) -> String {
        match &self.policy {
            Policy::Text(_) => format!("/policy?try={}", self.id),
            Policy::Hash(hash) => format!("/policy?hash={hash}"),
        }
    }
}
