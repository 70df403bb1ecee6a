//! Texts for the model in place of a tool's answer: the verdict's fields as lines.

use serde_json::{Map, Value, value::RawValue};

use super::Host;

/// Maximum length of a text in hosts, in UTF-16 code units.
pub const CHARS_MAX: usize = 10_000;
/// Marker at the end of a truncated text.
const CUT: &str = "\n[cut here: the rest does not fit into a hook's answer]";

/// Approved arguments, with every digit as stored.
#[derive(serde::Deserialize)]
struct ApprovedArguments<'a> {
    #[serde(borrow, default)]
    approved_arguments: Option<&'a RawValue>,
}

/// Replacement for approved arguments that are too long.
const TOO_LONG: &str = "approved_arguments do not fit into a hook's answer: ask the user for them, who sees them with \
    `callgate approvals list --all` and `callgate approvals show ID`.";

impl Host {
    /// A refusal as text, from a verdict's JSON object. A previous result is presented as the result of this call, so
    /// that the model continues with it.
    #[must_use]
    pub fn refusal(self, session: &str, tool: &str, tool_result_json: &str) -> String {
        render_refusal(self.shows_failures(), session, tool, tool_result_json)
    }
}

/// The commands by which a person lifts a limit; none if there are none, or the message has them.
#[must_use]
pub fn describe_lifting(said: &Map<String, Value>, session: &str, tool: &str) -> Option<String> {
    let text = |name: &str| said.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let lifting = match (text("approval_id"), text("status")?) {
        (Some(id), _) => {
            format!("`callgate approvals approve {id}` lets it run, and `callgate approvals deny {id}` refuses it")
        }
        (None, "session_halted") => {
            "`callgate sessions list` shows the halt, and `callgate sessions resume` ends it".to_owned()
        }
        (None, "grant_exceeded") => {
            let [session, tool] = [session, tool].map(quote_word);
            format!("`callgate grants create {session} {tool} 1` allows one more call")
        }
        _ => return None,
    };
    Some(format!("For the user alone, in a terminal: {lifting}."))
}

fn render_refusal(shows_failures: bool, session: &str, tool: &str, tool_result_json: &str) -> String {
    let said: Map<String, Value> = serde_json::from_str(tool_result_json).unwrap_or_default();
    let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let errors = said.get("errors").and_then(Value::as_array).into_iter().flatten();
    let errors = errors
        .filter_map(|error| Some(format!("{}: {}", error.get("field")?.as_str()?, error.get("message")?.as_str()?)));
    let message = text("message").unwrap_or_else(|| tool_result_json.to_owned());
    let next = said.get("suggested_next").and_then(Value::as_array);
    let next = next.map(|next| next.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "));
    let more = ["user_facing_hint", "next_action_hint", "warning"].into_iter().filter_map(text);
    let more = more.filter(|line| !message.contains(line.as_str()));
    let mut lines = vec![message.clone()];
    lines.extend(errors);
    lines.extend(more);
    lines.extend(next.map(|next| format!("What may help: {next}")));
    lines.extend(describe_lifting(&said, session, tool));
    // A new turn lifts what stopped this one.
    let is_stopped = ["circuit_break", "insisting_on_refused"].contains(&text("status").unwrap_or_default().as_str());
    lines.extend(is_stopped.then(|| "For the user: your next message lifts this.".to_owned()));
    if let Ok(ApprovedArguments { approved_arguments: Some(approved) }) = serde_json::from_str(tool_result_json) {
        let approved = format!("approved_arguments: {}", approved.get());
        // Half of them would be other ones.
        let fits = lines.iter().chain([&approved]).map(|line| line.encode_utf16().count() + 1).sum::<usize>();
        lines.push(if fits <= CHARS_MAX { approved } else { TOO_LONG.to_owned() });
    }
    if let Some(previous) = said.get("previous_result") {
        lines.push(match shows_failures {
            true => "This is no error. Take the following as the result of this call and go on.".to_owned(),
            false => "Take the following output as the result of this call and go on. Only its text tells whether the \
                      earlier call failed."
                .to_owned(),
        });
        lines.push(match previous.as_str() {
            Some("") if shows_failures => "previous_result: it succeeded and gave no text.".to_owned(),
            Some("") => "previous_result: it printed nothing.".to_owned(),
            Some(text) => format!("previous_result:\n{text}"),
            None => format!("previous_result:\n{previous}"),
        });
    }
    truncate_text(&lines.join("\n"))
}

/// A text truncated to the hosts' maximum.
#[must_use]
pub fn truncate_text(text: &str) -> String {
    let mut units = 0;
    let fits = |units: &mut usize, max: usize, c: char| {
        *units += c.len_utf16();
        *units <= max
    };
    if text.chars().all(|c| fits(&mut units, CHARS_MAX, c)) {
        return text.to_owned();
    }
    let mut units = 0;
    let kept: String = text.chars().take_while(|c| fits(&mut units, CHARS_MAX - CUT.len(), *c)).collect();
    kept + CUT
}

/// A word quoted for POSIX shells.
pub(crate) fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A prefix by whole characters.
pub(super) fn cut_bytes(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
