//! Controllable proxy between one replica and its PostgreSQL: counts connections, and blocks or delays them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{UnixListener, UnixStream},
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use crate::common::postgres::{Postgres, folder};

/// The first eight bytes of a client that asks for TLS.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// A handshake that fails.
const TLS_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];

#[derive(Debug, Default)]
struct State {
    knocks: AtomicUsize,
    is_shut: AtomicBool,
    delay_ms: AtomicU64,
}

pub(crate) struct Door {
    /// The way to the server through here.
    pub(crate) options: PgConnectOptions,
    state: Arc<State>,
    lines: JoinHandle<()>,
    _dir: TempDir,
}

impl Door {
    pub(crate) async fn to(postgres: &Postgres) -> Self {
        let name = format!(".s.PGSQL.{}", postgres.options.get_port());
        let server = postgres.options.get_socket().expect("a private server has a socket").join(&name);
        let dir = folder();
        let listener = UnixListener::bind(dir.path().join(&name)).expect("nobody else is there");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let lines = tokio::spawn(async move {
            let mut lines = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("a client");
                shared.knocks.fetch_add(1, Ordering::SeqCst);
                if !shared.is_shut.load(Ordering::SeqCst) {
                    let delay = Duration::from_millis(shared.delay_ms.load(Ordering::SeqCst));
                    lines.spawn(line(client, server.clone(), delay));
                }
            }
        });
        let options = postgres.options.clone().socket(dir.path()).ssl_mode(PgSslMode::Disable);
        Self { options, state, lines, _dir: dir }
    }

    /// Rejects new connections from now on; open ones stay.
    pub(crate) fn shut(&self) {
        self.state.is_shut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        self.state.is_shut.store(false, Ordering::SeqCst);
    }

    /// Delays new connections from now on.
    pub(crate) fn delay_ms(&self, delay_ms: u64) {
        self.state.delay_ms.store(delay_ms, Ordering::SeqCst);
    }

    pub(crate) fn knocks(&self) -> usize {
        self.state.knocks.load(Ordering::SeqCst)
    }

    pub(crate) fn with_tls(&self, mode: PgSslMode) -> PgConnectOptions {
        self.options.clone().ssl_mode(mode)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.lines.abort();
    }
}

/// A server that speaks TLS as some do: so that no handshake ever succeeds.
async fn line(mut client: UnixStream, server: std::path::PathBuf, delay: Duration) -> std::io::Result<()> {
    sleep(delay).await;
    let mut start = [0; 8];
    client.read_exact(&mut start).await?;
    if start == TLS_REQUEST {
        client.write_all(b"S").await?;
        client.read_exact(&mut [0; 5]).await?;
        client.write_all(&TLS_ALERT).await?;
        return client.shutdown().await;
    }
    let mut server = UnixStream::connect(server).await?;
    server.write_all(&start).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
