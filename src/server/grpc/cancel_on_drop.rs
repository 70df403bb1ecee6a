//! Cancellation of the call of an HTTP hook whose answer the host's connection did not take. A host may run the tool of
//! a hook that failed, so the cancellation does not say that it never ran.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::service::GateService;
use callgate_agent::hooks::until_called_off;
use callgate_core::domain::identity::Identity;
use callgate_proto::v1;

/// An answer that is to be handed over. Dropped before, it calls its call off.
pub(super) struct CancelOnDrop {
    calls: GateService,
    identity: Arc<Identity>,
    cancellation: Mutex<Option<v1::RecordRequest>>,
}

impl CancelOnDrop {
    pub(super) fn new(calls: &GateService, identity: &Arc<Identity>) -> Self {
        Self { calls: calls.clone(), identity: Arc::clone(identity), cancellation: Mutex::default() }
    }

    /// Sets the cancellation of a call under evaluation.
    pub(super) fn asks(&self, cancellation: &v1::RecordRequest) {
        let cancellation = v1::RecordRequest { not_started: false, ..cancellation.clone() };
        *self.cancellation.lock() = Some(cancellation);
    }

    fn take(&self) -> Option<v1::RecordRequest> {
        self.cancellation.lock().take()
    }

    /// The host has its answer, or may have it.
    pub(super) fn over(&self) {
        drop(self.take());
    }

    /// The response: once its connection takes the text of it, the host may have it.
    pub(super) fn complete_when_sent(self, response: Response) -> Response {
        response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                self.over();
                frame
            }))
        })
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(report), Ok(runtime)) = (self.take(), Handle::try_current()) else { return };
        let (calls, identity) = (self.calls.clone(), Arc::clone(&self.identity));
        runtime.spawn(async move {
            let headers = HeaderMap::new();
            until_called_off(|| calls.record_message(&identity, report.clone(), &headers, None)).await;
        });
    }
}
