//! Editor of a host's MCP settings: moves servers behind the proxy, and back. Only the start commands change: comments,
//! order and spaces stay, and the inverse restores the text byte for byte.

mod urls;

use std::path::Path;

use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{Array, Object, StringLit, Value},
    common::Ranged as _,
    parse_to_ast,
};

/// Keys of the servers: of Claude, Cursor and Gemini; of VS Code.
const SERVERS: [&str; 2] = ["mcpServers", "servers"];
/// Command name of the proxy.
pub const PROXY: &str = "mcp-proxy";
/// Separator before the server's own command.
const THEN: &str = "--";

/// Result of a change.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Complete text.
    pub text: String,
    /// Changed servers, in order.
    pub servers: Vec<String>,
    /// Unchanged servers, each with the reason.
    pub left: Vec<(String, &'static str)>,
}

/// Replacement of a part of the text.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

/// Addresses of the servers that have one and no header, which may want their host to sign in.
///
/// # Errors
/// The reason why the text cannot be parsed.
pub fn list_addresses(text: &str) -> Result<Vec<String>, String> {
    let found = std::cell::RefCell::new(Vec::new());
    change(text, |_, server| {
        let address = urls::address(server).filter(|_| !urls::has_headers(server));
        found.borrow_mut().extend(address.map(|(_, url)| url.value.to_string()));
        Ok(Vec::new())
    })?;
    Ok(found.into_inner())
}

/// Puts each server behind `program`, the proxy, with `options`, unless it already is. `objection` is a reason to leave
/// the server at an address alone.
///
/// # Errors
/// The reason why the text cannot be parsed.
pub fn wrap(
    text: &str,
    program: &str,
    options: &[String],
    objection: impl Fn(&str) -> Option<&'static str>,
) -> Result<ConfigChange, String> {
    change(text, |name, server| {
        let words = [PROXY, "--server-name", name].into_iter().chain(options.iter().map(String::as_str));
        let mut words: Vec<String> = words.map(quote_text).collect();
        let Some(command) = server.get_string("command") else {
            return match urls::address(server).and_then(|(_, url)| objection(&url.value)) {
                Some(objection) => Err(objection),
                None => urls::wrap(text, server, program, &words.join(", ")),
            };
        };
        let wrapped = find_wrapped(command, server);
        if wrapped.is_none_or(|(args, own)| !is_word(args, own, urls::PIPES)) {
            words.push(quote_text(THEN));
        }
        if let Some((args, own)) = wrapped {
            // Written by an earlier command, whose options are replaced.
            let own = args.elements[own].range().start;
            let old = text[args.range.start + 1..own].trim_end_matches([',', ' ']);
            let new = words.join(", ");
            let is_same = *command.value == *program && old == new;
            let after = args.range.start + 1 + old.len();
            let edits =
                [(command.range.start, command.range.end, quote_text(program)), (args.range.start + 1, after, new)];
            let edits = edits.map(|(start, end, text)| Edit { start, end, text });
            return if is_same { Err("it is already behind the proxy") } else { Ok(edits.into()) };
        }
        words.push(text[command.range.start..command.range.end].to_owned());
        let words = words.join(", ");
        let (start, end) = (command.range.start, command.range.end);
        let mut edits = vec![Edit { start, end, text: quote_text(program) }];
        match server.get_array("args") {
            // The space distinguishes an empty list from none on the way back.
            Some(args) => {
                let behind = if args.elements.is_empty() { " " } else { "," };
                let at = args.range.start + 1;
                edits.push(Edit { start: at, end: at, text: format!("{words}{behind}") });
            }
            None => edits[0].text.push_str(&format!(", \"args\": [{words}]")),
        }
        Ok(edits)
    })
}

/// Restores each server as before [`wrap`].
///
/// # Errors
/// The reason why the text cannot be parsed.
pub fn unwrap(text: &str) -> Result<ConfigChange, String> {
    change(text, |_, server| {
        let command = server.get_string("command").ok_or("it is not behind the proxy")?;
        let (args, original) = find_wrapped(command, server).ok_or("it is not behind the proxy")?;
        if is_word(args, original, urls::PIPES) {
            return urls::unwrap(text, server, args, original).ok_or("it was changed since `callgate mcp wrap`");
        }
        let original = args.elements[original].range();
        let (from, rest) = (args.range.start + 1, &text[original.end..args.range.end - 1]);
        let (start, end) = (command.range.start, command.range.end);
        let word = text[original.start..original.end].to_owned();
        if rest.is_empty() && args.range.start > end {
            return Ok(vec![Edit { start, end: args.range.end, text: word }]);
        }
        let behind = if rest.starts_with([',', ' ']) { 1 } else { 0 };
        let gone = Edit { start: from, end: original.end + behind, text: String::new() };
        Ok(vec![Edit { start, end, text: word }, gone])
    })
}

/// The proxy's arguments, with the index of the server's own command.
fn find_wrapped<'a, 'b>(command: &StringLit<'_>, server: &'b Object<'a>) -> Option<(&'b Array<'a>, usize)> {
    let args = server.get_array("args")?;
    let words: Vec<Option<&str>> =
        args.elements.iter().map(|word| word.as_string_lit().map(|word| word.value.as_ref())).collect();
    let is_ours = is_proxy_program(Path::new(command.value.as_ref())) && words.first() == Some(&Some(PROXY));
    if !is_ours {
        return None;
    }
    if let Some(own) = urls::find_own_words(&words) {
        return Some((args, own));
    }
    // Past the name, which may be anything.
    let then = words.iter().skip(3).position(|word| *word == Some(THEN))? + 3;
    (words.len() > then + 1).then_some((args, then + 1))
}

fn is_word(args: &Array<'_>, at: usize, word: &str) -> bool {
    args.elements.get(at).and_then(Value::as_string_lit).is_some_and(|found| found.value == word)
}

/// True for a path of callgate.
pub fn is_proxy_program(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "callgate")
}

fn change(
    text: &str,
    edits: impl Fn(&str, &Object<'_>) -> Result<Vec<Edit>, &'static str>,
) -> Result<ConfigChange, String> {
    let strict = ParseOptions { allow_missing_commas: false, ..ParseOptions::default() };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &strict).map_err(|error| error.to_string())?;
    let root = parsed.value.as_ref().and_then(Value::as_object).ok_or("it is not a JSON object")?;
    let servers = SERVERS.iter().find_map(|name| root.get_object(name)).ok_or("it has no object \"mcpServers\"")?;
    let mut changed = ConfigChange { text: text.to_owned(), servers: Vec::new(), left: Vec::new() };
    let mut all = Vec::new();
    for server in &servers.properties {
        let name = server.name.as_str();
        match server.value.as_object().ok_or("it is not an object").and_then(|value| edits(name, value)) {
            Ok(edits) => {
                all.extend(edits);
                changed.servers.push(name.to_owned());
            }
            Err(reason) => changed.left.push((name.to_owned(), reason)),
        }
    }
    // From the end, so that earlier positions stay valid.
    all.sort_by_key(|edit| std::cmp::Reverse(edit.start));
    for edit in all {
        changed.text.replace_range(edit.start..edit.end, &edit.text);
    }
    Ok(changed)
}

fn quote_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
