//! The fleet service: ask the gate, encode.

use std::{fmt::Debug, sync::Arc};

use tonic::{Request, Response, Status};

use super::{
    MethodResult,
    decode::{DecodeResult, count, note, page_size, required_text, wrong},
    encode, identity,
    limits::PAGE_DEFAULT,
    malformed::MalformedField,
    page, service,
    sessions::halt_state,
    status,
    tenants::of_the_plane,
    time::{point_in_time, timestamp},
    tool_descriptions,
};
use crate::{
    gate::{Insight, NotificationQueue, NotificationTarget, TenantChange},
    grpc::{FromWire, ToWire},
};
use callgate_core::domain::{
    fleet::{BudgetNearLimit, DecisionCounts, FleetPart, Minute, PlaneMinute, RefusalSavings, ToolTrouble},
    ids::{DEFAULT_TENANT, TenantId},
    time::Timestamp,
    usage_report::{UsageDimension, UsageTotals},
};
use callgate_proto::{time::duration, v1};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Age of the oldest usage that is reported, in days.
const USAGE_DAYS_MAX: i64 = 400;

/// The service.
#[derive(Debug, Clone)]
pub(super) struct FleetService {
    insight: Arc<Insight>,
}

impl FleetService {
    pub(super) fn new(insight: Arc<Insight>) -> Self {
        Self { insight }
    }

    /// The named tenant, for those who may read of any; else the credential's.
    fn tenant<T>(&self, request: &Request<T>, name: &str) -> Result<TenantId, Status> {
        if name.is_empty() {
            return identity::tenant(request);
        }
        let own = identity::of(request)?.tenant;
        let tenants = self.insight.server.tenants();
        let named = tenants.iter().find(|tenant| tenant.name == name);
        match named {
            Some(tenant) if tenant.id == own => Ok(own),
            named => {
                of_the_plane(request)?;
                named.map(|tenant| tenant.id).ok_or_else(|| status::tenant_change_status(&TenantChange::Unknown))
            }
        }
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

/// Members of a closed set by their numbers, each once.
fn decode_members<Wire: TryFrom<i32> + Debug, T: FromWire<Wire> + PartialEq>(
    field: &str,
    given: &[i32],
) -> DecodeResult<Vec<T>> {
    let mut members = Vec::new();
    for (at, number) in given.iter().enumerate() {
        match Wire::try_from(*number).ok().and_then(|wire| T::from_wire(wire).ok()) {
            Some(member) if !members.contains(&member) => members.push(member),
            Some(_) => return wrong(&format!("{field}[{at}]"), "is a repetition"),
            None => return Err(MalformedField::no_member::<Wire>(format!("{field}[{at}]"), *number)),
        }
    }
    Ok(members)
}

/// Begin and end of a period of usage; no end is now.
fn decode_period(message: &v1::GetUsageRequest, now: Timestamp) -> DecodeResult<(Timestamp, Option<Timestamp>)> {
    let until = message.end_time.as_ref().map(|end| point_in_time("end_time", Some(end))).transpose()?;
    let end = until.unwrap_or(now);
    let start = match &message.start_time {
        Some(start) => point_in_time("start_time", Some(start))?,
        None => Timestamp::from_millis(end.as_millis() - DAY_MS),
    };
    let start = Timestamp::from_millis(start.as_millis().div_euclid(HOUR_MS) * HOUR_MS);
    if start.as_millis() < now.as_millis() - USAGE_DAYS_MAX * DAY_MS - HOUR_MS {
        return wrong("start_time", format!("is more than {USAGE_DAYS_MAX} days ago"));
    }
    if start >= end {
        return wrong("end_time", "must be after start_time");
    }
    Ok((start, until))
}

fn encode_totals(totals: &UsageTotals) -> v1::UsageTotals {
    v1::UsageTotals {
        calls: totals.calls,
        not_run_calls: totals.not_run,
        failed_calls: totals.failed,
        cost_micros: totals.cost_micros,
        saved_micros: totals.saved_micros,
        tokens: totals.tokens,
        unpriced_tokens: totals.unpriced_tokens,
        priced_micros: totals.priced_micros,
        mean_duration: totals.mean_ms().map(duration),
    }
}

fn encode_target((target, queue): (NotificationTarget, NotificationQueue)) -> v1::NotificationDestination {
    let (last_error, time) = queue.last_error.unzip();
    v1::NotificationDestination {
        name: target.name,
        channel: target.channel.to_owned(),
        events: target.events.into_iter().map(str::to_owned).collect(),
        groups: target.groups,
        waiting: queue.waiting,
        retrying: queue.retrying,
        failed: queue.failed,
        delivered: queue.delivered,
        last_error: last_error.unwrap_or_default(),
        last_error_time: time.map(timestamp),
    }
}

#[tonic::async_trait]
impl v1::fleet_service_server::FleetService for FleetService {
    async fn get_fleet(&self, request: Request<v1::GetFleetRequest>) -> MethodResult<v1::GetFleetResponse> {
        let tenant = self.tenant(&request, &request.get_ref().tenant)?;
        let parts: Vec<FleetPart> = decode_members::<v1::FleetPart, _>("parts", &request.get_ref().parts)?;
        let fleet = service::answer_in_time(Box::pin(self.insight.fleet(tenant, &parts))).await?;
        let unavailable = |(part, problem): &(FleetPart, String)| v1::UnavailablePart {
            part: part.to_wire().into(),
            problem: problem.clone(),
        };
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
            saved: fleet.saved.as_ref().map(|(saved, from, until)| savings(saved, *from, *until)),
            server: Some(self.plane(tenant, fleet.database_ms)),
            unavailable: fleet.unavailable.iter().map(unavailable).collect(),
        };
        Ok(Response::new(v1::GetFleetResponse { fleet: Some(fleet) }))
    }

    async fn list_notification_destinations(
        &self,
        request: Request<v1::ListNotificationDestinationsRequest>,
    ) -> MethodResult<v1::ListNotificationDestinationsResponse> {
        let tenant = identity::tenant(&request)?;
        let targets = service::answer_in_time(Box::pin(self.insight.notification_targets(tenant))).await?;
        let destinations = targets.into_iter().map(encode_target).collect();
        Ok(Response::new(v1::ListNotificationDestinationsResponse { destinations }))
    }

    async fn test_notification_destination(
        &self,
        request: Request<v1::TestNotificationDestinationRequest>,
    ) -> MethodResult<v1::TestNotificationDestinationResponse> {
        let tenant = identity::tenant(&request)?;
        let by = identity::actor(&request)?;
        let name = required_text("name", &request.get_ref().name)?;
        match self.insight.test_notification_target(tenant, &name, by).await.map_err(status::gate)? {
            Some(result) => {
                let problem = result.err().unwrap_or_default();
                Ok(Response::new(v1::TestNotificationDestinationResponse { problem }))
            }
            None => Ok(wrong("name", "is no destination of this server for the tenant")?),
        }
    }

    async fn list_tool_descriptions(
        &self,
        request: Request<v1::ListToolDescriptionsRequest>,
    ) -> MethodResult<v1::ListToolDescriptionsResponse> {
        let tenant = identity::tenant(&request)?;
        let message = request.into_inner();
        let most = tool_descriptions::PAGE_MAX;
        let size = count("page_size", message.page_size, most, most)? as usize;
        let after = tool_descriptions::decode_page(&message.page_token)?;
        let found = self.insight.tool_descriptions(tenant, message.only_changed, after.as_ref(), size + 1);
        let found = service::answer_in_time(Box::pin(found)).await?;
        let (versions, next_page_token) = page::split_page(found.versions, size, tool_descriptions::page_token);
        let descriptions = versions.into_iter().map(tool_descriptions::encode).collect();
        Ok(Response::new(v1::ListToolDescriptionsResponse {
            descriptions,
            next_page_token,
            changed_size: found.changed,
        }))
    }

    async fn resolve_tool_description(
        &self,
        request: Request<v1::ResolveToolDescriptionRequest>,
    ) -> MethodResult<v1::ResolveToolDescriptionResponse> {
        let tenant = identity::tenant(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let (server, tool) = (required_text("server", &message.server)?, required_text("tool", &message.tool)?);
        let digest = tool_descriptions::decode_digest("digest", &message.digest)?;
        let why = note("reason", &message.reason)?.unwrap_or_default();
        let named = (server.as_str(), tool.as_str(), digest.as_str());
        let resolved = self.insight.resolve_tool_description(tenant, named, message.accept, (&by, &why));
        match service::answer_in_time(Box::pin(resolved)).await? {
            Some(version) => {
                let description = Some(tool_descriptions::encode(version));
                Ok(Response::new(v1::ResolveToolDescriptionResponse { description }))
            }
            None => Ok(wrong("digest", "is of no stored description of this tool")?),
        }
    }

    async fn get_usage(&self, request: Request<v1::GetUsageRequest>) -> MethodResult<v1::GetUsageResponse> {
        let tenant = self.tenant(&request, &request.get_ref().tenant)?;
        let message = request.into_inner();
        let (from, until) = decode_period(&message, self.insight.decisions.store.now())?;
        let by: Vec<UsageDimension> = decode_members::<v1::UsageDimension, _>("group_by", &message.group_by)?;
        let size = page_size(message.page_size, PAGE_DEFAULT)?;
        let mut report = service::answer_in_time(Box::pin(self.insight.usage(tenant, from, until))).await?;
        report.groups.retain(|group| by.contains(&group.dimension));
        report.sort(size);
        let groups = report.groups.into_iter().map(|group| v1::UsageGroup {
            dimension: group.dimension.to_wire().into(),
            name: group.name,
            start_time: group.start.map(timestamp),
            totals: Some(encode_totals(&group.totals)),
        });
        Ok(Response::new(v1::GetUsageResponse {
            start_time: Some(timestamp(report.from)),
            end_time: Some(timestamp(report.until)),
            total: Some(encode_totals(&report.total)),
            groups: groups.collect(),
            incomplete_reason: report.incomplete.unwrap_or_default(),
        }))
    }
}
