//! Events that destinations are notified of, and the worker that finds and queues them. Every replica does, and the
//! queue holds each once: its key is a hash of destination, event and subject.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

use lru::LruCache;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::audited::approval_id;
use super::destinations::{Destinations, NotificationDestination};
use crate::gate::{Gate, NoAnswer};
use callgate_core::domain::{
    budget::{BudgetScope, Budgets},
    fleet,
    ids::TenantId,
    inbox::{Question, QuestionState},
    route::ApprovalRoute,
    tenant::{Tenant, TenantState},
    time::Timestamp,
};
use callgate_store::{AuditedEvent, NewNotification, OpenCircuit, TenantActivity};

/// Age of the oldest events that are queued after a start.
const LATE: Duration = Duration::from_secs(3_600);
/// Overlap of two reads of expired requests.
const OVERLAP: Duration = Duration::from_secs(60);
/// Time for which an event is retried, unless it is an approval request that ends before.
const DAY_MS: u64 = 86_400_000;
/// Interval of reads of budgets, in milliseconds.
const BUDGETS_EVERY_MS: u64 = 60_000;
/// Keys that a replica remembers as queued.
const QUEUED_MAX: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NotificationEvent {
    /// A call waits for an approver.
    Requested,
    /// A second group may answer.
    Escalated,
    /// A request was approved, denied or withdrawn.
    Decided,
    /// A request expired without an answer.
    Expired,
    /// A session, an agent, a tool or the tenant was halted.
    Halted,
    /// The day's budget of an agent or of the tenant is used to 80 % or 100 %.
    Budget,
    /// The circuit breaker of a tool opened.
    CircuitOpen,
}

impl NotificationEvent {
    pub(super) const ALL: [Self; 7] =
        [Self::Requested, Self::Escalated, Self::Decided, Self::Expired, Self::Halted, Self::Budget, Self::CircuitOpen];

    /// The name used in the file, in the database and in metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Escalated => "escalated",
            Self::Decided => "decided",
            Self::Expired => "expired",
            Self::Halted => "halted",
            Self::Budget => "budget",
            Self::CircuitOpen => "circuit_open",
        }
    }

    /// The event of this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == name)
    }
}

/// EventSubject of an event, as it is queued. It has no text of arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum EventSubject {
    Approval { approval_id: String },
    Halt { target: String, by: String, at_ms: i64 },
    Budget { scope: String, name: String, dimension: String, used: String, limit: String, percent: u64, day: i32 },
    Circuit { tool: String, failure: String, since_ms: i64, until_ms: i64 },
}

/// An event that happened.
struct Occurrence {
    event: NotificationEvent,
    /// Distinguishes it from other events of the tenant and the kind.
    key: String,
    subject: EventSubject,
    /// For approval requests: the groups that may answer, or that it escalates to.
    groups: Option<Vec<String>>,
    expires_at: Timestamp,
}

/// Finds events and queues them.
pub(super) struct Collector {
    gate: Arc<Gate>,
    destinations: Destinations,
    queued: LruCache<(TenantId, String), ()>,
    /// Numbers of the last audit entries that were read.
    audited: BTreeMap<TenantId, i64>,
    /// Times of the last reads of expired requests.
    expired: BTreeMap<TenantId, Timestamp>,
    budgets: BTreeMap<TenantId, Timestamp>,
}

impl Collector {
    pub(super) fn new(gate: Arc<Gate>, destinations: Destinations) -> Self {
        let queued = LruCache::new(QUEUED_MAX);
        let (audited, expired, budgets) = Default::default();
        Self { gate, destinations, queued, audited, expired, budgets }
    }

    /// Queues the new events of all tenants that have a destination.
    pub(super) async fn collect(&mut self) -> Result<(), NoAnswer> {
        let all = self.destinations.0.clone();
        let is_wanted = |event| all.iter().any(|one| one.events.contains(&event));
        let circuits =
            if is_wanted(NotificationEvent::CircuitOpen) { self.gate.store.open_circuits().await? } else { Vec::new() };
        let is_active = |tenant: &Arc<Tenant>| tenant.state == TenantState::Active;
        let tenants = self.gate.server.tenants().into_iter().filter(is_active);
        let own = |tenant: &Tenant| all.iter().filter(|one| one.is_of(&tenant.name)).cloned().collect::<Vec<_>>();
        let tenants: BTreeMap<TenantId, _> =
            tenants.map(|tenant| (tenant.id, own(&tenant))).filter(|(_, own)| !own.is_empty()).collect();
        let ids: Vec<TenantId> = tenants.keys().copied().collect();
        for activity in self.gate.store.tenant_activity(&ids, LATE).await? {
            let Some(own) = tenants.get(&activity.tenant) else { continue };
            let found = circuits.iter().filter(|circuit| circuit.tenant == activity.tenant).map(circuit).collect();
            self.queue(activity.tenant, own, found).await?;
            self.collect_of(activity, own).await?;
        }
        Ok(())
    }

    async fn collect_of(
        &mut self,
        activity: TenantActivity,
        own: &[Arc<NotificationDestination>],
    ) -> Result<(), NoAnswer> {
        let TenantActivity { tenant, audited, has_requests } = activity;
        let has =
            |events: &[NotificationEvent]| own.iter().any(|one| events.iter().any(|event| one.events.contains(event)));
        if has_requests && has(&[NotificationEvent::Requested, NotificationEvent::Escalated]) {
            let found = self.open_requests(tenant).await?;
            self.queue(tenant, own, found).await?;
        }
        if has_requests && has(&[NotificationEvent::Expired]) {
            self.queue_expired(tenant, own).await?;
        }
        if self.audited.get(&tenant) != Some(&audited) && has(&[NotificationEvent::Decided, NotificationEvent::Halted])
        {
            self.queue_audited(tenant, own).await?;
        }
        if has(&[NotificationEvent::Budget]) {
            let found = self.budgets(tenant).await?;
            self.queue(tenant, own, found).await?;
        }
        Ok(())
    }

    async fn open_requests(&self, tenant: TenantId) -> Result<Vec<Occurrence>, NoAnswer> {
        let (open, now) = (self.gate.approvals.open_questions(tenant).await?, self.gate.store.now());
        let mut found = Vec::new();
        // The oldest request is sent first.
        for question in open.iter().rev().filter(|question| question.state(now) == QuestionState::Pending) {
            let route = self.gate.approvals.route(tenant, question);
            found.push(request(NotificationEvent::Requested, question, route.group.iter().cloned().collect()));
            let is_late = |after_ms| now >= question.asked_at.plus_ms(after_ms);
            if route.escalation.as_ref().is_some_and(|escalation| is_late(escalation.after_ms)) {
                found.push(request(NotificationEvent::Escalated, question, all_groups(&route)));
            }
        }
        Ok(found)
    }

    async fn queue_expired(&mut self, tenant: TenantId, own: &[Arc<NotificationDestination>]) -> Result<(), NoAnswer> {
        let now = self.gate.store.now();
        let age = self.expired.get(&tenant).map_or(LATE, |last| Duration::from_millis(now.since_ms(*last)) + OVERLAP);
        let ids = self.gate.store.expired_approvals(tenant, age.min(LATE)).await?;
        let mut found = Vec::new();
        for id in ids {
            found.extend(self.closed(NotificationEvent::Expired, tenant, &id, now).await?);
        }
        self.queue(tenant, own, found).await?;
        self.expired.insert(tenant, now);
        Ok(())
    }

    /// Queues the answers, withdrawals and halts of the audit log.
    async fn queue_audited(&mut self, tenant: TenantId, own: &[Arc<NotificationDestination>]) -> Result<(), NoAnswer> {
        let after = match self.audited.get(&tenant) {
            Some(number) => *number,
            None => self.gate.store.audited_before(tenant, LATE).await?,
        };
        let (entries, last) = self.gate.store.audited_after(tenant, after).await?;
        let mut found = Vec::new();
        for entry in &entries {
            match approval_id(&entry.kind, entry.what.as_deref().unwrap_or_default()) {
                Some(id) => found.extend(self.closed(NotificationEvent::Decided, tenant, id, entry.at).await?),
                None => found.extend(halt(entry)),
            }
        }
        self.queue(tenant, own, found).await?;
        self.audited.insert(tenant, last);
        Ok(())
    }

    /// The end of an approval request.
    async fn closed(
        &self,
        event: NotificationEvent,
        tenant: TenantId,
        id: &str,
        at: Timestamp,
    ) -> Result<Option<Occurrence>, NoAnswer> {
        let Some(question) = self.gate.approvals.question(tenant, id).await? else { return Ok(None) };
        let route = self.gate.approvals.route(tenant, &question);
        let occurrence = request(event, &question, all_groups(&route));
        Ok(Some(Occurrence { expires_at: at.plus_ms(DAY_MS), ..occurrence }))
    }

    async fn budgets(&mut self, tenant: TenantId) -> Result<Vec<Occurrence>, NoAnswer> {
        let now = self.gate.store.now();
        if self.budgets.get(&tenant).is_some_and(|last| now.since_ms(*last) < BUDGETS_EVERY_MS) {
            return Ok(Vec::new());
        }
        let policy = self.gate.server.policy(tenant);
        let scopes = [BudgetScope::Agent, BudgetScope::Tenant];
        let limits = fleet::shared_limits(policy.rules.get::<Budgets>(), &scopes);
        let day = now.day();
        let near = match limits.is_empty() {
            true => Vec::new(),
            false => self.gate.store.near_their_end(tenant, &limits, day).await?.1,
        };
        self.budgets.insert(tenant, now);
        let occurrence = |near: &fleet::BudgetNearLimit| {
            let percent = if near.used >= near.limit { 100 } else { fleet::NEAR_PERCENT };
            let (scope, dimension) = (near.scope.as_str(), near.dimension);
            Occurrence {
                event: NotificationEvent::Budget,
                key: format!("{scope} {} {} {day} {percent}", dimension.as_str(), near.name),
                subject: EventSubject::Budget {
                    scope: scope.to_owned(),
                    name: near.name.clone(),
                    dimension: dimension.as_str().to_owned(),
                    used: dimension.describe_amount(near.used),
                    limit: dimension.describe_amount(near.limit),
                    percent,
                    day,
                },
                groups: None,
                expires_at: now.next_day(),
            }
        };
        Ok(near.iter().map(occurrence).collect())
    }

    /// Queues the events for the destinations that want them.
    async fn queue(
        &mut self,
        tenant: TenantId,
        own: &[Arc<NotificationDestination>],
        found: Vec<Occurrence>,
    ) -> Result<(), NoAnswer> {
        let mut new = Vec::new();
        for one in &found {
            let is_wanted = |destination: &&Arc<NotificationDestination>| {
                destination.events.contains(&one.event)
                    && one.groups.as_ref().is_none_or(|groups| destination.is_for(groups))
            };
            for destination in own.iter().filter(is_wanted) {
                let key = key(&destination.name, one.event, &one.key);
                if self.queued.get(&(tenant, key.clone())).is_none() {
                    new.push(NewNotification {
                        key,
                        destination: destination.name.clone(),
                        event: one.event.as_str(),
                        subject: serde_json::to_string(&one.subject).unwrap_or_default(),
                        expires_at: one.expires_at,
                    });
                }
            }
        }
        if !new.is_empty() {
            self.gate.store.queue_notifications(tenant, &new).await?;
            for one in new {
                self.queued.put((tenant, one.key), ());
            }
        }
        Ok(())
    }
}

/// The key of a notification: the same on every replica.
fn key(destination: &str, event: NotificationEvent, subject: &str) -> String {
    hex::encode(Sha256::digest(format!("{destination}\n{}\n{subject}", event.as_str())))
}

fn request(event: NotificationEvent, question: &Question, groups: Vec<String>) -> Occurrence {
    let approval_id = question.approval_id.clone();
    Occurrence {
        event,
        key: approval_id.clone(),
        subject: EventSubject::Approval { approval_id },
        groups: Some(groups),
        expires_at: question.expires_at,
    }
}

fn all_groups(route: &ApprovalRoute) -> Vec<String> {
    let second = route.escalation.as_ref().map(|escalation| &escalation.group);
    route.group.iter().chain(second).cloned().collect()
}

fn halt(entry: &AuditedEvent) -> Option<Occurrence> {
    Some(Occurrence {
        event: NotificationEvent::Halted,
        key: entry.number.to_string(),
        subject: EventSubject::Halt {
            target: entry.what.clone()?,
            by: entry.by.clone().unwrap_or_default(),
            at_ms: entry.at.as_millis(),
        },
        groups: None,
        expires_at: entry.at.plus_ms(DAY_MS),
    })
}

/// A streak of failures counts once, however often probes of it fail.
fn circuit(circuit: &OpenCircuit) -> Occurrence {
    let since_ms = circuit.since.as_millis();
    Occurrence {
        event: NotificationEvent::CircuitOpen,
        key: format!("{} {since_ms}", circuit.tool),
        subject: EventSubject::Circuit {
            tool: circuit.tool.clone(),
            failure: circuit.failure.as_str().to_owned(),
            since_ms,
            until_ms: circuit.until.as_millis(),
        },
        groups: None,
        expires_at: circuit.until.plus_ms(DAY_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_known_by_its_name_in_files_and_rows() {
        for event in NotificationEvent::ALL {
            assert_eq!(NotificationEvent::from_name(event.as_str()), Some(event));
            assert_eq!(serde_json::to_value(event).expect("JSON"), event.as_str());
        }
        assert_eq!(NotificationEvent::from_name("asked"), None);
    }

    #[test]
    fn key_differs_by_destination_event_and_subject() {
        let first = key("a", NotificationEvent::Decided, "id");
        assert_eq!((first.len(), &first), (64, &key("a", NotificationEvent::Decided, "id")));
        for other in [
            key("b", NotificationEvent::Decided, "id"),
            key("a", NotificationEvent::Expired, "id"),
            key("a", NotificationEvent::Decided, "i"),
        ] {
            assert_ne!(first, other);
        }
    }
}
