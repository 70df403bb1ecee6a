//! Resource limits of one connection, one address and all connections. HTTP/2 servers have most of them off by default.

use std::time::Duration;

use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};

/// Resource limits of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of connections, over all addresses and listeners.
    pub connections: usize,
    /// Maximum number of connections per address; for IPv6 per /64 network, which belongs to one machine.
    pub connections_per_address: usize,
    /// Maximum number of concurrent requests per connection.
    pub streams: u32,
    /// Maximum size of a request's head, in bytes.
    pub header_bytes: u32,
    /// Maximum frame size, in bytes, 16 KiB to 16 MiB less one byte.
    pub frame_bytes: u32,
    /// Maximum number of pending stream resets per connection; more close it. Agents cancel calls in bursts.
    pub resets: usize,
    /// Timeout of the TLS handshake, of the first bytes after it, and of the head of an HTTP/1 request.
    pub handshake: Duration,
    /// Idle timeout without open requests, after which a connection is shut down.
    pub idle: Duration,
    /// Maximum age of a connection, after which it is shut down: the next one may reach another replica, and presents
    /// its certificate again. Randomly up to a tenth earlier, against synchronized reconnects. None is unlimited.
    pub age: Option<Duration>,
    /// Grace period for open requests on a connection in shutdown.
    pub grace: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 1_000,
            streams: 200,
            header_bytes: 64 << 10,
            frame_bytes: 16 << 10,
            resets: 1_024,
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(15 * 60),
            age: None,
            grace: Duration::from_secs(2 * 60),
        }
    }
}

/// Receive window of a connection: four times that of a stream (hyper's 1 MiB), so that a stalled stream leaves room
/// for others.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Interval of keepalive pings, then their timeout.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);
/// Maximum number of headers of an HTTP/1 request; HTTP/2 limits only their bytes.
const HTTP1_HEADERS_MAX: usize = 100;

/// Reserved file descriptors for the database, certificates and others.
const FILES_LEFT: usize = 128;

impl ConnectionLimits {
    /// Limited to the process's file descriptors.
    #[must_use]
    pub fn within_open_files(self) -> Self {
        let files = std::fs::read_to_string("/proc/self/limits").ok();
        let files = files.as_deref().and_then(open_files).unwrap_or(usize::MAX);
        let connections = self.connections.min(files.saturating_sub(FILES_LEFT).max(files / 2));
        if connections < self.connections {
            tracing::info!(files, connections, "there are fewer connections at a time, by the limit on open files");
        }
        Self { connections, ..self }
    }

    /// A connection builder with these limits.
    pub(super) fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.handshake)
            .max_headers(HTTP1_HEADERS_MAX)
            // It holds the head and read parts of the body; hyper requires 8 KiB at least.
            .max_buf_size((self.header_bytes as usize).max(8 << 10));
        builder
            .http2()
            .timer(TokioTimer::new())
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(self.streams)
            .max_frame_size(self.frame_bytes)
            .max_header_list_size(self.header_bytes)
            .max_pending_accept_reset_streams(self.resets)
            .max_local_error_reset_streams(self.resets)
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_ANSWER);
        builder
    }
}

/// The process's limit of open files, in Linux' format.
fn open_files(limits: &str) -> Option<usize> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_by_open_files() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(limits), Some(1_024));
        assert_eq!(open_files("Max open files            unlimited            unlimited            files"), None);
        let few = ConnectionLimits { connections: 3, ..ConnectionLimits::default() };
        assert_eq!(few.clone().within_open_files(), few);
    }
}
