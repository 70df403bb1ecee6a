//! Normal forms of e-mail addresses, URLs and file paths.

use url::Url;

/// The address without `mailto:` and surrounding whitespace; none for other texts.
pub(super) fn email(text: &str) -> Option<String> {
    let mut address = text.trim();
    while let Some(rest) = address.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("mailto:")) {
        address = address[rest.len()..].trim();
    }
    let (local, domain) = address.rsplit_once('@')?;
    let is_whole = !local.is_empty() && !domain.is_empty() && !address.contains(char::is_whitespace);
    is_whole.then(|| address.to_owned())
}

/// A URL in the form of the WHATWG standard, without its fragment, with the escapes of RFC 3986 section 6.2.2: none
/// where needless, others in uppercase. None without a host.
pub(super) fn url(text: &str) -> Option<String> {
    let mut url = Url::parse(text.trim()).ok()?;
    url.set_fragment(None);
    if !url.has_host() || url.host_str() == Some("") {
        return None;
    }
    let written = unescape_percent(url.as_str())?;
    // Idempotence: a part that the standard parses differently after unescaping stays.
    let again = Url::parse(&written).ok()?;
    (again.as_str() == written).then_some(written)
}

/// None for a literal `%`, which could become part of an escape. (`from_str_radix` would accept `%+1`.)
fn unescape_percent(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut written = parts.next()?.to_owned();
    for part in parts {
        let code = part.get(..2).filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        let code = u8::from_str_radix(code, 16).ok()?;
        match code {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => written.push(char::from(code)),
            _ => written.push_str(&format!("%{code:02X}")),
        }
        written.push_str(&part[2..]);
    }
    Some(written)
}

/// A path by its parts alone, without access to a file system.
pub(super) fn path(text: &str) -> String {
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
    match (is_absolute, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) if text.is_empty() => String::new(),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}
