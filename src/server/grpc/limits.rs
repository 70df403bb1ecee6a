//! Limits of one request. Texts are made from these constants, and a test compares the numbers in the comments of
//! `proto/` with them.

use std::ops::RangeInclusive;

use callgate_core::domain::ids::NAME_BYTES_MAX;

/// Longest time that a caller may wait, in milliseconds.
pub(super) const WAIT_MS_MAX: u64 = 60_000;
/// Longest name of a phase, of a person, of an approval request, in bytes: as long as any other name.
pub(super) const TEXT_BYTES_MAX: usize = NAME_BYTES_MAX;
/// Longest free text that people read: a justification, a progress note, in bytes.
pub(super) const NOTE_BYTES_MAX: usize = 2_000;
/// Longest error text, in bytes.
pub(super) const ERROR_BYTES_MAX: usize = 64 << 10;
/// Range of a tool's HTTP status.
pub(super) const HTTP_STATUS: RangeInclusive<u64> = 100..=599;
/// Range of a tool's gRPC status: any but OK.
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
/// Default number of approval requests and retry profiles on a page.
pub(super) const PAGE_DEFAULT: u32 = 100;
/// Default number of sessions and policy revisions on a page: people read them.
pub(super) const SHORT_PAGE_DEFAULT: u32 = 50;

/// Most groups of approval requests that one answer lists.
pub(super) const APPROVAL_GROUPS_MAX: usize = 100;
/// Most approval requests that one act answers by their ids: an approver reads each.
pub(super) const BULK_MAX: usize = 50;
/// Most approval requests that one act denies by a filter.
pub(super) const BULK_DENY_MAX: usize = 500;

/// Time of one answer's search for sessions, in milliseconds: well below that of a read.
pub(super) const SEARCH_MS: u64 = 700;

/// Most tools that are described at a time.
pub(super) const DESCRIBED_MAX: usize = 1_000;

/// Most calls of one grant.
pub(super) const CEILING_MAX: u64 = 1_000_000;
pub(super) const DAY_MS: u64 = 86_400_000;
/// Longest time that a grant holds, in days.
pub(super) const TTL_DAYS_MAX: u64 = 31;
/// Default lifetime of a grant: an hour.
pub(super) const TTL_MS_DEFAULT: u64 = 3_600_000;

/// Longest policy, in bytes.
pub(super) const POLICY_BYTES_MAX: usize = 1 << 20;
/// Problems of a checked text that one answer lists, and tools without a tier.
pub(super) const PROBLEMS_MAX: usize = 200;
/// Most calls on which a policy is tried, and their default number.
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
mod tests;
