//! Schemas against arguments.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::domain::json::parse;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "check_in": {"type": "string", "format": "date"},
            "guests": {"type": "integer", "minimum": 1, "maximum": 8},
            "room": {"enum": ["single", "double"]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "price": {"type": "number"},
            "late": {"type": "boolean"},
            "guest": {"type": "object", "properties": {"name": {"type": "string", "description": "Family name"}},
                "required": ["name"]}
        },
        "required": ["check_in", "guests"]
    })
}

fn check(arguments: &str, unknown: UnknownFields, coercion: Coercion) -> Checked {
    let schema = ArgumentSchema::compile(&schema(), unknown, coercion).expect("a schema");
    schema.check(&parse(arguments).expect("valid"))
}

fn messages(arguments: &str) -> Vec<String> {
    let checked = check(arguments, UnknownFields::Refuse, Coercion::Reject);
    checked.violations.into_iter().map(|violation| violation.message).collect()
}

#[test]
fn each_message_names_the_field_what_is_wrong_and_the_fix() {
    for (arguments, message) in [
        ("{\"guests\":1}", "check_in: is missing; give a date, for example 2026-11-20"),
        (
            r#"{"check_in":"tomorrow","guests":1}"#,
            "check_in: \"tomorrow\" is no date; give YYYY-MM-DD, for example 2026-11-20",
        ),
        (r#"{"check_in":"2026-11-20","guests":9}"#, "guests: 9 is too large; give 8 or less"),
        (r#"{"check_in":"2026-11-20","guests":"2"}"#, "guests: \"2\" must be a whole number (not a text)"),
        (
            r#"{"check_in":"2026-11-20","guests":1,"room":"singel"}"#,
            "room: \"singel\" is not allowed; give one of \"single\", \"double\"; did you mean \"single\"?",
        ),
        (r#"{"check_in":"2026-11-20","guests":1,"guest":{}}"#, "guest.name: is missing (Family name); give a text"),
        (r#"{"check_in":"2026-11-20","guests":1,"tags":["a",5]}"#, "tags[1]: 5 must be a text"),
        (
            r#"{"check_in":"2026-11-20","guests":1,"gests":2}"#,
            "gests: the tool takes no such field; did you mean guests?",
        ),
    ] {
        assert_eq!(messages(arguments), [message], "{arguments}");
    }
    assert!(messages(r#"{"check_in":"2026-11-20","guests":1,"tags":["a"]}"#).is_empty());
}

#[test]
fn unknown_fields_are_refused_or_told() {
    let arguments = r#"{"check_in":"2026-11-20","guests":1,"extra":2}"#;
    for (unknown, violations, told) in
        [(UnknownFields::Refuse, 1, 0), (UnknownFields::Log, 0, 1), (UnknownFields::BySchema, 0, 1)]
    {
        let checked = check(arguments, unknown, Coercion::Reject);
        assert_eq!((checked.violations.len(), checked.unknown.len()), (violations, told), "{unknown:?}");
    }
    let mut strict = schema();
    strict["additionalProperties"] = json!(false);
    for (unknown, violations) in [(UnknownFields::BySchema, 1), (UnknownFields::Log, 0)] {
        let compiled = ArgumentSchema::compile(&strict, unknown, Coercion::Reject).expect("a schema");
        let checked = compiled.check(&parse(arguments).expect("valid"));
        assert_eq!(checked.violations.len(), violations, "{unknown:?}");
    }
}

#[test]
fn values_of_another_type_are_read_or_repaired() {
    let arguments = r#"{"check_in":"2026-11-20","guests":"2","tags":"a","price":"1.50","late":"true",
        "guest":"{\"name\":5}","room":null}"#;
    let accepted = check(arguments, UnknownFields::BySchema, Coercion::AcceptAndLog);
    assert_eq!(accepted.repaired, None);
    let repaired = check(arguments, UnknownFields::BySchema, Coercion::Repair);
    let text = repaired.repaired.map(|json| json.canonical()).unwrap_or_default();
    assert_eq!(
        text,
        r#"{"check_in":"2026-11-20","guest":{"name":"5"},"guests":2,"late":true,"price":1.5,"room":null,"tags":["a"]}"#
    );
    let fields: Vec<&str> = accepted.coerced.iter().map(|field| field.field.as_str()).collect();
    for field in ["guests", "tags", "price", "late", "guest", "guest.name"] {
        assert!(fields.contains(&field), "{field} in {fields:?}");
    }
    let lossy = check(r#"{"check_in":"2026-11-20","guests":"2.5"}"#, UnknownFields::BySchema, Coercion::Repair);
    assert_eq!(lossy.violations.len(), 1);
}

#[test]
fn a_bad_schema_says_so() {
    let compile = |schema: Value| ArgumentSchema::compile(&schema, UnknownFields::BySchema, Coercion::Reject);
    for schema in [
        json!({"type": "objekt"}),
        json!({"type": "array"}),
        json!("x"),
        json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}),
    ] {
        assert!(compile(schema.clone()).is_err(), "{schema}");
    }
}

fn arguments() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null".to_owned()),
        "[0-9]{1,3}",
        "\"[0-9.]{0,4}\"",
        Just("\"true\"".to_owned()),
        Just("[1,\"a\"]".to_owned()),
        Just("{\"name\":1}".to_owned()),
        Just("\"2026-11-20\"".to_owned()),
    ];
    let names = prop::sample::select(vec!["check_in", "guests", "room", "tags", "price", "late", "guest", "other"]);
    prop::collection::btree_map(names, value, 0..8).prop_map(|members| {
        let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

proptest! {
    #[test]
    fn what_was_repaired_needs_no_repair(text in arguments()) {
        let Ok(arguments) = parse(&text) else { return Ok(()) };
        let schema = ArgumentSchema::compile(&schema(), UnknownFields::BySchema, Coercion::Repair).expect("a schema");
        let first = schema.check(&arguments);
        if let Some(repaired) = &first.repaired {
            let second = schema.check(repaired);
            prop_assert_eq!(second.repaired, None);
            prop_assert_eq!(second.violations, first.violations);
        }
    }
}
