//! Gauges that are computed at each collection: the remaining lifetimes of certificates and tokens, and the age of
//! backups. Between two reads they change with the clock alone.

use std::sync::Arc;

use opentelemetry::KeyValue;
use parking_lot::RwLock;

use super::{super::names, Metrics, instruments::InstrumentFactory};
use callgate_core::domain::ids::TenantId;

/// Owner of a lifetime.
#[derive(Debug, Clone, Copy)]
pub enum Lifetime {
    /// The certificate that is presented there.
    Certificate(&'static str),
    /// The token of the tenant that expires next.
    Token(TenantId),
}

/// Value of a gauge at a collection.
#[derive(Debug, Clone, Copy)]
pub enum Reading {
    /// Seconds until an expiry, and the elapsed share of the lifetime.
    Left(Lifetime, f64, f64),
    /// Age of the newest backup, in seconds.
    Backup(f64),
}

type Source = Box<dyn Fn() -> Vec<Reading> + Send + Sync>;

/// Sources of the readings. Clones are one.
#[derive(Clone, Default)]
pub(super) struct Sources(Arc<RwLock<Vec<Source>>>);

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sources({})", self.0.read().len())
    }
}

impl Sources {
    fn readings(&self) -> Vec<Reading> {
        self.0.read().iter().flat_map(|source| source()).collect()
    }

    /// Observes the readings of which `told` has a value.
    fn observe(
        &self,
        (make, tenants): (&InstrumentFactory<'_>, &super::BoundedSet<i64>),
        (name, unit, of): (&'static str, &'static str, &'static str),
        told: fn(Reading) -> Option<(Option<Lifetime>, f64)>,
    ) {
        let (sources, tenants) = (self.clone(), tenants.clone());
        let gauge = make.0.f64_observable_gauge(name).with_unit(unit).with_description(of);
        let gauge = gauge.with_callback(move |figures| {
            for (owner, value) in sources.readings().into_iter().filter_map(told) {
                let label = owner.map(|owner| match owner {
                    Lifetime::Certificate(shown) => KeyValue::new(names::CERTIFICATE, shown),
                    Lifetime::Token(tenant) => KeyValue::new(names::TENANT, tenants.label(&tenant.0, true)),
                });
                figures.observe(value, label.as_slice());
            }
        });
        let _ = gauge.build();
    }

    /// Sources that the gauges of this meter observe.
    pub(super) fn observed(make: &InstrumentFactory<'_>, tenants: &super::BoundedSet<i64>) -> Self {
        let sources = Self::default();
        let with = (make, tenants);
        let left = "Remaining validity of a presented certificate.";
        sources.observe(with, (names::METRIC_CERTIFICATE_LEFT, "s", left), |reading| match reading {
            Reading::Left(owner @ Lifetime::Certificate(_), left, _) => Some((Some(owner), left)),
            _ => None,
        });
        let used = "Elapsed share of the lifetime of a presented certificate.";
        sources.observe(with, (names::METRIC_CERTIFICATE_USED, "", used), |reading| match reading {
            Reading::Left(owner @ Lifetime::Certificate(_), _, used) => Some((Some(owner), used)),
            _ => None,
        });
        let left = "Remaining validity of the token in use that expires next.";
        sources.observe(with, (names::METRIC_TOKEN_LEFT, "s", left), |reading| match reading {
            Reading::Left(owner @ Lifetime::Token(_), left, _) => Some((Some(owner), left)),
            _ => None,
        });
        let used = "Elapsed share of the lifetime of the token in use that expires next.";
        sources.observe(with, (names::METRIC_TOKEN_USED, "", used), |reading| match reading {
            Reading::Left(owner @ Lifetime::Token(_), _, used) => Some((Some(owner), used)),
            _ => None,
        });
        let age = "Age of the newest complete backup.";
        sources.observe(with, (names::METRIC_BACKUP_AGE, "s", age), |reading| match reading {
            Reading::Backup(age) => Some((None, age)),
            Reading::Left(..) => None,
        });
        sources
    }
}

impl Metrics {
    /// Computes these readings too, at each collection. They are quick: a scrape waits for them.
    pub fn compute(&self, source: impl Fn() -> Vec<Reading> + Send + Sync + 'static) {
        self.computed.0.write().push(Box::new(source));
    }
}
