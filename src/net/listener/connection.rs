//! Lifetime of one connection.

use std::{convert::Infallible, error::Error, pin::pin, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body::Body;
use hyper::{body::Incoming, service::Service};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    ConnectionLimits, Peer,
    activity::{FirstByteStream, RequestTracker, Vitals},
    certificate::ClientCertificate,
};

/// Number of idle checks within the idle limit.
const LOOKS: u32 = 4;

/// End conditions of a connection.
#[derive(Debug)]
pub(super) struct EndConditions {
    /// True during shutdown; connections are not cut off then.
    pub(super) server: watch::Receiver<bool>,
    /// Client certificate, which must stay valid.
    pub(super) certificate: Option<ClientCertificate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionEnd {
    /// Without any request.
    Silent,
    /// Idle, too old, or with an invalid client certificate.
    Due,
    /// Shutdown of the server, which has its own grace period.
    Server,
}

/// Serves until the connection ends.
pub(super) async fn serve<IO, S, B>(
    io: IO,
    peer: Arc<Peer>,
    service: S,
    builder: &Builder<TokioExecutor>,
    limits: &ConnectionLimits,
    ends: EndConditions,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Unpin + Send + 'static,
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let vitals = Arc::new(Vitals::default());
    let is_leaving = peer.is_leaving.clone();
    let io = TokioIo::new(FirstByteStream { io, vitals: Arc::clone(&vitals), lingers: None });
    let requests = RequestTracker { service, peer, vitals: Arc::clone(&vitals) };
    let mut connection = pin!(builder.serve_connection(io, requests));
    let end = tokio::select! {
        // A client's protocol error is not logged.
        _ = &mut connection => return,
        end = end(&vitals, limits, ends) => end,
    };
    if end == ConnectionEnd::Silent {
        return;
    }
    is_leaving.send_replace(true);
    connection.as_mut().graceful_shutdown();
    match end {
        ConnectionEnd::Server => drop(connection.await),
        _ => drop(timeout(limits.grace, connection).await),
    }
}

/// Completes when the connection has to end.
async fn end(vitals: &Vitals, limits: &ConnectionLimits, mut ends: EndConditions) -> ConnectionEnd {
    let revoked = async {
        match &mut ends.certificate {
            Some(certificate) => certificate.wait_for_invalidity().await,
            None => std::future::pending().await,
        }
    };
    let old = async {
        match limits.age {
            Some(age) => sleep(shorten_randomly(age)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // The other end conditions wait for the server.
        _ = ends.server.wait_for(|is_ending| *is_ending) => ConnectionEnd::Server,
        () = revoked => ConnectionEnd::Due,
        () = old => ConnectionEnd::Due,
        end = idle(vitals, limits) => end,
    }
}

/// Completes after the idle limit, up to a quarter of it late.
async fn idle(vitals: &Vitals, limits: &ConnectionLimits) -> ConnectionEnd {
    sleep(limits.handshake).await;
    if !vitals.has_spoken() {
        return ConnectionEnd::Silent;
    }
    let (mut quiet, mut begun) = (0, 0);
    while quiet < LOOKS {
        sleep(limits.idle / LOOKS).await;
        let now = vitals.begun();
        quiet = if vitals.is_busy() || now != begun { 0 } else { quiet + 1 };
        begun = now;
    }
    ConnectionEnd::Due
}

/// Random between nine tenths of a time and all of it.
fn shorten_randomly(time: Duration) -> Duration {
    // The last bits of a UUID are random.
    let share = (uuid::Uuid::now_v7().as_u128() & 0xffff) as f64 / f64::from(0x1_0000);
    time.mul_f64(1.0 - share / 10.0)
}
