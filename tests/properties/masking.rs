//! Masking laws: it removes names, times and places of occurrences, and no information of a result.

use callgate_core::domain::{
    answer::{ComparableResult, ResultDifference, ResultMarkers},
    time::Timestamp,
};
use proptest::{collection::vec, prelude::*, sample::Index};

use crate::cases;

/// A piece of a result: in text, or as a member of an object.
#[derive(Debug, Clone)]
enum Piece {
    /// Information.
    Says(String),
    /// A volatile part of an occurrence, in the n-th form.
    Occurs(usize),
}

/// Volatile forms of an occurrence; the first three name it.
fn occurrence(way: usize, n: u64) -> String {
    match way % 9 {
        0 => format!("doc_{n}"),
        1 => format!("#{n}"),
        2 => format!("550e8400-e29b-41d4-a716-{n:012}"),
        3 => format!("{n}ms"),
        4 => format!("pid {n}"),
        5 => format!("/tmp/tmp{n}xk/out"),
        6 => format!("2026-11-21T10:00:{:02}Z", n % 60),
        7 => format!("req_{n:08}"),
        _ => format!("{}.{:03} s", n % 90, n % 1_000),
    }
}

/// Keys that mark their values as volatile.
fn member(way: usize, n: u64) -> String {
    let keys =
        ["id", "docId", "order_id", "uuid", "number", "html_url", "sha", "created_at", "elapsed_ms", "requestId"];
    if keys[way % keys.len()] == "created_at" {
        return format!("\"created_at\":{}", 1_795_590_000 + n);
    }
    let value = if way.is_multiple_of(3) { n.to_string() } else { format!("\"x{n}\"") };
    format!("\"{}\":{value}", keys[way % keys.len()])
}

fn text(pieces: &[Piece], n: u64) -> String {
    let written = pieces.iter().map(|piece| match piece {
        Piece::Says(what) => what.clone(),
        Piece::Occurs(way) => occurrence(*way, n),
    });
    written.collect::<Vec<_>>().join(" | ")
}

fn object(pieces: &[Piece], n: u64) -> String {
    let written = pieces.iter().enumerate().map(|(at, piece)| match piece {
        Piece::Says(what) if what.bytes().all(|b| b.is_ascii_digit()) => format!("{{\"total\":{what}}}"),
        Piece::Says(what) => format!("{{\"title\":\"{what}\"}}"),
        Piece::Occurs(way) => format!("{{{},\"at_place\":{at}}}", member(*way, n)),
    });
    let written = written.enumerate().map(|(at, piece)| format!("\"piece_{at}\":{piece}"));
    format!("{{{}}}", written.collect::<Vec<_>>().join(","))
}

/// Words, numbers without a label, and dates without a time of day.
fn says() -> impl Strategy<Value = String> {
    prop_oneof![
        "[b-h]{2,8}",
        "[1-9][0-9]{0,7}",
        "20[0-9]{2}-1[0-2]-0[1-9]",
        "[1-9]{1,3}\\.[1-9]{2}",
        "[b-h]{3} [1-9]{1,2}%"
    ]
}

fn read(result: &str) -> ComparableResult {
    ComparableResult::of(result, &[], Timestamp::from_millis(1_795_600_000_000))
}

fn compare_markers(later: &ResultMarkers, earlier: &ResultMarkers) -> ResultDifference {
    later.compared_with(earlier, &[])
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    vec(prop_oneof![says().prop_map(Piece::Says), any::<usize>().prop_map(Piece::Occurs)], 1..8)
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn content_of_a_result_is_never_masked(
        before in pieces(), what in says(), other in says(), after in pieces(), at in any::<Index>()
    ) {
        prop_assume!(what != other);
        let mut one: Vec<Piece> = before.into_iter().chain(after).collect();
        let mut two = one.clone();
        let at = at.index(one.len() + 1);
        one.insert(at, Piece::Says(what));
        two.insert(at, Piece::Says(other));
        for write in [text, object] {
            let [a, b] = [write(&one, 7), write(&two, 7)].map(|result| read(&result));
            prop_assert_ne!(a.digest, b.digest);
            for compared in [compare_markers(&a.marks, &b.marks), compare_markers(&b.marks, &a.marks)] {
                let is_told = matches!(compared, ResultDifference::Risen | ResultDifference::News);
                prop_assert!(is_told, "{} / {}", write(&one, 7), write(&two, 7));
            }
        }
    }

    #[test]
    fn identities_of_occurrences_are_always_masked(pieces in pieces(), n in 1..9_999_u64, m in 1..9_999_u64) {
        for write in [text, object] {
            let [a, b] = [n, m].map(|n| read(&write(&pieces, n)).marks);
            let texts = (write(&pieces, n), write(&pieces, m));
            prop_assert_ne!(compare_markers(&a, &b), ResultDifference::News, "{:?}", texts);
        }
        let is_named = n != m && pieces.iter().any(|piece| matches!(piece, Piece::Occurs(way) if way % 9 < 3));
        let [a, b] = [n, m].map(|n| read(&text(&pieces, n)).marks);
        let expected = if is_named { ResultDifference::Receipt { lapses: false } } else { ResultDifference::Equal };
        prop_assert_eq!(compare_markers(&a, &b), expected, "{} / {}", text(&pieces, n), text(&pieces, m));
    }
}
