//! Tool call message: the parts to judge, and replacement of its arguments.

use super::message::{Id, Members, Message};

/// Key of Claude Code's tool use id, which its hooks receive, too.
const TOOL_USE_ID: &str = "claudecode/toolUseId";

/// A `tools/call`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsCall {
    /// Id of the request.
    pub id: Id,
    /// Tool name on its server.
    pub tool: String,
    /// Arguments as written; empty for none.
    pub arguments: String,
    /// Call id in the client's own hooks.
    pub tool_use_id: Option<String>,
    /// Progress token as JSON, if the client wants progress.
    pub progress_token: Option<String>,
    /// True when it continues a call that asked for input.
    pub continues: bool,
    /// True when its result is fetched later, by `tasks/result`.
    pub is_task: bool,
}

impl ToolsCall {
    /// Reads the parts to judge.
    ///
    /// # Errors
    /// The reason why it cannot be judged.
    pub fn read(message: &Message<'_>) -> Result<Self, &'static str> {
        let id = message.id.clone().ok_or("it has no id that an answer could carry")?;
        let params = message.member("params").and_then(Members::read);
        let params = params.ok_or("its params are not an object, or have a duplicate name")?;
        if !params.is_exact(&["name", "arguments", "_meta"]) {
            return Err("a name in its params differs in case");
        }
        let tool = params.get("name").and_then(text).ok_or("its params name no tool")?;
        let arguments = params.get("arguments").filter(|raw| *raw != "null").unwrap_or_default().to_owned();
        let meta = params.get("_meta").and_then(Members::read);
        let meta = |name| meta.as_ref().and_then(|meta| meta.get(name));
        Ok(Self {
            id,
            tool,
            arguments,
            tool_use_id: meta(TOOL_USE_ID).and_then(text),
            progress_token: meta("progressToken").map(str::to_owned),
            continues: params.get("inputResponses").or(params.get("requestState")).is_some(),
            is_task: params.get("task").is_some(),
        })
    }
}

fn text(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

/// The message with other arguments, otherwise unchanged.
#[must_use]
pub fn with_arguments(message: &str, arguments: &str) -> Option<String> {
    let params = Members::read(message)?.get("params")?;
    let at = |part: &str| (part.as_ptr() as usize).checked_sub(message.as_ptr() as usize);
    let (start, end, new) = match Members::read(params)?.get("arguments") {
        Some(old) => (at(old)?, at(old)? + old.len(), arguments.to_owned()),
        // A call has a name, so that more members follow.
        None => (at(params)? + 1, at(params)? + 1, format!("\"arguments\":{arguments},")),
    };
    Some(format!("{}{new}{}", message.get(..start)?, message.get(end..)?))
}

/// The arguments, an object as written, with one added or replaced.
#[must_use]
pub fn with_argument(arguments: &str, name: &str, value: &str) -> Option<String> {
    let old = Members::read(if arguments.is_empty() { "{}" } else { arguments })?;
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let kept = old.iter().filter(|(key, _)| *key != name).map(|(key, value)| format!("{}:{value}", quoted(key)));
    let parts: Vec<String> = kept.chain([format!("{}:{}", quoted(name), quoted(value))]).collect();
    Some(format!("{{{}}}", parts.join(",")))
}

#[cfg(test)]
mod tests {
    use super::{super::message, *};

    fn call(text: &str) -> Result<ToolsCall, &'static str> {
        match message::read(text) {
            message::LineKind::One(message) => ToolsCall::read(&message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn judged_call_is_parsed() {
        let text = r#"{"id":"a","method":"tools/call","params":{"name":"send","arguments":{"n":12345678901234567890},
            "_meta":{"progressToken":3,"claudecode/toolUseId":"toolu_1"},"requestState":"s"}}"#;
        let read = call(text).expect("a call");
        assert_eq!((read.tool.as_str(), read.arguments.as_str()), ("send", r#"{"n":12345678901234567890}"#));
        assert_eq!((read.tool_use_id.as_deref(), read.progress_token.as_deref()), (Some("toolu_1"), Some("3")));
        assert!(read.continues && !read.is_task);
    }

    #[test]
    fn malformed_call_is_rejected() {
        for text in [
            r#"{"method":"tools/call","params":{"name":"x"}}"#,
            r#"{"id":null,"method":"tools/call","params":{"name":"x"}}"#,
            r#"{"id":1,"method":"tools/call"}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":"x","name":"y"}}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":"x","Name":"y"}}"#,
            r#"{"id":1,"method":"tools/call","params":{"name":7}}"#,
        ] {
            assert!(call(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arguments_change_and_nothing_else() {
        let text = r#"{"id":1, "params" : {"name":"x" ,"arguments": {"a":"1"}, "_meta":{}},"method":"tools/call"}"#;
        let expected = r#"{"id":1, "params" : {"name":"x" ,"arguments": {"a":1}, "_meta":{}},"method":"tools/call"}"#;
        assert_eq!(with_arguments(text, r#"{"a":1}"#).as_deref(), Some(expected));
        let without = r#"{"id":1,"params":{"name":"x"}}"#;
        assert_eq!(with_arguments(without, "{}").as_deref(), Some(r#"{"id":1,"params":{"arguments":{},"name":"x"}}"#));
        assert_eq!(with_argument("", "key", "k").as_deref(), Some(r#"{"key":"k"}"#));
        let with = with_argument(r#"{"n":12345678901234567890,"key":"forged"}"#, "key", "k");
        assert_eq!(with.as_deref(), Some(r#"{"n":12345678901234567890,"key":"k"}"#));
    }
}
