//! Line reader and writer of pipes, as bytes. A line beyond the maximum is passed in parts.

use std::io;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::mpsc,
};

/// Maximum length of a parsed line, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of queued lines.
pub(super) const WAITING_MAX: usize = 64;

/// Output item.
#[derive(Debug)]
pub(super) enum OutputItem {
    /// A line with its terminator.
    Line(Vec<u8>),
    /// A line in parts, until its sender is dropped.
    Parts(mpsc::Receiver<Vec<u8>>),
    /// End: closes the pipe.
    End,
}

impl OutputItem {
    /// A message as a line.
    pub(super) fn from_message(message: &str) -> Self {
        Self::Line(format!("{message}\n").into_bytes())
    }
}

/// Input item.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputItem {
    /// A line, with its terminator if present.
    Line(Vec<u8>),
    /// A part of a line that is too long.
    Part {
        /// Raw bytes.
        bytes: Vec<u8>,
        /// True for the last part.
        is_last: bool,
    },
}

/// Line reader of a pipe.
#[derive(Debug)]
pub(super) struct PipeReader<R> {
    reader: BufReader<R>,
    max: usize,
    is_within: bool,
}

impl<R: AsyncRead + Unpin> PipeReader<R> {
    pub(super) fn new(pipe: R, max: usize) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, pipe), max, is_within: false }
    }

    /// The next line or part; none at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<InputItem>> {
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
                return Ok(Some(InputItem::Part { bytes, is_last }));
            }
            if is_last {
                return Ok(Some(InputItem::Line(bytes)));
            }
        }
    }
}

/// Writes items in order until the end or a closed pipe.
pub(super) async fn write(mut pipe: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<OutputItem>) -> io::Result<()> {
    while let Some(out) = lines.recv().await {
        match out {
            OutputItem::Line(line) => pipe.write_all(&line).await?,
            OutputItem::Parts(mut parts) => {
                while let Some(part) = parts.recv().await {
                    pipe.write_all(&part).await?;
                }
            }
            OutputItem::End => break,
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
        let mut lines = PipeReader::new(text, 4);
        let line = |bytes: &[u8]| Some(InputItem::Line(bytes.to_vec()));
        assert_eq!(lines.next().await.expect("read"), line(b"a\r\n"));
        assert_eq!(lines.next().await.expect("read"), line(b"\n"));
        assert_eq!(lines.next().await.expect("read"), line(b"\xff\n"));
        let long = InputItem::Part { bytes: b"long line\n".to_vec(), is_last: true };
        assert_eq!(lines.next().await.expect("read"), Some(long));
        assert_eq!(lines.next().await.expect("read"), line(b"b"));
        assert_eq!(lines.next().await.expect("read"), None);
    }

    #[tokio::test]
    async fn parts_have_an_end_also_where_the_line_has_none() {
        let mut lines = PipeReader::new(tokio::io::AsyncReadExt::chain(b"12345".as_slice(), b"67".as_slice()), 4);
        let part = |bytes: &[u8], is_last| Some(InputItem::Part { bytes: bytes.to_vec(), is_last });
        assert_eq!(lines.next().await.expect("read"), part(b"12345", false));
        assert_eq!(lines.next().await.expect("read"), part(b"67", false));
        assert_eq!(lines.next().await.expect("read"), part(b"", true));
        assert_eq!(lines.next().await.expect("read"), None);
    }
}
