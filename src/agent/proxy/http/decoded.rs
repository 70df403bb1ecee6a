//! Response body of a server, decompressed. The proxy asks for no compression, but some servers compress anyway.

use std::io::{self, Write as _};

use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};

/// Maximum compressed bytes that are decompressed at once; they give a thousand times as many at most.
const PART_BYTES_MAX: usize = 1 << 10;

/// A body in plain bytes.
pub(super) struct DecodedBody {
    body: Incoming,
    decoder: Option<Decoder>,
    /// Compressed bytes that were received and not decompressed.
    rest: Bytes,
    /// True for a body without a byte, which is no truncated one.
    is_empty: bool,
}

enum Decoder {
    Gzip(MultiGzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
}

impl DecodedBody {
    /// The body with its headers, from which the coding is removed.
    ///
    /// # Errors
    /// The coding, if it is unknown; the body stays compressed.
    pub(super) fn new(headers: &mut HeaderMap, body: Incoming) -> (Self, Result<(), String>) {
        let names =
            headers.get_all(header::CONTENT_ENCODING).iter().map(|name| String::from_utf8_lossy(name.as_bytes()));
        let names = names.collect::<Vec<_>>().join(", ").to_ascii_lowercase();
        let (decoder, known) = match names.trim() {
            "" | "identity" => (None, Ok(())),
            "gzip" | "x-gzip" => (Some(Decoder::Gzip(MultiGzDecoder::new(Vec::new()))), Ok(())),
            "deflate" => (Some(Decoder::Deflate(ZlibDecoder::new(Vec::new()))), Ok(())),
            _ => (None, Err(names)),
        };
        if decoder.is_some() {
            headers.remove(header::CONTENT_ENCODING);
            headers.remove(header::CONTENT_LENGTH);
        }
        (Self { body, decoder, rest: Bytes::new(), is_empty: true }, known)
    }

    /// The next part; none at the end. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            if let Some(decoder) = self.decoder.as_mut().filter(|_| !self.rest.is_empty()) {
                let part = self.rest.split_to(self.rest.len().min(PART_BYTES_MAX));
                match decoder.decode(&part) {
                    Ok(plain) if plain.is_empty() => continue,
                    plain => return Some(plain.map(Bytes::from).map_err(|error| describe(&error))),
                }
            }
            match self.body.frame().await {
                None => {
                    let ended = self.decoder.take().filter(|_| !self.is_empty).map_or(Ok(()), Decoder::finish);
                    return ended.err().map(|error| Err(describe(&error)));
                }
                Some(Err(error)) => return Some(Err(callgate_net::client::cause(&error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if self.decoder.is_some() => {
                        self.is_empty &= data.is_empty();
                        self.rest = data;
                    }
                    Ok(data) => return Some(Ok(data)),
                    Err(_) => {}
                },
            }
        }
    }

    /// The whole body of at most `max` bytes.
    pub(super) async fn collect(mut self, max: usize) -> Result<Vec<u8>, String> {
        let mut whole = Vec::new();
        while let Some(part) = self.next().await {
            whole.extend_from_slice(&part?);
            if whole.len() > max {
                return Err(format!("its answer is longer than {max} bytes"));
            }
        }
        Ok(whole)
    }
}

fn describe(error: &io::Error) -> String {
    format!("its compressed answer cannot be read: {error}")
}

impl Decoder {
    /// The plain bytes so far, with all that a flush of the server has made readable.
    fn decode(&mut self, part: &[u8]) -> io::Result<Vec<u8>> {
        let plain = match self {
            Self::Gzip(gzip) => {
                gzip.write_all(part)?;
                gzip.flush()?;
                gzip.get_mut()
            }
            Self::Deflate(deflate) => {
                deflate.write_all(part)?;
                deflate.flush()?;
                deflate.get_mut()
            }
        };
        Ok(std::mem::take(plain))
    }

    /// Fails for a truncated body.
    fn finish(self) -> io::Result<()> {
        match self {
            Self::Gzip(mut gzip) => gzip.try_finish(),
            Self::Deflate(mut deflate) => deflate.try_finish(),
        }
    }
}
