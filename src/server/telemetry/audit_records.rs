//! Audit entries as log records of OpenTelemetry, in exports of their own: unlike a log line, an entry waits until the
//! collector has accepted it.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    InstrumentationScope,
    logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity},
};
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _, SdkLogRecord, SdkLogger, SdkLoggerProvider};

use super::{error_texts::plain, names, otlp, watch::WatchedExporter};
use callgate_core::domain::{audit::ChainEntry, ids::TenantId, time::Timestamp};

/// Exporter of audit entries to the collector of log lines.
pub struct AuditExporter {
    exporter: WatchedExporter<LogExporter>,
    /// Makes empty records alone.
    logger: SdkLogger,
    scope: InstrumentationScope,
}

impl fmt::Debug for AuditExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditExporter").finish_non_exhaustive()
    }
}

impl AuditExporter {
    pub(super) fn new(mut exporter: WatchedExporter<LogExporter>) -> Self {
        exporter.set_resource(&otlp::resource());
        let logger = SdkLoggerProvider::builder().build().logger(names::TARGET_AUDIT);
        Self { exporter, logger, scope: InstrumentationScope::builder(names::TARGET_AUDIT).build() }
    }

    /// Exports entries of a tenant, and waits until the collector has accepted them.
    ///
    /// # Errors
    /// Its rejection, or no answer in time: then it may have some of them.
    pub async fn export(&self, tenant: TenantId, entries: &[ChainEntry], now: Timestamp) -> Result<(), String> {
        let records: Vec<SdkLogRecord> = entries.iter().map(|entry| self.record(tenant, entry, now)).collect();
        let records: Vec<_> = records.iter().map(|record| (record, &self.scope)).collect();
        self.exporter.export(LogBatch::new(&records)).await.map_err(|error| plain(&error.to_string()))
    }

    fn record(&self, tenant: TenantId, entry: &ChainEntry, now: Timestamp) -> SdkLogRecord {
        let [by, credential, from, session, what, why] = entry.words.each_ref().map(|word| word.text.as_deref());
        let mut record = self.logger.create_log_record();
        record.set_target(names::TARGET_AUDIT);
        record.set_timestamp(time(entry.at_us));
        record.set_observed_timestamp(time(now.as_millis().saturating_mul(1_000)));
        record.set_severity_number(Severity::Info);
        record.set_severity_text("INFO");
        let erased = "(erased)";
        let (what, by) = (what.unwrap_or(erased), by.unwrap_or(erased));
        record.set_body(format!("{}: {what}, by {by}", entry.kind).into());
        record.add_attribute(names::TENANT, tenant.0);
        record.add_attribute(names::AUDIT_NUMBER, i64::try_from(entry.number).unwrap_or(i64::MAX));
        record.add_attribute(names::AUDIT_HASH, hex::encode(&entry.hash));
        let texts = [
            (names::AUDIT_KIND, Some(entry.kind.as_str())),
            (names::AUDIT_BY, Some(by)),
            (names::AUDIT_CREDENTIAL, credential),
            (names::AUDIT_FROM, from),
            (names::SESSION, session),
            (names::AUDIT_WHAT, Some(what)),
            (names::AUDIT_WHY, why),
        ];
        for (name, text) in texts {
            text.into_iter().for_each(|text| record.add_attribute(name, AnyValue::from(text.to_owned())));
        }
        record
    }
}

/// The time so many microseconds after the epoch.
fn time(at_us: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at_us.try_into().unwrap_or_default())
}
