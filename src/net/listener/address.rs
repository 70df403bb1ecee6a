//! Listening addresses, bound before anything else starts: a start that cannot serve must change nothing.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use super::{
    Peer, Tls,
    socket::{BoundPath, SocketFiles, SocketPermissions},
};

/// Accept backlog.
pub(super) const BACKLOG_MAX: u32 = 1_024;

/// Failure to listen on an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Credentials would be sent unencrypted.
    #[error(
        "--listen {0} can be reached from other machines, and credentials must not travel in the clear: give \
         --tls-cert and --tls-key; or --insecure-behind-proxy, if a proxy that ends TLS is all that can reach it; or \
         listen on 127.0.0.1:PORT or [::1]:PORT"
    )]
    Clear(SocketAddr),
    /// Metrics would be public without permission.
    #[error(
        "cannot serve metrics on {0}: other machines can reach it. Name a file with a token by --ops-token-file, or \
         set --ops-open if the network's own rules keep strangers out"
    )]
    Unguarded(SocketAddr),
    /// Used by another process.
    #[error("cannot listen on {0}: another process listens there; stop it, or choose another port with --listen")]
    Taken(SocketAddr),
    /// Refused by the system.
    #[error("cannot listen on {address}: {error}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// The system's answer; not a source, since the text has it already.
        error: io::Error,
    },
    /// Unix socket used by another process.
    #[error(
        "cannot listen on unix:{}: another process listens there; stop it, or choose another path with --listen",
        .0.display()
    )]
    SocketTaken(PathBuf),
    /// Unusable path of a Unix socket.
    #[error("cannot listen on unix:{}: it {problem}", .path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// The problem and its fix.
        problem: String,
    },
}

/// Address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A TCP port with TLS.
    Tls(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Tls(address) => format!("https://{address}"),
            Self::Unix(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) | Self::Tls(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Transport settings of a listener.
#[derive(Debug, Clone, Default)]
pub struct TransportSettings {
    /// TLS for every port; a Unix socket needs none.
    pub tls: Option<Arc<Tls>>,
    /// True behind a proxy that ends TLS: no caller is local then, whatever the address.
    pub is_behind_proxy: bool,
    /// Set for a listener of operational endpoints, without calls: unencrypted, with an optional token.
    pub operations: Option<Operations>,
}

/// Settings of operational endpoints.
#[derive(Clone, Default)]
pub struct Operations {
    /// Token for metrics; none for open access.
    pub token: Option<Arc<str>>,
    /// True to allow other machines without a token.
    pub is_open: bool,
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").field("is_open", &self.is_open).finish_non_exhaustive()
    }
}

/// A listening address.
#[derive(Debug)]
pub struct Listener {
    pub(super) listening: ListeningSocket,
    pub(super) way: TransportSettings,
    is_public: bool,
}

impl Listener {
    /// Its TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&Arc<Tls>> {
        self.way.tls.as_ref()
    }

    /// Settings of operational endpoints, if it serves them.
    #[must_use]
    pub fn operations(&self) -> Option<&Operations> {
        self.way.operations.as_ref()
    }

    /// The peer at `address`.
    pub(super) fn peer(&self, address: Option<IpAddr>) -> Peer {
        Peer { address, is_public: self.is_public, is_proxy: self.way.is_behind_proxy, ..Peer::default() }
    }
}

#[derive(Debug)]
pub(super) enum ListeningSocket {
    Tcp(TcpListener),
    /// With its files.
    Unix(UnixListener, SocketFiles),
}

/// An accepted connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ListeningSocket {
    /// The next connection with its source address.
    pub(super) async fn accept(&self) -> io::Result<(Stream, Option<IpAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                // Without it every answer waits 40 ms for the client's delayed acknowledgment.
                stream.set_nodelay(true)?;
                Ok((Stream::Tcp(stream), Some(from.ip().to_canonical())))
            }
            Self::Unix(listener, _) => Ok((Stream::Unix(listener.accept().await?.0), None)),
        }
    }

    /// Stops accepting; the returned files are to be removed at the end.
    pub(super) fn close(self) -> Option<SocketFiles> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(_, files) => Some(files),
        }
    }
}

/// A bound address, not listening yet: connections are refused.
#[derive(Debug)]
pub struct BoundListener {
    held: BoundSocket,
    way: TransportSettings,
}

#[derive(Debug)]
enum BoundSocket {
    Tcp(TcpSocket, SocketAddr),
    Unix(BoundPath),
}

impl BoundListener {
    /// Binds `address`; port 0 chooses a free one.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(address: SocketAddr, way: &TransportSettings) -> Result<Self, ListenError> {
        let is_elsewhere = !address.ip().to_canonical().is_loopback();
        match &way.operations {
            None if is_elsewhere && way.tls.is_none() && !way.is_behind_proxy => {
                return Err(ListenError::Clear(address));
            }
            Some(Operations { token: None, is_open: false }) if is_elsewhere => {
                return Err(ListenError::Unguarded(address));
            }
            _ => {}
        }
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // As tokio's own listener: connections of a former process that linger do not keep the port.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let address = socket.local_addr()?;
            Ok(Self { held: BoundSocket::Tcp(socket, address), way: way.clone() })
        };
        bind().map_err(|error| to_listen_error(address, error))
    }

    /// Binds the path of a Unix socket, replacing that of a dead server.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn socket(path: &Path, access: &SocketPermissions, way: &TransportSettings) -> Result<Self, ListenError> {
        let way = TransportSettings { tls: None, ..way.clone() };
        Ok(Self { held: BoundSocket::Unix(BoundPath::bind(path, access)?), way })
    }

    /// True for a listener of operational endpoints.
    #[must_use]
    pub const fn is_for_operations(&self) -> bool {
        self.way.operations.is_some()
    }

    /// The address, with the chosen port.
    #[must_use]
    pub fn address(&self) -> Address {
        match &self.held {
            BoundSocket::Tcp(_, address) if self.way.tls.is_some() => Address::Tls(*address),
            BoundSocket::Tcp(_, address) => Address::Tcp(*address),
            BoundSocket::Unix(taken) => Address::Unix(taken.path().to_owned()),
        }
    }

    /// Starts listening.
    ///
    /// # Errors
    /// [`ListenError`]: two processes may bind one address, and the other listened first.
    pub fn listen(self) -> Result<Listener, ListenError> {
        let way = self.way;
        let (listening, is_local) = match self.held {
            BoundSocket::Tcp(socket, address) => {
                let listener = socket.listen(BACKLOG_MAX).map_err(|error| to_listen_error(address, error))?;
                (ListeningSocket::Tcp(listener), address.ip().to_canonical().is_loopback())
            }
            BoundSocket::Unix(taken) => {
                let (listener, files) = taken.listen()?;
                (ListeningSocket::Unix(listener, files), true)
            }
        };
        let is_public = !is_local || way.is_behind_proxy;
        Ok(Listener { listening, way, is_public })
    }
}

fn to_listen_error(address: SocketAddr, error: io::Error) -> ListenError {
    if error.kind() == io::ErrorKind::AddrInUse {
        return ListenError::Taken(address);
    }
    ListenError::Refused { address, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn other_machines_are_served_by_tls_or_a_proxy_alone() {
        for address in ["0.0.0.0:0", "[::]:0", "[::ffff:192.0.2.7]:0", "192.0.2.7:0"] {
            let error = BoundListener::bind(address.parse().unwrap(), &TransportSettings::default()).unwrap_err();
            let expected = format!("--listen {address} can be reached from other machines");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        let proxy = TransportSettings { is_behind_proxy: true, ..TransportSettings::default() };
        for (address, way, is_public) in [
            ("0.0.0.0:0", &proxy, true),
            ("127.0.0.1:0", &proxy, true),
            ("127.0.0.1:0", &TransportSettings::default(), false),
            ("[::1]:0", &TransportSettings::default(), false),
        ] {
            let listener = BoundListener::bind(address.parse().unwrap(), way).unwrap().listen().unwrap();
            let peer = listener.peer(None);
            assert_eq!((peer.is_public, peer.is_proxy), (is_public, way.is_behind_proxy), "{address}");
        }
    }

    #[tokio::test]
    async fn whoever_comes_second_is_told_once_and_in_words() {
        let free = "127.0.0.1:0".parse().unwrap();
        let first = BoundListener::bind(free, &TransportSettings::default()).unwrap();
        let Address::Tcp(address) = first.address() else { panic!("a port") };
        let late = BoundListener::bind(address, &TransportSettings::default()).unwrap();
        let _listening = first.listen().unwrap();
        let expected = format!(
            "cannot listen on {address}: another process listens there; stop it, or choose another port with --listen"
        );
        for error in
            [late.listen().unwrap_err(), BoundListener::bind(address, &TransportSettings::default()).unwrap_err()]
        {
            assert_eq!(format!("{:#}", anyhow::Error::from(error)), expected);
        }
    }
}
