//! One connection, from its first words to its end.

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
    Limits, Peer,
    certificate::Shown,
    vitals::{Heard, Requests, Vitals},
};

/// How many times within the idle limit it is looked whether there was a request.
const LOOKS: u32 = 4;

/// When a connection ends, whatever its client does.
#[derive(Debug)]
pub(super) struct Ends {
    /// True once the server ends; then nobody is cut off here.
    pub(super) server: watch::Receiver<bool>,
    /// What its client has shown, and has to be good.
    pub(super) certificate: Option<Shown>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It never said anything.
    Silent,
    /// Nothing was asked for long, it is old, or its client's certificate is not good any more.
    Due,
    /// The server ends, and says itself how long it waits.
    Server,
}

/// Serves until the connection ends.
pub(super) async fn serve<IO, S, B>(
    io: IO,
    peer: Arc<Peer>,
    service: S,
    builder: &Builder<TokioExecutor>,
    limits: &Limits,
    ends: Ends,
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
    let io = TokioIo::new(Heard { io, vitals: Arc::clone(&vitals), lingers: None });
    let requests = Requests { service, peer, vitals: Arc::clone(&vitals) };
    let mut connection = pin!(builder.serve_connection(io, requests));
    let end = tokio::select! {
        // What a client did wrong is its own affair.
        _ = &mut connection => return,
        end = end(&vitals, limits, ends) => end,
    };
    if end == End::Silent {
        return;
    }
    is_leaving.send_replace(true);
    connection.as_mut().graceful_shutdown();
    match end {
        End::Server => drop(connection.await),
        _ => drop(timeout(limits.grace, connection).await),
    }
}

/// Done when the connection has to end.
async fn end(vitals: &Vitals, limits: &Limits, mut ends: Ends) -> End {
    let revoked = async {
        match &mut ends.certificate {
            Some(certificate) => certificate.ended().await,
            None => std::future::pending().await,
        }
    };
    let old = async {
        match limits.age {
            Some(age) => sleep(shortened(age)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // Who is to end it is gone only with the server.
        _ = ends.server.wait_for(|is_ending| *is_ending) => End::Server,
        () = revoked => End::Due,
        () = old => End::Due,
        end = idle(vitals, limits) => end,
    }
}

/// Done when nothing was asked for as long as that may be; it is found out up to a quarter of that time later.
async fn idle(vitals: &Vitals, limits: &Limits) -> End {
    sleep(limits.handshake).await;
    if !vitals.has_spoken() {
        return End::Silent;
    }
    let (mut quiet, mut begun) = (0, 0);
    while quiet < LOOKS {
        sleep(limits.idle / LOOKS).await;
        let now = vitals.begun();
        quiet = if vitals.is_busy() || now != begun { 0 } else { quiet + 1 };
        begun = now;
    }
    End::Due
}

/// Between nine tenths of a time and all of it.
fn shortened(time: Duration) -> Duration {
    // The last bits of a UUID are random.
    let share = (uuid::Uuid::now_v7().as_u128() & 0xffff) as f64 / f64::from(0x1_0000);
    time.mul_f64(1.0 - share / 10.0)
}
