//! Classifier of failures by the caller's report.
//!
//! Evidence in order of precision: the provider's code, the error's type name, the HTTP status, the gRPC status, the
//! words of the message. The message refines ambiguous evidence. Codes of a JSON error are read from the whole, words
//! from its message alone: other members hold advice, links and echoes of the request. Undecidable errors are
//! [`FailureKind::Other`]: a domain's refusal ("not enough seats") is not an outage.

mod codes;
mod mask;
mod names;
mod open_effects;
mod reduce;
mod sqlstate;
mod status;
mod text;
mod wait;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod lines;

pub use mask::error_signature;
pub use open_effects::may_have_taken_effect;
pub use reduce::{message_in_json, one_line};
pub use wait::{retry_after_in_message, retry_after_ms};

use codes::{Meaning, NameCertainty};

use crate::domain::failure::{ErrorReport, FailureKind};

/// The failure kind of `report`. Pure and deterministic.
///
/// [`FailureKind::Other`] means that no evidence in the report is certain enough.
#[must_use]
pub fn classify(report: &ErrorReport) -> FailureKind {
    let message = Message::of(&report.message);
    of_codes(report, &message).or_else(|| from_message(&message)).unwrap_or(FailureKind::Other)
}

/// The failure kind of a `check`, whose message is its finding: a failing test that prints "invalid argument" or
/// "connection refused" says nothing of the call. Codes alone count.
#[must_use]
pub fn classify_check(report: &ErrorReport) -> FailureKind {
    of_codes(report, &Message::of(&report.message)).unwrap_or(FailureKind::Other)
}

/// The kind by the report's codes and statuses.
fn of_codes(report: &ErrorReport, message: &Message) -> Option<FailureKind> {
    let status = report.http_status.and_then(status::of_http);
    let named = |name: &Option<String>| {
        let known = codes::find_code(name.as_deref()?)?;
        Some(settle(known, status, message))
    };
    named(&report.provider_code)
        .or_else(|| named(&report.error_type))
        .or_else(|| status.map(|kind| narrow(kind, message)))
        .or_else(|| report.grpc_status.and_then(status::of_grpc).map(|kind| narrow(kind, message)))
}

/// Text of an error.
struct Message {
    whole: String,
    /// The message inside a JSON object.
    inside: Option<String>,
}

impl Message {
    fn of(message: &str) -> Self {
        let inside = message_in_json(message).map(|inside| reduce::readable(&inside));
        Self { whole: reduce::readable(message), inside }
    }

    /// The accepted kind whose words come first.
    fn first(&self, wanted: impl Fn(FailureKind) -> bool) -> Option<FailureKind> {
        text::first(self.inside.as_deref().unwrap_or(&self.whole), wanted)
    }
}

fn from_message(message: &Message) -> Option<FailureKind> {
    text::named_in(&message.whole)
        .map(|known| settle(known, None, message))
        .or_else(|| text::status_in(&message.whole).and_then(status::of_http).map(|kind| narrow(kind, message)))
        .or_else(|| message.first(|_| true))
}

fn settle(known: Meaning, status: Option<FailureKind>, message: &Message) -> FailureKind {
    match known.reading {
        NameCertainty::Sure => known.kind,
        NameCertainty::AskText => narrow(known.kind, message),
        NameCertainty::AskStatus => narrow(status.unwrap_or(known.kind), message),
    }
}

/// `kind`, or the kind that the message implies, among those that `kind` is known to stand for.
fn narrow(kind: FailureKind, message: &Message) -> FailureKind {
    let may_be = |other: FailureKind| other == kind || stands_for(kind).contains(&other);
    text::named_in(&message.whole)
        .filter(|known| known.reading == NameCertainty::Sure && may_be(known.kind))
        .map(|known| known.kind)
        .or_else(|| message.first(may_be))
        .unwrap_or(kind)
}

/// Kinds that providers are known to send under the usual status or code of another.
const fn stands_for(kind: FailureKind) -> &'static [FailureKind] {
    use FailureKind::{
        Auth, Conflict, Internal, InvalidArgument, Network, NotFound, Other, Permission, QuotaExhausted, RateLimited,
        Timeout, Unavailable,
    };
    match kind {
        // 429: a spent allowance (OpenAI), a request above the limit by itself (OpenAI), a held lock (Stripe).
        RateLimited => &[QuotaExhausted, InvalidArgument, Conflict],
        // 402: Stripe's declined card; a quota per minute is only a rate limit.
        QuotaExhausted => &[Other, RateLimited],
        // 403: GitHub's secondary limit, Google's quotas, an expired token at AWS.
        Permission => &[RateLimited, QuotaExhausted, Auth],
        // 400: an empty purse (Anthropic), a wrong key (Google), throttling and failed conditions (AWS).
        InvalidArgument => &[QuotaExhausted, RateLimited, Auth, Permission, Conflict],
        // 502, 503: broken and slow upstreams leave open whether the call took effect.
        Unavailable => &[RateLimited, QuotaExhausted, Network, Timeout],
        // 500: any uncaught error. Its claims about arguments may concern the tool's own inner calls.
        Internal => &[Timeout, Conflict, RateLimited, QuotaExhausted, Unavailable, Network],
        // SQLSTATE 57014 covers cancelling by hand; MCP's -32001 is also used for a lost session.
        Timeout => &[Other, Conflict, NotFound],
        // axios reports its own timeouts as ECONNABORTED.
        Network => &[Timeout],
        // 409: what exists already stays there.
        Conflict => &[InvalidArgument],
        Auth | NotFound | Other => &[],
    }
}
