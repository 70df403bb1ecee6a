//! The addresses, taken before anything else is started: a start that cannot serve must change nothing.

use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tokio::net::{TcpListener, TcpSocket, UnixListener};

use super::socket::{Access, Files, Taken};

/// Connections that wait to be accepted.
pub(super) const BACKLOG_MAX: u32 = 1_024;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not a loopback address.
    #[error(
        "--listen {0} is not a loopback address: callers carry no credentials yet, so callgate serves this machine \
         only; use 127.0.0.1:PORT or [::1]:PORT"
    )]
    NotLoopback(SocketAddr),
    /// Another process listens on it.
    #[error("cannot listen on {0}: another process listens there; stop it, or choose another port with --listen")]
    Taken(SocketAddr),
    /// The system refuses it.
    #[error("cannot listen on {address}: {error}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// The system's answer; not a source, since the text has it already.
        error: io::Error,
    },
    /// Another process has this Unix socket.
    #[error(
        "cannot listen on unix:{}: another process listens there; stop it, or choose another path with --listen",
        .0.display()
    )]
    SocketTaken(PathBuf),
    /// This path cannot become a Unix socket.
    #[error("cannot listen on unix:{}: it {problem}", .path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A port of this machine.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// As clients name it.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An address that is listened on.
#[derive(Debug)]
pub struct Listener(pub(super) Listening);

#[derive(Debug)]
pub(super) enum Listening {
    Tcp(TcpListener),
    /// With the files that go with it.
    Unix(UnixListener, Files),
}

/// An address that is this process's own, and not listened on yet: whoever connects is refused until it is.
#[derive(Debug)]
pub struct Bound(Held);

#[derive(Debug)]
enum Held {
    Tcp(TcpSocket, SocketAddr),
    Unix(Taken),
}

impl Bound {
    /// Takes `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // As tokio's own listener: connections of a former process that linger do not keep the port.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let address = socket.local_addr()?;
            Ok(Self(Held::Tcp(socket, address)))
        };
        bind().map_err(|error| refused(address, error))
    }

    /// Takes the path of a Unix socket, over from a dead server if need be.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn socket(path: &Path, access: &Access) -> Result<Self, ListenError> {
        Ok(Self(Held::Unix(Taken::bind(path, access)?)))
    }

    /// Where it will be listened, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> Address {
        match &self.0 {
            Held::Tcp(_, address) => Address::Tcp(*address),
            Held::Unix(taken) => Address::Unix(taken.path().to_owned()),
        }
    }

    /// Listens.
    ///
    /// # Errors
    /// [`ListenError`]: two processes may hold one address, and the other was first to listen.
    pub fn listen(self) -> Result<Listener, ListenError> {
        Ok(Listener(match self.0 {
            Held::Tcp(socket, address) => {
                Listening::Tcp(socket.listen(BACKLOG_MAX).map_err(|error| refused(address, error))?)
            }
            Held::Unix(taken) => {
                let (listener, files) = taken.listen()?;
                Listening::Unix(listener, files)
            }
        }))
    }
}

fn refused(address: SocketAddr, error: io::Error) -> ListenError {
    if error.kind() == io::ErrorKind::AddrInUse {
        return ListenError::Taken(address);
    }
    ListenError::Refused { address, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_this_machine_is_served() {
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.7:1"] {
            let error = Bound::bind(address.parse().unwrap()).unwrap_err();
            let expected = format!(
                "--listen {address} is not a loopback address: callers carry no credentials yet, so callgate serves \
                 this machine only; use 127.0.0.1:PORT or [::1]:PORT"
            );
            assert_eq!(error.to_string(), expected);
        }
    }

    #[tokio::test]
    async fn whoever_comes_second_is_told_once_and_in_words() {
        let free = "127.0.0.1:0".parse().unwrap();
        let first = Bound::bind(free).unwrap();
        let Address::Tcp(address) = first.address() else { panic!("a port") };
        let late = Bound::bind(address).unwrap();
        let _listening = first.listen().unwrap();
        let expected = format!(
            "cannot listen on {address}: another process listens there; stop it, or choose another port with --listen"
        );
        for error in [late.listen().unwrap_err(), Bound::bind(address).unwrap_err()] {
            assert_eq!(format!("{:#}", anyhow::Error::from(error)), expected);
        }
    }
}
