//! Lint command: arguments, files, exit codes, manuals.

use std::{fs, io::Write as _, process::Stdio};

use callgate_core::tool_list::lint::LINTS;

use super::tools;

#[test]
fn warnings_and_lints_are_denied_and_allowed() {
    for (words, code) in [
        (&["desk.anthropic.json"][..], 0),
        (&["desk.anthropic.json", "--deny", "warnings"], 1),
        (&["desk.anthropic.json", "--deny", "free_text_enum"], 1),
        (&["desk.anthropic.json", "--deny", "undo"], 0),
        (&["desk.anthropic.json", "--deny", "warnings", "--allow", "free_text_enum"], 0),
        (&["poor.openai.json"], 1),
        (&["poor.openai.json", "--allow", "money_minor_units", "--allow", "visible_idempotency_key"], 0),
    ] {
        let said = tools(&[&["lint"], words].concat());
        assert_eq!(said.code, Some(code), "{words:?}\n{}", said.out);
    }
}

#[test]
fn an_input_that_cannot_be_read_is_named_and_nothing_is_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("writable");
        path.to_string_lossy().into_owned()
    };
    let tool = r#"{"name": "a", "input_schema": {}}"#;
    let bad = file("bad.json", &format!("[{tool}, {{\"name\": \"b\"}}, {{\"input_schema\": {{}}}}]"));
    let no_json = file("no.json", "[{");
    let (one, two) = (file("one.json", &format!("[{tool}]")), file("two.json", &format!("[\n{tool}]")));
    let policy = file("policy.yaml", "policy_engine: {retry: {attempts: 0}}");
    let schema = r#"{"properties": {"a": {"type": "strng"}, "b": {"$ref": "https://example.com/b.json"}}}"#;
    let no_schema = file("schema.json", &format!("[{{\"name\": \"pay\", \"input_schema\": {schema}}}]"));
    let usable = tools(&["import", &no_schema, "--no-schemas"]);
    assert_eq!(usable.code, Some(0), "{}", usable.err);
    for (words, expected) in [
        (vec!["import", &no_schema], format!("callgate: {no_schema}:1: invalid schema of pay: ")),
        (vec!["lint", "absent.json"], "callgate: absent.json: cannot be read: ".to_owned()),
        (vec!["import", "absent.json"], "callgate: absent.json: cannot be read: ".to_owned()),
        (
            vec!["lint", &bad],
            format!(
                "callgate: {bad}: tools[1]: has none of `function`, `parameters`, `input_schema`, `inputSchema`: \
                 it is no tool\ncallgate: {bad}: tools[2].name: is missing\n"
            ),
        ),
        (vec!["lint", &no_json], format!("callgate: {no_json}: the list: is no JSON: EOF while parsing")),
        (
            vec!["lint", &one, &two],
            format!("callgate: {two}: line 2: a: is also a tool of {one}, line 1: names must be distinct\n"),
        ),
        (vec!["lint", &one, "--policy", &policy], "callgate: the policy cannot be used, 1 problem(s):".to_owned()),
        (vec!["lint", &one, "--allow", "undoo"], "callgate: unknown lint \"undoo\"; did you mean undo? ".to_owned()),
        (vec!["lint", "--explain", "zzz"], "callgate: unknown lint \"zzz\" (`callgate".to_owned()),
        (vec!["import", &one, "-o", "/absent/x.yaml"], "callgate: /absent/x.yaml: cannot be written: ".to_owned()),
        (vec!["lint"], "error: the following required arguments".to_owned()),
    ] {
        let said = tools(&words);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{words:?} {}", said.err);
        assert!(said.err.starts_with(&expected), "{words:?} said {}not {expected}", said.err);
    }
}

#[test]
fn manuals_are_printed() {
    let list = tools(&["lint", "--list"]);
    assert_eq!((list.code, list.out.lines().count()), (Some(0), LINTS.len()));
    for lint in LINTS {
        assert!(list.out.contains(&format!("\n{} ", lint.id)) || list.out.starts_with(lint.id), "{}", lint.id);
    }
    let manual = tools(&["lint", "--explain", "undo"]);
    let expected = "undo: a write whose description does not state whether it can be undone.\n\nReports a write";
    assert!(manual.code == Some(0) && manual.out.starts_with(expected), "{}", manual.out);
    assert!(manual.out.ends_with("\n\nSeverity: warning.\n"), "{}", manual.out);
}

#[test]
fn a_policy_is_written_to_a_file_and_a_list_read_from_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("policy.yaml");
    let words = ["import", "good.mcp.json", "--no-schemas", "-o", &path.to_string_lossy()];
    let said = tools(&words);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));
    let written = fs::read_to_string(&path).expect("written");
    assert_eq!(written, tools(&words[..3]).out, "the same bytes");
    let said = tools(&["lint", "good.mcp.json", "--policy", &path.to_string_lossy()]);
    assert_eq!(said.code, Some(0), "{}", said.err);

    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_callgate"))
        .args(["tools", "import", "-", "--no-schemas"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let list = fs::read(super::folder().join("good.mcp.json")).expect("a list");
    child.stdin.take().expect("piped").write_all(&list).expect("read");
    let output = child.wait_with_output().expect("ends");
    let out = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(out, written.replace("good.mcp.json", "-"));
}
