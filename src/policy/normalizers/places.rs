//! Addresses of mail, of the web, and of files.

use url::Url;

pub(super) fn email(text: &str) -> String {
    let text = text.trim().to_lowercase();
    text.strip_prefix("mailto:").map_or(text.clone(), |address| address.trim().to_owned())
}

/// A URL in the form of the WHATWG standard, without its fragment; none for what is no URL.
pub(super) fn url(text: &str) -> Option<String> {
    let mut url = Url::parse(text.trim()).ok()?;
    url.set_fragment(None);
    Some(url.to_string())
}

/// A path by its parts alone: no file system is asked.
pub(super) fn path(text: &str) -> String {
    let text = text.trim();
    let is_absolute = text.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    // White space at the ends is trimmed once more: what stood before a slash may stand at the end now.
    let joined = parts.join("/").trim().to_owned();
    match (is_absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => {
            if text.is_empty() {
                String::new()
            } else {
                ".".to_owned()
            }
        }
        (false, false) => joined,
    }
}
