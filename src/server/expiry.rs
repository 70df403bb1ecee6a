//! Expiry of this server's own certificates, logged each day before the end; and the gauges of certificates and
//! backups, which are computed at each collection.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};
use tracing::Level;
use url::Url;

use crate::{
    backups,
    config::ServeConfig,
    gate::lifetime,
    telemetry::{
        Metrics,
        metrics::{Lifetime, Reading},
    },
};
use callgate_core::domain::time::Timestamp;
use callgate_net::{clock::Clock, listener::first_lifetime};

const LOOK_EVERY: Duration = Duration::from_secs(3_600);
const DAY_S: i64 = 86_400;
/// Time before the end at which it is logged first, in seconds.
const SAID_FROM_S: i64 = 14 * DAY_S;

/// A certificate of this server or its client, in a file that may change.
#[derive(Debug)]
pub(super) struct ServedCertificate {
    to: &'static str,
    path: PathBuf,
    /// Time and level of the last log line.
    said: Option<(i64, Level)>,
}

/// Certificates that a server of this configuration presents.
pub(super) fn list_certificates(config: &ServeConfig) -> Vec<ServedCertificate> {
    let to = |to, path: &Path| ServedCertificate { to, path: path.to_owned(), said: None };
    let server = config.tls.tls_cert.as_deref().map(|path| to("server", path));
    let database = config.database.database_url.as_deref().and_then(own_certificate);
    server.into_iter().chain(database.map(|path| to("database", &path))).collect()
}

/// The file of the client certificate in a database's URL. A certificate in the URL itself has no file.
fn own_certificate(url: &str) -> Option<PathBuf> {
    let url = Url::parse(url).ok()?;
    let (_, path) = url.query_pairs().find(|(name, _)| name == "sslcert")?;
    (!path.starts_with("-----BEGIN")).then(|| PathBuf::from(path.into_owned()))
}

/// Computes the gauges of this configuration at each collection.
pub(super) fn compute(config: &ServeConfig, metrics: &Metrics) {
    let shown: Vec<_> = list_certificates(config).into_iter().map(|one| (one.to, one.path)).collect();
    metrics.compute(move || {
        let at =
            |seconds: u64| Timestamp::from_millis(i64::try_from(seconds).map_or(i64::MAX, |s| s.saturating_mul(1_000)));
        let of = |(to, path): &(&'static str, PathBuf)| {
            let (from, until) = first_lifetime(&std::fs::read(path).ok()?)?;
            Some(lifetime(Lifetime::Certificate(to), (at(from), at(until)), Clock::System.now()))
        };
        shown.iter().filter_map(of).collect()
    });
    if let Some(shelf) = config.backups.clone() {
        metrics.compute(move || {
            // The exporter drops infinite values: without a backup it is as old as the clock.
            let made = backups::newest(&shelf).unwrap_or(Timestamp::from_millis(0));
            vec![Reading::Backup(Clock::System.now().since_ms(made) as f64 / 1_000.0)]
        });
    }
}

/// Looks at them every hour.
pub(super) async fn follow(mut all: Vec<ServedCertificate>) {
    let mut tick = interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !all.is_empty() {
        tick.tick().await;
        for one in &mut all {
            // Unreadable files are reported by their user.
            if let Some((_, end)) = tokio::fs::read(&one.path).await.ok().and_then(|text| first_lifetime(&text)) {
                one.record_expiry(end, Clock::System.now().as_millis() / 1_000);
            }
        }
    }
}

impl ServedCertificate {
    fn record_expiry(&mut self, end: u64, now: i64) {
        let left = i64::try_from(end).unwrap_or(i64::MAX).saturating_sub(now);
        let Some(level) = self.is_said(left, now) else { return };
        let (path, days, to) = (self.path.display(), left.div_euclid(DAY_S), self.to);
        match level {
            Level::ERROR if left < 0 => tracing::error!("the certificate in {path} has ended: replace it ({to})"),
            Level::ERROR => tracing::error!("the certificate in {path} ends within a day: replace it ({to})"),
            _ => tracing::warn!("the certificate in {path} ends in {days} days: replace it ({to})"),
        }
    }

    /// Level of the log line that is due now, if one is.
    fn is_said(&mut self, left: i64, now: i64) -> Option<Level> {
        let level = match left {
            left if left < DAY_S => Level::ERROR,
            left if left < SAID_FROM_S => Level::WARN,
            _ => return None,
        };
        let is_known = self.said.is_some_and(|(at, before)| before == level && now - at < DAY_S);
        if !is_known {
            self.said = Some((now, level));
        }
        (!is_known).then_some(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_said_each_day_from_two_weeks_before_and_louder_at_the_last() {
        let mut shown = ServedCertificate { to: "server", path: "tls.crt".into(), said: None };
        let end = 100 * DAY_S;
        let hours = (end - 16 * DAY_S..end + DAY_S).step_by(3_600);
        let said: Vec<(i64, Level)> =
            hours.filter_map(|now| Some(((end - now) / 3_600, shown.is_said(end - now, now)?))).collect();
        let (warned, failed): (Vec<_>, Vec<_>) = said.into_iter().partition(|(_, level)| *level == Level::WARN);
        let warned: Vec<i64> = warned.into_iter().map(|(left, _)| left).collect();
        assert_eq!(warned, (1..14).rev().map(|day| day * 24 + 23).collect::<Vec<_>>(), "once a day");
        assert_eq!(failed.into_iter().map(|(left, _)| left).collect::<Vec<_>>(), [23, -1], "and when it has ended");
        assert_eq!(shown.is_said(20 * DAY_S, end), None, "a new one is well");
    }

    #[test]
    fn client_certificate_for_the_database_is_that_of_its_url() {
        let url = "postgres://callgate@db/callgate?sslmode=verify-full&sslcert=%2Fetc%2Fc.crt&sslkey=/etc/c.key";
        assert_eq!(own_certificate(url), Some("/etc/c.crt".into()));
        assert_eq!(own_certificate("postgres://db/callgate"), None);
        assert_eq!(own_certificate("postgres://db/c?sslcert=-----BEGIN%20CERTIFICATE-----"), None);
    }
}
