//! How much one request may carry. Texts are made from these constants, and a test holds the comments of `proto/` to
//! them.

use std::ops::RangeInclusive;

use callgate_core::domain::ids::NAME_BYTES_MAX;

/// Longest time that a caller may wait, in milliseconds.
pub(super) const WAIT_MS_MAX: u64 = 60_000;
/// Longest name of a phase, of a person, of a question, in bytes: as long as any other name.
pub(super) const TEXT_BYTES_MAX: usize = NAME_BYTES_MAX;
/// Longest free text that people read: a justification, a progress note, in bytes.
pub(super) const NOTE_BYTES_MAX: usize = 2_000;
/// Longest error text, in bytes.
pub(super) const ERROR_BYTES_MAX: usize = 64 << 10;
/// What a tool's HTTP status may be.
pub(super) const HTTP_STATUS: RangeInclusive<u64> = 100..=599;
/// What a tool's gRPC status may be: any but OK.
pub(super) const GRPC_STATUS: RangeInclusive<u64> = 1..=16;
/// Longest digest made by a caller, in bytes.
pub(super) const DIGEST_BYTES_MAX: usize = 200;
/// Longest witness of what a call reads, in bytes.
pub(super) const WITNESS_BYTES_MAX: usize = 256;
/// Largest amount of tokens, micro-dollars, bytes or milliseconds: what the store can add up.
pub(super) const AMOUNT_MAX: u64 = 1 << 50;
/// Most calls of a session that one answer lists.
pub(super) const LAST_CALLS_MAX: u32 = 64;

/// Longest page of any list.
pub(super) const PAGE_MAX: u32 = 500;
/// Questions and retry profiles on a page, unless told otherwise.
pub(super) const PAGE_DEFAULT: u32 = 100;
/// Sessions and revisions of the policy on a page, unless told otherwise: people read them.
pub(super) const SHORT_PAGE_DEFAULT: u32 = 50;

/// Most tools that are described at a time.
pub(super) const DESCRIBED_MAX: usize = 1_000;

/// Most calls of one grant.
pub(super) const CEILING_MAX: u64 = 1_000_000;
pub(super) const DAY_MS: u64 = 86_400_000;
/// Longest time that a grant holds, in days.
pub(super) const TTL_DAYS_MAX: u64 = 31;
/// How long a grant holds, unless told otherwise: an hour.
pub(super) const TTL_MS_DEFAULT: u64 = 3_600_000;

/// Longest policy, in bytes.
pub(super) const POLICY_BYTES_MAX: usize = 1 << 20;
/// Problems of a checked text that one answer lists, and tools without a tier.
pub(super) const PROBLEMS_MAX: usize = 200;
/// Most calls on which a policy is tried, and how many unless told otherwise.
pub(super) const BACKTEST_CALLS_MAX: u32 = 100_000;
pub(super) const BACKTEST_CALLS_DEFAULT: u32 = 20_000;
/// Kinds of change that one answer lists.
pub(super) const CHANGES_MAX: usize = 500;
/// Shortest beginning of a hash that names a policy, in hexadecimal digits.
pub(super) const HASH_DIGITS_MIN: usize = 8;

/// Days that a report on tools looks back.
pub(super) const DAYS_DEFAULT: u32 = 7;
pub(super) use callgate_core::domain::quality::DAYS_MAX;
/// Later attempts are one.
pub(super) const ATTEMPT_MAX: u32 = 1_000;

/// Largest message, in bytes: arguments or a result of 1 MiB with room for the rest; larger fields are refused by
/// name.
pub(super) const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Largest metadata of a request, in bytes: what the W3C asks to carry of `baggage` (8 KiB) and `tracestate`, a bearer
/// token as long as proxies let through (16 KiB), and as much again for what proxies add.
pub(super) const METADATA_BYTES_MAX: u32 = 64 << 10;

/// Requests of one stream that may be in flight: two of the writer's batches, the one that is being written and the one
/// that gathers. More of them could not make it faster.
pub(super) const STREAM_REQUESTS_MAX: usize = 1_024;
/// Bytes of them, past which nothing more is read. One frame comes on top.
pub(super) const STREAM_BYTES_MAX: usize = 16 << 20;

/// Requests from this size on, in bytes, are large: smaller ones are bounded by their number.
pub(super) const LARGE_FROM_BYTES: usize = 16 << 10;
/// Bytes of large requests that may be at work or wait, over all connections: each takes some times as much memory.
pub(super) const LARGE_BYTES_MAX: usize = 128 << 20;

/// The last millisecond of the year 9999.
pub(super) const UNIX_MS_MAX: u64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gate::BATCH_MAX, grpc::status::PROBLEM_BYTES_MAX};
    use callgate_core::domain::{
        budget::RAISED_MAX,
        control::PLAN_MAX,
        grant::GRANTS_MAX,
        json::{BYTES_MAX, DEPTH_MAX},
        outcome::Confidence,
        quality::{COERCED_MAX, PAIRS_MAX, TOLD_MAX},
        retries::{CORRECTIONS_MAX, RETRIES_MAX},
        session_state::{LAST_CALLS_DEFAULT, SUMMARY_TOKENS_DEFAULT, SUMMARY_TOKENS_MAX, SUMMARY_TOKENS_MIN},
        tenant::{MONTHS_DAYS_MIN, TENANT_NAME_BYTES_MAX, TERM_DAYS_MAX},
        tree::{OPEN_MAX, SESSIONS_MAX},
    };

    const PROTOS: [&str; 9] = [
        include_str!("../../../proto/callgate/v1/approval_service.proto"),
        include_str!("../../../proto/callgate/v1/gate_service.proto"),
        include_str!("../../../proto/callgate/v1/grant_service.proto"),
        include_str!("../../../proto/callgate/v1/policy_service.proto"),
        include_str!("../../../proto/callgate/v1/profile_service.proto"),
        include_str!("../../../proto/callgate/v1/server_service.proto"),
        include_str!("../../../proto/callgate/v1/session_service.proto"),
        include_str!("../../../proto/callgate/v1/tenant_service.proto"),
        include_str!("../../../proto/callgate/v1/types.proto"),
    ];

    /// Numbers that are no limits of ours.
    const FACTS: [&str; 14] = [
        "http status 431",
        "utf-8",
        "sha-256",
        "64-bit",
        "80 %",
        "the most called first; at most 100",
        "90 %",
        "at most about 120 characters",
        "at most about 160 characters",
        "first 16 digits",
        "first 16 hexadecimal digits",
        "32 hexadecimal characters",
        "32 hexadecimal digits",
        "sqlstate 40001",
    ];

    /// All comments in one line, in small letters.
    fn comments() -> String {
        let lines = PROTOS.iter().flat_map(|proto| proto.lines());
        let comments: Vec<String> = lines
            .filter_map(|line| line.trim().strip_prefix("//"))
            .map(|comment| comment.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase())
            .collect();
        comments.join(" ")
    }

    /// 1000000 as 1,000,000.
    fn grouped(n: u64) -> String {
        let digits = n.to_string();
        let parts: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().filter_map(|part| str::from_utf8(part).ok()).collect();
        parts.join(",")
    }

    fn kib(bytes: usize) -> String {
        assert_eq!(bytes % 1024, 0);
        match bytes >> 10 {
            kib if kib % 1024 == 0 => format!("{} mib", kib >> 10),
            kib => format!("{kib} kib"),
        }
    }

    /// What the comments say of each limit.
    fn told() -> Vec<String> {
        assert_eq!(TTL_MS_DEFAULT, 3_600_000, "the comment says one hour");
        let (note, medium, high) = (grouped(NOTE_BYTES_MAX as u64), Confidence::MEDIUM_TRIALS, Confidence::HIGH_TRIALS);
        vec![
            format!("ids and names have 1 to {NAME_BYTES_MAX} bytes"),
            format!("has {OPEN_MAX} calls without an outcome"),
            format!("has {} sessions", grouped(SESSIONS_MAX as u64)),
            format!("on all pages, at most {}", grouped(crate::gate::OPEN_MAX as u64)),
            format!("holds {GRANTS_MAX} grants"),
            format!("{RAISED_MAX} budgets of the call tree"),
            format!("newest {} retries", grouped(RETRIES_MAX.into())),
            format!("more than {} calls", grouped(crate::gate::BEFORE_MAX as u64)),
            format!("the tools, the worst first; at most {TOLD_MAX}"),
            format!("another type, the most frequent first; at most {COERCED_MAX}"),
            format!("of the newest {PAIRS_MAX} of each hour"),
            format!("the most frequent first; at most {CORRECTIONS_MAX}"),
            format!("message over {}", kib(MESSAGE_BYTES_MAX)),
            format!("metadata over {}", kib(METADATA_BYTES_MAX as usize)),
            format!("{} seconds or less", WAIT_MS_MAX / 1_000),
            format!("1 to {BATCH_MAX} calls"),
            format!("by the names that it calls them by, at most {}", grouped(DESCRIBED_MAX as u64)),
            format!("its name: 1 to {TENANT_NAME_BYTES_MAX} small letters"),
            format!("any digest of it, at most {DIGEST_BYTES_MAX} bytes"),
            format!("any value of at most {WITNESS_BYTES_MAX} bytes"),
            format!("made as `toolcall.witness` was; at most {WITNESS_BYTES_MAX} bytes"),
            format!("at most {note} bytes"),
            format!("followed by another one. at most {TEXT_BYTES_MAX} bytes"),
            format!("said: 1 to {}", grouped(TERM_DAYS_MAX.into())),
            format!("any more): 1 to {}", grouped(TERM_DAYS_MAX.into())),
            format!("their end: {MONTHS_DAYS_MIN} to {}", grouped(TERM_DAYS_MAX.into())),
            format!("1 to {LAST_CALLS_MAX}; 0 counts as {LAST_CALLS_DEFAULT}"),
            format!("1 to {PAGE_MAX}; 0 is {PAGE_DEFAULT}"),
            format!("1 to {PAGE_MAX}; 0 is {SHORT_PAGE_DEFAULT}"),
            format!("attempt failed, 1 to {}", grouped(ATTEMPT_MAX.into())),
            format!("1 to {DAYS_MAX}; 0 is {DAYS_DEFAULT}"),
            format!("the first {} of it", kib(PROBLEM_BYTES_MAX)),
            format!("yaml, at most {}", kib(POLICY_BYTES_MAX)),
            format!("{HASH_DIGITS_MIN} digits at least"),
            format!("by line; the first {PROBLEMS_MAX}"),
            format!("risk level is theirs; the first {PROBLEMS_MAX}"),
            format!("1 to {}; 0 is {}", grouped(BACKTEST_CALLS_MAX.into()), grouped(BACKTEST_CALLS_DEFAULT.into())),
            format!("the first {CHANGES_MAX} kinds of change"),
            format!("in order, at most {PLAN_MAX}"),
            format!("1 to {}. required", grouped(CEILING_MAX)),
            format!("at most {TTL_DAYS_MAX} days"),
            format!("fewer than {medium} trials"),
            format!("{medium} to {} trials", high - 1.0),
            format!("{high} trials or more"),
            format!("as the model wrote them, at most {}", kib(BYTES_MAX)),
            format!("nested deeper than {DEPTH_MAX} levels"),
            format!("may have, {SUMMARY_TOKENS_MIN} to {SUMMARY_TOKENS_MAX}; 0 counts as {SUMMARY_TOKENS_DEFAULT}"),
            format!("asks for the call again. at most {}", kib(BYTES_MAX)),
            format!("plain text of at most {}", kib(BYTES_MAX)),
            format!("one line of it. at most {}", kib(ERROR_BYTES_MAX)),
            format!("required then. at most {}", kib(ERROR_BYTES_MAX)),
            format!("http status of the tool's answer, {} to {}", HTTP_STATUS.start(), HTTP_STATUS.end()),
            format!("grpc status code of the tool's answer, {} to {}", GRPC_STATUS.start(), GRPC_STATUS.end()),
        ]
    }

    #[test]
    fn every_number_in_the_contracts_comments_is_a_limit_that_holds() {
        let mut text = comments();
        for phrase in told().into_iter().chain(FACTS.map(str::to_owned)) {
            assert!(text.contains(&phrase), "no comment in proto/ says {phrase:?}");
            text = text.replace(&phrase, "");
        }
        let numbers = regex::Regex::new(r".{0,40}[0-9]{2,}.{0,40}").expect("a pattern");
        let others: Vec<&str> = numbers.find_iter(&text).map(|found| found.as_str()).collect();
        assert!(others.is_empty(), "numbers that are not held to a constant: {others:#?}");
    }
}
