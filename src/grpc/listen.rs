//! The address, taken before anything else is started: a start that cannot serve must change nothing.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted.
const BACKLOG_MAX: u32 = 1_024;

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
}

/// An address that is this process's own, and not listened on yet: whoever connects is refused until it is.
#[derive(Debug)]
pub struct Bound {
    socket: TcpSocket,
    address: SocketAddr,
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
            Ok(Self { address: socket.local_addr()?, socket })
        };
        bind().map_err(|error| refused(address, error))
    }

    /// Where it will be listened, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens.
    ///
    /// # Errors
    /// [`ListenError`]: two processes may hold one address, and the other was first to listen.
    pub fn listen(self) -> Result<TcpListener, ListenError> {
        self.socket.listen(BACKLOG_MAX).map_err(|error| refused(self.address, error))
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
        let address = first.address();
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
