//! How much one connection, one address and all together may take up. Servers of HTTP/2 have most of these switched off
//! unless they are set.

use std::time::Duration;

use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};

/// What connections may take up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time, over all addresses and listeners.
    pub connections: usize,
    /// Connections at a time from one address; of IPv6 from one network of 64 bits, which one machine has to itself.
    pub connections_per_address: usize,
    /// Requests at a time on one connection.
    pub streams: u32,
    /// Largest head of a request, in bytes.
    pub header_bytes: u32,
    /// Largest frame, in bytes, 16 KiB to 16 MiB less one byte.
    pub frame_bytes: u32,
    /// Requests that one connection may take back before anybody has looked at them; more end it. Agents cancel calls
    /// in bursts.
    pub resets: usize,
    /// Longest time for TLS, for the first words after it, and for the head of a request over HTTP/1.
    pub handshake: Duration,
    /// After so long without any request open, a connection is ended in order.
    pub idle: Duration,
    /// After so long a connection is ended in order, whatever it does: the next one may go to another replica, and
    /// shows its certificate again. Up to a tenth sooner, so that they do not all come back at once. None lasts.
    pub age: Option<Duration>,
    /// How long what is open on a connection that was ended in order may take until it is cut off.
    pub grace: Duration,
}

impl Default for Limits {
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

/// What one connection may send before any of it is read: four times what one stream may (hyper's 1 MiB), so that a
/// stream that is held back leaves room to the others.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Who has not answered a ping is gone.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);
/// Headers of one request over HTTP/1; over HTTP/2 their bytes count alone.
const HTTP1_HEADERS_MAX: usize = 100;

/// Files that are left for the database, for certificates and for the rest.
const FILES_LEFT: usize = 128;

impl Limits {
    /// No more connections than this process may open files.
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

    /// What serves connections within these limits.
    pub(super) fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.handshake)
            .max_headers(HTTP1_HEADERS_MAX)
            // It holds the head and what is read of the body; hyper wants 8 KiB at least.
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

/// How many files a process may open, as Linux tells it.
fn open_files(limits: &str) -> Option<usize> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_connections_than_files() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(limits), Some(1_024));
        assert_eq!(open_files("Max open files            unlimited            unlimited            files"), None);
        let few = Limits { connections: 3, ..Limits::default() };
        assert_eq!(few.clone().within_open_files(), few);
    }
}
