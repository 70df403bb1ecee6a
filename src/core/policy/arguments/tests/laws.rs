//! Laws of validation for arbitrary arguments.

use proptest::prelude::*;

use super::*;

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "(0|[1-9][0-9]{0,2})(\\.[0-9])?",
        "\"[0-9.]{0,4}\"",
        "\"(true|FALSE|2026-11-20|single|cash|card|ABC)\"",
        Just(r#""{\"name\":1}""#.to_owned()),
        Just(r#""[1,\"a\"]""#.to_owned()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let names = prop::sample::select(vec!["name", "kind", "number", "amount", "city", "next", "other"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::btree_map(names, inner, 0..3).prop_map(|members| object(members.into_iter())),
        ]
    })
}

fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> = members.map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

fn arguments() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let names = prop::sample::select(vec![
        "check_in", "guests", "room", "floor", "tags", "price", "late", "guest", "note", "nights", "code", "pay",
        "stops", "other",
    ]);
    prop::collection::btree_map(names, value(), 0..8).prop_map(|members| {
        let mut members = members;
        members.entry("check_in").or_insert_with(|| "\"2026-11-20\"".to_owned());
        members.entry("guests").or_insert_with(|| "\"2\"".to_owned());
        members.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn repair_is_idempotent(members in arguments()) {
        let arguments = parse(&object(members.into_iter())).expect("valid");
        for unknown in [UnknownFields::BySchema, UnknownFields::Refuse, UnknownFields::Log] {
            let schema = compile(&schema(), unknown, Coercion::Repair);
            let first = schema.check(&arguments);
            prop_assert_eq!(first.repaired.is_some(), first.violations.is_empty() && !first.coerced.is_empty());
            if let Some(repaired) = &first.repaired {
                let second = schema.check(repaired);
                prop_assert_eq!(second, ArgumentCheck { unknown: first.unknown, ..ArgumentCheck::default() });
            }
        }
    }

    #[test]
    fn accepting_and_repairing_find_the_same(members in arguments()) {
        let arguments = parse(&object(members.into_iter())).expect("valid");
        let accepted = compile(&schema(), UnknownFields::Refuse, Coercion::AcceptAndLog).check(&arguments);
        let repaired = compile(&schema(), UnknownFields::Refuse, Coercion::Repair).check(&arguments);
        prop_assert_eq!(&accepted.repaired, &None);
        prop_assert_eq!(&accepted.accepted, &repaired.repaired);
        prop_assert_eq!(ArgumentCheck { accepted: None, ..accepted }, ArgumentCheck { repaired: None, ..repaired });
        let rejected = compile(&schema(), UnknownFields::Refuse, Coercion::Reject).check(&arguments);
        prop_assert!(rejected.coerced.is_empty());
    }

    #[test]
    fn the_order_of_names_does_not_count(members in arguments(), n in 0_usize..8) {
        let schema = compile(&schema(), UnknownFields::Refuse, Coercion::Repair);
        let sorted = schema.check(&parse(&object(members.clone().into_iter())).expect("valid"));
        let mut members = members;
        let n = n % members.len();
        members.rotate_left(n);
        prop_assert_eq!(schema.check(&parse(&object(members.into_iter())).expect("valid")), sorted);
    }

    #[test]
    fn every_violation_is_one_line_that_names_its_field(members in arguments()) {
        let arguments = parse(&object(members.into_iter())).expect("valid");
        let checked = compile(&schema(), UnknownFields::Refuse, Coercion::Reject).check(&arguments);
        prop_assert!(checked.violations.len() <= VIOLATIONS_MAX + 1);
        for violation in checked.violations {
            prop_assert!(violation.message.starts_with(&violation.field), "{:?}", violation);
            prop_assert!(!violation.message.contains('\n'));
        }
    }
}
