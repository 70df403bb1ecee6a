//! names: every span, metric, attribute and log field, exactly once. Dashboards and alerts are built on these strings:
//! add to them, change none.
//!
//! A field means the same in a log line, on a span and on a metric. Metrics carry bounded sets only: decisions, rules,
//! modes, outcomes, failure kinds, conflict reasons, and tools that the policy declares a schema for; never a tenant, a
//! session, a call, or whatever an agent calls a tool.

macro_rules! names {
    ($(#[doc = $all_doc:literal])+ $all:ident: $($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = $text;)+

        $(#[doc = $all_doc])+
        pub const $all: &[&str] = &[$($name,)+];
    };
}

/// The service's name, as collectors know it; also the scope of its spans and metrics.
pub const SERVICE: &str = "callgate";

/// The log target of decisions, for filters: `callgate::decision=debug`.
pub const TARGET_DECISION: &str = "callgate::decision";

/// The log target of reports, for filters: `callgate::record=debug`.
pub const TARGET_RECORD: &str = "callgate::record";

names! {
    /// Every span.
    SPANS:
    /// One call of a service, which collectors know by its method's name. All that is done for it hangs below.
    SPAN_RPC = "callgate.rpc",
    /// One Evaluate: may this call run? From its decoding to its answer.
    SPAN_EVALUATE = "callgate.evaluate",
    /// Many Evaluates of one model turn; each verdict is a [`SPAN_EVALUATE`] below it.
    SPAN_BATCH = "callgate.evaluate_batch",
    /// One report on a call.
    SPAN_RECORD = "callgate.record",
    /// The way of a call, a report or a command into its commit, from the queue on. Of kind client, with a link to the
    /// batch that it joined.
    SPAN_COMMIT = "callgate.commit",
    /// One batch, as the database gets it; collectors know it as `SELECT append`. It hangs below the first call of it
    /// that is traced, and has links to up to 128 others.
    SPAN_COMMIT_BATCH = "callgate.commit_batch",
    /// The loading of a call tree that was not in memory; collectors know it as `SELECT call_tree call outcome`.
    SPAN_LOAD = "callgate.load",
}

/// On the span of an Evaluate: what one rule had to say, with [`RULE`], [`DECISION`], [`REASON`], [`LEVEL`], [`COUNT`]
/// and [`ENFORCED`].
pub const EVENT_FINDING: &str = "finding";

names! {
    /// Every metric.
    METRICS:
    /// Counter, `{evaluation}`: verdicts, by [`DECISION`], [`RULE`], [`REASON`], [`MODE`] and [`TOOL`].
    METRIC_EVALUATIONS = "callgate.evaluations",
    /// Counter, `{report}`: reports on calls, by [`OUTCOME`], [`FAILURE_KIND`] and [`TOOL`].
    METRIC_RECORDS = "callgate.records",
    /// Counter, `{advice}`: answers to failures, by [`FAILURE_KIND`], [`RETRYABLE`], [`BASIS`] and [`PROBE`].
    METRIC_ADVICE = "callgate.advice",
    /// Counter, `{call}`: calls with arguments of another type than the schema's that were read as the right one, by
    /// [`TOOL`]. Which fields: the log, and the view `coercions`.
    METRIC_COERCIONS = "callgate.coercions",
    /// Histogram, seconds: from the request to the verdict, with its commit.
    METRIC_EVALUATE_DURATION = "callgate.evaluate.duration",
    /// Histogram, seconds: from a report to its outcome, with its commit.
    METRIC_RECORD_DURATION = "callgate.record.duration",
    /// Histogram, seconds: one commit of a batch.
    METRIC_COMMIT_DURATION = "callgate.commit.duration",
    /// Histogram, `{append}`: changes that went into one commit.
    METRIC_COMMIT_BATCH_SIZE = "callgate.commit.batch_size",
    /// Counter, `{conflict}`: changes that lost a race and were judged again, by [`CONFLICT_REASON`].
    METRIC_COMMIT_CONFLICTS = "callgate.commit.conflicts",
    /// Counter, `{loop}`: what loop detectors found, by [`RULE`], [`LEVEL`] and [`MODE`].
    METRIC_LOOPS = "callgate.loops",
    /// Counter, `{call}`: calls that nobody reported on before their lease ran out. Their outcome is unknown.
    METRIC_LEASES_EXPIRED = "callgate.leases.expired",
    /// Gauge, `{tree}`: call trees that this replica holds in memory.
    METRIC_CACHE_TREES = "callgate.cache.trees",
    /// Gauge, bytes: about how much memory they take.
    METRIC_CACHE_SIZE = "callgate.cache.size",
    /// Gauge, `{call}`: Evaluates that are being judged.
    METRIC_AT_WORK = "callgate.admission.at_work",
    /// Gauge, `{call}`: Evaluates that wait for their turn.
    METRIC_WAITING = "callgate.admission.waiting",
    /// Counter, `{request}`: Evaluates that were told at once that the server is overloaded.
    METRIC_TURNED_AWAY = "callgate.turned_away",
    /// Gauge, `{revision}`: by how many activations the policy that this replica judges by is older than the active
    /// one, of the tenant where it is the oldest. 0 is well.
    METRIC_POLICY_BEHIND = "callgate.policy.behind",
    /// Gauge, seconds: how long ago this replica last read which policies are active. More than some seconds means that
    /// it may judge by older ones than the rest.
    METRIC_POLICY_UNCONFIRMED = "callgate.policy.unconfirmed",
    /// Gauge, seconds: how long a certificate still holds that this replica shows, by [`CERTIFICATE`]. Below 0 it has
    /// ended.
    METRIC_CERTIFICATE_LEFT = "callgate.certificate.left",
    /// Counter, `{value}`: secrets left out of what was stored, by [`REDACTION`].
    METRIC_REDACTIONS = "callgate.redactions",
    /// Counter, `{row}`: rows deleted since they were past their term, by [`DELETED`].
    METRIC_DELETED = "callgate.deleted",
}

names! {
    /// Every attribute and log field of ours.
    FIELDS:
    /// The tenant's number. Logs and spans.
    TENANT = "callgate.tenant",
    /// The arguments' fields that had another type, with the places of items left out. Logs.
    COERCED = "callgate.coerced",
    /// `ALLOW`, `ASK`, `WAIT`, `REUSE`, `DENY`, `STOP`. Logs and spans: as applied. Metrics: as the policy would have
    /// it, and [`MODE`] says whether it was applied.
    DECISION = "callgate.decision",
    /// What the policy would have said; only where shadow mode made the decision another. Logs and spans.
    WOULD = "callgate.would",
    /// The rule that decided or warned: its file's name. On metrics [`NONE`] where no rule had anything to say.
    RULE = "callgate.rule",
    /// The stable reason. On metrics [`NONE`] where no rule had anything to say.
    REASON = "callgate.reason",
    /// How far the loop has gone: `warning`, `critical`, `break`. Logs and spans.
    LEVEL = "callgate.level",
    /// What the rule counted. Logs and spans.
    COUNT = "callgate.count",
    /// The n-th try of the execution that was permitted, from 1. Logs and spans.
    ATTEMPT = "callgate.attempt",
    /// The call as it is known again: 16 hexadecimal characters of its hash. Stands for the arguments, which are never
    /// said. Logs and spans.
    FINGERPRINT = "callgate.fingerprint",
    /// The policy that judged: the first 16 hexadecimal digits of its hash. Logs and spans.
    POLICY = "callgate.policy",
    /// True for the answer given before to the same call_id. Logs and spans.
    REPLAYED = "callgate.replayed",
    /// True when the policy's decision was applied, false in shadow mode. Logs and spans.
    ENFORCED = "callgate.enforced",
    /// How long to wait before the next try, in milliseconds. Logs and spans.
    RETRY_AFTER_MS = "callgate.retry_after_ms",
    /// `enforce` or `shadow`. Metrics.
    MODE = "callgate.mode",
    /// What came of a call: `running`, `success`, `error`, `cancelled`, `unknown`.
    OUTCOME = "callgate.outcome",
    /// What went wrong, of a closed set. On metrics [`NONE`] where nothing did.
    FAILURE_KIND = "callgate.failure_kind",
    /// True when a retry with the same arguments is worth it.
    RETRYABLE = "callgate.retryable",
    /// On what the chance of a retry rests: `prior`, `kind`, `tool`, `cell`.
    BASIS = "callgate.retry.basis",
    /// The chance that a retry succeeds, 0 to 1. Logs and spans.
    P_SUCCESS = "callgate.retry.p_success",
    /// True when a retry was allowed against the estimate, to learn.
    PROBE = "callgate.retry.probe",
    /// True when nobody reported on the call before its lease ran out. Logs and spans.
    BY_LEASE = "callgate.by_lease",
    /// Where the event stands among its call tree's. Logs and spans.
    SEQ = "callgate.seq",
    /// How often the same call was told to wait before; only where it was. Logs.
    WAITS = "callgate.waits",
    /// The evidence behind a broken loop: the session's last calls, each as fingerprint and result digest (16
    /// hexadecimal characters each, `-` for no result), with a colon between. Logs.
    LOOP_WINDOW = "callgate.loop.window",
    /// Against what a change lost its race. Metrics.
    CONFLICT_REASON = "callgate.conflict.reason",
    /// Why a value was left out: `name`, `card`, `key`, `pattern`. Metrics.
    REDACTION = "callgate.redaction",
    /// To whom a certificate is shown: `server` to callers, `database`. Metrics.
    CERTIFICATE = "callgate.certificate",
    /// What was deleted: `words` (judgements and reports that lost theirs), `trees`, `calls`, `months`, `counters` and
    /// others. Metrics.
    DELETED = "callgate.deleted.kind",
    /// The trace that the line belongs to, when there is one: 32 hexadecimal characters. Logs.
    TRACE_ID = "callgate.trace_id",
    /// Where spans, metrics and log lines go. Logs.
    OTLP_ENDPOINT = "callgate.otlp.endpoint",
    /// `traces`, `metrics` or `logs`. Logs.
    OTLP_SIGNAL = "callgate.otlp.signal",
    /// The activation of a policy, counted from 1. Logs.
    POLICY_REVISION = "callgate.policy.revision",
    /// SHA-256 of the policy's text; decisions name it by the first 16 digits. Logs.
    POLICY_HASH = "callgate.policy.hash",
    /// Who activated the policy. Logs.
    POLICY_BY = "callgate.policy.by",
    /// Why, in their words; for a server's own file, its path. Logs.
    POLICY_NOTE = "callgate.policy.note",
    /// What somebody did: `halted`, `answered`, `token_created` and the other kinds of the audit. On the line that each
    /// entry of the audit is told by (target `callgate::audit`), as are the next five.
    AUDIT_KIND = "callgate.audit.kind",
    /// Who did it.
    AUDIT_BY = "callgate.audit.by",
    /// By which credential: `local`, `token cgt_…`, `certificate …`, `jwt …`.
    AUDIT_CREDENTIAL = "callgate.audit.credential",
    /// From which address, where there is one.
    AUDIT_FROM = "callgate.audit.from",
    /// What was done, in words.
    AUDIT_WHAT = "callgate.audit.what",
    /// Why, in theirs, where they said.
    AUDIT_WHY = "callgate.audit.why",
    /// Why something failed. Logs.
    ERROR = "callgate.error",
}

names! {
    /// Names that OpenTelemetry has laid down.
    CONVENTIONS:
    /// On a span: `server` for an answered request.
    OTEL_KIND = "otel.kind",
    /// On a span: its name, where that is known only as it is made.
    OTEL_NAME = "otel.name",
    /// On a span: `ERROR` where it failed by the server's fault.
    OTEL_STATUS = "otel.status_code",
    /// Always `grpc`: who asks in JSON is answered by the same methods.
    RPC_SYSTEM = "rpc.system.name",
    /// `callgate.v1.GateService/Evaluate`; [`OTHER`] for what is no method of ours. Spans and metrics.
    RPC_METHOD = "rpc.method",
    /// `OK`, `DEADLINE_EXCEEDED`. Spans and metrics.
    RPC_STATUS = "rpc.response.status_code",
    /// The same where it is not `OK`; of a database's span the SQLSTATE, or why there is none. Spans and metrics.
    ERROR_TYPE = "error.type",
    /// Always `postgresql`. Spans.
    DB_SYSTEM = "db.system.name",
    /// The database and its schema: `callgate|callgate`. Spans.
    DB_NAMESPACE = "db.namespace",
    /// Always `SELECT`: what is written is written by functions. Spans.
    DB_OPERATION = "db.operation.name",
    /// What the statement does, in short. Spans.
    DB_SUMMARY = "db.query.summary",
    /// How many changes a batch has, from two on. Spans.
    DB_BATCH_SIZE = "db.operation.batch.size",
    /// The SQLSTATE of a failure. Spans.
    DB_STATUS = "db.response.status_code",
    /// The session's id. Logs and spans.
    SESSION = "gen_ai.conversation.id",
    /// The agent's name. Logs and spans.
    AGENT = "gen_ai.agent.id",
    /// The call's id, chosen by the caller. Logs and spans.
    CALL_ID = "gen_ai.tool.call.id",
    /// The tool's name. On metrics one of a hundred that a policy declares, else [`OTHER`].
    TOOL = "gen_ai.tool.name",
    /// On the resource: `callgate`, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` says otherwise.
    SERVICE_NAME = "service.name",
    /// On the resource: our version.
    SERVICE_VERSION = "service.version",
    /// On the resource: tells replicas apart.
    SERVICE_INSTANCE_ID = "service.instance.id",
}

/// Histogram, seconds: from a call of a service to the end of its answer, by [`RPC_METHOD`] and [`RPC_STATUS`].
pub const METRIC_RPC_DURATION: &str = "rpc.server.call.duration";

/// The value of [`RPC_STATUS`] for whoever got an answer.
pub const RPC_OK: &str = "OK";

/// The value of what is not of a bounded set.
pub const OTHER: &str = "_OTHER";

/// The value of [`RULE`] and [`FAILURE_KIND`] on metrics where there is none.
pub const NONE: &str = "none";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_ours_and_appears_once() {
        let names: Vec<&str> = [SPANS, METRICS, FIELDS].concat();
        let distinct: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(distinct.len(), names.len());
        for name in names {
            assert!(name.starts_with("callgate."), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'.' || b == b'_'), "{name}");
        }
    }

    /// Every string of a program's text that begins like a name of ours, and is not that of a file or of a setting of
    /// connections.
    fn ours(text: &str) -> BTreeSet<&str> {
        let is_no_file = |name: &&str| !name.ends_with(".yaml") && !name.ends_with(".lock");
        let is_no_setting = |name: &&str| *name != "callgate.tenants";
        let quoted = regex::Regex::new(r#""(callgate\.[a-z_.]+)""#).expect("a pattern");
        quoted
            .captures_iter(text)
            .filter_map(|found| found.get(1))
            .map(|name| name.as_str())
            .filter(is_no_file)
            .filter(is_no_setting)
            .collect()
    }

    /// The programs below a folder.
    fn programs(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                programs(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }

    /// What this file says of each name, as a page; its beginning is written by hand.
    fn page(old: &str) -> String {
        let source = include_str!("names.rs").split("#[cfg(test)]").next().expect("a source");
        let entry = regex::Regex::new(r#"((?:    /// .*\n)+)    [A-Z_]+ = "([^"]+)","#).expect("a pattern");
        let loose = regex::Regex::new(r#"((?:/// .*\n)+)pub const ([A-Z_]+): &str = "([^"]+)";"#).expect("a pattern");
        let link = regex::Regex::new(r"\[`([A-Z_]+)`\]").expect("a pattern");
        let value = |name: &str| {
            let line = regex::Regex::new(&format!(r#"\b{name}(?:: &str)? = "([^"]+)""#)).expect("a pattern");
            line.captures(source).map_or_else(|| panic!("{name} is none"), |found| format!("`{}`", &found[1]))
        };
        let told = |doc: &str| {
            let text =
                doc.lines().map(|line| line.trim().trim_start_matches("///").trim()).collect::<Vec<_>>().join(" ");
            link.replace_all(&text, |found: &regex::Captures<'_>| value(&found[1])).replace('|', "\\|")
        };
        let mut page = format!("{}\n", old.split("\n## ").next().expect("a beginning").trim_end());
        for (title, list) in [("Spans", "SPANS"), ("Metrics", "METRICS"), ("Fields of ours", "FIELDS")] {
            let from = source.find(&format!("\n    {list}:\n")).expect("a list");
            let part = &source[from..from + source[from..].find("\n}").expect("its end")];
            page.push_str(&format!("\n## {title}\n\n| name | is |\n|---|---|\n"));
            for found in entry.captures_iter(part) {
                page.push_str(&format!("| `{}` | {} |\n", &found[2], told(&found[1])));
            }
        }
        page.push_str("\n## Names that OpenTelemetry has laid down\n\n| name | is |\n|---|---|\n");
        let from = source.find("\n    CONVENTIONS:\n").expect("a list");
        for found in entry.captures_iter(&source[from..]) {
            page.push_str(&format!("| `{}` | {} |\n", &found[2], told(&found[1])));
        }
        for found in loose.captures_iter(source).filter(|found| found[2].starts_with("METRIC_")) {
            page.push_str(&format!("| `{}` | {} |\n", &found[3], told(&found[1])));
        }
        page
    }

    #[test]
    fn the_page_of_names_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/TELEMETRY.md");
        let old = std::fs::read_to_string(path).expect("a page");
        let page = page(&old);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &page).expect("written");
        }
        assert!(std::fs::read_to_string(path).expect("a page") == page, "UPDATE=1 writes {path} anew; then review it");
    }

    #[test]
    fn every_name_that_is_used_is_listed() {
        let listed: BTreeSet<&str> = [SPANS, METRICS, FIELDS].concat().into_iter().collect();
        let mut found = Vec::new();
        programs(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        for path in found {
            let text = std::fs::read_to_string(&path).expect("text");
            let unlisted: Vec<_> = ours(&text).into_iter().filter(|name| !listed.contains(name)).collect();
            assert!(unlisted.is_empty(), "{}: {unlisted:?}", path.display());
        }
    }
}
