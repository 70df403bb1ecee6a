//! Reports of a server's tools to callgate: what the server says of each, with a digest of the whole.

use std::collections::BTreeMap;

use serde_json::Value;

use super::inventory::described;
use callgate_core::domain::{
    digest,
    ids::ToolName,
    tool_descriptions::{DESCRIPTION_BYTES_MAX, DescriptionTexts, ReportedTool, SCHEMA_BYTES_MAX},
};

/// The tools of a page of a list, the `result` of a response, by the names that policies have. The last of two tools of
/// one name counts, and one whose name policies cannot have is left out.
#[must_use]
pub(crate) fn reported_tools(page: &Value, named: impl Fn(&str) -> String) -> Vec<ReportedTool> {
    let mut reported: BTreeMap<ToolName, ReportedTool> = BTreeMap::new();
    for tool in page.get("tools").and_then(Value::as_array).into_iter().flatten() {
        let Some(name) = tool.get("name").and_then(Value::as_str).map(&named) else { continue };
        let Ok(name) = ToolName::parse("tool", &name) else { continue };
        let mut members = described(tool);
        let digest = digest::of_text(&Value::Object(members.clone()).to_string());
        let description = match members.remove("description") {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let (description, schema_json) = (cut(description, DESCRIPTION_BYTES_MAX), Value::Object(members).to_string());
        let schema_json = cut(schema_json, SCHEMA_BYTES_MAX);
        let texts = DescriptionTexts { digest, description, schema: schema_json };
        reported.insert(name.clone(), ReportedTool { tool: name, texts });
    }
    reported.into_values().collect()
}

fn cut(text: String, max: usize) -> String {
    // No row can hold NUL; its symbol is longer.
    let mut text = if text.contains('\0') { text.replace('\0', "\u{2400}") } else { text };
    text.truncate(text.floor_char_boundary(max));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(tool: &Value) -> ReportedTool {
        let mut tools = reported_tools(&json!({ "tools": [tool] }), |name| format!("mcp__t__{name}"));
        assert_eq!(tools.len(), 1, "{tools:?}");
        tools.remove(0)
    }

    #[test]
    fn every_difference_changes_the_digest_and_an_order_does_not() {
        let read = |text: &str| of(&serde_json::from_str(text).expect("JSON"));
        let tool = read(r#"{"name":"a","description":"Sends.","inputSchema":{"type":"object","title":"x"}}"#);
        assert_eq!((tool.tool.as_str(), tool.texts.description.as_str()), ("mcp__t__a", "Sends."));
        assert_eq!(tool.texts.schema, r#"{"inputSchema":{"title":"x","type":"object"}}"#);
        let again =
            read(r#"{"inputSchema":{"title":"x","type":"object"},"_meta":{"n":1},"description":"Sends.","name":"a"}"#);
        assert_eq!(tool.texts.digest, again.texts.digest);
        for other in [
            r#"{"name":"a","description":"Sends!","inputSchema":{"type":"object","title":"x"}}"#,
            r#"{"name":"a","description":"Sends.","inputSchema":{"type":"object","title":"y"}}"#,
            r#"{"name":"a","description":"Sends.","inputSchema":{"type":"object","title":"x"},"annotations":{}}"#,
        ] {
            assert_ne!(tool.texts.digest, read(other).texts.digest, "{other}");
        }
    }

    #[test]
    fn long_texts_are_cut_and_their_ends_still_count() {
        let long = |end: &str| of(&json!({"name": "a", "description": format!("{}{end}", "é".repeat(20_000))}));
        let (one, other) = (long("1"), long("2"));
        assert_eq!(
            (&one.texts.description, one.texts.description.len()),
            (&other.texts.description, DESCRIPTION_BYTES_MAX)
        );
        assert_ne!(one.texts.digest, other.texts.digest);
        let nul = of(&json!({"name": "a", "description": "\0".repeat(20_000)})).texts.description;
        assert!((DESCRIPTION_BYTES_MAX - 3..=DESCRIPTION_BYTES_MAX).contains(&nul.len()) && !nul.contains('\0'));
    }

    #[test]
    fn tools_without_a_usable_name_are_left_out_and_one_of_two_counts() {
        let page = json!({"tools": [{"name": "a\u{1}"}, {}, 7, {"name": "a"}, {"name": "a", "title": "b"}]});
        let tools = reported_tools(&page, str::to_owned);
        assert_eq!(tools.len(), 1);
        assert_eq!(tools[0].texts.schema, r#"{"title":"b"}"#);
        assert!(reported_tools(&json!("no list"), str::to_owned).is_empty());
    }
}
