//! Providers' answers to repeated identical calls, and the call at which the rule stops each.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};

use crate::{
    domain::{finding::Decision, json, json::Json},
    rules::testing::play,
};

const CREATES: &str = include_str!("answers/creates.txt");
const LOOK_ALIKES: &str = include_str!("answers/look_alikes.txt");
const READS: &str = include_str!("answers/reads.txt");
/// Calls per row, a second apart.
const CALLS: u64 = 40;
/// Start of a story.
const BEGIN: i64 = 1_700_000_000;

struct ResultRow<'t> {
    name: &'t str,
    call: &'t str,
    answer: &'t str,
    expected: &'t str,
}

fn rows(file: &'static str) -> Vec<ResultRow<'static>> {
    let blocks = file.split("\n\n").skip(1);
    let row = |block: &'static str| {
        let lines: Vec<&str> = block.trim().lines().collect();
        let [name, call, answer, expected] = lines[..] else { panic!("{block}") };
        ResultRow { name, call, answer, expected: expected.trim_start_matches("=> ") }
    };
    blocks.map(row).collect()
}

/// Deterministic pseudo-random numbers.
struct Lot(u64);

impl Lot {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn text(&mut self, alphabet: &[u8], length: u64) -> String {
        let mut draw = || char::from(alphabet[self.next() as usize % alphabet.len()]);
        (0..length).map(|_| draw()).collect()
    }
}

const DIGITS: &[u8] = b"0123456789";
const HEX: &[u8] = b"0123456789abcdef";
const CAPITALS: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZ";
const MIXED: &[u8] = b"a1b2c3d4e5f6g7h8i9jklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0";
const CODES: &[u8] = b"A1B2C3D4E5F6G7H8J9KLMNPQRSTUVWXYZ";
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

/// The `nth` answer, with its placeholders filled.
fn fill_template(template: &str, nth: u64, lot: &mut Lot) -> String {
    let mut parts = template.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    let now = BEGIN + nth as i64;
    let at = |seconds: i64| DateTime::<Utc>::from_timestamp(seconds, 0).expect("a time");
    for part in parts {
        let word = part.len() - part.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        // `$n.json`, `$u.`: the longest mark that is known.
        let names =
            ["epin", "epoch", "now", "rfc", "in", "a", "h", "C", "L", "d", "w", "n", "u", "p", "s", "b", "m", "k"];
        let name = names.into_iter().find(|name| part[..word].starts_with(name)).expect("a known mark");
        let rest = &part[name.len()..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let takes = matches!(name, "epin" | "in" | "a" | "h" | "C" | "L" | "d" | "s");
        let (size, rest) = if takes { rest.split_at(digits) } else { ("", rest) };
        let size: u64 = size.parse().unwrap_or(6);
        let value = match name {
            "epoch" => now.to_string(),
            "epin" => (now + size as i64).to_string(),
            "now" => at(now).to_rfc3339(),
            "rfc" => at(now).to_rfc2822(),
            "in" => at(now + size as i64).to_rfc3339(),
            // With a digit and a letter, as nearly all that are drawn have.
            "a" => format!("{}4{}", lot.text(MIXED, 2.min(size - 1)), lot.text(MIXED, size.saturating_sub(3))),
            "h" => format!("a4{}", lot.text(HEX, size - 2)),
            "C" => format!("Q7{}", lot.text(CODES, size - 2)),
            "L" => lot.text(CAPITALS, size),
            "d" => format!("{}{}", 1 + lot.next() % 9, lot.text(DIGITS, size - 1)),
            "w" => lot.text(LETTERS, 7),
            "n" => (40 + nth).to_string(),
            "u" => format!(
                "{}-{}-4{}-a{}-{}",
                lot.text(HEX, 8),
                lot.text(HEX, 4),
                lot.text(HEX, 3),
                lot.text(HEX, 3),
                lot.text(HEX, 12)
            ),
            "p" => format!("{}.{}", 1 + lot.next() % 90, 1 + lot.next() % 9),
            "s" => (100 + size * nth).to_string(),
            "m" => (10 + nth).to_string(),
            "k" => (500 * (nth + 1)).to_string(),
            _ => (5_000 - 25 * nth).to_string(),
        };
        let _ = write!(out, "{value}{rest}");
    }
    out
}

/// Form of an answer: raw, wrapped by MCP, or pretty-printed.
const FORMS: [&str; 3] = ["plain", "mcp", "pretty"];

fn form_answer(answer: &str, form: &str) -> String {
    let is_document = json::parse(answer).is_ok_and(|value| matches!(value, Json::Object(_)));
    let text = answer.replace("\\n", "\n");
    let text = if is_document { answer.to_owned() } else { text };
    let pretty = || {
        let value: serde_json::Value = serde_json::from_str(&text).expect("a document");
        serde_json::to_string_pretty(&value).expect("writable")
    };
    let text = if form == "pretty" && is_document { pretty() } else { text };
    if form == "plain" && is_document {
        return text;
    }
    if form == "plain" && !text.contains('\n') {
        return format!("\"{text}\"");
    }
    serde_json::json!({"content": [{"type": "text", "text": text}]}).to_string()
}

/// The first stop in a row, and its kind.
fn find_stop(row: &ResultRow<'_>, form: &str) -> String {
    let mut lot = Lot(7);
    let mut story = "rules same_success same_call repeat\n".to_owned();
    for nth in 0..CALLS {
        let answer = form_answer(&fill_template(row.answer, nth, &mut lot), form);
        assert!(!answer.contains('#') || !answer.contains('\n'), "{answer}");
        let _ = writeln!(story, "{} -> ok {} => whatever", row.call, answer.replace('#', "\\u0023"));
    }
    let said = play(&story, None).unwrap_or_else(|problem| panic!("{}: {problem}", row.name));
    let first = said.iter().position(|verdict| verdict.decision != Decision::Allow);
    first.map_or("none".to_owned(), |at| format!("{} {}", said[at].decision.as_str().to_lowercase(), at + 1))
}

fn check(file: &'static str) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows(file) {
        for form in FORMS {
            let found = find_stop(&row, form);
            if found != row.expected {
                wrong.push(format!("{} ({form}): {found}, expected {}", row.name, row.expected));
            }
        }
    }
    wrong
}

#[test]
fn each_answer_stops_its_call_when_it_should() {
    let wrong: Vec<String> = [CREATES, LOOK_ALIKES, READS].into_iter().flat_map(check).collect();
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}
