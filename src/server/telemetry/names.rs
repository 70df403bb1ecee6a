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
    /// Gauge, 0 to 1: the share of traces that are kept, of those that callers keep or that begin here. Only where
    /// spans are sent and `OTEL_TRACES_SAMPLER` does not say which.
    METRIC_TRACE_SHARE = "callgate.trace.share",
    /// Histogram, 0 to 1: how much of a limit is used after a verdict, one figure for each limit that something
    /// is used of, by [`BUDGET_SCOPE`] and [`BUDGET`]. Above 1 it was passed, as actual costs may.
    METRIC_BUDGET_USED = "callgate.budget.used",
    /// Counter, `{finding}`: all that rules had to say, whether or not it decided, by [`RULE`], [`REASON`],
    /// [`DECISION`] and [`MODE`]. A budget that is nearly or wholly used is of the rule `budget`, a grant that is used
    /// up of the reason `grant_exceeded`.
    METRIC_FINDINGS = "callgate.findings",
    /// Counter, `{evaluation}`: verdicts, by [`TENANT`] and [`DECISION`].
    METRIC_TENANT_EVALUATIONS = "callgate.tenant.evaluations",
    /// Counter, `{report}`: reports on calls, by [`OUTCOME`], [`FAILURE_KIND`] and [`TOOL`].
    METRIC_RECORDS = "callgate.records",
    /// Counter, `{advice}`: answers to failures, by [`FAILURE_KIND`], [`RETRYABLE`], [`REPEAT`], [`BASIS`] and
    /// [`PROBE`].
    METRIC_ADVICE = "callgate.advice",
    /// Counter, `{retry}`: retries with the same arguments of which it is known what came, by [`FAILURE_KIND`],
    /// [`RETRYABLE`] (as it was said), [`RETRY_OK`] and [`PROBE`]. Advice was followed where `true` was said, and was
    /// right where both say the same.
    METRIC_RETRIES = "callgate.retries",
    /// Histogram, 0 to 1: the chances that these retries were given, by [`RETRY_OK`]. Well calibrated is a bucket in
    /// which as large a share succeeded as it says.
    METRIC_RETRY_PREDICTED = "callgate.retry.predicted",
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
    /// Counter, `{call}`: calls that act, and of which two attempts succeeded. What they do was done twice.
    METRIC_DOUBLE_EFFECTS = "callgate.double_effects",
    /// Gauge, `{tree}`: call trees that this replica holds in memory.
    METRIC_CACHE_TREES = "callgate.cache.trees",
    /// Gauge, bytes: about how much memory they take.
    METRIC_CACHE_SIZE = "callgate.cache.size",
    /// Counter, `{lookup}`: call trees that were asked for, by [`CACHE_HIT`].
    METRIC_CACHE_LOOKUPS = "callgate.cache.lookups",
    /// Gauge, `{append}`: changes of this replica that wait for the next commit, or have a seat for it, at most 4,096.
    METRIC_QUEUE_DEPTH = "callgate.queue.depth",
    /// Histogram, seconds: how long the oldest change of a commit had waited when its batch was sent, one figure a
    /// commit.
    METRIC_QUEUE_WAIT = "callgate.queue.wait.duration",
    /// Gauge, 0 or 1: 1 while the database answers this replica, and stores what it is given.
    METRIC_STORE_UP = "callgate.store.up",
    /// Gauge, `{call}`: Evaluates that are being judged.
    METRIC_AT_WORK = "callgate.admission.at_work",
    /// Gauge, `{call}`: Evaluates that wait for their turn.
    METRIC_WAITING = "callgate.admission.waiting",
    /// Histogram, seconds: how long an Evaluate waited for its turn; 0 where it was let in at once.
    METRIC_ADMISSION_WAIT = "callgate.admission.wait.duration",
    /// Counter, `{request}`: Evaluates that were told at once that the server is overloaded.
    METRIC_TURNED_AWAY = "callgate.turned_away",
    /// Gauge, `{revision}`: by how many activations the policy that this replica judges by is older than the active
    /// one, of the tenant where it is the oldest. 0 is well.
    METRIC_POLICY_BEHIND = "callgate.policy.behind",
    /// Gauge, seconds: how long ago this replica last read which policies are active. More than some seconds means that
    /// it may judge by older ones than the rest.
    METRIC_POLICY_UNCONFIRMED = "callgate.policy.unconfirmed",
    /// Gauge, `{revision}`: the activation, counted from 1, that this replica judges the plane's own tenant by; 0 for
    /// the built-in policy.
    METRIC_POLICY_REVISION = "callgate.policy.revision",
    /// Gauge, seconds: how long ago this replica last read what was learned of retries. More than some seconds means
    /// that it advises by older figures than the rest.
    METRIC_PROFILES_AGE = "callgate.profiles.age",
    /// Gauge, `{approval}`: questions to people that are open. Of the whole database: every replica tells the same, as
    /// it was read last. While the database is away that stands still.
    METRIC_APPROVALS_OPEN = "callgate.approvals.open",
    /// Gauge, seconds: since the oldest of them was asked; 0 without any. Of the whole database.
    METRIC_APPROVALS_OLDEST = "callgate.approvals.oldest",
    /// Gauge, `{session}`: sessions that wait for one of them. Of the whole database.
    METRIC_APPROVALS_SESSIONS = "callgate.approvals.sessions",
    /// Histogram, seconds: from a question to its answer, by [`ANSWER`]. One that ran out has none.
    METRIC_APPROVALS_WAIT = "callgate.approvals.wait.duration",
    /// Gauge, `{session}`: sessions that were told STOP within the last hour, and nothing else since. Of the whole
    /// database. Halted ones are among them once they ask. Of each tenant the newest 20,000 STOPs are looked at. Those
    /// that wait for a person: [`METRIC_APPROVALS_SESSIONS`].
    METRIC_SESSIONS_STOPPED = "callgate.sessions.stopped",
    /// Gauge, `{halt}`: halts in force, by [`HALT_KIND`]. Of the whole database.
    METRIC_HALTS = "callgate.halts",
    /// Gauge, seconds: how long a certificate still holds that this replica shows, by [`CERTIFICATE`]. Below 0 it has
    /// ended.
    METRIC_CERTIFICATE_LEFT = "callgate.certificate.left",
    /// Counter, `{value}`: secrets left out of what was stored, by [`REDACTION`].
    METRIC_REDACTIONS = "callgate.redactions",
    /// Counter, `{run}`: runs of background workers, by [`WORKER`] and [`OUTCOME`] (`success`, `error`).
    METRIC_WORKER_RUNS = "callgate.worker.runs",
    /// Counter, `{row}`: rows deleted since they were past their term, by [`DELETED`].
    METRIC_DELETED = "callgate.deleted",
    /// Gauge, seconds: how far this replica's clock is from the database's. Beyond 300 it deletes nothing.
    METRIC_CLOCK_APART = "callgate.clock.apart",
    /// Gauge, seconds: by so much later than at its term is deleted what is past it, since the database's clock passed
    /// over time without a server. Of the whole database.
    METRIC_RETENTION_DELAY = "callgate.retention.delay",
    /// Gauge, `{thread}`: threads that answer calls.
    METRIC_RUNTIME_WORKERS = "callgate.runtime.workers",
    /// Gauge, `{task}`: tasks that were begun and have not ended: connections, calls, workers.
    METRIC_RUNTIME_TASKS = "callgate.runtime.tasks",
    /// Gauge, `{task}`: tasks that could go on and wait for a thread.
    METRIC_RUNTIME_QUEUE = "callgate.runtime.queue.depth",
}

names! {
    /// Every attribute and log field of ours.
    FIELDS:
    /// The tenant's number. On metrics one of fifty, else `_OTHER`.
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
    /// Who may execute a failed call again: `by_client`, `by_model`, `by_person`, `never`.
    REPEAT = "callgate.retry.repeat",
    /// True when a call did not succeed and may have taken effect all the same. Logs and spans.
    EFFECT_OPEN = "callgate.effect_open",
    /// True when another attempt of the same call has succeeded too. Logs and spans.
    DOUBLE_EFFECT = "callgate.double_effect",
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
    /// Whether a retry succeeded. Metrics.
    RETRY_OK = "callgate.retry.ok",
    /// Whether a call tree was in memory. Metrics.
    CACHE_HIT = "callgate.cache.hit",
    /// What became of a question: `approved`, `denied`, `withdrawn`. Metrics.
    ANSWER = "callgate.answer",
    /// Whose limit it is: `run`, `call_tree`, `agent`, `tenant`. Metrics.
    BUDGET_SCOPE = "callgate.budget.scope",
    /// What is limited, as the policy names it: `max_steps`, `max_tokens`, `max_total_cost_usd`. Metrics.
    BUDGET = "callgate.budget",
    /// What a halt stops: `session`, `agent`, `tool`, `tenant`. Metrics.
    HALT_KIND = "callgate.halt.kind",
    /// Against what a change lost its race. Metrics.
    CONFLICT_REASON = "callgate.conflict.reason",
    /// Why a value was left out: `name`, `card`, `key`, `pattern`. Metrics.
    REDACTION = "callgate.redaction",
    /// To whom a certificate is shown: `server` to callers, `database`. Metrics.
    CERTIFICATE = "callgate.certificate",
    /// What was deleted: `words` (judgements and reports that lost theirs), `trees`, `calls`, `months`, `counters` and
    /// others. Metrics.
    DELETED = "callgate.deleted.kind",
    /// A background worker: `leases`, `partitions`, `sharing`, `credentials`, `learning`, `stock`, `tenants`, `clocks`,
    /// `retention`, `self_corrections`. Metrics.
    WORKER = "callgate.worker",
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
    /// What connections are for, as the database knows them by: `callgate reader`. Metrics.
    CONNECTION_POOL = "db.client.connection.pool.name",
    /// `used` or `idle`. Metrics.
    CONNECTION_STATE = "db.client.connection.state",
    /// `user` or `system`. Metrics.
    CPU_MODE = "cpu.mode",
}

/// Histogram, seconds: from a call of a service to the end of its answer, by [`RPC_METHOD`] and [`RPC_STATUS`].
pub const METRIC_RPC_DURATION: &str = "rpc.server.call.duration";

/// Gauge, `{connection}`: this replica's connections to the database, by [`CONNECTION_POOL`] and [`CONNECTION_STATE`].
pub const METRIC_CONNECTIONS: &str = "db.client.connection.count";

/// Gauge, `{connection}`: the most that there may be, by [`CONNECTION_POOL`].
pub const METRIC_CONNECTIONS_MAX: &str = "db.client.connection.max";

/// Counter, seconds: processor time of this process, by [`CPU_MODE`]. Linux only, as all of a process.
pub const METRIC_CPU_TIME: &str = "process.cpu.time";

/// UpDownCounter, bytes: memory that this process has in use.
pub const METRIC_MEMORY: &str = "process.memory.usage";

/// UpDownCounter, `{file_descriptor}`: files and connections that this process has open.
pub const METRIC_FILES: &str = "process.unix.file_descriptor.count";

/// Gauge, seconds: how long this process has been running.
pub const METRIC_UPTIME: &str = "process.uptime";

/// The value of [`RPC_STATUS`] for whoever got an answer.
pub const RPC_OK: &str = "OK";

/// The value of what is not of a bounded set.
pub const OTHER: &str = "_OTHER";

/// The value of [`RULE`] and [`FAILURE_KIND`] on metrics where there is none.
pub const NONE: &str = "none";

#[cfg(test)]
mod tests;
