//! Metrics of what operators have to keep in order: credentials, keys, the policy file, budgets, the audit log.

use std::collections::BTreeMap;

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge},
};

use super::{super::names, Metrics, instruments::InstrumentFactory};
use callgate_core::domain::{budget::BudgetScope, ids::TenantId};

/// Causes of a refused credential.
const REFUSALS: [&str; 4] = ["unknown", "unchecked", "too_many", "role"];
/// Scopes of the budgets that are counted: those that last for a day.
const DAILY: [BudgetScope; 2] = [BudgetScope::Agent, BudgetScope::Tenant];

/// Budgets near their limit: number of all, and of those that are used up.
pub type NearBudgets = BTreeMap<(TenantId, BudgetScope), (u64, u64)>;

#[derive(Debug, Clone)]
pub(super) struct UpkeepMetrics {
    credentials_refused: Counter<u64>,
    tenants_locked: Gauge<u64>,
    policy_file_rejected: Gauge<u64>,
    budgets_near: Gauge<u64>,
    audit_broken: Gauge<u64>,
    changed_tools: Gauge<u64>,
}

impl UpkeepMetrics {
    pub(super) fn new(make: &InstrumentFactory<'_>) -> Self {
        let refused = "Calls refused for their credential.";
        let metrics = Self {
            credentials_refused: make.counter(names::METRIC_CREDENTIALS_REFUSED, "{request}", refused),
            tenants_locked: make.gauge(
                names::METRIC_TENANTS_LOCKED,
                "{tenant}",
                "Tenants without keys on this server.",
            ),
            policy_file_rejected: make.gauge(
                names::METRIC_POLICY_FILE_REJECTED,
                "",
                "1 while the policy file is rejected.",
            ),
            budgets_near: make.gauge(names::METRIC_BUDGETS_NEAR, "{budget}", "Budgets near their limit."),
            audit_broken: make.gauge(names::METRIC_AUDIT_BROKEN, "", "1 if the audit log was changed."),
            changed_tools: make.gauge(
                names::METRIC_CHANGED_TOOLS,
                "{description}",
                "Changed descriptions of tools that nobody has accepted or rejected.",
            ),
        };
        metrics.begin(names::NONE.into());
        metrics
    }

    /// Exports a tenant's counters from the start: the rise of a series that begins with 1 is invisible.
    fn begin(&self, tenant: opentelemetry::StringValue) {
        for cause in REFUSALS {
            let labels = [KeyValue::new(names::TENANT, tenant.clone()), KeyValue::new(names::REFUSAL, cause)];
            self.credentials_refused.add(0, &labels);
        }
    }
}

impl Metrics {
    /// A call was refused for its credential, of a tenant if it is known, for a `cause` of a closed set.
    pub fn credential_refused(&self, tenant: Option<TenantId>, cause: &'static str) {
        let tenant = tenant.map_or(names::NONE.into(), |tenant| self.tenants.label(&tenant.0, true));
        let labels = [KeyValue::new(names::TENANT, tenant), KeyValue::new(names::REFUSAL, cause)];
        self.upkeep.credentials_refused.add(1, &labels);
    }

    /// Records the number of tenants that are not served, because their keys are not here.
    pub fn locked(&self, tenants: u64) {
        self.upkeep.tenants_locked.record(tenants, &[]);
    }

    /// Records whether the policy file is rejected as it is now.
    pub fn policy_file(&self, is_rejected: bool) {
        self.upkeep.policy_file_rejected.record(is_rejected.into(), &[]);
    }

    /// Records the budgets near their limit, of these tenants.
    pub fn budgets(&self, tenants: &[TenantId], near: &NearBudgets) {
        let mut counts: BTreeMap<(String, &str, &str), u64> = BTreeMap::new();
        for tenant in tenants {
            let label = self.tenants.label(&tenant.0, true);
            self.upkeep.begin(label.clone());
            for scope in DAILY {
                let (all, used_up) = near.get(&(*tenant, scope)).copied().unwrap_or_default();
                for (level, count) in [("near", all), ("used_up", used_up)] {
                    *counts.entry((label.to_string(), scope.as_str(), level)).or_default() += count;
                }
            }
        }
        for ((tenant, scope, level), count) in counts {
            let labels = [
                KeyValue::new(names::TENANT, tenant),
                KeyValue::new(names::BUDGET_SCOPE, scope),
                KeyValue::new(names::BUDGET_LEVEL, level),
            ];
            self.upkeep.budgets_near.record(count, &labels);
        }
    }

    /// Records whether a verification found a tenant's audit log changed.
    pub fn audited(&self, tenant: TenantId, is_broken: bool) {
        let label = self.tenants.label(&tenant.0, true);
        self.upkeep.audit_broken.record(is_broken.into(), &[KeyValue::new(names::TENANT, label)]);
    }
    /// Records the changed descriptions of tools, of these tenants.
    pub fn changed_tools(&self, tenants: &[TenantId], changed: &BTreeMap<TenantId, u64>) {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for tenant in tenants {
            let count = changed.get(tenant).copied().unwrap_or_default();
            *counts.entry(self.tenants.label(&tenant.0, true).to_string()).or_default() += count;
        }
        for (tenant, count) in counts {
            self.upkeep.changed_tools.record(count, &[KeyValue::new(names::TENANT, tenant)]);
        }
    }
}
