//! Coverage of `tests/linear`: each public function of the pure modules with foreign text is in its table. A parameter
//! is foreign text by its type, unless its name is that of something short.

use std::sync::LazyLock;

use regex::Regex;

/// The table.
pub(crate) const ROWS: &str = include_str!("../linear/counted/rows.rs");
const FOLDERS: [&str; 3] = ["src/core/", "src/agent/hosts/", "src/agent/mcp/"];
/// Names of short values, or of texts by the owner or by callgate.
const SHORT: [&str; 27] = [
    "agent", "field", "from", "id", "key", "method", "name", "one", "other", "owner", "path", "pointer", "policy",
    "program", "region", "rule", "salt", "section", "source", "then", "tier", "to", "tool", "verb", "wait", "why",
    "word",
];

static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^ *pub (?:const )?fn (\w+)[^(]*\(([^)]*)").expect("a pattern"));
static FOREIGN: LazyLock<Regex> = LazyLock::new(|| {
    let text = r"&(?:'\w+ )?(?:mut )?(?:str|String|\[u8\]|ErrorReport|Report)\b|(?:^|\W)(?:Json|Value|Request)\b";
    Regex::new(&format!(r"(\w+): (?:Option<)?(?:{text}|&\[u8\])")).expect("a pattern")
});

/// The functions of a file that the rows do not name.
pub(crate) fn check_linear(path: &str, text: &str, rows: &str) -> Vec<String> {
    let Some(folder) = FOLDERS.iter().find(|folder| path.starts_with(*folder)) else { return Vec::new() };
    let file = path.strip_prefix(if *folder == "src/core/" { folder } else { "src/agent/" }).unwrap_or(path);
    let rows: Vec<&str> =
        rows.split(['"', ';', '\\']).filter_map(|row| row.trim().strip_prefix(&format!("{file}: "))).collect();
    let is_named = |name: &str| rows.iter().any(|row| row.split([' ', ',']).any(|known| known == name));
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let missing = FUNCTION.captures_iter(code).filter(|function| {
        let foreign = FOREIGN.captures_iter(&function[2]).any(|parameter| !SHORT.contains(&&parameter[1]));
        foreign && !is_named(&function[1])
    });
    missing.map(|function| format!("{path}: no row of tests/linear/counted/rows.rs names {}", &function[1])).collect()
}
