//! Outcome of a call, read from its response.

use serde_json::Value;

use super::message::{Members, Message};

/// Outcome in a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// Success with its result: JSON or plain text.
    Success(String),
    /// Failure.
    Error {
        /// Message.
        message: String,
        /// Code of a protocol error.
        code: Option<String>,
    },
    /// Request for input; no outcome yet.
    Asks,
    /// Task with this id, whose result is fetched later.
    Task(String),
}

/// Reads the response to a call.
#[must_use]
pub fn read(response: &Message<'_>) -> ResponseOutcome {
    if let Some(error) = response.member("error") {
        let member = |name| Members::read(error).and_then(|members| members.get(name).map(str::to_owned));
        let message = member("message").and_then(|raw| serde_json::from_str(&raw).ok());
        return ResponseOutcome::Error { message: message.unwrap_or_else(|| error.to_owned()), code: member("code") };
    }
    let raw = response.member("result").unwrap_or("null");
    let Some(result) = Members::read(raw) else { return ResponseOutcome::Success(raw.to_owned()) };
    let kind = result.get("resultType").map(|raw| raw.trim_matches('"'));
    let task = result.get("task").and_then(Members::read);
    let task = task.and_then(|task| serde_json::from_str(task.get("taskId")?).ok());
    if let Some(task) = task.or_else(|| serde_json::from_str(result.get("taskId")?).ok()) {
        return ResponseOutcome::Task(task);
    }
    if kind.is_some_and(|kind| kind != "complete") {
        return ResponseOutcome::Asks;
    }
    let content = result.get("content");
    let texts = content.and_then(texts);
    match result.get("isError") {
        Some("true") => {
            let message = texts.or_else(|| content.map(str::to_owned)).unwrap_or_else(|| raw.to_owned());
            ResponseOutcome::Error { message, code: None }
        }
        _ => {
            let structured = result.get("structuredContent").filter(|raw| *raw != "null").map(str::to_owned);
            let given = structured.or(texts).or_else(|| content.map(str::to_owned));
            ResponseOutcome::Success(given.unwrap_or_else(|| raw.to_owned()))
        }
    }
}

/// The lines of a text-only content.
fn texts(content: &str) -> Option<String> {
    let blocks: Vec<Value> = serde_json::from_str(content).ok()?;
    let text = |block: &Value| {
        let is_text = block.get("type").and_then(Value::as_str) == Some("text");
        block.get("text").and_then(Value::as_str).filter(|_| is_text).map(str::to_owned)
    };
    blocks.iter().map(text).collect::<Option<Vec<String>>>().map(|texts| texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::{super::message, *};

    fn outcome(text: &str) -> ResponseOutcome {
        match message::read(text) {
            message::LineKind::One(message) => read(&message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_success_gives_what_the_model_reads() {
        let success = |text| match outcome(text) {
            ResponseOutcome::Success(text) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(success(r#"{"id":1,"result":{"content":[{"type":"text","text":"{\"a\":1}"}]}}"#), r#"{"a":1}"#);
        let two = r#"{"id":1,"result":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}"#;
        assert_eq!(success(two), "a\nb");
        let structured = r#"{"id":1,"result":{"content":[{"type":"text","text":"x"}],"structuredContent":{"n":12345678901234567890},"isError":false,"resultType":"complete"}}"#;
        assert_eq!(success(structured), r#"{"n":12345678901234567890}"#);
        let image = r#"{"id":1,"result":{"content":[{"type":"image","data":"AA=="}]}}"#;
        assert_eq!(success(image), r#"[{"type":"image","data":"AA=="}]"#);
        assert_eq!(success(r#"{"id":1,"result":7}"#), "7");
        assert_eq!(success(r#"{"id":1,"result":{"toolResult":"of old"}}"#), r#"{"toolResult":"of old"}"#);
    }

    #[test]
    fn a_failure_says_what_the_server_says() {
        let error = |text| match outcome(text) {
            ResponseOutcome::Error { message, code } => (message, code),
            other => panic!("{other:?}"),
        };
        let told = error(r#"{"id":1,"result":{"content":[{"type":"text","text":"ENOENT"}],"isError":true}}"#);
        assert_eq!(told, ("ENOENT".to_owned(), None));
        let protocol = error(r#"{"id":1,"error":{"code":-32602,"message":"Unknown tool"}}"#);
        assert_eq!(protocol, ("Unknown tool".to_owned(), Some("-32602".to_owned())));
        assert_eq!(error(r#"{"id":1,"error":"broken"}"#).0, "\"broken\"");
    }

    #[test]
    fn incomplete_result_has_no_outcome() {
        assert_eq!(
            outcome(r#"{"id":1,"result":{"resultType":"input_required","inputRequests":{}}}"#),
            ResponseOutcome::Asks
        );
        let task = ResponseOutcome::Task("t".to_owned());
        assert_eq!(outcome(r#"{"id":1,"result":{"task":{"taskId":"t","status":"working"}}}"#), task);
        assert_eq!(outcome(r#"{"id":1,"result":{"resultType":"task","taskId":"t","status":"working"}}"#), task);
    }
}
