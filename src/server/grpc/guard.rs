//! Guard of streams and waits, which last longer than credentials: it ends those of a credential that ends meanwhile.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::sleep;
use tonic::{Status, body::Body, codegen::http};

use super::{shortcut::ServiceResponse, status};
use crate::gate::{CredentialRejection, Identities};
use callgate_core::domain::identity::Identity;

/// Interval of credential checks: with the age of the cached credential, a revocation holds within two seconds.
const LOOK_EVERY: Duration = Duration::from_millis(200);

type CredentialEnd = Pin<Box<dyn Future<Output = Status> + Send>>;

/// An answer that ends with its caller's credential.
struct ExpiringBody {
    /// None once it has ended.
    body: Option<Body>,
    end: CredentialEnd,
}

/// The answer, for as long as the credential holds.
pub(super) fn guard_answer(
    answer: ServiceResponse,
    identities: Arc<Identities>,
    identity: Arc<Identity>,
) -> ServiceResponse {
    Box::pin(async move {
        let Ok::<_, Infallible>(response) = answer.await;
        let (parts, body) = response.into_parts();
        let end = async move { wait_for_invalidity(&identities, &identity).await };
        let guarded = ExpiringBody { body: Some(body), end: Box::pin(end) };
        Ok(http::Response::from_parts(parts, Body::new(guarded)))
    })
}

/// Done once the credential does not hold any more.
pub(super) async fn wait_for_invalidity(identities: &Identities, identity: &Identity) -> Status {
    loop {
        sleep(LOOK_EVERY).await;
        if let Err(refused) = identities.still(identity).await {
            if let CredentialRejection::Unknown(why) = refused {
                tracing::info!(credential = ?identity.credential, "a stream or a wait was ended: {why}");
            }
            return status::rejection_status(refused);
        }
    }
}

impl HttpBody for ExpiringBody {
    type Data = <Body as HttpBody>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        let Self { body, end } = &mut *self;
        let Some(inner) = body else { return Poll::Ready(None) };
        if let Poll::Ready(status) = end.as_mut().poll(context) {
            *body = None;
            let mut trailers = http::HeaderMap::new();
            return Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))));
        }
        let frame = ready!(Pin::new(inner).poll_frame(context));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
