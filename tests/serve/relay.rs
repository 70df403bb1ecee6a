//! Lossy relay to a server.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Lost direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LostHalf {
    Nothing,
    Questions,
    Answers,
}

pub(crate) struct Relay {
    pub(crate) url: String,
    loses: Arc<AtomicU8>,
}

impl Relay {
    pub(crate) async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let loses = Arc::new(AtomicU8::new(LostHalf::Nothing as u8));
        let (server, switch) = (server.trim_start_matches("http://").to_owned(), Arc::clone(&loses));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, loses) = (server.clone(), Arc::clone(&switch));
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    let ((asks, hears), (says, takes)) = (client.into_split(), server.into_split());
                    // The end of one side ends both.
                    tokio::select! {
                        () = pass(asks, takes, &loses, LostHalf::Questions) => {}
                        () = pass(says, hears, &loses, LostHalf::Answers) => {}
                    }
                });
            }
        });
        Self { url, loses }
    }

    pub(crate) fn loses(&self, what: LostHalf) {
        self.loses.store(what as u8, Ordering::SeqCst);
    }
}

/// Forwards data, unless dropped. A connection that has dropped some ends once dropping ends.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, loses: &AtomicU8, what: LostHalf) {
    let (mut part, mut has_lost) = ([0; 4_096], false);
    while let Ok(read @ 1..) = from.read(&mut part).await {
        if loses.load(Ordering::SeqCst) == what as u8 {
            has_lost = true;
        } else if has_lost || to.write_all(&part[..read]).await.is_err() {
            return;
        }
    }
}
