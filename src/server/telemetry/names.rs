//! Names: every span, metric, attribute and log field, exactly once. Dashboards and alerts use these strings: add
//! names, and change none.
//!
//! A field has the same meaning in a log line, on a span and on a metric. Attributes of metrics have bounded sets of
//! values: decisions, rules, modes, outcomes, failure kinds, conflict reasons, and tools with a declared schema. They
//! never have a session, a call, or an undeclared name of a tool.

macro_rules! names {
    ($(#[doc = $all_doc:literal])+ $all:ident: $($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = $text;)+

        $(#[doc = $all_doc])+
        pub const $all: &[&str] = &[$($name,)+];
    };
}

/// Name of the service, and the scope of its spans and metrics.
pub const SERVICE: &str = "callgate";

pub use targets::{TARGET_AUDIT, TARGET_DECISION, TARGET_RECORD};

names! {
    /// Every span.
    SPANS:
    /// One call of a method; exporters name it by the method. All work for the call is below it.
    SPAN_RPC = "callgate.rpc",
    /// One Evaluate, from its decoding to its verdict.
    SPAN_EVALUATE = "callgate.evaluate",
    /// One BatchEvaluate: the Evaluates of one model turn. Each verdict is a [`SPAN_EVALUATE`] below it.
    SPAN_BATCH = "callgate.evaluate_batch",
    /// One report on a call.
    SPAN_RECORD = "callgate.record",
    /// The commit of a call, a report or a command, from the queue on. Of kind client, with a link to the batch that it
    /// joined.
    SPAN_COMMIT = "callgate.commit",
    /// One batch in the database; exporters name it `SELECT append`. It is below the first traced call of the batch,
    /// and has links to up to 128 others.
    SPAN_COMMIT_BATCH = "callgate.commit_batch",
    /// The load of a call tree after a cache miss; exporters name it `SELECT call_tree call outcome`.
    SPAN_LOAD = "callgate.load",
}

/// On the span of an Evaluate: a finding of one rule, with its rule, decision, reason, level, count and mode.
pub const EVENT_FINDING: &str = "finding";

names! {
    /// Every metric.
    METRICS:
    /// Counter, `{evaluation}`: verdicts, by [`DECISION`], [`RULE`], [`REASON`], [`MODE`] and [`TOOL`].
    METRIC_EVALUATIONS = "callgate.evaluations",
    /// Gauge, 0 to 1: share of traces that are sampled, of those that callers sample or that begin here. Only if spans
    /// are exported and `OTEL_TRACES_SAMPLER` is not set.
    METRIC_TRACE_SHARE = "callgate.trace.share",
    /// Histogram, 0 to 1: used share of a limit after a verdict, one value for each limit in use, by [`BUDGET_SCOPE`]
    /// and [`BUDGET`]. Actual costs may pass a limit, with a value above 1.
    METRIC_BUDGET_USED = "callgate.budget.used",
    /// Counter, `{finding}`: all findings, deciding or not, by [`RULE`], [`REASON`], [`DECISION`] and [`MODE`]. A
    /// budget near or at its limit has the rule `budget`, a used-up grant has the reason `grant_exceeded`.
    METRIC_FINDINGS = "callgate.findings",
    /// Counter, `{evaluation}`: verdicts, by [`TENANT`] and [`DECISION`].
    METRIC_TENANT_EVALUATIONS = "callgate.tenant.evaluations",
    /// Counter, `{report}`: reports on calls, by [`OUTCOME`], [`FAILURE_KIND`] and [`TOOL`].
    METRIC_RECORDS = "callgate.records",
    /// Counter, `{advice}`: advice after failures, by [`FAILURE_KIND`], [`RETRYABLE`], [`REPEAT`], [`BASIS`] and
    /// [`PROBE`].
    METRIC_ADVICE = "callgate.advice",
    /// Counter, `{retry}`: retries with a known result, by [`FAILURE_KIND`], [`RETRYABLE`] (as advised), [`RETRY_OK`]
    /// and [`PROBE`]. Advice was followed if [`RETRYABLE`] is `true`, and was right if both are equal.
    METRIC_RETRIES = "callgate.retries",
    /// Histogram, 0 to 1: predicted chances of these retries, by [`RETRY_OK`]. The estimate is calibrated if the share
    /// of successes in each bucket equals its chance.
    METRIC_RETRY_PREDICTED = "callgate.retry.predicted",
    /// Counter, `{call}`: calls with arguments that were coerced from another type, by [`TOOL`]. The log and the view
    /// `coercions` have the fields.
    METRIC_COERCIONS = "callgate.coercions",
    /// Histogram, seconds: from the request to the committed verdict.
    METRIC_EVALUATE_DURATION = "callgate.evaluate.duration",
    /// Histogram, seconds: from a report to the committed outcome.
    METRIC_RECORD_DURATION = "callgate.record.duration",
    /// Histogram, seconds: one commit of a batch.
    METRIC_COMMIT_DURATION = "callgate.commit.duration",
    /// Histogram, `{append}`: changes per commit.
    METRIC_COMMIT_BATCH_SIZE = "callgate.commit.batch_size",
    /// Counter, `{conflict}`: changes that were decided again after a conflict, by [`CONFLICT_REASON`].
    METRIC_COMMIT_CONFLICTS = "callgate.commit.conflicts",
    /// Counter, `{loop}`: findings of loop detectors, by [`RULE`], [`LEVEL`] and [`MODE`].
    METRIC_LOOPS = "callgate.loops",
    /// Counter, `{call}`: calls whose lease expired without a report. Their outcome is unknown.
    METRIC_LEASES_EXPIRED = "callgate.leases.expired",
    /// Counter, `{call}`: writes of which two attempts succeeded, so that the effect happened twice.
    METRIC_DOUBLE_EFFECTS = "callgate.double_effects",
    /// Gauge, `{tree}`: call trees in the cache of this replica.
    METRIC_CACHE_TREES = "callgate.cache.trees",
    /// Gauge, bytes: approximate size of the cache.
    METRIC_CACHE_SIZE = "callgate.cache.size",
    /// Counter, `{lookup}`: lookups of call trees in the cache, by [`CACHE_HIT`].
    METRIC_CACHE_LOOKUPS = "callgate.cache.lookups",
    /// Gauge, `{append}`: changes of this replica that wait for the next commit or have a place reserved in it, at most
    /// 4,096.
    METRIC_QUEUE_DEPTH = "callgate.queue.depth",
    /// Histogram, seconds: wait of the oldest change of a commit until its batch was sent, one value per commit.
    METRIC_QUEUE_WAIT = "callgate.queue.wait.duration",
    /// Gauge, 0 or 1: 1 while the database responds to this replica and stores its changes.
    METRIC_STORE_UP = "callgate.store.up",
    /// Gauge, `{call}`: Evaluates being judged.
    METRIC_AT_WORK = "callgate.admission.in_progress",
    /// Gauge, `{call}`: Evaluates queued by admission control.
    METRIC_WAITING = "callgate.admission.queued",
    /// Histogram, seconds: time of an Evaluate in the queue of admission control; 0 if it was admitted at once.
    METRIC_ADMISSION_WAIT = "callgate.admission.wait.duration",
    /// Counter, `{request}`: Evaluates shed at once because of overload (`OVERLOADED`).
    METRIC_TURNED_AWAY = "callgate.shed",
    /// Gauge, `{revision}`: activations by which this replica's policy is older than the active one, of the tenant with
    /// the oldest. 0 is healthy.
    METRIC_POLICY_BEHIND = "callgate.policy.behind",
    /// Gauge, seconds: time since this replica last read which policies are active. After more than some seconds it may
    /// use older policies than other replicas.
    METRIC_POLICY_UNCONFIRMED = "callgate.policy.unconfirmed",
    /// Gauge, `{revision}`: activation, counted from 1, of this replica's policy for the tenant `default`; 0 for the
    /// built-in policy.
    METRIC_POLICY_REVISION = "callgate.policy.revision",
    /// Gauge, seconds: time since this replica last read the retry profiles. After more than some seconds its advice is
    /// based on older data than that of other replicas.
    METRIC_PROFILES_AGE = "callgate.profiles.age",
    /// Gauge, `{approval}`: open approval requests of the whole database. Every replica reports the same value, as last
    /// read. It does not change while the database is unavailable.
    METRIC_APPROVALS_OPEN = "callgate.approvals.open",
    /// Gauge, seconds: age of the oldest open approval request of the whole database; 0 without one.
    METRIC_APPROVALS_OLDEST = "callgate.approvals.oldest",
    /// Gauge, `{session}`: sessions of the whole database that wait for an approval.
    METRIC_APPROVALS_SESSIONS = "callgate.approvals.sessions",
    /// Histogram, seconds: from an approval request to its answer, by [`ANSWER`]. Expired requests are not included.
    METRIC_APPROVALS_WAIT = "callgate.approvals.wait.duration",
    /// Gauge, `{session}`: sessions of the whole database that got a STOP within the last hour, and no other verdict
    /// since. Halted sessions are included after their next call. Only the newest 20,000 STOPs of each tenant are read.
    /// For sessions that wait for an approval, see [`METRIC_APPROVALS_SESSIONS`].
    METRIC_SESSIONS_STOPPED = "callgate.sessions.stopped",
    /// Gauge, `{halt}`: halts in force in the whole database, by [`HALT_KIND`].
    METRIC_HALTS = "callgate.halts",
    /// Gauge, seconds: remaining validity of a certificate that this replica presents, by [`CERTIFICATE`].
    METRIC_CERTIFICATE_LEFT = "callgate.certificate.remaining",
    /// Counter, `{value}`: redacted secrets, by [`REDACTION`].
    METRIC_REDACTIONS = "callgate.redactions",
    /// Counter, `{run}`: runs of background workers, by [`WORKER`] and [`OUTCOME`] (`success`, `error`).
    METRIC_WORKER_RUNS = "callgate.worker.runs",
    /// Counter, `{attempt}`: attempts to send a notification, by [`CHANNEL`], [`NOTIFIED_EVENT`] and [`OUTCOME`]
    /// (`success`; `error`, which is retried; `cancelled`, when nobody needs it any more).
    METRIC_NOTIFICATIONS = "callgate.notifications",
    /// Counter, `{row}`: rows deleted after their retention period, by [`DELETED`].
    METRIC_DELETED = "callgate.deleted",
    /// Gauge, seconds: difference between this replica's clock and the database's. Beyond 300 the replica deletes
    /// nothing.
    METRIC_CLOCK_APART = "callgate.clock.difference",
    /// Gauge, seconds: delay of deletions after the retention period, because the database's clock advanced without a
    /// running server. Of the whole database.
    METRIC_RETENTION_DELAY = "callgate.retention.delay",
    /// Gauge, `{thread}`: threads that serve requests.
    METRIC_RUNTIME_WORKERS = "callgate.runtime.workers",
    /// Gauge, `{task}`: tasks that have started and not ended: connections, calls, workers.
    METRIC_RUNTIME_TASKS = "callgate.runtime.tasks",
    /// Gauge, `{task}`: tasks that are ready and wait for a thread.
    METRIC_RUNTIME_QUEUE = "callgate.runtime.queue.depth",
    /// Counter, `{request}`: calls refused for their credential, by [`TENANT`] (of the credential; [`NONE`] for an
    /// unknown one) and [`REFUSAL`].
    METRIC_CREDENTIALS_REFUSED = "callgate.credentials.refused",
    /// Gauge, `{tenant}`: tenants that this replica does not serve, because it lacks their keys (`KEY_MISSING`).
    METRIC_TENANTS_LOCKED = "callgate.tenants.locked",
    /// Gauge, 0 or 1: 1 while the policy file is rejected. The former policy stays active, and a start would fail. Only
    /// with `--policy`.
    METRIC_POLICY_FILE_REJECTED = "callgate.policy.file.rejected",
    /// Gauge: elapsed share of the lifetime of a certificate that this replica presents, by [`CERTIFICATE`].
    METRIC_CERTIFICATE_USED = "callgate.certificate.lifetime.used",
    /// Gauge, seconds: remaining validity of the token that expires next, by [`TENANT`]: of the tokens that were used
    /// within the hour and expire. Of the whole database.
    METRIC_TOKEN_LEFT = "callgate.token.left",
    /// Gauge, 0 to 1: elapsed share of the lifetime of the same token, by [`TENANT`].
    METRIC_TOKEN_USED = "callgate.token.lifetime.used",
    /// Gauge, `{budget}`: budgets of tenants and agents of this UTC day, by [`TENANT`], [`BUDGET_SCOPE`] and
    /// [`BUDGET_LEVEL`], counted once a minute. Of the whole database.
    METRIC_BUDGETS_NEAR = "callgate.budgets.near",
    /// Gauge, seconds: age of the newest complete backup in the directory of `--backups`; since 1970 without one.
    METRIC_BACKUP_AGE = "callgate.backup.age",
    /// Gauge, 0 or 1: 1 if the last verification found the tenant's audit log changed, by [`TENANT`]. Every replica
    /// verifies the audit logs at its start and every six hours, and when an operator does.
    METRIC_AUDIT_BROKEN = "callgate.audit.broken",
    /// Gauge, `{description}`: changed descriptions of MCP tools, neither accepted nor rejected, by [`TENANT`].
    METRIC_CHANGED_TOOLS = "callgate.tools.changed",
}

names! {
    /// Every attribute and log field of callgate.
    FIELDS:
    /// Number of the tenant. On metrics one of fifty, else `_OTHER`.
    TENANT = "callgate.tenant",
    /// Fields of the arguments that were coerced, without indexes of items. Logs.
    COERCED = "callgate.coerced",
    /// `ALLOW`, `ASK`, `WAIT`, `REUSE`, `DENY`, `STOP`. Logs and spans: the applied decision. Metrics: the policy's
    /// decision, and [`MODE`] shows whether it was applied.
    DECISION = "callgate.decision",
    /// The policy's decision, if shadow mode changed it. Logs and spans.
    WOULD = "callgate.would",
    /// The rule that decided or warned, by the name of its file. On metrics [`NONE`] without a finding.
    RULE = "callgate.rule",
    /// The stable reason. On metrics [`NONE`] without a finding.
    REASON = "callgate.reason",
    /// Level of the loop: `warning`, `critical`, `break`. Logs and spans.
    LEVEL = "callgate.level",
    /// The rule's count. Logs and spans.
    COUNT = "callgate.count",
    /// Number of the permitted attempt, from 1. Logs and spans.
    ATTEMPT = "callgate.attempt",
    /// Fingerprint of the call: 16 hexadecimal characters of its hash. It replaces the arguments, which are never
    /// logged. Logs and spans.
    FINGERPRINT = "callgate.fingerprint",
    /// The policy that judged: the first 16 hexadecimal digits of its hash. Logs and spans.
    POLICY = "callgate.policy",
    /// True if this verdict was returned before for the same call_id. Logs and spans.
    REPLAYED = "callgate.replayed",
    /// True if the policy's decision was applied, false in shadow mode. Logs and spans.
    ENFORCED = "callgate.enforced",
    /// Time to wait before the next attempt, in milliseconds. Logs and spans.
    RETRY_AFTER_MS = "callgate.retry_after_ms",
    /// `enforce` or `shadow`. Metrics.
    MODE = "callgate.mode",
    /// Outcome of a call: `running`, `success`, `error`, `cancelled`, `unknown`, in metrics also [`NEGATIVE`].
    OUTCOME = "callgate.outcome",
    /// Failure kind, of a closed set. On metrics [`NONE`] without a failure.
    FAILURE_KIND = "callgate.failure_kind",
    /// True if a retry with the same arguments is worth it.
    RETRYABLE = "callgate.retryable",
    /// Party that may execute a failed call again: `by_client`, `by_model`, `by_person`, `never`.
    REPEAT = "callgate.retry.repeat",
    /// True if a call did not succeed and may have taken effect. Logs and spans.
    EFFECT_OPEN = "callgate.effect_open",
    /// True if another attempt of the same call succeeded too. Logs and spans.
    DOUBLE_EFFECT = "callgate.double_effect",
    /// Data behind the chance of a retry: `prior`, `kind`, `tool`, `cell`.
    BASIS = "callgate.retry.basis",
    /// Chance that a retry succeeds, 0 to 1. Logs and spans.
    P_SUCCESS = "callgate.retry.p_success",
    /// True if a retry was allowed against the estimate, as a probe.
    PROBE = "callgate.retry.probe",
    /// True if the lease expired without a report. Logs and spans.
    BY_LEASE = "callgate.by_lease",
    /// Position of the event in its call tree. Logs and spans.
    SEQ = "callgate.seq",
    /// Number of earlier WAITs for the same call, if any. Logs.
    WAITS = "callgate.waits",
    /// Evidence of a broken loop: the session's last calls, each as fingerprint and result digest (16 hexadecimal
    /// characters each, `-` without a result), separated by a colon. Logs.
    LOOP_WINDOW = "callgate.loop.window",
    /// True if a retry succeeded. Metrics.
    RETRY_OK = "callgate.retry.ok",
    /// True if a call tree was in the cache. Metrics.
    CACHE_HIT = "callgate.cache.hit",
    /// Answer to an approval request: `approved`, `denied`, `withdrawn`. Metrics.
    ANSWER = "callgate.answer",
    /// Scope of a limit: `run`, `call_tree`, `agent`, `tenant`. Metrics.
    BUDGET_SCOPE = "callgate.budget.scope",
    /// Quantity of a limit, by its policy key: `max_steps`, `max_tokens`, `max_total_cost_usd`. Metrics.
    BUDGET = "callgate.budget",
    /// Level of a budget: `near` (four fifths are used, or more), `used_up`. Metrics.
    BUDGET_LEVEL = "callgate.budget.level",
    /// Cause of a refused credential: `unknown` (it does not hold), `unchecked` (the database is unavailable),
    /// `too_many` (too many failures from that address), `role` (it lacks the role). Metrics.
    REFUSAL = "callgate.refusal",
    /// Scope of a halt: `session`, `agent`, `tool`, `tenant`. Metrics.
    HALT_KIND = "callgate.halt.kind",
    /// The version that had changed at a conflict. Metrics.
    CONFLICT_REASON = "callgate.conflict.reason",
    /// Cause of a redaction: `name`, `card`, `key`, `pattern`. Metrics.
    REDACTION = "callgate.redaction",
    /// The party to which a certificate is presented: `server` to callers, `database`. Metrics.
    CERTIFICATE = "callgate.certificate",
    /// Kind of the deleted rows: `words` (judgements and reports that lost their texts), `trees`, `calls`, `months`,
    /// `counters` and others. Metrics.
    DELETED = "callgate.deleted.kind",
    /// A background worker: `leases`, `partitions`, `sharing`, `credentials`, `learning`, `stock`, `tenants`, `clocks`,
    /// `retention`, `calls_hourly`, `self_corrections`, `audit`, `audit_stream`. Metrics.
    WORKER = "callgate.worker",
    /// Kind of a notified destination: `webhook`, `slack`, `email`. Metrics.
    CHANNEL = "callgate.notification.channel",
    /// Event of a notification: `requested`, `escalated`, `decided`, `expired`, `halted`, `budget`, `circuit_open`, and
    /// [`NONE`] on the zero with which each channel begins. Metrics.
    NOTIFIED_EVENT = "callgate.notification.event",
    /// Trace of the log line, if any: 32 hexadecimal characters. Logs.
    TRACE_ID = "callgate.trace_id",
    /// Destination of spans, metrics and log lines. Logs.
    OTLP_ENDPOINT = "callgate.otlp.endpoint",
    /// `traces`, `metrics` or `logs`. Logs.
    OTLP_SIGNAL = "callgate.otlp.signal",
    /// Activation of a policy, counted from 1. Logs.
    POLICY_REVISION = "callgate.policy.revision",
    /// SHA-256 of the policy's text; verdicts have its first 16 digits. Logs.
    POLICY_HASH = "callgate.policy.hash",
    /// Author of the activation. Logs.
    POLICY_BY = "callgate.policy.by",
    /// Reason of the activation; for a server's own file, its path. Logs.
    POLICY_NOTE = "callgate.policy.note",
    /// Kind of an action: `halted`, `answered`, `token_created` and the other kinds of the audit log. On the log line
    /// of each audit entry (target `callgate::audit`), as are the next five.
    AUDIT_KIND = "callgate.audit.kind",
    /// Author of the action.
    AUDIT_BY = "callgate.audit.by",
    /// Credential of the author: `local`, `token cgt_…`, `certificate …`, `jwt …`.
    AUDIT_CREDENTIAL = "callgate.audit.credential",
    /// Address of the author, if any.
    AUDIT_FROM = "callgate.audit.address",
    /// Description of the action.
    AUDIT_WHAT = "callgate.audit.action",
    /// Reason of the author, if any.
    AUDIT_WHY = "callgate.audit.reason",
    /// Number of an audit entry in its tenant's log, from 1. On its record for the collector alone, as is the next.
    AUDIT_NUMBER = "callgate.audit.number",
    /// Hash of an audit entry, hexadecimal: with its number an anchor of `callgate audit verify`.
    AUDIT_HASH = "callgate.audit.hash",
    /// Cause of a failure. Logs.
    ERROR = "callgate.error",
}

names! {
    /// Names by OpenTelemetry's conventions.
    CONVENTIONS:
    /// On a span: `server` for a served request.
    OTEL_KIND = "otel.kind",
    /// On a span: its name, if it is known only at its creation.
    OTEL_NAME = "otel.name",
    /// On a span: `ERROR` if it failed through the server's fault.
    OTEL_STATUS = "otel.status_code",
    /// Always `grpc`: JSON requests are served by the same methods.
    RPC_SYSTEM = "rpc.system.name",
    /// `callgate.v1.GateService/Evaluate`; [`OTHER`] for an unknown method. Spans and metrics.
    RPC_METHOD = "rpc.method",
    /// `OK`, `DEADLINE_EXCEEDED`. Spans and metrics.
    RPC_STATUS = "rpc.response.status_code",
    /// The status, unless it is `OK`. On a span of the database: the SQLSTATE, or why there is none. Spans and metrics.
    ERROR_TYPE = "error.type",
    /// Always `postgresql`. Spans.
    DB_SYSTEM = "db.system.name",
    /// The database and its schema: `callgate|callgate`. Spans.
    DB_NAMESPACE = "db.namespace",
    /// Always `SELECT`: functions do the writes. Spans.
    DB_OPERATION = "db.operation.name",
    /// Short description of the statement. Spans.
    DB_SUMMARY = "db.query.summary",
    /// Number of changes in a batch, from two on. Spans.
    DB_BATCH_SIZE = "db.operation.batch.size",
    /// The SQLSTATE of a failure. Spans.
    DB_STATUS = "db.response.status_code",
    /// Id of the session. Logs and spans.
    SESSION = "gen_ai.conversation.id",
    /// Name of the agent. Logs and spans.
    AGENT = "gen_ai.agent.id",
    /// Id of the call, chosen by the caller. Logs and spans.
    CALL_ID = "gen_ai.tool.call.id",
    /// Name of the tool. On metrics one of a hundred that a policy declares, else [`OTHER`].
    TOOL = "gen_ai.tool.name",
    /// On the resource: `callgate`, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` sets another name.
    SERVICE_NAME = "service.name",
    /// On the resource: version of the server.
    SERVICE_VERSION = "service.version",
    /// On the resource: identifies the replica.
    SERVICE_INSTANCE_ID = "service.instance.id",
    /// Purpose of the connections, by their name in the database: `callgate reader`. Metrics.
    CONNECTION_POOL = "db.client.connection.pool.name",
    /// `used` or `idle`. Metrics.
    CONNECTION_STATE = "db.client.connection.state",
    /// `user` or `system`. Metrics.
    CPU_MODE = "cpu.mode",
}

/// Histogram, seconds: from a call of a method to the end of its answer, by [`RPC_METHOD`] and [`RPC_STATUS`].
pub const METRIC_RPC_DURATION: &str = "rpc.server.call.duration";
/// Gauge, `{connection}`: connections of this replica to the database, by [`CONNECTION_POOL`] and [`CONNECTION_STATE`].
pub const METRIC_CONNECTIONS: &str = "db.client.connection.count";
/// Gauge, `{connection}`: maximum number of connections, by [`CONNECTION_POOL`].
pub const METRIC_CONNECTIONS_MAX: &str = "db.client.connection.max";
/// Counter, seconds: processor time of this process, by [`CPU_MODE`]. Linux only, like all metrics of the process.
pub const METRIC_CPU_TIME: &str = "process.cpu.time";
/// UpDownCounter, bytes: resident memory of this process.
pub const METRIC_MEMORY: &str = "process.memory.usage";
/// UpDownCounter, `{file_descriptor}`: open files and connections of this process.
pub const METRIC_FILES: &str = "process.unix.file_descriptor.count";
/// Gauge, seconds: time since the start of this process.
pub const METRIC_UPTIME: &str = "process.uptime";
/// The value of [`RPC_STATUS`] for a success.
pub const RPC_OK: &str = "OK";

/// The value for names outside a bounded set.
pub const OTHER: &str = "_OTHER";

/// The value of [`OUTCOME`] for a `check` whose result is a failure of what it checks.
pub const NEGATIVE: &str = "negative";

/// The value of [`RULE`] and [`FAILURE_KIND`] on metrics without one.
pub const NONE: &str = "none";

mod targets;
#[cfg(test)]
mod tests;
