//! Servers with a URL: started as a command that passes the host's pipes on to the URL. The address, its key and the
//! headers stay as they are written, so that the way back restores the text.

use jsonc_parser::{
    ast::{Array, Object, ObjectProp, StringLit},
    common::Ranged as _,
};

use super::{Edit, quote_text};

/// Keys of an HTTP server's address.
const URLS: [&str; 3] = ["url", "httpUrl", "serverUrl"];
/// Keys that a server with a URL must not have: of commands, and of a host's own authorization.
const OTHERS: [&str; 7] = ["command", "args", "env", "oauth", "auth", "authProviderType", "headersHelper"];
/// First of the proxy's words about the URL.
pub(super) const PIPES: &str = "--stdio";
/// Number of those words: `--stdio --restores KEY --url URL`.
const WORDS: usize = 5;
/// Prefix of a header's name in the environment.
const HEADER: &str = "CALLGATE_HEADER_";

/// The address of a server, for its settings and as text.
pub(super) fn address<'a, 'b>(server: &'b Object<'a>) -> Option<(&'b ObjectProp<'a>, &'b StringLit<'a>)> {
    let property = URLS.iter().find_map(|name| server.get(name))?;
    Some((property, property.value.as_string_lit()?))
}

/// True when a server's settings hold a credential, or another header.
pub(super) fn has_headers(server: &Object<'_>) -> bool {
    server.get_object("headers").is_some_and(|headers| !headers.properties.is_empty())
}

/// The edits that make a command of the server; `words` are those of its proxy.
pub(super) fn wrap(text: &str, server: &Object<'_>, program: &str, words: &str) -> Result<Vec<Edit>, &'static str> {
    let (property, url) = address(server).ok_or("it has no command")?;
    if OTHERS.iter().any(|name| server.get(name).is_some()) {
        return Err("it has a URL with settings that the proxy does not know");
    }
    let kind = server.get("type").map(|kind| kind.value.as_string_lit());
    let kind = match kind {
        None => None,
        Some(Some(kind)) if kind.value == "sse" => {
            return Err("it has the transport of 2024-11-05 (sse), which the proxy does not know");
        }
        Some(Some(kind)) if text[kind.range.start..kind.range.end] == quote_text(&kind.value) => Some(kind),
        Some(_) => return Err("its type is not a plain text"),
    };
    let key = property.name.as_str();
    let restores = kind.map_or_else(|| key.to_owned(), |kind| format!("{key}:{}", kind.value));
    let between = &text[property.name.end()..url.range.start];
    let address = &text[url.range.start..url.range.end];
    let own = format!("{}, \"--restores\", {}, \"--url\", {address}", quote_text(PIPES), quote_text(&restores));
    let replaced = format!("\"command\"{between}{}, \"args\"{between}[{words}, {own}]", quote_text(program));
    let mut edits = vec![Edit { start: property.range.start, end: property.range.end, text: replaced }];
    edits.extend(kind.map(|kind| Edit { start: kind.range.start, end: kind.range.end, text: quote_text("stdio") }));
    if let Some(headers) = server.get("headers") {
        let names = headers.value.as_object().ok_or("its headers are no object")?;
        if names.properties.iter().any(|name| name.value.as_string_lit().is_none() || !is_plain(text, name)) {
            return Err("its headers are no plain texts");
        }
        edits.push(Edit { start: headers.name.start(), end: headers.name.end(), text: "\"env\"".to_owned() });
        // Behind the quote of the name.
        let at = |name: &ObjectProp<'_>| name.name.start() + 1;
        edits.extend(names.properties.iter().map(|name| Edit {
            start: at(name),
            end: at(name),
            text: HEADER.to_owned(),
        }));
    }
    Ok(edits)
}

/// True for a name in quotes, without escapes.
fn is_plain(text: &str, name: &ObjectProp<'_>) -> bool {
    text[name.name.start()..name.name.end()] == quote_text(name.name.as_str())
}

/// The edits that restore the URL.
pub(super) fn unwrap(text: &str, server: &Object<'_>, args: &Array<'_>, own: usize) -> Option<Vec<Edit>> {
    let restores = args.elements.get(own + 2)?.as_string_lit()?;
    let (key, kind) = match restores.value.split_once(':') {
        Some((key, kind)) => (key, Some(kind)),
        None => (restores.value.as_ref(), None),
    };
    let (command, list) = (server.get("command")?, server.get("args")?);
    let url = args.elements.get(own + 4)?.range();
    let between = &text[command.name.end()..command.value.range().start];
    let replaced = format!("{}{between}{}", quote_text(key), &text[url.start..url.end]);
    let mut edits = vec![Edit { start: command.range.start, end: list.range.end, text: replaced }];
    if let (Some(kind), Some(written)) = (kind, server.get_string("type")) {
        edits.push(Edit { start: written.range.start, end: written.range.end, text: quote_text(kind) });
    }
    if let Some(headers) = server.get("env") {
        edits.push(Edit { start: headers.name.start(), end: headers.name.end(), text: "\"headers\"".to_owned() });
        let names = headers.value.as_object()?.properties.iter().filter(|name| name.name.as_str().starts_with(HEADER));
        edits.extend(names.map(|name| {
            let start = name.name.start() + 1;
            Edit { start, end: start + HEADER.len(), text: String::new() }
        }));
    }
    Some(edits)
}

/// Index of the words about the URL among the proxy's.
pub(super) fn find_own_words(words: &[Option<&str>]) -> Option<usize> {
    let at = words.len().checked_sub(WORDS).filter(|at| *at >= 3)?;
    (words[at] == Some(PIPES)).then_some(at)
}
