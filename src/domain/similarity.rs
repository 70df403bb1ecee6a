//! How alike the arguments of two calls of one tool are, field by field (learning.md section 6): numbers by relative
//! difference, texts by the trigrams they share, longer values weighing more.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Longest text that is compared, in characters: a longer one is compared by its beginning.
const TEXT_MAX: usize = 2_000;

/// How alike two arguments in canonical form are, 0 to 1; 1 when both are empty, 0 when one is no JSON object.
#[must_use]
pub fn of_arguments(a: &str, b: &str) -> f64 {
    let parse = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let (Some(a), Some(b)) = (parse(a), parse(b)) else { return 0.0 };
    let fields: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let (mut sum, mut weights) = (0.0, 0.0);
    for field in fields {
        let (a, b) = (a.get(field), b.get(field));
        let weight = 1.0 + (1.0 + a.map_or(0, length).max(b.map_or(0, length)) as f64).ln();
        let alike = a.zip(b).map_or(0.0, |(a, b)| of_values(a, b));
        (sum, weights) = (sum + weight * alike, weights + weight);
    }
    if weights > 0.0 { sum / weights } else { 1.0 }
}

/// The fields in which two arguments differ, by name; none when one is no JSON object.
#[must_use]
pub fn differing_fields(a: &str, b: &str) -> Vec<String> {
    let parse = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let (Some(a), Some(b)) = (parse(a), parse(b)) else { return Vec::new() };
    let fields: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    fields.into_iter().filter(|field| a.get(*field) != b.get(*field)).cloned().collect()
}

fn of_values(a: &Value, b: &Value) -> f64 {
    match (a, b) {
        (a, b) if a == b => 1.0,
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(0.0));
            let most = a.abs().max(b.abs());
            if most > 0.0 { (1.0 - (a - b).abs() / most).max(0.0) } else { 1.0 }
        }
        (Value::String(a), Value::String(b)) => of_texts(a, b),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
            of_texts(&a.to_string(), &b.to_string())
        }
        _ => 0.0,
    }
}

/// The share of trigrams that two texts have in common (Jaccard), 0 to 1.
#[must_use]
pub fn of_texts(a: &str, b: &str) -> f64 {
    let (a, b) = (trigrams(a), trigrams(b));
    let shared = a.intersection(&b).count();
    let all = a.len() + b.len() - shared;
    if all == 0 { 1.0 } else { shared as f64 / all as f64 }
}

/// The trigrams of a text, with an edge on both sides so that short texts have some too.
fn trigrams(text: &str) -> BTreeSet<[char; 3]> {
    let edge = ' ';
    let chars: Vec<char> = [edge, edge].into_iter().chain(text.chars().take(TEXT_MAX)).chain([edge]).collect();
    chars.windows(3).filter_map(|window| window.try_into().ok()).collect()
}

fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(_) | Value::Object(_) => value.to_string().len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(a: &str, b: &str) -> f64 {
        let (there, back) = (of_arguments(a, b), of_arguments(b, a));
        assert!((there - back).abs() < 1e-12, "{a} {b}");
        there
    }

    #[test]
    fn the_same_is_one_and_nothing_in_common_is_zero() {
        for text in ["{}", r#"{"a":1}"#, r#"{"a":"x","b":[1,2]}"#] {
            assert!((alike(text, text) - 1.0).abs() < 1e-12);
        }
        assert!(alike(r#"{"a":1}"#, r#"{"b":1}"#) < 1e-12);
        assert!(alike("no json", "{}") < 1e-12);
    }

    #[test]
    fn a_small_change_of_a_long_text_is_near_and_another_order_is_not() {
        let query = r#"{"city":"Hamburg","query":"cheap flights from Hamburg to Lisbon in the first week of May"}"#;
        let near = r#"{"city":"Hamburg","query":"cheap flights from Hamburg to Lisbon in the second week of May"}"#;
        assert!(alike(query, near) >= crate::domain::profile::NEAR, "{}", alike(query, near));
        assert!(alike(r#"{"order_id":"A-1001"}"#, r#"{"order_id":"B-7345"}"#) < 0.5);
        assert!(alike(r#"{"amount":100,"to":"anna"}"#, r#"{"amount":101,"to":"anna"}"#) > 0.9);
    }
}
