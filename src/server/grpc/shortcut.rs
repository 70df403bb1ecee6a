//! Shortcut of nearly all calls past the router. The router finds one service among many by layers that box each body,
//! request and answer twice over, which costs as much as all that is decoded and encoded.
//!
//! Either way the beginning of an answer has a time limit.

use std::{convert::Infallible, future::Future, pin::Pin, time::Duration};

use tokio::time::timeout;

use tonic::{
    body::Body,
    codegen::{Service as _, http},
};

use super::{hook_route::is_hook, server::Services, service::parse_timeout, shutdown::PendingAnswer, status};

/// With which the paths of our own services begin.
pub(super) const OURS: &str = "/callgate.v1.";

/// Longest time until an answer begins: the longest wait that may be asked for, the answer after it, and some for the
/// message to come in. A method with a shorter limit has its own error, and sooner.
const BEGINS_WITHIN: Duration = Duration::from_secs(75);

/// Response of a service.
pub(super) type ServiceResponse = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl Services {
    /// Asks the service of the path. An answer of our own services is owed until it begins.
    pub(super) fn route(&self, mut request: http::Request<Body>) -> ServiceResponse {
        let limit = limit(request.headers());
        let ours = request.uri().path().strip_prefix(OURS);
        let owed = ours.map(|_| self.0.stop.owe());
        if let Some(method) = ours.and_then(|method| method.strip_prefix("GateService/")) {
            // tonic compresses every message of a stream or none, and most are short.
            if method == "Connect" {
                request.headers_mut().remove("grpc-accept-encoding");
            }
            Box::pin(answer_within(limit, owed, self.0.front.clone().call(request)))
        } else if is_hook(&request) {
            // It has its host's time limit, and an error of its own.
            Box::pin(self.0.others.clone().call(request))
        } else {
            Box::pin(answer_within(limit, owed, self.0.others.clone().call(request)))
        }
    }
}

/// Time limit of a request: the caller's, within the server's own.
fn limit(headers: &http::HeaderMap) -> Duration {
    parse_timeout(headers).map_or(BEGINS_WITHIN, |left| left.min(BEGINS_WITHIN))
}

async fn answer_within(
    limit: Duration,
    _owed: Option<PendingAnswer>,
    answer: impl Future<Output = Result<http::Response<Body>, Infallible>>,
) -> Result<http::Response<Body>, Infallible> {
    timeout(limit, answer).await.unwrap_or_else(|_| Ok(status::deadline().into_http()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_bounded_by_the_callers_and_the_servers_limit() {
        let of = |timeout: Option<&str>| {
            let headers = timeout.map(|text| (http::header::HeaderName::from_static("grpc-timeout"), text));
            limit(&headers.map(|(name, text)| (name, text.parse().expect("a value"))).into_iter().collect())
        };
        assert_eq!((of(None), of(Some("nonsense"))), (BEGINS_WITHIN, BEGINS_WITHIN));
        assert_eq!((of(Some("20m")), of(Some("2H"))), (Duration::from_millis(20), BEGINS_WITHIN));
    }

    #[tokio::test]
    async fn an_answer_that_does_not_begin_in_time_is_given_up() {
        let Ok(told) = answer_within(Duration::from_millis(5), None, std::future::pending()).await;
        let status = tonic::Status::from_header_map(told.headers()).expect("a status");
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        let Ok(in_time) = answer_within(BEGINS_WITHIN, None, async { Ok(http::Response::new(Body::empty())) }).await;
        assert!(tonic::Status::from_header_map(in_time.headers()).is_none());
    }
}
