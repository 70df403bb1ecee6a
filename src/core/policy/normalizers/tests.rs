//! Normalizers: examples and laws.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn apply(name: &str, value: &str) -> String {
    let normalizer = Normalizer::parse(name, Some("US")).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    normalizer.apply(&json::parse(value).expect("valid")).canonical()
}

/// Values, one a line, that have one form.
fn check(name: &str, values: &str, form: &str) {
    for value in values.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let value = if value.starts_with(['"', '[', '{']) { value.to_owned() } else { format!("{value:?}") };
        let form = if form.starts_with(['"', '[', '=']) { form.to_owned() } else { format!("{form:?}") };
        let form = form.strip_prefix('=').unwrap_or(&form);
        assert_eq!(apply(name, &value), form, "{name} {value}");
    }
}

/// Values, one a line, that a normalizer leaves alone.
fn leaves(name: &str, values: &str) {
    for value in values.lines().map(str::trim).filter(|line| !line.is_empty()) {
        check(name, value, value);
    }
}

#[test]
fn numbers_and_truth() {
    check("to_int", "100\n+0100\n1e2\n100.0\n\" 100 \"", "=100");
    check("to_int", "007", "=7");
    check("to_int", "9007199254740993", "=9007199254740993");
    leaves("to_int", "1.5\n1,000\n1_000\n0x10\n \nfive\n--1");
    check("to_number", "1.50\n+1.5\n01.5\n15e-1", "=1.5");
    leaves("to_number", "1,5\n.5\n1.\nNaN\nInfinity\n-");
    check("to_bool", "Yes\ntrue\n1\non\n\" TRUE \"", "=true");
    check("to_bool", "No\nfalse\n0\noff", "=false");
    leaves("to_bool", "y\n2\nenabled");
    assert_eq!(apply("to_bool", "1"), "true");
    assert_eq!(apply("to_int", "100.0"), "100");
    assert_eq!(apply("to_int", "{\"a\":\"1\"}"), "{\"a\":\"1\"}");
}

#[test]
fn texts() {
    check("to_upper", "eur\nEUR\nEur", "EUR");
    check("to_upper", "straße", "STRASSE");
    check("to_lower", "[\"A\",\"b\"]\n[\"a\",\"B\"]", "[\"a\",\"b\"]");
    check("trim", "\" a \"\na", "a");
    check("collapse_whitespace", "\" a \\n b\"\na b\n\"a\u{a0}\\tb\"", "a b");
    check("sort", "[2,1,2]\n[1,2]", "[1,2]");
    leaves("sort", "\"ba\"");
}

#[test]
fn phones() {
    check("e164", "+1-555-0199\n5550199\n555-0199\n(+1) 555 0199\ntel:+1-555-0199\n011-1-5550199", "+15550199");
    check("e164", "(650) 253-0000\n+1 650.253.0000\n1-650-253-0000\n16502530000", "+16502530000");
    check("e164(DE)", "030 123456\n+49 30 123456\n0049 30 123456\n+49 (0)30 123456", "+4930123456");
    check("e164(gb)", "020 7946 0958\n+44 20 7946 0958", "+442079460958");
    leaves("e164", "555-0199 ext 5\n+1-555-0199 x7\n1-800-FLOWERS\ncall 5550199\n5550199, 5550200\n1+5550199\n5");
    leaves("e164", "+1234567890123456789");
    assert_eq!(apply("e164", "5550199"), "\"+15550199\"");
    let without = Normalizer::parse("e164", None).expect("a name");
    let apply = |text: &str| without.apply(&Json::String(text.to_owned()));
    assert_eq!(apply("+1-555-0199"), Json::String("+15550199".to_owned()));
    assert_eq!(apply("5550199"), Json::String("5550199".to_owned()));
}

#[test]
fn days_and_instants() {
    check(
        "iso_date",
        "2026-11-20
         20261120
         2026/11/20
         2026.11.20
         20 Nov 2026
         20. November 2026
         20-Nov-2026
         20th Nov 2026
         November 20, 2026
         Nov 20th 2026
         Fri, 20 Nov 2026
         2026 Nov 20
         2026-11-20T23:30:00-05:00
         2026-11-20 08:00",
        "2026-11-20",
    );
    check("iso_date", "2026-1-5\n5 Jan 2026", "2026-01-05");
    leaves(
        "iso_date",
        "01/02/2026
         01-02-03
         20 Nov 26
         2026-13-01
         2026-02-30
         Mon, 20 Nov 2026
         next Friday
         1795000000
         20:15",
    );
    check(
        "iso_datetime_utc",
        "2026-11-20T09:00:00+01:00
         2026-11-20T09:00:00+0100
         2026-11-20T09:00+01
         2026-11-20 08:00
         2026-11-20 8:00:00 UTC
         2026-11-20T08:00:00.000Z
         20261120T080000Z
         20 Nov 2026, 08:00
         Fri, 20 Nov 2026 08:00:00 GMT
         2026-11-19t22:30:00-09:30",
        "2026-11-20T08:00:00Z",
    );
    check("iso_datetime_utc", "2026-11-20\n20 Nov 2026", "2026-11-20T00:00:00Z");
    check("iso_datetime_utc", "2026-11-20T08:00:00.5Z\n2026-11-20T08:00:00.500Z", "2026-11-20T08:00:00.500Z");
    leaves(
        "iso_datetime_utc",
        "2026-11-20T25:00:00Z
         2026-11-20T08:00:00.1234567891Z
         2026-11-20T08:00:00+01:00[Europe/Berlin]
         2026-11-20 08:00 PM
         20/11/2026 08:00
         08:00",
    );
}

#[test]
fn addresses() {
    check("email", "Anna@Example.COM\n\" anna@example.com \"\nmailto:anna@example.com", "anna@example.com");
    leaves("email", "Anna\nAnna <anna@example.com>\nAnna@\n@Example.com");
    check("url", "HTTPS://Example.com:443/a/../b#c\nhttps://example.com/%62", "https://example.com/b");
    check("url", "http://example.com\nhttp://EXAMPLE.com:80/\nhttp://example.com/#top", "http://example.com/");
    check("url", "http://a.de/?b=%7e1&a=%2f", "http://a.de/?b=~1&a=%2F");
    assert_ne!(apply("url", "\"http://a.de/?a=1&b=2\""), apply("url", "\"http://a.de/?b=2&a=1\""));
    leaves("url", "/a/B\nexample.com\nMailto:a@b.c\nC:\\Temp\nhttp://a.de/100%#x\nhttp://a.de/%zz#x");
    leaves("url", "http://a.de/%+1#x\nhttp://a.de/%-0#x");
    check("path", "/a//b/./c/..\n/a/b\n/a/b/\n/../a/b", "/a/b");
    check("path", "./src/../lib.rs\nlib.rs", "lib.rs");
    check("path", "a/..\n.\n./", ".");
    leaves("path", "../a\n../../a\n/");
}

#[test]
fn a_name_that_is_none_says_what_was_meant() {
    for (name, region, problem) in [
        ("to_uper", None, "to_uper is no normaliser; did you mean to_upper?"),
        ("iso-date", None, "iso-date is no normaliser; did you mean iso_date?"),
        ("e164(Utopia)", None, "Utopia is no region for e164; give one like US or DE"),
        ("e164", Some("XX"), "XX is no region for e164; give one like US or DE"),
        ("trim(US)", None, "trim takes no region; write trim"),
    ] {
        assert_eq!(Normalizer::parse(name, region).expect_err(name), problem);
    }
    assert!(Normalizer::parse("x", None).expect_err("none").contains("there are to_int, to_number, "));
    for (name, normalizer) in NAMES {
        assert_eq!(Normalizer::parse(name, None).map(Normalizer::name), Ok(name), "{normalizer:?}");
    }
}

#[test]
fn a_normaliser_fits_a_schema_or_says_why_not() {
    for (name, schema, problem) in [
        (
            "to_int",
            json!({"type": "object"}),
            "does not fit: the schema says object, and to_int takes integer, number, string",
        ),
        ("to_int", json!({"type": ["string", "null"]}), ""),
        ("to_int", json!({"type": "array", "items": {"type": "string"}}), ""),
        ("to_int", json!({"type": "array", "items": {"type": "object"}}), "does not fit: the schema says object"),
        ("to_upper", json!({"type": "array"}), ""),
        ("to_upper", json!({"type": "integer"}), "does not fit: the schema says integer"),
        ("to_upper", json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}), "the schema says integer or null"),
        ("to_upper", json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), ""),
        ("to_upper", json!({"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}), ""),
        ("to_upper", json!({"description": "anything"}), ""),
        ("e164", json!({"type": "integer"}), ""),
        ("sort", json!({"type": "array", "items": {"type": "object"}}), ""),
        ("sort", json!({"type": "string"}), "does not fit: the schema says string, and sort takes array"),
    ] {
        let found = Normalizer::parse(name, None).expect("a name").fits(Some(&schema));
        match problem {
            "" => assert_eq!(found, Ok(()), "{name} {schema}"),
            problem => assert!(found.clone().expect_err("no fit").contains(problem), "{name} {schema}: {found:?}"),
        }
    }
    assert_eq!(Normalizer::ToInt.fits(None), Ok(()));
}

fn canonical(fields: &[&str], normalizers: &[(&str, &str)], arguments: &str) -> String {
    let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
    let parse = |name: &str| Normalizer::parse(name, Some("US")).expect("a name");
    let normalizers: BTreeMap<String, Normalizer> =
        normalizers.iter().map(|(field, name)| ((*field).to_owned(), parse(name))).collect();
    Canonical::new(&fields, normalizers).text(&json::parse(arguments).expect("valid"))
}

#[test]
fn only_the_canonical_fields_count() {
    let (fields, normalizers) = (["n", "customer.mail"], [("customer.mail", "email"), ("n", "to_int")]);
    let text = |arguments: &str| canonical(&fields, &normalizers, arguments);
    let one = text(r#"{"n":1,"note":"x","customer":{"mail":"A@B.c","id":7}}"#);
    assert_eq!(one, r#"{"customer":{"mail":"a@b.c"},"n":1}"#);
    assert_eq!(one, text(r#"{"customer":{"mail":"a@b.c"},"n":"1","note":"y"}"#));
    assert_ne!(one, text(r#"{"customer":{"mail":"a@b.c"},"n":2}"#));
    assert_eq!(text(r#"{"note":"y"}"#), "{}");
}

#[test]
fn a_path_goes_through_lists_and_never_drops_what_it_cannot_enter() {
    let text = |arguments: &str| canonical(&["items.sku"], &[("items.sku", "to_upper")], arguments);
    let one = text(r#"{"items":[{"sku":"a1","n":1},{"sku":"b2","n":2}],"at":5}"#);
    assert_eq!(one, r#"{"items":[{"sku":"A1"},{"sku":"B2"}]}"#);
    assert_ne!(one, text(r#"{"items":[{"sku":"a1"},{"sku":"b3"}]}"#));
    assert_eq!(text(r#"{"items":["a1"]}"#), r#"{"items":["a1"]}"#);
    assert_eq!(canonical(&["a", "a.b"], &[], r#"{"a":{"b":1,"c":2}}"#), r#"{"a":{"b":1,"c":2}}"#);
    assert_eq!(canonical(&[], &[("b.c", "trim")], r#"{"a":1,"b":{"c":" x "}}"#), r#"{"a":1,"b":{"c":"x"}}"#);
}

fn values() -> impl Strategy<Value = Json> {
    let texts = prop_oneof![
        "\\PC{0,20}",
        "[+ 0-9().-]{0,16}",
        "(\\+|00)?[01]{1,5}[0-9]{0,12}",
        "20[0-9]{2}-[01][0-9]-[0-3][0-9]",
        "20[0-9]{2}-[01][0-9]-[0-3][0-9][ T][0-2][0-9]:[0-5][0-9](:[0-5][0-9](\\.[0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?",
        "((Fri|monday),? )?([0-3]?[0-9](th)?|Nov|march)[ -]([0-3]?[0-9](th)?|Nov|march),?[ -][12][0-9]{3}",
        "[a-zA-Z:/.?#=&% ]{0,24}",
        "(http|HTTPS|ftp|foo)://[a-zA-Z.]{1,6}(:[0-9]{1,3})?[a-z/.%0-9A-F?=&;#é ]{0,20}",
        "(mailto:| )*[A-Za-z]{0,3}@?[A-Z]{0,3}(mailto:)?",
        "[./a ]{0,12}",
        "(yes|NO|true|0|1|1e3|-0|007)",
    ];
    let text = texts.prop_filter_map("no JSON", |text| json::parse(&serde_json::to_string(&text).ok()?).ok());
    let leaf = prop_oneof![text, any::<i64>().prop_map(|n| Json::Number(n.to_string())), Just(Json::Null)];
    leaf.prop_recursive(2, 8, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Json::Array))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn twice_is_once(value in values(), region in prop::sample::select(vec!["DE", "US", "IT", "RU"])) {
        for (name, _) in NAMES {
            let normalizer = Normalizer::parse(name, Some(region)).expect("a name");
            let once = normalizer.apply(&value);
            prop_assert_eq!(&normalizer.apply(&once), &once, "{} {:?}", name, value);
            // The output of a normalizer is canonical JSON.
            prop_assert_eq!(json::parse(&once.canonical()), Ok(once), "{}", name);
        }
    }

    #[test]
    fn a_server_reads_the_form_of_a_url_as_it_reads_the_url(query in "[%+01aF&=]{1,8}") {
        let read = |query: &str| url::form_urlencoded::parse(query.as_bytes()).into_owned().collect::<Vec<_>>();
        let Json::String(form) = Normalizer::Url.apply(&Json::String(format!("http://a.de/?{query}"))) else {
            return Err(TestCaseError::fail("no text"));
        };
        let written = form.strip_prefix("http://a.de/?").expect("the same server");
        prop_assert_eq!(read(written), read(&query), "{} became {}", query, written);
    }

    #[test]
    fn no_normalizer_changes_nothing(value in values()) {
        let arguments = Json::Object(vec![("a".to_owned(), value)]);
        prop_assert_eq!(Canonical::default().text(&arguments), arguments.canonical());
    }

    #[test]
    fn the_order_of_names_does_not_count(value in values(), n in 0_usize..6) {
        let first = format!("\"a\":{}", value.canonical());
        let mut members = [first, "\"b\":\" X \"".to_owned(), "\"c\":{\"y\":1,\"x\":2}".to_owned()];
        let text = |members: &[String]| {
            canonical(&["a", "b", "c.x"], &[("a", "to_int"), ("b", "trim")], &format!("{{{}}}", members.join(",")))
        };
        let sorted = text(&members);
        members.rotate_left(n % 3);
        members.swap(0, n / 3);
        prop_assert_eq!(text(&members), sorted);
    }
}
