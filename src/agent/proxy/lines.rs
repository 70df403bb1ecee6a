//! Lines of a pipe, as bytes. Most are a message; one that is longer than anything that is read is handed on in parts.

use std::io;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::mpsc,
};

/// Longest line that is read, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 16 << 20;
/// Lines that wait to be written.
pub(super) const WAITING_MAX: usize = 64;

/// What is written.
#[derive(Debug)]
pub(super) enum Out {
    /// A line, with its end.
    Line(Vec<u8>),
    /// A line in parts, until its sender is dropped.
    Parts(mpsc::Receiver<Vec<u8>>),
    /// No more: the pipe is closed.
    End,
}

impl Out {
    /// A message as a line.
    pub(super) fn line(message: &str) -> Self {
        Self::Line(format!("{message}\n").into_bytes())
    }
}

/// What is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A line, with its end if it has one.
    Line(Vec<u8>),
    /// A part of one that is too long.
    Part {
        /// As it came.
        bytes: Vec<u8>,
        /// No other part follows.
        is_last: bool,
    },
}

/// A pipe that is read.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    max: usize,
    is_within: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(pipe: R, max: usize) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, pipe), max, is_within: false }
    }

    /// The next line, or part of one; none at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Piece>> {
        let mut bytes = Vec::new();
        loop {
            let more = self.reader.fill_buf().await?;
            if more.is_empty() && bytes.is_empty() && !self.is_within {
                return Ok(None);
            }
            let end = more.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let taken = end.unwrap_or(more.len());
            let is_last = end.is_some() || taken == 0;
            bytes.extend_from_slice(&more[..taken]);
            self.reader.consume(taken);
            if self.is_within || bytes.len() > self.max {
                self.is_within = !is_last;
                return Ok(Some(Piece::Part { bytes, is_last }));
            }
            if is_last {
                return Ok(Some(Piece::Line(bytes)));
            }
        }
    }
}

/// Writes what comes, in its order, until it ends or nobody reads it any more.
pub(super) async fn write(mut pipe: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Out>) -> io::Result<()> {
    while let Some(out) = lines.recv().await {
        match out {
            Out::Line(line) => pipe.write_all(&line).await?,
            Out::Parts(mut parts) => {
                while let Some(part) = parts.recv().await {
                    pipe.write_all(&part).await?;
                }
            }
            Out::End => break,
        }
        if lines.is_empty() {
            pipe.flush().await?;
        }
    }
    pipe.flush().await?;
    pipe.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_as_they_are_and_a_long_one_in_parts() {
        let text = b"a\r\n\n\xff\nlong line\nb".as_slice();
        let mut lines = Lines::new(text, 4);
        let line = |bytes: &[u8]| Some(Piece::Line(bytes.to_vec()));
        assert_eq!(lines.next().await.expect("read"), line(b"a\r\n"));
        assert_eq!(lines.next().await.expect("read"), line(b"\n"));
        assert_eq!(lines.next().await.expect("read"), line(b"\xff\n"));
        let long = Piece::Part { bytes: b"long line\n".to_vec(), is_last: true };
        assert_eq!(lines.next().await.expect("read"), Some(long));
        assert_eq!(lines.next().await.expect("read"), line(b"b"));
        assert_eq!(lines.next().await.expect("read"), None);
    }

    #[tokio::test]
    async fn parts_have_an_end_also_where_the_line_has_none() {
        let mut lines = Lines::new(tokio::io::AsyncReadExt::chain(b"12345".as_slice(), b"67".as_slice()), 4);
        let part = |bytes: &[u8], is_last| Some(Piece::Part { bytes: bytes.to_vec(), is_last });
        assert_eq!(lines.next().await.expect("read"), part(b"12345", false));
        assert_eq!(lines.next().await.expect("read"), part(b"67", false));
        assert_eq!(lines.next().await.expect("read"), part(b"", true));
        assert_eq!(lines.next().await.expect("read"), None);
    }
}
