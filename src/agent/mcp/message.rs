//! JSON-RPC line: a message or a batch. Members are kept as raw text, so that nothing unread is lost. A line that this
//! parser rejects might be a call for a more lenient server, so such lines are distinguished ([`LineKind::Unreadable`]).

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// Method of a tool call.
pub const TOOLS_CALL: &str = "tools/call";
/// Method of a tool list.
pub const TOOLS_LIST: &str = "tools/list";
/// Notification that cancels a request.
pub const CANCELLED: &str = "notifications/cancelled";

/// Kind of a line.
#[derive(Debug)]
pub enum LineKind<'a> {
    /// One message.
    One(Message<'a>),
    /// A batch, of protocol versions up to 2025-03-26.
    Batch(Vec<Message<'a>>),
    /// No message, and not a possible call for any parser.
    Noise,
    /// Invalid here, and a possible call for a more lenient parser.
    Unreadable,
}

/// A request, a notification or a response.
#[derive(Debug)]
pub struct Message<'a> {
    /// Raw text.
    pub raw: &'a str,
    /// Request id, shared with its response; none for a notification.
    pub id: Option<Id>,
    /// None for a response.
    pub method: Option<String>,
    /// Raw members by name.
    members: Members<'a>,
}

/// Request id, normalized across JSON spellings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(String);

impl Id {
    /// A string or a number; none for others.
    #[must_use]
    pub fn read(raw: &str) -> Option<Self> {
        match serde_json::from_str(raw).ok()? {
            Value::Number(number) => {
                let whole = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15);
                Some(Self(whole.filter(|_| number.is_f64()).map_or_else(|| number.to_string(), |n| format!("{n:.0}"))))
            }
            Value::String(text) => Some(Self(Value::String(text).to_string())),
            _ => None,
        }
    }

    /// As JSON.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl<'a> Message<'a> {
    fn of(raw: &'a RawValue) -> Option<Self> {
        let members: Members<'a> = serde_json::from_str(raw.get()).ok()?;
        members.is_exact(&["id", "method", "params", "result", "error"]).then_some(())?;
        let method = members.get("method").map(serde_json::from_str::<String>);
        let method = method.transpose().ok()?;
        let id = members.get("id").and_then(Id::read);
        Some(Self { raw: raw.get(), id, method, members })
    }

    /// A raw member.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&'a str> {
        self.members.get(name)
    }

    /// True for a request or a notification of this method.
    #[must_use]
    pub fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    /// The request that this responds to. A message with a method is none: the other side's ids are independent.
    #[must_use]
    pub fn answers(&self) -> Option<&Id> {
        let is_answer = self.method.is_none() && (self.member("result").is_some() || self.member("error").is_some());
        self.id.as_ref().filter(|_| is_answer)
    }

    /// The request that this cancels.
    #[must_use]
    pub fn cancels(&self) -> Option<Id> {
        let params = self.member("params").filter(|_| self.is(CANCELLED))?;
        Id::read(Members::read(params)?.get("requestId")?)
    }
}

/// Parses a line.
#[must_use]
pub fn read(text: &str) -> LineKind<'_> {
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    let whole: Option<&RawValue> = serde_json::from_str(text).ok();
    let line = whole.and_then(|whole| match whole.get().as_bytes().first() {
        Some(b'[') => {
            let parts: Vec<&RawValue> = serde_json::from_str(whole.get()).ok()?;
            parts.into_iter().map(Message::of).collect::<Option<Vec<_>>>().map(LineKind::Batch)
        }
        Some(b'{') => Message::of(whole).map(LineKind::One),
        _ => Some(LineKind::Noise),
    });
    line.unwrap_or_else(|| if may_be_call(text) { LineKind::Unreadable } else { LineKind::Noise })
}

/// True if the method's name occurs, or an escape that could spell it.
fn may_be_call(text: &str) -> bool {
    text.contains('\\') || text.to_ascii_lowercase().contains("tools")
}

/// Raw members of an object, in order.
#[derive(Debug)]
pub struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// None unless an object with unique names, because parsers disagree on duplicates.
    #[must_use]
    pub fn read(raw: &'a str) -> Option<Self> {
        serde_json::from_str(raw).ok()
    }

    /// A raw member.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.get())
    }

    /// True unless a name differs from one of `names` in case only: some parsers ignore case.
    pub(super) fn is_exact(&self, names: &[&str]) -> bool {
        self.0.iter().all(|(key, _)| !names.iter().any(|name| key != name && key.eq_ignore_ascii_case(name)))
    }

    /// Names and values, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.get()))
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members: Vec<(String, &'de RawValue)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    // Message objects are small; large ones are arguments, which the server parses.
                    if members.len() == MEMBERS_MAX || members.iter().any(|(known, _)| *known == key) {
                        return Err(A::Error::custom("a name stands there twice, or there are too many"));
                    }
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Maximum number of parsed members per object; messages have five.
const MEMBERS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn describe_message(text: &str) -> &'static str {
        match read(text) {
            LineKind::One(message) if message.is(TOOLS_CALL) => "call",
            LineKind::One(_) => "one",
            LineKind::Batch(_) => "batch",
            LineKind::Noise => "noise",
            LineKind::Unreadable => "unreadable",
        }
    }

    #[test]
    fn a_call_is_known_however_it_is_written() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
            r#" { "params":{}, "method" : "tools\/call" } "#,
            r#"{"\u006dethod":"\u0074ools/call","id":"a"}"#,
            "{\"method\":\"tools/call\",\"params\":{\"name\":\"x\",\"arguments\":{\"a\":\"\\ud800\"}}}\r\n",
        ] {
            assert_eq!(describe_message(text), "call", "{text}");
        }
    }

    #[test]
    fn ambiguous_call_is_rejected() {
        for text in [
            r#"{"method":"ping","method":"tools/call"}"#,
            r#"{"Method":"tools/call","id":1}"#,
            r#"{"method":"tools/call","id":1,"params":{"x":NaN}}"#,
            r#"{"method":"tools/call","id":1,}"#,
            "\u{feff}{\"method\":\"tools/call\",\"id\":1}",
            r#"{"id":1}{"method":"tools/call","id":2}"#,
            r#"{"id":1} // {"m\u0065thod":"\u0074ools\u002fcall"}"#,
            "{\"method\":\"ping\",\"x\":\"\u{1}\",\"method\":\"TOOLS/call\"}",
            r#"[{"method":"ping"},{"method":"tools/call","method":"tools/call"}]"#,
        ] {
            assert_eq!(describe_message(text), "unreadable", "{text}");
        }
    }

    #[test]
    fn all_else_passes() {
        assert_eq!(describe_message("listening on stdio"), "noise");
        assert_eq!(describe_message("{\"method\":"), "noise");
        assert_eq!(describe_message("42"), "noise");
        assert_eq!(describe_message(""), "noise");
        assert_eq!(describe_message(r#"{"jsonrpc":"2.0","method":"notifications/x","params":[1]}"#), "one");
        assert_eq!(describe_message(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#), "one");
        assert_eq!(describe_message(r#"[{"method":"ping","id":1},{"id":2,"result":{}}]"#), "batch");
        assert_eq!(describe_message(&format!("{}{}", "[".repeat(9_000), "]".repeat(9_000))), "noise");
    }

    #[test]
    fn ids_are_equal_in_all_forms_and_responses_have_no_method() {
        assert_eq!(Id::read("1"), Id::read("1.0"));
        assert_eq!(Id::read(r#""a""#), Id::read(r#""\u0061""#));
        assert_ne!(Id::read("1"), Id::read(r#""1""#));
        assert_eq!(Id::read("9007199254740993").expect("a number").as_json(), "9007199254740993");
        assert_eq!(Id::read("null"), None);
        let one = |text| match read(text) {
            LineKind::One(message) => message,
            other => panic!("{other:?}"),
        };
        assert!(one(r#"{"id":1,"result":{}}"#).answers().is_some());
        assert!(one(r#"{"id":1,"method":"sampling/createMessage"}"#).answers().is_none());
        let cancels = one(r#"{"method":"notifications/cancelled","params":{"requestId":7,"reason":"no"}}"#);
        assert_eq!(cancels.cancels(), Id::read("7"));
    }
}
