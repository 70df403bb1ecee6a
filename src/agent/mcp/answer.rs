//! Responses in place of a server's. A refusal is a result with `isError`, which models see, unlike a protocol error.

use serde_json::{Value, json};

use super::message::{Id, Members};

/// Error code for a lost server (JSON-RPC's server range).
const GONE: i64 = -32_000;
/// Error code for an unreadable line.
const UNREADABLE: i64 = -32_700;

/// A result with one text, and without structured content, which would have to match the tool's schema.
#[must_use]
pub fn result(id: &Id, text: &str, is_error: bool) -> String {
    let result = json!({"content": [{"type": "text", "text": text}], "isError": is_error});
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.as_json())
}

/// The text for the model about a call that was not judged, in the server's format.
#[must_use]
pub fn render_unjudged(status: &str, message: &str, retryable: bool) -> String {
    json!({"status": status, "message": message, "retryable": retryable}).to_string()
}

/// The response to a request of a lost server.
#[must_use]
pub fn render_server_lost(id: &Id, message: &str) -> String {
    error(Some(id), GONE, message)
}

/// The response to an unreadable line.
#[must_use]
pub fn unreadable(message: &str) -> String {
    error(None, UNREADABLE, message)
}

fn error(id: Option<&Id>, code: i64, message: &str) -> String {
    let error = json!({"code": code, "message": message});
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.map_or("null", Id::as_json))
}

/// Progress notification that keeps a client waiting. Progress must increase: in small steps, to stay below the
/// server's own.
#[must_use]
pub fn progress(token: &str, count: u32, message: &str) -> String {
    let (message, progress) = (Value::from(message), f64::from(count) / 1_000.0);
    let params = format!(r#"{{"progressToken":{token},"progress":{progress},"message":{message}}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#)
}

/// The response with a text appended to its content; none without content.
#[must_use]
pub fn with_note(response: &str, note: &str) -> Option<String> {
    let content = Members::read(Members::read(response)?.get("result")?)?.get("content")?;
    let is_empty = content.strip_prefix('[')?.trim_start().starts_with(']');
    let end = (content.as_ptr() as usize).checked_sub(response.as_ptr() as usize)? + content.len() - 1;
    let block = json!({"type": "text", "text": note});
    let comma = if is_empty { "" } else { "," };
    Some(format!("{}{comma}{block}{}", response.get(..end)?, response.get(end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_messages_of_the_protocol() {
        let id = Id::read(r#""a\"b""#).expect("an id");
        assert_eq!(
            result(&id, "{\"status\":\"x\"}", true),
            concat!(
                r#"{"jsonrpc":"2.0","id":"a\"b","result":{"content":[{"text":"{\"status\":\"x\"}","#,
                r#""type":"text"}],"isError":true}}"#
            )
        );
        assert_eq!(unreadable("no"), r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#);
        assert_eq!(
            progress("\"t\"", 2, "waits"),
            concat!(
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","#,
                r#""progress":0.002,"message":"waits"}}"#
            )
        );
    }

    #[test]
    fn a_note_joins_the_content_and_changes_nothing_else() {
        let response =
            r#"{"result":{"content":[ {"type":"text","text":"a"} ],"structuredContent":{"n":1e400}},"id":1}"#;
        let noted = concat!(
            r#"{"result":{"content":[ {"type":"text","text":"a"} ,{"text":"mind","type":"text"}],"#,
            r#""structuredContent":{"n":1e400}},"id":1}"#
        );
        assert_eq!(with_note(response, "mind").as_deref(), Some(noted));
        let empty = with_note(r#"{"id":1,"result":{"content":[ ]}}"#, "mind");
        assert_eq!(empty.as_deref(), Some(r#"{"id":1,"result":{"content":[ {"text":"mind","type":"text"}]}}"#));
        assert_eq!(with_note(r#"{"id":1,"result":{}}"#, "mind"), None);
        assert_eq!(with_note(r#"{"id":1,"error":{}}"#, "mind"), None);
    }
}
