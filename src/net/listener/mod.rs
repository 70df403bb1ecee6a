//! Listener: addresses, TLS, HTTP/1 and HTTP/2 on one port, and resource limits. This module does not read the
//! contents of requests: each carries its [`Peer`].

mod accept;
mod activity;
mod address;
mod certificate;
mod connection;
mod limiter;
mod limits;
mod peer;
mod revocation;
mod socket;
mod tls;

pub use accept::ListenerContext;
pub use address::{Address, BoundListener, ListenError, Listener, Operations, TransportSettings};
pub use certificate::{ends_at, first_lifetime};
pub use limits::ConnectionLimits;
pub use peer::{Names, Peer};
pub use revocation::first_list_end;
pub use socket::SocketPermissions;
pub use tls::{Tls, TlsError, TlsFiles};
