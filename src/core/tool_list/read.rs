//! Parser of tool lists, reporting all problems at once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{
    DESCRIPTION_BYTES_MAX, EntryFormat, Hints, LIST_BYTES_MAX, PROBLEMS_MAX, SCHEMA_BYTES_MAX, TOOLS_MAX, ToolDoc,
    ToolList,
};
use crate::domain::{
    ids::{Invalid, ToolName},
    json,
};

/// Parses a list of tools: an array, an object with `tools` or `functions`, the response to an MCP `tools/list` with
/// its envelope, or one tool. Formats may be mixed. `source` names the text in reports.
///
/// # Errors
/// All problems, each with the tool's index and the field: `tools[2].function.name`.
pub fn read(source: &str, text: &str) -> Result<ToolList, Vec<Invalid>> {
    let text = text.trim_start_matches('\u{feff}');
    if text.len() > LIST_BYTES_MAX {
        let problem = format!("is {} bytes long; at most {LIST_BYTES_MAX} can be read", text.len());
        return Err(vec![Invalid::new("the list", problem)]);
    }
    let entries = entries(text).map_err(|invalid| vec![invalid])?;
    if entries.len() > TOOLS_MAX {
        let problem = format!("are {}; at most {TOOLS_MAX} can be read at once", entries.len());
        return Err(vec![Invalid::new("tools", problem)]);
    }
    let mut list = ToolList::default();
    let (mut problems, mut lines) = (Vec::new(), LineCounter { text, at: 0, line: 1 });
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for (index, raw) in entries.into_iter().enumerate() {
        let line = lines.of(raw.get());
        match entry(&format!("tools[{index}]"), raw.get(), source, line) {
            Ok(ListEntry::Tool(tool)) => {
                if let Some(first) = names.insert(tool.name.clone(), index) {
                    let problem = format!("is {:?}, as tools[{first}] is: names must be distinct", tool.name);
                    problems.push(Invalid::new(format!("tools[{index}].name"), problem));
                }
                list.tools.push(tool);
            }
            Ok(ListEntry::BuiltIn(kind)) => list.built_in.push(kind),
            Err(invalid) => problems.push(invalid),
        }
        if problems.len() >= PROBLEMS_MAX {
            break;
        }
    }
    if problems.is_empty() { Ok(list) } else { Err(problems) }
}

/// Wrappers of a list.
#[derive(Deserialize)]
struct ListWrapper<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    functions: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

fn entries(text: &str) -> Result<Vec<&RawValue>, Invalid> {
    let whole: &RawValue =
        serde_json::from_str(text).map_err(|error| Invalid::new("the list", format!("is no JSON: {error}")))?;
    array(whole, 0).unwrap_or_else(|| {
        let problem = "is neither an array of tools nor an object with `tools`";
        Err(Invalid::new("the list", problem))
    })
}

/// The entries of a list, in any wrapper.
fn array(whole: &RawValue, depth: usize) -> Option<Result<Vec<&RawValue>, Invalid>> {
    if whole.get().starts_with('[') {
        let entries = serde_json::from_str(whole.get());
        return Some(entries.map_err(|error| Invalid::new("the list", format!("is no JSON: {error}"))));
    }
    let wrapped: ListWrapper<'_> = serde_json::from_str(whole.get()).ok()?;
    if let Some(tools) = wrapped.tools.or(wrapped.functions) {
        let problem = || Err(Invalid::new("tools", "must be an array of tools"));
        return Some(array(tools, 2).unwrap_or_else(problem));
    }
    if let Some(result) = wrapped.result.filter(|_| depth == 0) {
        return array(result, 1);
    }
    let value: Value = serde_json::from_str(whole.get()).ok()?;
    (depth == 0 && value.get("name").or(value.get("function")).is_some()).then(|| Ok(vec![whole]))
}

/// Incremental line counter, so that a long list is scanned once.
struct LineCounter<'a> {
    text: &'a str,
    at: usize,
    line: u64,
}

impl LineCounter<'_> {
    /// The first line of `part`, which must be after the previous one.
    fn of(&mut self, part: &str) -> u64 {
        let at = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let between = self.text.as_bytes().get(self.at..at).unwrap_or_default();
        self.line += between.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.at = self.at.max(at);
        self.line
    }
}

enum ListEntry {
    Tool(ToolDoc),
    BuiltIn(String),
}

fn entry(path: &str, raw: &str, source: &str, line: u64) -> Result<ListEntry, Invalid> {
    json::parse(raw).map_err(|problem| Invalid::new(path, problem))?;
    let value: Value = serde_json::from_str(raw).map_err(|error| Invalid::new(path, error.to_string()))?;
    let Value::Object(outer) = &value else {
        return Err(Invalid::new(path, "must be an object that describes a tool"));
    };
    let inner = outer.get("function").and_then(Value::as_object);
    let path = if inner.is_some() { format!("{path}.function") } else { path.to_owned() };
    let fields = inner.unwrap_or(outer);
    let kind = outer.get("type").and_then(Value::as_str);
    let (shape, key) = match kind {
        _ if inner.is_some() || fields.contains_key("parameters") => (EntryFormat::OpenAi, "parameters"),
        _ if fields.contains_key("input_schema") => (EntryFormat::Anthropic, "input_schema"),
        _ if fields.contains_key("inputSchema") => (EntryFormat::Mcp, "inputSchema"),
        Some("function") => (EntryFormat::OpenAi, "parameters"),
        Some(kind) => return Ok(ListEntry::BuiltIn(kind.to_owned())),
        None => {
            let problem = "has none of `function`, `parameters`, `input_schema`, `inputSchema`: it is no tool";
            return Err(Invalid::new(path, problem));
        }
    };
    let name = text(fields, &path, "name")?;
    let Some(name) = name else {
        return Err(Invalid::new(format!("{path}.name"), "is missing"));
    };
    ToolName::parse(&format!("{path}.name"), name)?;
    let description = text(fields, &path, "description")?.unwrap_or_default();
    if description.len() > DESCRIPTION_BYTES_MAX {
        let problem = format!("is {} bytes long; at most {DESCRIPTION_BYTES_MAX} are allowed", description.len());
        return Err(Invalid::new(format!("{path}.description"), problem));
    }
    Ok(ListEntry::Tool(ToolDoc {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: schema(fields, &format!("{path}.{key}"), key)?,
        hints: hints(outer, &path)?,
        shape,
        source: source.to_owned(),
        line,
    }))
}

fn text<'a>(fields: &'a Map<String, Value>, path: &str, key: &str) -> Result<Option<&'a str>, Invalid> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Invalid::new(format!("{path}.{key}"), "must be a string")),
    }
}

fn schema(fields: &Map<String, Value>, path: &str, key: &str) -> Result<Value, Invalid> {
    let mut schema = match fields.get(key) {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(_) => return Err(Invalid::new(path, "must be a JSON Schema: an object")),
    };
    let is_object = |kind: &Value| kind == "object";
    if !schema.get("type").is_none_or(is_object) {
        return Err(Invalid::new(format!("{path}.type"), "must be \"object\": arguments are one"));
    }
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX {
        return Err(Invalid::new(path, format!("is {bytes} bytes long; at most {SCHEMA_BYTES_MAX} are allowed")));
    }
    if super::nodes(&schema).len() >= super::NODES_MAX {
        let problem = format!("holds too many schemas; at most {} are allowed", super::NODES_MAX);
        return Err(Invalid::new(path, problem));
    }
    schema.sort_all_objects();
    Ok(schema)
}

fn hints(fields: &Map<String, Value>, path: &str) -> Result<Hints, Invalid> {
    let annotations = match fields.get("annotations") {
        None | Some(Value::Null) => return Ok(Hints::default()),
        Some(Value::Object(annotations)) => annotations,
        Some(_) => return Err(Invalid::new(format!("{path}.annotations"), "must be an object")),
    };
    let hint = |key: &str| match annotations.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(hint)) => Ok(Some(*hint)),
        Some(_) => Err(Invalid::new(format!("{path}.annotations.{key}"), "must be true or false")),
    };
    Ok(Hints {
        read_only: hint("readOnlyHint")?,
        destructive: hint("destructiveHint")?,
        idempotent: hint("idempotentHint")?,
        open_world: hint("openWorldHint")?,
    })
}

#[cfg(test)]
#[path = "read/tests.rs"]
mod tests;
