//! Words of error messages, by failure kind.

use std::{ops::Range, sync::LazyLock};

use regex::{Regex, RegexSet, RegexSetBuilder, bytes as of_bytes};

use crate::domain::failure::FailureKind::{
    self, Auth, Conflict, Internal, InvalidArgument, Network, NotFound, Other, Permission, QuotaExhausted, RateLimited,
    Timeout, Unavailable,
};

use super::codes::{self, Meaning, NameCertainty};

// Case-insensitive; the first matching row decides. `Other` marks words that resemble a later row without meaning it.
// Words with business meanings ("not available", "overloaded", "try again later", "insufficient balance") count only
// next to a technical subject.
#[rustfmt::skip]
const ROWS: &[(FailureKind, &str)] = &[
    (InvalidArgument, r"\b\d+ validation errors? (for|detected)\b"),
    (InvalidArgument, r"unexpected keyword argument|missing \d+ required (positional|keyword-only) argument"),
    (InvalidArgument, r"takes (from )?\d+ (to \d+ )?positional argument"),
    // More than a whole minute's allowance in one request: waiting does not make it smaller.
    (InvalidArgument, r"request too large for .*(tokens per|\btpm\b)|input or output tokens must be reduced"),
    (InvalidArgument, r"context[ _]length|maximum context|prompt is too long"),

    (Other, r"due to user request|card (was|has been) declined|insufficient funds|declined by the (bank|issuer)"),
    (Other, r"invalid json response|invalid response from|(could not|failed to|unable to) parse (the )?response"),

    (QuotaExhausted, r"insufficient_quota|credit balance is too low|out of credits|no credits? (left|remaining)"),
    (QuotaExhausted, r"insufficient credits|requires more credits"),
    (QuotaExhausted, r"billing[ _]hard[ _]limit|billing (is )?not (active|enabled)|api usage limits"),
    (QuotaExhausted, r"spend(ing)? limit (has been |was )?(reached|exceeded)|totalrequests limit exceeded"),
    (QuotaExhausted, r"(requests?|tokens?|queries|calls|units)[ _]?per[ _]?(day|month)|\((rpd|tpd)\)"),
    (QuotaExhausted, r"daily ((request|token|rate|usage|api) )*(limit|quota|allowance)"),
    (QuotaExhausted, r"(limit|quota).{0,80}\bper (day|month)\b|monthly ((request|token|usage|api) )*(limit|quota|allowance)"),
    (QuotaExhausted, r"quota.*limit: 0\b"),
    // Gemini calls a limit per minute a quota, and names the seconds to wait.
    (RateLimited, r"exceeded your current quota.*(retry in \d|per[ _]?minute|retrydelay)"),
    (RateLimited, r"quota.{0,160}per[ _]?(second|minute|hour|100 ?seconds)|too many tokens, please wait"),
    (QuotaExhausted, r"exceeded your current quota|quota (has been |was |is )?(exceeded|exhausted|reached|depleted)"),
    (QuotaExhausted, r"exceeded (your |the |its )?(\w+ )?quota|out of quota|insufficient quota|cannot exceed quota"),
    (QuotaExhausted, r"over quota"),

    (RateLimited, r"\brate[ _-]?limit(ed|ing)?[ _-](exceeded|reached|hit|error|for)\b|\brate[ _-]?limited\b"),
    (RateLimited, r"(exceed(s|ed)?|hit|reached|over) .{0,60}\brate[ _-]?limit|^\W*(error: )?rate[ _-]?limit(\W*$|[:;,.!])"),
    (RateLimited, r"too many (concurrent )?requests|throttl|\brate exceeded|please slow down|\bslowdown\b"),
    (RateLimited, r"reduce your request rate|abuse detection|request limit exceeded|concurrency limit"),

    (Conflict, r"deadlock|could not serialize access|serialization failure|could not obtain lock|lock wait timeout"),
    (Conflict, r"lock[ _]timeout|database( table)? is locked|write ?conflict|optimistic lock|stale object"),
    (Conflict, r"tuple concurrently updated"),
    (Conflict, r"another (api )?(request|process|operation|transaction|user|session).{0,60}(in progress|running|accessing|using|holds|holding|modified|editing|locked)"),
    (Conflict, r"(already|currently) (being (processed|modified|updated|edited)|in progress)"),
    (Conflict, r"locked by (another|user)|resource is locked|concurrent (modification|update|write)"),
    (Conflict, r"version (conflict|mismatch)|(has been|was) (modified|changed|updated) (by another|since|concurrently)"),
    (Conflict, r"etag (mismatch|does not match)|precondition failed|conditional request failed"),
    (Conflict, r"idempotency key.{0,40}in use"),
    (Conflict, r"\.lock'?: file exists"),
    // Existing things stay: the same call fails again.
    (InvalidArgument, r"already exists|\bfile exists\b|duplicate key value|duplicate entry|unique constraint|violates exclusion constraint"),

    (Network, r"reset reason: (connection termination|remote reset|local reset)|upstream prematurely closed"),
    (Unavailable, r"upstream connect error|no healthy upstream|no available server|bad gateway|service (is )?(temporarily |currently )?unavailable"),
    (Unavailable, r"(servers?|engine|api|system|backend|upstream|endpoint|database|provider|cluster)( is| are)?( currently| temporarily| at the moment)? (unavailable|overloaded|at capacity|down for maintenance|busy|starting up|shutting down|in recovery mode)"),
    (Unavailable, r"model( is)?( currently| temporarily)? (overloaded|at capacity)|^\W*overloaded\W*$|overloaded_error"),
    (Unavailable, r"too many connections|remaining connection slots|resource temporarily unavailable"),

    (Timeout, r"\btimed[ -]?out\b|deadline[ _]exceeded|aborted due to timeout"),
    (Timeout, r"(statement|request|read|connect(ion)?|gateway|operation|query|execution|response|socket|handshake|i/o|call|tool|command|upstream|client|server) time-?out"),
    (Timeout, r"timeout (of \S+ )?(exceeded|expired|reached|occurred|error|while|waiting|after)"),
    (Timeout, r"time limit exceeded|exceeded (the |its )?(time ?limit|timeout|maximum execution time|deadline)"),
    (Timeout, r"took too long|did(n't| not) respond (with)?in"),

    (Network, r"connection (was |has been |is )?(reset|refused|aborted|closed|lost|terminated|broken)"),
    (Network, r"connection error|(could not|couldn't|cannot|can't|failed to|unable to) connect to"),
    (Network, r"failed to establish a new connection|failed to open tcp connection|can't reach database server|connection attempts failed"),
    (Network, r"name or service not known|name resolution|getaddrinfo|could not resolve host|nodename nor servname|unknown host|dns error"),
    (Network, r"no route to host|network is unreachable|host is unreachable|network (error|failure)"),
    (Network, r"socket hang up|socket closed|broken pipe|closed connection without response|server disconnected"),
    (Network, r"peer closed connection|remote (end|host) closed|\bfetch failed\b"),
    (Network, r"^\W*(typeerror: )?failed to fetch\W*$|unexpected eof|transport is closing"),
    (Network, r"error sending request for url|error reading from server|max retries exceeded with url"),
    (Network, r"certificate verify failed|self[- ]signed certificate|certificate has expired|(ssl|tls) handshake"),

    (Auth, r"(invalid|incorrect|missing|expired|revoked|no|unknown|bad) (x-)?api[ _-]?key"),
    (Auth, r"api[ _-]?key (is |was |has )?(not valid|invalid|missing|required|expired|not found|not provided|incorrect|been revoked|disabled)"),
    (Auth, r"(invalid|expired|missing|revoked|bad) (access|auth|bearer|refresh|session|security|authentication|authorization|oauth|jwt|api) ?(token|header|credentials)"),
    (Auth, r"(access|auth|bearer|refresh|session|security|oauth|api) ?token( included in the request)? (has |is |was )?(been )?(expired|revoked|invalid)"),
    (Auth, r"^\W*(invalid|expired) token\W*$|session (has |is )?expired|missing authentication token"),
    (Auth, r"(invalid|bad|missing|expired|no) credentials|could not validate credentials"),
    (Auth, r"unable to locate credentials|password authentication failed|access denied for user .*using password"),
    (Auth, r"permission denied \(publickey"),
    (Auth, r"authentication (failed|failure|required|is required|error|credentials were not provided)"),
    (Auth, r"^\W*requires authentication|not authenticated|unauthenticated|not logged in"),
    (Auth, r"(login|log in|sign in) (is )?required|(must|need to) (be logged|log|sign) in|jwt (expired|malformed)"),
    (Auth, r"invalid_grant|invalid_auth|not_authed|request signature we calculated"),

    (Permission, r"permission[ _]denied|access[ _](is )?denied|not authorized to|unauthorized to|operation not permitted"),
    (Permission, r"(you|user|account|caller|client|key|token|role) (is|are) not allowed to|read-only file system"),
    (Permission, r"user location is not supported|must be owner of"),
    (Permission, r"insufficient (permissions?|privileges?|scopes?|rights|authentication scopes)|insufficient_scope"),
    (Permission, r"do(es)?(n't| not) have (the )?(\w+ )*(permissions?|access|privileges|rights)\b"),
    (Permission, r"(missing|lacks?) (the )?(required )?(\S+ )?(permissions?|scopes?)\b"),
    (Permission, r"not accessible by (integration|personal access token)|\bforbidden\b"),
    (Auth, r"\bunauthori[sz]ed\b"),

    (Internal, r"internal[ _](server[ _])?(error|failure|exception)|\bserver error\b|server had an error"),
    (Internal, r"unhandled (exception|error|promise)|segmentation fault|nullpointerexception"),

    (InvalidArgument, r"violates (not-null|foreign key|check) constraint|null value in column|syntax error at or near"),
    (InvalidArgument, r"error in your sql syntax|invalid input syntax"),
    (NotFound, r"\bnot[ _]found\b|\bno such\b|do(es)?(n't| not) exist|(could not|couldn't|cannot|can't|unable to) find"),
    (NotFound, r"not be found|unknown (tool|function|method|model|resource|table|column|database)|no longer exists"),

    (InvalidArgument, r"validation (error|failed|exception)|bad request|unprocessable|malformed|invalid \w+ request"),
    (InvalidArgument, r"invalid[ _](params?|parameters?|arguments?|input|value|format|request|payload|body|type|option|field|syntax|query|json|url|uri|uuid|date|time|timestamp|email|enum|schema|id|identifier|range|cursor)\b"),
    (InvalidArgument, r"missing (required |mandatory )?(arguments?|parameters?|fields?|property|params?|keys?|input)\b"),
    (InvalidArgument, r"(arguments?|parameters?|fields?|property|params?) (\S+ )?(is|are) (required|missing|invalid|not allowed|unknown|unexpected)"),
    (InvalidArgument, r"field required|required (property|parameter|argument|field)|is a required property"),
    (InvalidArgument, r"cannot be (empty|blank|null|none)|must not be (empty|blank|null)"),
    (InvalidArgument, r"additional properties are not allowed|unrecognized (keys?|arguments?|fields?|parameters?)"),
    (InvalidArgument, r"unknown (argument|parameter|field|option|property)|unexpected (argument|parameter|property|field)"),
    (InvalidArgument, r"is not (one of|of type|a valid)\b"),
    (InvalidArgument, r"must be (one of|of type|a valid|a string|a number|an? integer|a boolean|an array|a list|an object|a positive|non-empty)"),
    (InvalidArgument, r"expected \S+, (but )?(got|received)\b|input should be|should be (one of|of type|a valid)"),
    (InvalidArgument, r"unsupported (value|parameter|type|format|operation|argument|media type)|no scheme supplied"),
    (InvalidArgument, r"no connection adapters were found|(request|payload|body|content|entity|file|input) (is )?too large"),
    (InvalidArgument, r"(string|value|name|input) (is )?too long"),
    (InvalidArgument, r"(could not|cannot|failed to|unable to) parse (the )?(request|arguments?|input|body|query|parameters?|date)"),
    // The amounts are arguments: recorded airline sessions never saw the same ones accepted later.
    (InvalidArgument, r"payment amount does not add up"),
];

/// Cache size of the automaton over all rows, per thread. Recorded errors need some 4 MiB; with less it is rebuilt
/// repeatedly, and a text takes 200 µs instead of one.
const AUTOMATON_BYTES_MAX: usize = 16 << 20;

static SET: LazyLock<of_bytes::RegexSet> = LazyLock::new(|| {
    let mut rows = of_bytes::RegexSetBuilder::new(ROWS.iter().map(|(_, pattern)| pattern));
    // Without Unicode, whose word boundaries are a thousand times slower on any non-ASCII text.
    rows.case_insensitive(true).unicode(false).dfa_size_limit(AUTOMATON_BYTES_MAX);
    rows.build().expect("the rows are fixed and tested")
});

/// The kind of the first row that matches `message` and that `wanted` accepts.
pub(super) fn first(message: &str, wanted: impl Fn(FailureKind) -> bool) -> Option<FailureKind> {
    let matches = SET.matches(message.as_bytes());
    matches.iter().filter_map(|row| ROWS.get(row)).map(|(kind, _)| *kind).find(|kind| wanted(*kind))
}

/// Patterns of codes in a message, the surest first; the only group holds the code.
#[rustfmt::skip]
const SPELT: &[&str] = &[
    // Bodies of APIs, as JSON, as a Python dict, as XML.
    r#"["'](?:code|type|error|error_code|errorCode|error_type|__type)\\*["']\s*:\s*\\*["']([A-Za-z0-9_.#]{4,80})\\*["']"#,
    r#"["']code\\*["']\s*:\s*(-\d{5})\b"#,
    // Google's; a business has statuses and reasons of its own, in small letters.
    r#"["']status\\*["']\s*:\s*\\*["']([A-Z_]{5,80})\\*["']"#,
    r#"["']reason\\*["']\s*:\s*\\*["']([A-Za-z_]*[A-Z][A-Za-z_]*)\\*["']"#,
    r"<Code>([A-Za-z0-9]{3,80})</Code>",
    r"(?i)\ban error occurred \((\w+)\)",
    r"(?i)\b(?:mcp|json-?rpc) error (-\d{5})\b",
    r"(?i)\bsqlstate\b[\s:=\[(]*([0-9A-Z]{5})\b",
    r"\b(?:rpc error: code = |StatusCode\.)(\w+)",
    r"^status: '?([A-Z]\w+)'?, message: ",
    // The class that leads the last line of a traceback, and classes within a text.
    r"^\s*(?:(?i:error|exception):\s+)?((?:\w+(?:\.|::))+[A-Z]\w+)",
    r"\b((?:[A-Z]\w*)?[A-Z][a-z]\w*(?:Error|Exception|Timeout))\b",
    // The names of errno.
    r"\b(E[A-Z][A-Z_]{3,})\b",
];

/// Patterns of HTTP statuses in a message; the only group holds the status.
#[rustfmt::skip]
const STATUS: &[&str] = &[
    r#"(?i)\b(?:error[ _]code|status(?:[ _]?code)?|http(?:[ /]\d(?:\.\d)?)?(?: error| status)?)["']?\s*[:=]?\s*\(?([45]\d\d)\b"#,
    r#"["']code\\*["']\s*:\s*["']?([45]\d\d)\b"#,
    r"(?i)\b([45]\d\d) (?:client|server) error\b",
    r"(?i)\b(4\d\d)[ :,-]+(?:\{|bad request|unauthorized|payment required|forbidden|not found|method not allowed|conflict|gone\b|request time-?out|precondition failed|payload too large|unprocessable|locked|too many requests|resource_exhausted)",
    r"(?i)\b(5\d\d)[ :,-]+(?:\{|internal server error|not implemented|bad gateway|service (?:temporarily )?unavailable|gateway time-?out)",
];

/// All of them, `SPELT` first.
static SHAPES: LazyLock<Vec<Regex>> =
    LazyLock::new(|| SPELT.iter().chain(STATUS).copied().map(compile_pattern).collect());

/// All patterns as a set, because most messages match none.
static ANY_SHAPE: LazyLock<RegexSet> = LazyLock::new(|| {
    let mut shapes = RegexSetBuilder::new(SPELT.iter().chain(STATUS));
    shapes.dfa_size_limit(AUTOMATON_BYTES_MAX).build().expect("the patterns are fixed and tested")
});

/// The patterns of `range` that match `message`, in order. Non-ASCII messages are matched one by one: their word
/// boundaries are beyond the set's automaton.
fn matching_patterns(message: &str, range: Range<usize>) -> impl Iterator<Item = &'static Regex> {
    let found = message.is_ascii().then(|| ANY_SHAPE.matches(message));
    range.filter(move |n| found.as_ref().is_none_or(|found| found.matched(*n))).filter_map(|n| SHAPES.get(n))
}

fn compile_pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is fixed and tested")
}

/// The code in `message`; a sure one before an ambiguous one.
pub(super) fn named_in(message: &str) -> Option<Meaning> {
    let spelt = matching_patterns(message, 0..SPELT.len()).flat_map(|shape| shape.captures_iter(message));
    let mut unsure = None;
    for name in spelt.filter_map(|found| found.get(1)) {
        // A seat is "unavailable" as well; only a server spells it in capitals.
        let known = codes::find_code(name.as_str()).filter(|_| name.as_str() != "unavailable");
        match known {
            Some(known) if known.reading == NameCertainty::Sure => return Some(known),
            Some(known) => unsure = unsure.or(Some(known)),
            None => {}
        }
    }
    unsure
}

/// The first HTTP status in `message`.
pub(super) fn status_in(message: &str) -> Option<u16> {
    let found = matching_patterns(message, SPELT.len()..SPELT.len() + STATUS.len())
        .filter_map(|shape| shape.captures(message))
        .min_by_key(|found| found.get(1).map(|m| m.start()))?;
    found.get(1)?.as_str().parse().ok()
}
