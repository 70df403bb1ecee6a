//! Accept loop: counts connections and gives each its own task, which also does the TLS handshake, so that a slow
//! client blocks no other.

use std::{collections::BTreeMap, convert::Infallible, error::Error, io, net::IpAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body::Body;
use hyper::{body::Incoming, service::Service};
use hyper_util::{rt::TokioExecutor, server::conn::auto::Builder};
use parking_lot::Mutex;
use tokio::{
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    ConnectionLimits, Listener, Names, Peer, Tls,
    address::Stream,
    certificate::ClientCertificate,
    connection::{self, EndConditions},
    limiter::{ConnectionSlot, ConnectionSlots, LimitExceeded},
};
use crate::clock::{Clock, LogLimiter};

/// Pause after a failed accept, usually for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// State shared by all listeners of a server.
#[derive(Debug, Clone)]
pub struct ListenerContext(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: ConnectionLimits,
    builder: Builder<TokioExecutor>,
    places: ConnectionSlots,
    said: Mutex<BTreeMap<Trouble, LogLimiter>>,
}

/// Subject of a log line; each is logged at most once in ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Accept,
    Full(LimitExceeded),
    Handshake,
}

impl ListenerContext {
    /// A server within these limits.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        let (builder, places) = (limits.builder(), ConnectionSlots::new(&limits));
        Self(Arc::new(Shared { limits, builder, places, said: Mutex::default() }))
    }

    /// Serves a listener until `ending` is true, then refuses new connections and completes when all have closed.
    /// Dropping it closes all.
    pub async fn serve<S, B>(&self, listener: Listener, service: S, ending: watch::Receiver<bool>)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Unpin + Send + 'static,
        B: Body + Unpin + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut connections = self.accept(&listener, service, ending).await;
        // New connections are refused and can reach another replica. Socket files are removed at the end.
        let Listener { listening, .. } = listener;
        let _files = listening.close();
        while connections.join_next().await.is_some() {}
    }

    /// Accepts connections until `ending` is true; returns the open ones.
    pub async fn accept<S, B>(&self, listener: &Listener, service: S, mut ending: watch::Receiver<bool>) -> JoinSet<()>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Unpin + Send + 'static,
        B: Body + Unpin + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut connections = JoinSet::new();
        let ends = ending.clone();
        loop {
            let (stream, address) = tokio::select! {
                _ = ending.wait_for(|is_ending| *is_ending) => return connections,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                accepted = self.next(listener) => accepted,
            };
            let Some(place) = self.take_slot(address) else { continue };
            let (server, peer, tls) = (self.clone(), listener.peer(address), listener.way.tls.clone());
            connections.spawn(server.serve_connection(stream, peer, tls, service.clone(), ends.clone(), place));
        }
    }

    /// The next connection.
    async fn next(&self, listener: &Listener) -> (Stream, Option<IpAddr>) {
        loop {
            match listener.listening.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => self.log_trouble(Trouble::Accept, |times| {
                    tracing::warn!(%error, times, "a connection could not be accepted");
                }),
            }
            sleep(PAUSE).await;
        }
    }

    /// One connection.
    async fn serve_connection<S, B>(
        self,
        stream: Stream,
        mut peer: Peer,
        tls: Option<Arc<Tls>>,
        service: S,
        server: watch::Receiver<bool>,
        _place: ConnectionSlot,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Unpin + Send + 'static,
        B: Body + Unpin + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Shared { limits, builder, .. } = &*self.0;
        let mut ends = EndConditions { server, certificate: None };
        match (stream, tls) {
            (Stream::Unix(stream), _) => {
                connection::serve(stream, Arc::new(peer), service, builder, limits, ends).await;
            }
            (Stream::Tcp(stream), None) => {
                connection::serve(stream, Arc::new(peer), service, builder, limits, ends).await;
            }
            (Stream::Tcp(stream), Some(tls)) => {
                // From before the handshake on: no change of authorities is missed.
                let authorities = tls.authorities();
                let Some(stream) = self.shaken(stream, &tls, peer.address).await else { return };
                if let Some(chain @ [certificate, ..]) = stream.get_ref().1.peer_certificates() {
                    peer.names = Some(Names::of(certificate));
                    let shown = ClientCertificate::new(chain, tls, authorities);
                    if !shown.is_good() {
                        return;
                    }
                    ends.certificate = Some(shown);
                }
                connection::serve(stream, Arc::new(peer), service, builder, limits, ends).await;
            }
        }
    }

    /// The connection after a TLS handshake within the timeout.
    async fn shaken(
        &self,
        stream: TcpStream,
        tls: &Tls,
        address: Option<IpAddr>,
    ) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
        let error = match timeout(self.0.limits.handshake, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "it took too long"),
        };
        self.log_trouble(Trouble::Handshake, |times| {
            tracing::info!(%error, address = address.map(tracing::field::display), times, "no TLS with a client");
        });
        None
    }

    fn take_slot(&self, address: Option<IpAddr>) -> Option<ConnectionSlot> {
        match self.0.places.take(address) {
            Ok(place) => Some(place),
            Err(full) => {
                let ConnectionLimits { connections, connections_per_address, .. } = self.0.limits;
                let max = match full {
                    LimitExceeded::Address => connections_per_address,
                    LimitExceeded::Total => connections,
                };
                self.log_trouble(Trouble::Full(full), |times| {
                    let address = address.map(tracing::field::display);
                    tracing::warn!(address, max, of = ?full, times, "too many connections: closed at once");
                });
                None
            }
        }
    }

    fn log_trouble(&self, trouble: Trouble, line: impl FnOnce(u64)) {
        let mut said = self.0.said.lock();
        if let Some(times) = said.entry(trouble).or_default().count_event(&Clock::System) {
            line(times);
        }
    }
}
