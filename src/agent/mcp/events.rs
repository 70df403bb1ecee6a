//! Server-sent event parser (`text/event-stream`), which splits a stream into events and preserves their bytes.

/// Parser state.
#[derive(Debug)]
pub struct Events {
    buffer: Vec<u8>,
    /// Scanned bytes of the buffer without an end of an event.
    looked_at: usize,
    /// True while the current line is empty.
    is_empty_line: bool,
    max: usize,
    is_within: bool,
}

/// A piece of a stream, unmodified.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamPiece {
    /// An event with its empty line.
    Event(Vec<u8>),
    /// A part of an event that is too long to parse.
    Part(Vec<u8>),
}

impl Events {
    /// A parser for events of at most `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { buffer: Vec::new(), looked_at: 0, is_empty_line: true, max, is_within: false }
    }

    /// Adds input.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete piece.
    pub fn next_piece(&mut self) -> Option<StreamPiece> {
        if let Some(end) = self.end() {
            let rest = self.buffer.split_off(end);
            let event = std::mem::replace(&mut self.buffer, rest);
            (self.looked_at, self.is_empty_line) = (0, true);
            let is_whole = !std::mem::take(&mut self.is_within) && event.len() <= self.max;
            return Some(if is_whole { StreamPiece::Event(event) } else { StreamPiece::Part(event) });
        }
        if self.buffer.len() <= self.max {
            return None;
        }
        (self.looked_at, self.is_within) = (0, true);
        Some(StreamPiece::Part(std::mem::take(&mut self.buffer)))
    }

    /// The rest after the last event.
    #[must_use]
    pub fn take_rest(self) -> Option<StreamPiece> {
        match (self.buffer.is_empty(), self.is_within) {
            (true, _) => None,
            (false, true) => Some(StreamPiece::Part(self.buffer)),
            (false, false) => Some(StreamPiece::Event(self.buffer)),
        }
    }

    /// The end of the first event. A line ends with CR LF, LF or CR.
    fn end(&mut self) -> Option<usize> {
        while let Some(byte) = self.buffer.get(self.looked_at) {
            let length = match (byte, self.buffer.get(self.looked_at + 1)) {
                // The next byte may be its LF; after the end of an event a further one is harmless.
                (b'\r', None) if !self.is_empty_line => return None,
                (b'\r', Some(b'\n')) => 2,
                (b'\r' | b'\n', _) => 1,
                _ => {
                    (self.looked_at, self.is_empty_line) = (self.looked_at + 1, false);
                    continue;
                }
            };
            self.looked_at += length;
            if std::mem::replace(&mut self.is_empty_line, true) {
                return Some(self.looked_at);
            }
        }
        None
    }
}

/// The data of an event; none without data.
#[must_use]
pub fn data(event: &str) -> Option<String> {
    let lines: Vec<&str> = split_lines(event).filter_map(|(line, _)| value(line, "data")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The id of an event, from which a client can resume on another connection.
#[must_use]
pub fn id(event: &str) -> Option<String> {
    split_lines(event).filter_map(|(line, _)| value(line, "id")).last().map(str::to_owned)
}

/// The event with other data, otherwise unchanged.
#[must_use]
pub fn with_data(event: &str, data: &str) -> String {
    let mut written = String::with_capacity(event.len() + data.len());
    let mut new = Some(data);
    for (line, end) in split_lines(event) {
        if value(line, "data").is_none() {
            written.extend([line, end]);
        } else if let Some(data) = new.take() {
            data.lines().for_each(|line| written.extend(["data: ", line, "\n"]));
        }
    }
    written
}

/// A message as an event.
#[must_use]
pub fn event(message: &str) -> String {
    with_data("event: message\ndata:\n\n", message)
}

/// Lines with their terminators.
fn split_lines(event: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = event;
    std::iter::from_fn(move || {
        let at = rest.find(['\r', '\n']).unwrap_or(rest.len());
        let length = if rest[at..].starts_with("\r\n") { 2 } else { 1 };
        let (line, after) = rest.split_at_checked(at).filter(|_| !rest.is_empty())?;
        let (end, next) = after.split_at(length.min(after.len()));
        rest = next;
        Some((line, end))
    })
}

/// The value of a field on its line.
fn value<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(field)?;
    match rest.strip_prefix(':') {
        Some(value) => Some(value.strip_prefix(' ').unwrap_or(value)),
        None => rest.is_empty().then_some(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a stream that arrives in chunks of `size` bytes.
    fn pieces(stream: &str, size: usize, max: usize) -> Vec<(bool, String)> {
        let text = |piece| match piece {
            StreamPiece::Event(bytes) => (true, String::from_utf8(bytes).expect("UTF-8")),
            StreamPiece::Part(bytes) => (false, String::from_utf8(bytes).expect("UTF-8")),
        };
        let (mut events, mut pieces) = (Events::new(max), Vec::new());
        for part in stream.as_bytes().chunks(size) {
            events.push(part);
            while let Some(piece) = events.next_piece() {
                pieces.push(text(piece));
            }
        }
        pieces.extend(events.take_rest().map(text));
        pieces
    }

    #[test]
    fn events_end_with_an_empty_line_however_they_come() {
        let stream = ": hello\n\nid: 1\ndata: {\"a\":\ndata: 1}\n\ndata: x\r\n\r\ndata: y\r\rdata: z\n\ndata: half";
        for size in [1, 2, 3, 100] {
            let pieces = pieces(stream, size, 100);
            assert_eq!(pieces.iter().map(|(_, text)| text.as_str()).collect::<String>(), stream, "{size}");
            assert!(pieces.iter().all(|(is_whole, _)| *is_whole), "{size}");
            let carried: Vec<String> = pieces.iter().filter_map(|(_, text)| data(text)).collect();
            assert_eq!(carried, ["{\"a\":\n1}", "x", "y", "z", "half"], "{size}");
        }
    }

    #[test]
    fn long_event_passes_in_parts_and_the_next_one_is_read() {
        for size in [1, 4, 100] {
            let stream = "data: 123456789\n\ndata: x\n\n";
            let pieces = pieces(stream, size, 10);
            assert_eq!(pieces.iter().map(|(_, text)| text.as_str()).collect::<String>(), stream);
            let (last, parts) = pieces.split_last().expect("pieces");
            assert_eq!(*last, (true, "data: x\n\n".to_owned()), "{size}");
            assert!(parts.iter().all(|(is_whole, _)| !is_whole), "{size}: {parts:?}");
        }
    }

    #[test]
    fn data_is_read_and_replaced_and_nothing_else() {
        let event = "event: message\nid:7\r\ndata:{\"a\":\r\ndata: 1}\nretry: 5\n\n";
        assert_eq!(data(event).as_deref(), Some("{\"a\":\n1}"));
        assert!(id(event).is_some() && id("data: x\nidea: 1\n\n").is_none());
        assert_eq!(with_data(event, "{}"), "event: message\nid:7\r\ndata: {}\nretry: 5\n\n");
        assert_eq!(data(": ping\n\n"), None);
        assert_eq!(data("data\n\n").as_deref(), Some(""));
        assert_eq!(super::event("{\n}"), "event: message\ndata: {\ndata: }\n\n");
    }
}
