//! What normalisers make of values.

use proptest::prelude::*;

use super::*;

fn apply(name: &str, value: &str) -> String {
    let normalizer = Normalizer::parse(name, Some("US")).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    normalizer.apply(&json::parse(value).expect("valid")).canonical()
}

#[test]
fn values_that_mean_the_same_meet() {
    for (name, values, form) in [
        ("to_int", &["100", "\"100\"", "\" +0100 \"", "\"1e2\""][..], "100"),
        ("to_int", &["\"1.5\""], "\"1.5\""),
        ("to_int", &["\"1,000\""], "\"1,000\""),
        ("to_number", &["\"1.50\"", "1.5", "\"01.5\""], "1.5"),
        ("to_bool", &["\"Yes\"", "true", "1", "\"on\""], "true"),
        ("to_upper", &["\"eur\"", "\"EUR\""], "\"EUR\""),
        ("to_lower", &["[\"A\",\"b\"]"], "[\"a\",\"b\"]"),
        ("trim", &["\" a \"", "\"a\""], "\"a\""),
        ("collapse_whitespace", &["\" a \\n b\"", "\"a b\""], "\"a b\""),
        ("e164", &["\"+1-555-0199\"", "\"5550199\"", "\"555-0199\""], "\"+15550199\""),
        ("e164(DE)", &["\"030 123456\"", "\"+49 30 123456\""], "\"+4930123456\""),
        ("iso_date", &["\"2026-11-20\"", "\"20 Nov 2026\"", "\"November 20, 2026\"", "\"20261120\""], "\"2026-11-20\""),
        ("iso_date", &["\"01/02/2026\""], "\"01/02/2026\""),
        (
            "iso_datetime_utc",
            &["\"2026-11-20T09:00:00+01:00\"", "\"2026-11-20 08:00\"", "\"2026-11-20T08:00:00.000Z\""],
            "\"2026-11-20T08:00:00Z\"",
        ),
        ("email", &["\" Anna@Example.COM\"", "\"mailto:anna@example.com\""], "\"anna@example.com\""),
        ("url", &["\"HTTPS://Example.com:443/a/../b#c\"", "\"https://example.com/b\""], "\"https://example.com/b\""),
        ("sort", &["[2,1,2]", "[1,2]"], "[1,2]"),
        ("path", &["\"/a//b/./c/..\"", "\"/a/b\""], "\"/a/b\""),
        ("path", &["\"./src/../lib.rs\"", "\"lib.rs\""], "\"lib.rs\""),
    ] {
        for value in values {
            assert_eq!(apply(name, value), form, "{name} {value}");
        }
    }
}

#[test]
fn a_name_that_is_none_says_what_was_meant() {
    assert!(Normalizer::parse("to_uper", None).expect_err("none").contains("did you mean to_upper?"));
    assert!(Normalizer::parse("e164(Utopia)", None).expect_err("none").contains("no region"));
    assert!(Normalizer::parse("trim(US)", None).is_err());
    let object = serde_json::json!({"type": "object"});
    assert!(Normalizer::ToInt.fits(Some(&object)).is_err());
    assert!(Normalizer::Sort.fits(Some(&serde_json::json!({"type": "array"}))).is_ok());
}

#[test]
fn only_the_canonical_fields_count() {
    let normalizers = BTreeMap::from([("customer.mail".to_owned(), Normalizer::Email)]);
    let canonical = Canonical::new(&["n".to_owned(), "customer.mail".to_owned()], normalizers);
    let text = |arguments: &str| canonical.text(&json::parse(arguments).expect("valid"));
    let one = text(r#"{"n":1,"note":"x","customer":{"mail":"A@B.c","id":7}}"#);
    assert_eq!(one, r#"{"customer":{"mail":"a@b.c"},"n":1}"#);
    assert_eq!(one, text(r#"{"customer":{"mail":"a@b.c"},"n":1.0,"note":"y"}"#));
    assert_ne!(one, text(r#"{"customer":{"mail":"a@b.c"},"n":2}"#));
}

fn values() -> impl Strategy<Value = Json> {
    let texts = prop_oneof![
        "\\PC{0,20}",
        "[+ 0-9().-]{0,16}",
        "[0-9]{4}-[01][0-9]-[0-3][0-9]([ T][0-2][0-9]:[0-5][0-9](:[0-5][0-9])?Z?)?",
        "[a-zA-Z:/.?#=&% ]{0,24}",
        "(yes|NO|true|0|1|1e3|-0|007)",
    ];
    let text = texts.prop_filter_map("no JSON", |text| json::parse(&serde_json::to_string(&text).ok()?).ok());
    let leaf = prop_oneof![text, any::<i32>().prop_map(|n| Json::Number(n.to_string())), Just(Json::Null)];
    leaf.prop_recursive(2, 8, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Json::Array))
}

proptest! {
    #[test]
    fn twice_is_once(value in values()) {
        for (name, _) in NAMES {
            let normalizer = Normalizer::parse(name, Some("DE")).expect("a name");
            let once = normalizer.apply(&value);
            let twice = normalizer.apply(&once);
            prop_assert_eq!(&twice, &once, "{} {:?}", name, value);
        }
    }

    #[test]
    fn nothing_said_is_nothing_changed(value in values()) {
        let arguments = Json::Object(vec![("a".to_owned(), value)]);
        prop_assert_eq!(Canonical::default().text(&arguments), arguments.canonical());
    }
}
