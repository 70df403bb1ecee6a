//! Tests of the validation of arguments by schemas.

mod laws;

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
            "floor": {"enum": [1, 2, 3]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "price": {"type": "number"},
            "late": {"type": "boolean"},
            "guest": {"type": "object", "properties": {"name": {"type": "string", "description": "Family name"}},
                "required": ["name"]},
            "note": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
            "nights": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            "code": {"type": "string", "pattern": "^[A-Z]{3}$", "examples": ["ABC"]},
            "pay": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "card"}, "number": {"type": "string"}},
                    "required": ["kind", "number"], "additionalProperties": false},
                {"type": "object", "properties": {"kind": {"const": "cash"}, "amount": {"type": "number"}},
                    "required": ["kind", "amount"], "additionalProperties": false}
            ]},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/stop"}}
        },
        "required": ["check_in", "guests"],
        "$defs": {"stop": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Where to stop"}, "next": {"$ref": "#/$defs/stop"}}}}
    })
}

fn compile(schema: &Value, unknown: UnknownFields, coercion: Coercion) -> ArgumentSchema {
    ArgumentSchema::compile(schema, unknown, coercion).unwrap_or_else(|problems| panic!("{schema}: {problems:?}"))
}

fn check(arguments: &str, unknown: UnknownFields, coercion: Coercion) -> ArgumentCheck {
    compile(&schema(), unknown, coercion).check(&parse(arguments).expect("valid"))
}

/// Required arguments with further members.
fn with(members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(r#"{{"check_in":"2026-11-20","guests":1{comma}{members}}}"#)
}

fn messages(checked: ArgumentCheck) -> Vec<String> {
    checked.violations.into_iter().map(|violation| violation.message).collect()
}

/// The only violation of a schema of one field `a`.
fn problem_of(field: Value, value: &str) -> String {
    let schema = json!({"type": "object", "properties": {"a": field}});
    let schema = compile(&schema, UnknownFields::Refuse, Coercion::Reject);
    let mut messages = messages(schema.check(&parse(&format!("{{\"a\":{value}}}")).expect("valid")));
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

#[test]
fn each_message_names_the_field_what_is_wrong_and_the_fix() {
    for (arguments, message) in [
        (r#"{"guests":1}"#.to_owned(), "check_in: is missing; give a date, for example 2026-11-20"),
        (
            r#"{"check_in":"tomorrow","guests":1}"#.to_owned(),
            "check_in: \"tomorrow\" is no date; give YYYY-MM-DD, for example 2026-11-20",
        ),
        (r#"{"check_in":"2026-11-20","guests":9}"#.to_owned(), "guests: 9 is too large; give 8 or less"),
        (
            r#"{"check_in":"2026-11-20","guests":"2"}"#.to_owned(),
            "guests: \"2\" must be a whole number (not a text); give 2",
        ),
        (
            r#"{"check_in":"2026-11-20","guests":"two"}"#.to_owned(),
            "guests: \"two\" must be a whole number (not a text)",
        ),
        (
            with(r#""room":"singel""#),
            "room: \"singel\" is not allowed; give one of \"single\", \"double\"; did you mean \"single\"?",
        ),
        (with(r#""guest":{}"#), "guest.name: is missing (Family name); give a text"),
        (with(r#""tags":["a",5]"#), "tags[1]: 5 must be a text; give \"5\""),
        (with(r#""gests":2"#), "gests: the tool takes no such field; did you mean guests?"),
        (with(r#""guest":{"name":"A","nam":1}"#), "guest.nam: the tool takes no such field; did you mean name?"),
        (with(r#""stops":[{"city":"B","zip":1}]"#), "stops[0].zip: the tool takes no such field; leave it out"),
        (with(r#""stops":[{"city":"B","next":{}}]"#), "stops[0].next.city: is missing (Where to stop); give a text"),
        (with(r#""code":"abc""#), "code: \"abc\" must match ^[A-Z]{3}$, for example \"ABC\""),
        (with(r#""note":"too long""#), "note: \"too long\" is too long; give at most 5 characters"),
        (with(r#""note":5"#), "note: 5 must be a text or null"),
        (with(r#""pay":{"kind":"cash"}"#), "pay.amount: is missing; give a number (not a text)"),
        (with(r#""pay":{"kind":"card","number":7}"#), "pay.number: 7 must be a text; give \"7\""),
        (with(r#""pay":"cash""#), "pay: \"cash\" must be an object"),
    ] {
        assert_eq!(messages(check(&arguments, UnknownFields::Refuse, Coercion::Reject)), [message], "{arguments}");
    }
    assert!(messages(check(&with(r#""tags":["a"]"#), UnknownFields::Refuse, Coercion::Reject)).is_empty());
}

#[test]
fn every_limit_says_what_to_give() {
    for (field, value, message) in [
        (json!({"exclusiveMinimum": 0}), "0", "a: 0 is too small; give more than 0"),
        (json!({"minimum": 1}), "-1e400", "a: -1e400 is too small; give 1 or more"),
        (
            json!({"maximum": 5}),
            "123456789012345678901234567890",
            "a: 123456789012345678901234567890 is too large; give 5 or less",
        ),
        (json!({"multipleOf": 5}), "7", "a: 7 is no multiple of 5; give one"),
        (json!({"minLength": 1}), "\"\"", "a: \"\" is too short; give 1 character or more"),
        (json!({"minItems": 1}), "[]", "a: [] has too few entries; give 1 or more"),
        (json!({"uniqueItems": true}), "[1,1]", "a: [1,1] has an entry twice; give each once"),
        (json!({"maxProperties": 1}), "{\"x\":1,\"y\":2}", "a: {\"x\":1,\"y\":2} has too many fields; give at most 1"),
        (json!({"const": "x"}), "\"y\"", "a: \"y\" must be \"x\""),
        (
            json!({"anyOf": [{"const": "x"}, {"const": "z"}]}),
            "\"y\"",
            "a: \"y\" is not allowed; give one of \"x\", \"z\"",
        ),
        (
            json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
            "1",
            "a: 1 fits several of the allowed forms; give the fields of one of them only",
        ),
        (json!(false), "1", "a: 1 is not allowed here; leave it out"),
        (json!({"format": "email"}), "\"x\"", "a: \"x\" is no e-mail address; give name@example.com"),
        (
            json!({"format": "date-time", "examples": ["2026-01-01T00:00:00Z"]}),
            "\"x\"",
            "a: \"x\" is no date and time; give RFC 3339 with a zone, for example \"2026-01-01T00:00:00Z\"",
        ),
        (json!({"type": ["integer", "null"]}), "\"x\"", "a: \"x\" must be null or a whole number (not a text)"),
        (json!({"type": "string", "default": "eu"}), "[]", "a: [] must be a text, for example \"eu\""),
        (
            json!({"not": {"type": "string"}}),
            "\"x\"",
            "a: \"x\" does not fit: {\"type\":\"string\"} is not allowed for it",
        ),
        (
            json!({"pattern": "^(a+)+$"}),
            &format!("\"{}b\"", "a".repeat(40)),
            "a: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\" must match ^(a+)+$",
        ),
        (
            json!({"pattern": "^(a|aa)+\\1c$"}),
            &format!("\"{}b\"", "a".repeat(40)),
            "a: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\" is too complex for the pattern; give a shorter text",
        ),
    ] {
        assert_eq!(problem_of(field.clone(), value), message, "{field}");
    }
    let long = problem_of(json!({"type": "integer"}), &format!("\"{}\"", "ä\\n".repeat(5_000)));
    assert!(long.chars().count() < 120 && !long.contains('\n'), "{long}");
}

#[test]
fn ten_violations_are_told_and_the_rest_counted() {
    let properties: Map<String, Value> = (10..22).map(|i| (format!("f{i}"), json!({"type": "integer"}))).collect();
    let schema = json!({"type": "object", "properties": properties});
    let schema = compile(&schema, UnknownFields::Refuse, Coercion::Reject);
    let arguments: Vec<String> = (10..22).rev().map(|i| format!("\"f{i}\":true")).collect();
    let found = schema.check(&parse(&format!("{{{}}}", arguments.join(","))).expect("valid")).violations;
    let fields: Vec<&str> = found.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, ["f10", "f11", "f12", "f13", "f14", "f15", "f16", "f17", "f18", "f19", ""]);
    assert_eq!(found[10].message, "2 more things are wrong; correct these first");
    assert_eq!(found[10].keyword, "more");
}

#[test]
fn unknown_fields_are_refused_or_told() {
    let closed = |mut schema: Value| {
        schema["additionalProperties"] = json!(false);
        schema
    };
    let open = |mut schema: Value| {
        schema["additionalProperties"] = json!({"type": "integer"});
        schema
    };
    let none = || json!({"type": "object", "properties": {}});
    let free = || json!({"type": "object"});
    let all_of = || {
        let parts = json!([{"properties": {"x": {}}}, {"$ref": "#/$defs/a"}]);
        json!({"allOf": parts, "$defs": {"a": {"properties": {"y": {}}}}})
    };
    let branch = || {
        let (closed, open) =
            (json!({"properties": {"x": {}}, "additionalProperties": false}), json!({"required": ["y"]}));
        json!({"anyOf": [closed, open], "properties": {"x": {}}})
    };
    let extra = with("\"extra\":2");
    let x = r#"{"x":1,"y":2}"#;
    for (schema, arguments, refused, told) in [
        (schema(), extra.as_str(), [0, 1, 0], [1, 0, 1]),
        (closed(schema()), &extra, [1, 1, 0], [0, 0, 1]),
        (open(schema()), &extra, [0, 0, 0], [0, 0, 0]),
        (none(), x, [0, 2, 0], [2, 0, 2]),
        (closed(free()), x, [2, 2, 0], [0, 0, 2]),
        (free(), x, [0, 0, 0], [0, 0, 0]),
        (all_of(), x, [0, 0, 0], [0, 0, 0]),
        (all_of(), r#"{"x":1,"z":2}"#, [0, 1, 0], [1, 0, 1]),
        (branch(), r#"{"x":1,"y":2}"#, [0, 0, 0], [0, 0, 0]),
        (branch(), r#"{"x":1,"y":2,"z":3}"#, [0, 1, 0], [1, 0, 1]),
        (branch(), r#"{"x":1,"z":3}"#, [1, 1, 0], [0, 0, 1]),
    ] {
        let modes = [UnknownFields::BySchema, UnknownFields::Refuse, UnknownFields::Log];
        for (i, unknown) in modes.into_iter().enumerate() {
            let checked = compile(&schema, unknown, Coercion::Reject).check(&parse(arguments).expect("valid"));
            assert_eq!(
                (checked.violations.len(), checked.unknown.len()),
                (refused[i], told[i]),
                "{unknown:?} {schema}"
            );
        }
    }
}

#[test]
fn values_of_another_type_are_read_or_repaired() {
    for (members, repaired) in [
        (r#""guests":"2""#, r#""guests":2"#),
        (r#""price":"1.50""#, r#""price":1.5"#),
        (r#""late":"True""#, r#""late":true"#),
        (r#""tags":5"#, r#""tags":["5"]"#),
        (r#""tags":"[\"a\",1]""#, r#""tags":["a","1"]"#),
        (r#""guest":"{\"name\":5}""#, r#""guest":{"name":"5"}"#),
        (r#""note":7"#, r#""note":"7""#),
        (r#""nights":"3""#, r#""nights":3"#),
        (r#""floor":"2""#, r#""floor":2"#),
        (r#""price":null"#, ""),
        (r#""pay":{"kind":"cash","amount":"9.5"}"#, r#""pay":{"kind":"cash","amount":9.5}"#),
        (r#""stops":{"city":7}"#, r#""stops":[{"city":"7"}]"#),
        (
            r#""stops":"[{\"city\":\"B\",\"next\":\"{\\\"city\\\":1}\"}]""#,
            r#""stops":[{"city":"B","next":{"city":"1"}}]"#,
        ),
    ] {
        let given = |members: &str| {
            let base = r#"{"check_in":"2026-11-20","guests":1"#;
            let base = if members.contains("guests") { r#"{"check_in":"2026-11-20""# } else { base };
            let comma = if members.is_empty() { "" } else { "," };
            format!("{base}{comma}{members}}}")
        };
        let accepted = check(&given(members), UnknownFields::BySchema, Coercion::AcceptAndLog);
        assert_eq!((accepted.violations.as_slice(), &accepted.repaired), (&[][..], &None), "{members}");
        let checked = check(&given(members), UnknownFields::BySchema, Coercion::Repair);
        assert_eq!(checked.coerced, accepted.coerced);
        let expected = parse(&given(repaired)).expect("valid");
        assert_eq!(checked.repaired, Some(expected), "{members}");
        let refused = check(&given(members), UnknownFields::BySchema, Coercion::Reject);
        assert!(!refused.violations.is_empty() && refused.coerced.is_empty(), "{members}");
    }
}

#[test]
fn lossy_coercion_is_rejected() {
    for (members, message) in [
        (r#""guests":"2.5""#, "guests: \"2.5\" must be a whole number (not a text)"),
        (r#""guests":"""#, "guests: \"\" must be a whole number (not a text)"),
        (r#""guests":null"#, "guests: null must be a whole number (not a text)"),
        (r#""guests":true"#, "guests: true must be a whole number (not a text)"),
        (r#""guests":"9""#, "guests: 9 is too large; give 8 or less"),
        (r#""guests":1,"price":"0.12345678901234567""#, "price: \"0.12345678901234567\" must be a number (not a text)"),
        (r#""guests":1,"late":1"#, "late: 1 must be true or false"),
        (r#""guests":1,"tags":{"a":1}"#, "tags: {\"a\":1} must be a list"),
        (r#""guests":1,"guest":"{}""#, "guest.name: is missing (Family name); give a text"),
    ] {
        let arguments = format!("{{\"check_in\":\"2026-11-20\",{members}}}");
        let checked = check(&arguments, UnknownFields::BySchema, Coercion::Repair);
        assert_eq!(checked.repaired, None, "{members}");
        assert_eq!(messages(checked), [message], "{members}");
    }
}

#[test]
fn coercions_are_reported_by_field() {
    let checked =
        check(&with(r#""stops":{"city":7},"late":"true","price":null"#), UnknownFields::BySchema, Coercion::Repair);
    let told: Vec<String> = checked.coerced.iter().map(|c| format!("{} {} -> {}", c.field, c.from, c.to)).collect();
    assert_eq!(
        told,
        [
            "late \"true\" -> true",
            "price null -> absent",
            "stops {\"city\":7} -> [{\"city\":7}]",
            "stops[0].city 7 -> \"7\"",
        ]
    );
}

#[test]
fn big_integers_keep_their_digits_when_arguments_are_repaired() {
    let schema = json!({"type": "object", "properties": {"id": {"type": "integer"}, "n": {"type": "integer"}}});
    let schema = compile(&schema, UnknownFields::Refuse, Coercion::Repair);
    let checked = schema.check(&parse(r#"{"id":"123456789012345678901234567890","n":"5"}"#).expect("valid"));
    let repaired = checked.repaired.map(|json| json.canonical());
    assert_eq!(repaired.as_deref(), Some(r#"{"id":123456789012345678901234567890,"n":5}"#));
}

#[test]
fn the_schemas_of_every_tool_list_load() {
    for (schema, arguments) in [
        // OpenAI, strict
        (
            json!({"type": "object", "properties": {"location": {"type": "string"}, "unit": {"type": ["string", "null"],
                "enum": ["C", "F", null]}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
                "required": ["location", "unit", "next"], "additionalProperties": false}),
            r#"{"location":"B","unit":null,"next":{"location":"C","unit":"C","next":null}}"#,
        ),
        // Anthropic
        (json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}), r#"{"q":"x"}"#),
        // MCP, as generators write it
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "title": "Args", "type": "object",
                "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null,
                "format": "int64"}},
                "definitions": {}}),
            r#"{"n":null}"#,
        ),
        (json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {}}), "{}"),
        (json!({"type": "object"}), "{}"),
        (json!({}), "{}"),
        (
            json!({"$id": "https://a.de/s", "$defs": {"b": {"$id": "b", "type": "integer"}},
                "properties": {"b": {"$ref": "b"}}}),
            r#"{"b":1}"#,
        ),
    ] {
        for unknown in [UnknownFields::BySchema, UnknownFields::Refuse, UnknownFields::Log] {
            let checked = compile(&schema, unknown, Coercion::Repair).check(&parse(arguments).expect("valid"));
            assert_eq!(checked, ArgumentCheck::default(), "{schema}");
        }
    }
}

#[test]
fn a_bad_schema_says_where() {
    for (schema, problem) in [
        (json!({"type": "objekt"}), "at /type: is \"objekt\"; did you mean object? It must be one of array, "),
        (json!({"type": "array"}), "must describe an object: arguments are one"),
        (json!("x"), "must describe an object: arguments are one"),
        (
            json!({"properties": {"a": {"required": true}}}),
            "at /properties/a/required: is true; it must be a list of field names, beside `properties`",
        ),
        (
            json!({"properties": {"a": {"pattern": "["}}}),
            "at /properties/a/pattern: is \"[\", which is not a regular expression",
        ),
        (
            json!({"properties": {"a": {"$ref": "https://example.com/a.json"}}}),
            "at /properties/a: $ref https://example.com/a.json leads out of the schema; copy what it names under $defs",
        ),
        (json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}), "leads out of the schema"),
        (json!({"properties": {"a": {"$ref": "#/$defs/b"}}}), "look at what its $ref names"),
        (json!({"$schema": "https://example.com/own"}), "is no JSON Schema that can be used"),
        (json!({"description": "x".repeat(SCHEMA_BYTES_MAX)}), "is too long: at most 262144 bytes"),
    ] {
        let problems = ArgumentSchema::compile(&schema, UnknownFields::BySchema, Coercion::Reject).expect_err("bad");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(problem) && !problems[0].contains('\n'), "{problems:?}");
    }
    let two = json!({"properties": {"a": {"type": "x"}, "b": {"minimum": "y"}}});
    let problems = ArgumentSchema::compile(&two, UnknownFields::BySchema, Coercion::Reject).expect_err("bad");
    assert_eq!(problems.len(), 2, "{problems:?}");
    let example = json!({"examples": [{"$ref": "https://example.com/a.json"}]});
    assert!(ArgumentSchema::compile(&example, UnknownFields::BySchema, Coercion::Reject).is_ok());
}

#[test]
fn schemas_that_refer_to_themselves_end() {
    let tree = json!({"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "n": {"type": "integer"}}});
    let deep = format!("{}{{\"n\":\"1\"}}{}", "{\"next\":".repeat(60), "}".repeat(60));
    let checked = compile(&tree, UnknownFields::Refuse, Coercion::Repair).check(&parse(&deep).expect("valid"));
    assert_eq!((checked.coerced.len(), checked.violations.len()), (1, 0));
    for schema in
        [json!({"$ref": "#"}), json!({"allOf": [{"$ref": "#"}]}), json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})]
    {
        let checked =
            compile(&schema, UnknownFields::Refuse, Coercion::Repair).check(&parse("{\"a\":1}").expect("valid"));
        assert_eq!(checked, ArgumentCheck::default(), "{schema}");
    }
    let nested = |levels: usize| (0..levels).fold(json!({}), |schema, _| json!({"properties": {"a": schema}}));
    compile(&nested(47), UnknownFields::Refuse, Coercion::Repair);
    let problems = ArgumentSchema::compile(&nested(200), UnknownFields::Refuse, Coercion::Repair).expect_err("deep");
    assert_eq!(problems, ["is nested deeper than 96 levels; name parts of it under $defs"]);
}
