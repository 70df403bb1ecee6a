//! Files of recorded calls: JSON lines, plain or gzipped. The offline module parses the lines.

use std::{
    fmt,
    io::{BufRead, BufReader, Read},
};

use anyhow::{anyhow, bail};
use flate2::bufread::MultiGzDecoder;

use callgate_core::offline::trace::TraceRow;

/// Maximum length of a line, in bytes: far above the maximum of a call's arguments.
pub const LINE_BYTES_MAX: u64 = 16 << 20;
const BUFFER_BYTES: usize = 64 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Source of rows.
pub struct RowSource {
    name: String,
    reader: Box<dyn BufRead>,
    line: u64,
    buffer: Vec<u8>,
}

impl fmt::Debug for RowSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).field("line", &self.line).finish_non_exhaustive()
    }
}

impl RowSource {
    /// Rows from `read`, named `name` in errors. Gzip is detected by its first bytes, also on standard input.
    ///
    /// # Errors
    /// The first bytes cannot be read.
    pub fn new(name: impl Into<String>, read: impl Read + 'static) -> anyhow::Result<Self> {
        let name = name.into();
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, read);
        let start = reader.fill_buf().map_err(|error| anyhow!("{name}: cannot be read: {error}"))?;
        let reader: Box<dyn BufRead> = if start.starts_with(&GZIP_MAGIC) {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(reader)))
        } else {
            Box::new(reader)
        };
        Ok(Self { name, reader, line: 0, buffer: Vec::new() })
    }

    /// File and line of the last row: `traces/x.jsonl:17`.
    #[must_use]
    pub fn position(&self) -> String {
        format!("{}:{}", self.name, self.line)
    }

    /// The next row; none at the end. Empty lines are skipped.
    ///
    /// # Errors
    /// An unreadable or invalid line; the message names file, line and field.
    pub fn next_row(&mut self) -> anyhow::Result<Option<TraceRow>> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let read = self.reader.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut self.buffer);
            let read = read.map_err(|error| anyhow!("{}: cannot be read: {error}", self.position()))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 > LINE_BYTES_MAX {
                bail!("{}: is longer than {LINE_BYTES_MAX} bytes", self.position());
            }
            let text =
                str::from_utf8(&self.buffer).map_err(|error| anyhow!("{}: is not UTF-8: {error}", self.position()))?;
            if !text.trim_ascii().is_empty() {
                return TraceRow::parse(text).map(Some).map_err(|problem| anyhow!("{}: {problem}", self.position()));
            }
        }
    }
}
