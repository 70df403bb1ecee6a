//! The fleet service: ask the gate, encode.

use std::sync::Arc;

use tonic::{Request, Response};

use super::{MethodResult, encode, identity, service, sessions::halt_state, time::timestamp};
use crate::{gate::Insight, grpc::ToWire};
use callgate_core::domain::{
    fleet::{BudgetNearLimit, DecisionCounts, Minute, PlaneMinute, RefusalSavings, ToolTrouble},
    ids::{DEFAULT_TENANT, TenantId},
    time::Timestamp,
};
use callgate_proto::{time::duration, v1};

/// The service.
#[derive(Debug, Clone)]
pub(super) struct FleetService {
    insight: Arc<Insight>,
}

impl FleetService {
    pub(super) fn new(insight: Arc<Insight>) -> Self {
        Self { insight }
    }

    fn plane(&self, tenant: TenantId, database_ms: u64) -> v1::ServerHealth {
        let (health, policy) = (self.insight.plane_health(tenant), self.insight.server.policy(tenant));
        // The load of a server would reveal what other tenants do.
        let load = |of: usize| (tenant == DEFAULT_TENANT).then_some(of as u64);
        v1::ServerHealth {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy_version: policy.version.to_string(),
            policy_revision: (health.revision > 0).then_some(health.revision),
            enforced: policy.is_enforced(),
            policy_behind: health.behind,
            policy_unconfirmed: Some(duration(u64::try_from(health.unconfirmed.as_millis()).unwrap_or(u64::MAX))),
            judging: load(health.judging),
            queued: load(health.waiting),
            uncommitted: load(health.uncommitted),
            database_time: Some(duration(database_ms)),
        }
    }
}

fn encode_decisions(decided: &DecisionCounts) -> Vec<v1::DecisionCount> {
    let one = |(decision, count)| v1::DecisionCount { decision: encode::decision(decision), count };
    decided.iter().map(one).collect()
}

fn minute(minute: &Minute, tenant: TenantId) -> v1::FleetMinute {
    v1::FleetMinute {
        start_time: Some(timestamp(minute.start)),
        decisions: encode_decisions(&minute.decided),
        open_approvals: minute.open_approvals,
        held_sessions: minute.held,
        oldest_approval_time: minute.oldest_approval.map(timestamp),
        stopped_sessions: minute.stopped,
        halts: minute.halts,
        saved: minute.saved.as_ref().map(|saved| savings(saved, minute.start, minute.end)),
        open_circuit_breakers: minute.seen.cooling,
        near_budgets: minute.seen.near_budgets,
        server: minute.seen.plane.as_ref().filter(|_| tenant == DEFAULT_TENANT).map(plane_minute),
    }
}

fn plane_minute(plane: &PlaneMinute) -> v1::ServerMinute {
    v1::ServerMinute {
        judging: plane.judging,
        queued: plane.waiting,
        uncommitted: plane.uncommitted,
        database_time: plane.database_ms.map(duration),
        unanswered: plane.unanswered,
    }
}

fn trouble(trouble: &ToolTrouble) -> v1::ToolTrouble {
    v1::ToolTrouble {
        tool: trouble.tool.clone(),
        failures: trouble.failures,
        failing_start_time: trouble.failing_since.map(timestamp),
        circuit_breaker_failure: encode::failure(trouble.cooldown.map(|(failure, _)| failure)),
        circuit_breaker_open_end_time: trouble.cooldown.map(|(_, until)| timestamp(until)),
    }
}

fn budget(budget: &BudgetNearLimit) -> v1::NearBudget {
    v1::NearBudget {
        scope: budget.scope.to_wire().into(),
        name: budget.name.clone(),
        dimension: budget.dimension.to_wire().into(),
        used: budget.used,
        limit: budget.limit,
    }
}

fn savings(saved: &RefusalSavings, from: Timestamp, until: Timestamp) -> v1::Savings {
    let RefusalSavings { reused, denied, stopped, priced, cost_micros, with_tokens, tokens } = *saved;
    v1::Savings {
        start_time: Some(timestamp(from)),
        end_time: Some(timestamp(until)),
        reused_calls: reused,
        denied_calls: denied,
        stopped_calls: stopped,
        priced_calls: priced,
        cost_micros: (priced > 0).then_some(cost_micros),
        token_calls: with_tokens,
        tokens: (with_tokens > 0).then_some(tokens),
    }
}

#[tonic::async_trait]
impl v1::fleet_service_server::FleetService for FleetService {
    async fn get_fleet(&self, request: Request<v1::GetFleetRequest>) -> MethodResult<v1::GetFleetResponse> {
        let tenant = identity::tenant(&request)?;
        let fleet = service::answer_in_time(Box::pin(self.insight.fleet(tenant))).await?;
        let fleet = v1::Fleet {
            as_of_time: Some(timestamp(fleet.at)),
            minutes: fleet.minutes.iter().map(|each| minute(each, tenant)).collect(),
            last_minute: encode_decisions(&fleet.lately),
            open_calls: fleet.calling.open_calls,
            calling_trees: fleet.calling.trees,
            active_trees: fleet.calling.active_trees,
            held_sessions: fleet.held,
            stopped_sessions: fleet.stopped,
            halts: self.insight.server.halts(tenant).iter().map(halt_state).collect(),
            open_approvals: fleet.open_approvals,
            oldest_approval_time: fleet.oldest_approval.map(timestamp),
            tools: fleet.tools.iter().map(trouble).collect(),
            budgets: fleet.budgets.iter().map(budget).collect(),
            saved: Some(savings(&fleet.saved, fleet.saved_from, fleet.saved_until)),
            server: Some(self.plane(tenant, fleet.database_ms)),
        };
        Ok(Response::new(v1::GetFleetResponse { fleet: Some(fleet) }))
    }
}
