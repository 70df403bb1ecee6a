//! Server-sent events on changes: pages then request the part of them that shows the change. The pages of a browser
//! share a stream; one that shows a session has another for it. `approvals`: an approval request was made, claimed, or
//! changed in another way; its data is the request's id and tool, and whether it is new, in JSON. `tick`: each second.
//! `session`: the session that the page shows has changed.

use std::{convert::Infallible, future::ready, pin::Pin, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Query, State},
    response::sse::{Event, Sse},
    routing::get,
};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use serde_json::json;
use tokio_stream::wrappers::IntervalStream;

use super::{Console, fault::PageError, session, visitor::Visitor};
use callgate_proto::v1::{
    ApprovalState, Role, WatchApprovalsRequest, WatchSessionRequest, approval_service_client::ApprovalServiceClient,
    session_service_client::SessionServiceClient,
};

/// Path of the events.
pub(super) const PATH: &str = "/events";
/// Interval of the check that the listener is still signed in.
const LOOK: Duration = Duration::from_secs(10);
/// Interval at which pages with figures refresh.
const TICK: Duration = Duration::from_secs(1);

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(events))
}

type Events = Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>>;

#[derive(Deserialize)]
struct LiveQuery {
    /// The session that the page shows; empty for none.
    #[serde(default)]
    session: String,
}

async fn events(
    State(console): State<Console>,
    visitor: Visitor,
    Query(shown): Query<LiveQuery>,
) -> Result<Sse<Events>, PageError> {
    // Those that were open before are no news.
    let began = visitor.now.as_millis();
    // Browsers dispatch no event without data.
    let ticks =
        IntervalStream::new(tokio::time::interval(TICK)).map(|_| Some(Event::default().event("tick").data("1")));
    let approvals = match visitor.is_one_of(&[Role::Approver, Role::Operator, Role::Analyst]) {
        true => {
            let mut approvals = ApprovalServiceClient::new(visitor.calls.clone());
            let watched = approvals.watch_approvals(WatchApprovalsRequest::default()).await?;
            // An end of the watch is one of the page's stream: the server ends, or the credential does.
            let told = watched.into_inner().map(move |told| {
                let told = told.ok()?;
                let approval = told.approval?;
                let asked = approval.create_time.as_ref().map_or(0, millis);
                let is_new = approval.state() == ApprovalState::Pending && asked >= began && !told.noted;
                let data = json!({"id": approval.approval_id, "tool": approval.tool, "new": is_new});
                Some(Event::default().event("approvals").data(data.to_string()))
            });
            told.chain(stream::once(ready(None))).boxed()
        }
        false => stream::pending().boxed(),
    };
    let session = match shown.session.is_empty() {
        false => {
            let asked = WatchSessionRequest { session_id: shown.session };
            let watched = SessionServiceClient::new(visitor.calls).watch_session(asked).await?;
            let told = watched.into_inner().map(|told| told.ok().map(|_| Event::default().event("session").data("1")));
            told.chain(stream::once(ready(None))).boxed()
        }
        true => stream::pending().boxed(),
    };
    let (identities, secret) = (Arc::clone(&console.identities), Arc::new(visitor.secret));
    let looks = IntervalStream::new(tokio::time::interval(LOOK)).then(move |_| {
        let (identities, secret) = (Arc::clone(&identities), Arc::clone(&secret));
        async move { session::find(&identities, &secret, false).await }
    });
    // Where it cannot be looked, it goes on: the database may be away for a moment.
    let signed_out = looks.filter_map(|found| ready(matches!(found, Ok(None)).then_some(None)));
    let events = stream::select(stream::select(ticks, signed_out), stream::select(approvals, session))
        .take_while(|event| ready(event.is_some()));
    let events: Events = Box::pin(events.filter_map(|event| ready(event.map(Ok))));
    Ok(Sse::new(events))
}

fn millis(at: &prost_types::Timestamp) -> i64 {
    at.seconds.saturating_mul(1_000).saturating_add(i64::from(at.nanos) / 1_000_000)
}
