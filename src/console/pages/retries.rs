//! What retries came to, as a part of the pages of learning: over time, beside what was predicted, and what they cost.

use askama::{Template, filters::HtmlSafe};
use prost_types::Timestamp;

use crate::{
    console::{fault::Fault, filters, visitor::Visitor, words},
    grpc::v1::{
        FailureKind, GetRetryHistoryRequest, GetRetryHistoryResponse, RetryProbe, RetryWorth,
        profile_service_client::ProfileServiceClient,
    },
};

/// Kinds of failure that one can choose from.
pub(super) const KINDS: [FailureKind; 12] = [
    FailureKind::Timeout,
    FailureKind::RateLimited,
    FailureKind::Unavailable,
    FailureKind::Network,
    FailureKind::Conflict,
    FailureKind::Auth,
    FailureKind::Permission,
    FailureKind::NotFound,
    FailureKind::InvalidArgument,
    FailureKind::QuotaExhausted,
    FailureKind::Internal,
    FailureKind::Other,
];
/// Days that one can choose from.
pub(super) const DAYS: [u32; 4] = [1, 7, 30, 90];

/// A time as the chart takes it, in seconds.
fn seconds_of(at: Option<&Timestamp>) -> i64 {
    at.map_or(0, |at| at.seconds)
}

/// What is told of retries.
#[derive(Template)]
#[template(path = "retries.html")]
pub(super) struct History {
    told: GetRetryHistoryResponse,
    days: u32,
    /// Of one tool, the others' fields are left out.
    has_corrections: bool,
}

/// It escapes what it shows.
impl HtmlSafe for History {}

impl History {
    /// Of one tool or all, after one kind of failure or any.
    pub(super) async fn read(
        visitor: &Visitor,
        (tool, failure): (&str, FailureKind),
        days: u32,
    ) -> Result<Self, Fault> {
        let asked = GetRetryHistoryRequest { tool: tool.to_owned(), failure: failure.into(), days };
        let told = ProfileServiceClient::new(visitor.calls.clone()).get_retry_history(asked).await?.into_inner();
        // A correction follows up on no kind of failure.
        Ok(Self { told, days, has_corrections: failure == FailureKind::Unspecified })
    }

    pub(super) fn days(&self) -> u32 {
        self.days
    }

    fn worth(&self) -> RetryWorth {
        self.told.worth.unwrap_or_default()
    }

    fn kind(probe: &RetryProbe) -> String {
        words::failure(probe.failure())
    }
}
