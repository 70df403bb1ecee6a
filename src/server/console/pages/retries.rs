//! Retry history, a part of the pages of learning: over time, beside the predicted chances, and the cost of retries.

use askama::{Template, filters::HtmlSafe};
use prost_types::Timestamp;

use crate::console::{fault::PageError, filters, labels, visitor::Visitor};
use callgate_proto::v1::{
    FailureKind, GetRetryHistoryRequest, GetRetryHistoryResponse, RetryDay, RetryProbe, RetryWorth,
    profile_service_client::ProfileServiceClient,
};

/// Days that one can choose from.
pub(super) const DAYS: [u32; 4] = [1, 7, 30, 90];

const DAY_S: i64 = 86_400;

/// The last days, the oldest first; `now` in seconds.
fn by_day(told: &GetRetryHistoryResponse, now: i64, days: u32) -> Vec<RetryDay> {
    let today = now - now.rem_euclid(DAY_S);
    let day = |ago: u32| {
        let seconds = today - i64::from(ago) * DAY_S;
        let known = told.days.iter().find(|day| seconds_of(day.start_time.as_ref()) == seconds);
        known.copied().unwrap_or(RetryDay {
            start_time: Some(Timestamp { seconds, nanos: 0 }),
            trials: 0,
            successes: 0,
        })
    };
    (0..days).rev().map(day).collect()
}

/// A time as the chart takes it, in seconds.
fn seconds_of(at: Option<&Timestamp>) -> i64 {
    at.map_or(0, |at| at.seconds)
}

/// The retry history of a page.
#[derive(Template)]
#[template(path = "retries.html")]
pub(super) struct History {
    told: GetRetryHistoryResponse,
    /// Every day that is looked back to, also those without a retry, so that the chart has them in their places.
    by_day: Vec<RetryDay>,
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
    ) -> Result<Self, PageError> {
        let asked = GetRetryHistoryRequest { tool: tool.to_owned(), failure: failure.into(), days };
        let told = ProfileServiceClient::new(visitor.calls.clone()).get_retry_history(asked).await?.into_inner();
        // A correction follows up on no kind of failure.
        let has_corrections = failure == FailureKind::Unspecified;
        Ok(Self { by_day: by_day(&told, visitor.now.as_millis() / 1_000, days), told, days, has_corrections })
    }

    pub(super) fn days(&self) -> u32 {
        self.days
    }

    fn worth(&self) -> RetryWorth {
        self.told.worth.unwrap_or_default()
    }

    fn kind(probe: &RetryProbe) -> String {
        labels::failure(probe.failure())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_without_a_retry_have_their_place() {
        let start = |day: i64| Some(Timestamp { seconds: day * DAY_S, nanos: 0 });
        let days = vec![RetryDay { start_time: start(20_000), trials: 4, successes: 1 }];
        let told = GetRetryHistoryResponse { days, ..GetRetryHistoryResponse::default() };
        let days = by_day(&told, 20_001 * DAY_S + 5, 3);
        let trials: Vec<_> = days.iter().map(|day| (day.start_time, day.trials)).collect();
        assert_eq!(trials, [(start(19_999), 0), (start(20_000), 4), (start(20_001), 0)]);
    }
}
