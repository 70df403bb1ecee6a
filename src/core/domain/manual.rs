//! The doc comment at the head of a source file, which is the manual of a rule or a lint at run time too.

/// The lines `//! …` at the head of a file beside the caller's, as a `&'static str`.
///
/// The program holds these lines alone, not the file.
macro_rules! manual {
    ($file:expr) => {{
        const SOURCE: &str = include_str!($file);
        const LINES: [u8; $crate::domain::manual::length(SOURCE)] = $crate::domain::manual::copy(SOURCE);
        match core::str::from_utf8(&LINES) {
            Ok(lines) => lines,
            Err(_) => panic!("a text that ends after a line is one"),
        }
    }};
}

pub(crate) use manual;

/// Bytes of the lines that begin with `//!`, up to the first one that does not.
pub(crate) const fn length(source: &str) -> usize {
    let bytes = source.as_bytes();
    let mut at = 0;
    while at + 2 < bytes.len() && bytes[at] == b'/' && bytes[at + 1] == b'/' && bytes[at + 2] == b'!' {
        while at < bytes.len() && bytes[at] != b'\n' {
            at += 1;
        }
        if at < bytes.len() {
            at += 1;
        }
    }
    at
}

/// Its first bytes.
pub(crate) const fn copy<const LENGTH: usize>(source: &str) -> [u8; LENGTH] {
    let (bytes, mut copied, mut at) = (source.as_bytes(), [0; LENGTH], 0);
    while at < LENGTH {
        copied[at] = bytes[at];
        at += 1;
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_ends_before_the_first_line_of_code() {
        let of = |source: &'static str| &source[..length(source)];
        assert_eq!(of("//! a: ä.\n//!\n//! b\n\nuse c;\n//! d\n"), "//! a: ä.\n//!\n//! b\n");
        assert_eq!(of("//! a"), "//! a");
        assert_eq!([of(""), of("//"), of("use a;\n//! b")], ["", "", ""]);
    }

    #[test]
    fn manual_of_this_file_is_its_first_line() {
        const MANUAL: &str = manual!("manual.rs");
        assert!(MANUAL.starts_with("//! The doc comment at the head") && MANUAL.ends_with("too.\n"), "{MANUAL}");
    }
}
