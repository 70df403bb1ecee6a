//! Lists of approval requests: filter, order, groups, pages.

use std::{collections::BTreeMap, sync::Arc};

use tonic::Status;

use super::{ApprovalService, encode_approval};
use crate::{
    gate::offload,
    grpc::{
        FromWire, ToWire,
        decode::{DecodeResult, maybe_session, maybe_text, page_size, wrong},
        limits::{APPROVAL_GROUPS_MAX, PAGE_DEFAULT},
        malformed::MalformedField,
        page, service, status,
        time::timestamp,
    },
};
use callgate_core::domain::{
    amount::find_amount,
    audit::Actor,
    ids::{SessionId, TenantId},
    inbox::{ApprovalFilter, ApprovalQuery, Question, QuestionState},
    time::Timestamp,
    tool::RiskLevel,
};
use callgate_proto::v1::{self, ApprovalGrouping, ApprovalOrder, ApprovalState};

/// Pages of requests that are read for one answer, where not all of them match.
const LOOKS_MAX: usize = 20;

/// Filter of a list.
pub(super) struct RequestFilter {
    session: Option<SessionId>,
    group: Option<String>,
    /// Approver who may answer.
    person: Option<Actor>,
    calls: ApprovalFilter,
}

/// An open request with its amount, which is read once a list, and only where the list depends on it.
type Weighed<'a> = (Option<f64>, &'a Question);

/// Position in an ordered list: rank, time and id.
type OrderKey = (u64, Timestamp, String);

impl RequestFilter {
    /// `person` is the caller, where only their requests are wanted.
    pub(super) fn decode(message: &v1::ListApprovalsRequest, person: Option<Actor>) -> DecodeResult<Self> {
        let v1::ApprovalFilter { tool, agent_id, rule, min_amount, max_amount } =
            message.filter.clone().unwrap_or_default();
        for (field, amount) in [("filter.min_amount", min_amount), ("filter.max_amount", max_amount)] {
            if amount.is_some_and(f64::is_nan) {
                return wrong(field, "must be a number");
            }
        }
        let calls = ApprovalFilter {
            tool: maybe_text("filter.tool", &tool)?,
            agent: maybe_text("filter.agent_id", &agent_id)?,
            rule: maybe_text("filter.rule", &rule)?,
            min_amount,
            max_amount,
        };
        let (session, group) = (maybe_session(&message.session_id)?, maybe_text("group", &message.group)?);
        Ok(Self { session, group, person, calls })
    }
}

impl ApprovalService {
    /// One page of a list.
    pub(super) async fn list(
        &self,
        tenant: TenantId,
        filter: &RequestFilter,
        message: &v1::ListApprovalsRequest,
    ) -> Result<v1::ListApprovalsResponse, Status> {
        let size = page_size(message.page_size, PAGE_DEFAULT)?;
        let Ok(state) = ApprovalState::try_from(message.state) else {
            return Err(MalformedField::no_member::<ApprovalState>("state", message.state).into());
        };
        let Ok(order) = ApprovalOrder::try_from(message.order) else {
            return Err(MalformedField::no_member::<ApprovalOrder>("order", message.order).into());
        };
        let Ok(grouping) = ApprovalGrouping::try_from(message.group_by) else {
            return Err(MalformedField::no_member::<ApprovalGrouping>("group_by", message.group_by).into());
        };
        let (is_ordered, is_grouped) = (order != ApprovalOrder::Unspecified, grouping != ApprovalGrouping::Unspecified);
        let mut page = if !is_ordered && !is_grouped {
            self.stored_page(tenant, filter, (state, size), &message.page_token).await?
        } else if state != ApprovalState::Pending {
            let field = if is_ordered { "order" } else { "group_by" };
            return Ok(wrong(field, "goes with the state PENDING only")?);
        } else {
            let order = if is_ordered { order } else { ApprovalOrder::Risk };
            self.open_page(tenant, filter, (order, grouping, size), message).await?
        };
        self.set_claims(tenant, &mut page.approvals).await?;
        Ok(page)
    }

    /// The open requests of a filter, as of the last read of all open ones.
    pub(super) async fn open_requests(
        &self,
        tenant: TenantId,
        filter: &RequestFilter,
    ) -> Result<Vec<Question>, Status> {
        let (open, now) = (self.all_open(tenant).await?, self.approvals.store.now());
        Ok(offload(true, || {
            let found = open.iter().filter(|question| self.is_open_match(tenant, filter, question, now));
            found.filter(|question| matches_amount(filter, question)).cloned().collect()
        }))
    }

    async fn all_open(&self, tenant: TenantId) -> Result<Arc<[Question]>, Status> {
        self.approvals.open_questions(tenant).await.map_err(status::gate)
    }

    /// Open requests in an order: all are read at once, as for watches.
    async fn open_page(
        &self,
        tenant: TenantId,
        filter: &RequestFilter,
        (order, grouping, size): (ApprovalOrder, ApprovalGrouping, usize),
        message: &v1::ListApprovalsRequest,
    ) -> Result<v1::ListApprovalsResponse, Status> {
        let after: Option<OrderKey> = page::after(&message.page_token, |[rank, asked_ms, id]| {
            Some((rank.parse().ok()?, Timestamp::from_millis(page::millis(asked_ms)?), id.to_owned()))
        })?;
        let (open, now) = (self.all_open(tenant).await?, self.approvals.store.now());
        let found = open.iter().filter(|question| self.is_open_match(tenant, filter, question, now));
        let list = (order, grouping, size);
        Ok(offload(true, || self.ordered_page(tenant, filter, list, (found, after, message.filter.as_ref()))))
    }

    fn ordered_page<'a>(
        &self,
        tenant: TenantId,
        filter: &RequestFilter,
        (order, grouping, size): (ApprovalOrder, ApprovalGrouping, usize),
        (open, after, narrowed): (impl Iterator<Item = &'a Question>, Option<OrderKey>, Option<&v1::ApprovalFilter>),
    ) -> v1::ListApprovalsResponse {
        let weighs =
            order == ApprovalOrder::Amount || grouping != ApprovalGrouping::Unspecified || filter.calls.limits_amount();
        let weighed = open.map(|question| (weighs.then(|| find_amount(&question.arguments)).flatten(), question));
        let found: Vec<Weighed<'_>> = weighed.filter(|(amount, _)| filter.calls.matches_amount(|| *amount)).collect();
        let total_size = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let groups = self.groups(tenant, grouping, &found, narrowed);
        let key = |(amount, question): Weighed<'_>| -> OrderKey {
            (self.rank(tenant, order, (amount, question)), question.asked_at, question.approval_id.clone())
        };
        let mut found: Vec<(OrderKey, &Question)> =
            found.into_iter().map(|weighed| (key(weighed), weighed.1)).collect();
        found.retain(|(key, _)| after.as_ref().is_none_or(|after| key > after));
        found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let (found, next_page_token) = page::split_page(found, size, |((rank, asked_at, id), _)| {
            page::token([&rank.to_string(), &asked_at.as_millis().to_string(), id])
        });
        let approvals =
            found.into_iter().map(|(_, question)| encode_approval(question.clone(), &self.approvals, tenant));
        v1::ListApprovalsResponse { approvals: approvals.collect(), next_page_token, total_size, groups }
    }

    /// Stored requests, newest first.
    async fn stored_page(
        &self,
        tenant: TenantId,
        filter: &RequestFilter,
        (state, size): (ApprovalState, usize),
        page_token: &str,
    ) -> Result<v1::ListApprovalsResponse, Status> {
        let after = page::after(page_token, |[asked_ms, id]| {
            Some((Timestamp::from_millis(page::millis(asked_ms)?), id.to_owned()))
        })?;
        let mut wanted = ApprovalQuery {
            session: filter.session.clone(),
            tool: filter.calls.tool.clone(),
            agent: filter.calls.agent.clone(),
            state: QuestionState::from_wire(state).ok(),
            after,
            max: size + 1,
            approval_id: None,
        };
        let sort_key = |question: &Question| (question.asked_at, question.approval_id.clone());
        let (mut found, mut looks) = (Vec::new(), 0);
        let rest = loop {
            let read = service::answer_in_time(self.approvals.operators.questions(tenant, &wanted)).await?;
            let last = read.last().filter(|_| read.len() == wanted.max).map(sort_key);
            let is_match = |one: &Question| self.is_match(tenant, filter, one) && matches_amount(filter, one);
            offload(true, || found.extend(read.into_iter().filter(is_match)));
            looks += 1;
            match last {
                Some(last) if found.len() <= size && looks < LOOKS_MAX => wanted.after = Some(last),
                last => break last,
            }
        };
        let is_whole = found.len() > size;
        let token = |(at, id): (Timestamp, String)| page::token([&at.as_millis().to_string(), &id]);
        let (found, next) = page::split_page(found, size, |last| token(sort_key(last)));
        // After the limit of reads, the next page begins behind the last one read.
        let next_page_token = if is_whole { next } else { rest.map(token).unwrap_or_default() };
        let approvals = found.into_iter().map(|question| encode_approval(question, &self.approvals, tenant)).collect();
        Ok(v1::ListApprovalsResponse { approvals, next_page_token, ..v1::ListApprovalsResponse::default() })
    }

    fn is_open_match(&self, tenant: TenantId, filter: &RequestFilter, question: &Question, now: Timestamp) -> bool {
        question.state(now) == QuestionState::Pending && self.is_match(tenant, filter, question)
    }

    /// Apart from the amount.
    fn is_match(&self, tenant: TenantId, filter: &RequestFilter, question: &Question) -> bool {
        filter.session.as_ref().is_none_or(|id| id.as_str() == question.session)
            && filter.calls.matches(question)
            && self.is_for(tenant, filter, question)
    }

    /// May they answer it by now, as far as groups go?
    fn is_for(&self, tenant: TenantId, filter: &RequestFilter, question: &Question) -> bool {
        if filter.group.is_none() && filter.person.is_none() {
            return true;
        }
        let (route, now) = (self.approvals.route(tenant, question), self.approvals.store.now());
        let groups = route.groups(question.asked_at, now);
        filter.group.as_deref().is_none_or(|group| groups.is_empty() || groups.contains(&group))
            && filter.person.as_ref().is_none_or(|person| route.admits(person, question.asked_at, now))
    }

    /// Rank of an open request in an order, the first ones lowest.
    fn rank(&self, tenant: TenantId, order: ApprovalOrder, (amount, question): Weighed<'_>) -> u64 {
        match order {
            ApprovalOrder::Amount => amount.map_or(u64::MAX, descending),
            ApprovalOrder::Expiry => u64::try_from(question.expires_at.as_millis()).unwrap_or(0),
            ApprovalOrder::Risk | ApprovalOrder::Unspecified => match self.approvals.risk(tenant, question).0 {
                RiskLevel::High => 0,
                RiskLevel::Medium => 1,
                RiskLevel::Low => 2,
            },
        }
    }

    fn groups(
        &self,
        tenant: TenantId,
        grouping: ApprovalGrouping,
        found: &[Weighed<'_>],
        filter: Option<&v1::ApprovalFilter>,
    ) -> Vec<v1::ApprovalGroup> {
        if grouping == ApprovalGrouping::Unspecified {
            return Vec::new();
        }
        let mut groups: BTreeMap<String, v1::ApprovalGroup> = BTreeMap::new();
        for (amount, question) in found {
            let (name, narrowed) = group_of(grouping, (*amount, question), filter);
            let expire_time = timestamp(question.expires_at);
            let group = groups.entry(name.clone()).or_insert_with(|| v1::ApprovalGroup {
                name,
                expire_time: Some(expire_time),
                filter: narrowed,
                ..v1::ApprovalGroup::default()
            });
            group.count += 1;
            group.risk = group.risk.max(self.approvals.risk(tenant, question).0.to_wire().into());
            let key = |at: &prost_types::Timestamp| (at.seconds, at.nanos);
            group.expire_time = group.expire_time.take().into_iter().chain([expire_time]).min_by_key(key);
            if let Some(amount) = amount {
                group.amount = Some(group.amount.unwrap_or(0.0) + amount);
            }
        }
        let mut groups: Vec<v1::ApprovalGroup> = groups.into_values().collect();
        groups.sort_by_key(|group| (-group.risk, u32::MAX - group.count));
        groups.truncate(APPROVAL_GROUPS_MAX);
        groups
    }
}

fn matches_amount(filter: &RequestFilter, question: &Question) -> bool {
    filter.calls.matches_amount(|| find_amount(&question.arguments))
}

/// Name and filter of the group of a request.
fn group_of(
    grouping: ApprovalGrouping,
    (amount, question): Weighed<'_>,
    filter: Option<&v1::ApprovalFilter>,
) -> (String, Option<v1::ApprovalFilter>) {
    let filter = filter.cloned().unwrap_or_default();
    let text = |name: String, narrowed: v1::ApprovalFilter| {
        let has_name = !name.is_empty();
        (name, has_name.then_some(narrowed))
    };
    match grouping {
        ApprovalGrouping::Agent => {
            let agent_id = question.agent.clone().unwrap_or_default();
            text(agent_id.clone(), v1::ApprovalFilter { agent_id, ..filter })
        }
        ApprovalGrouping::Rule => {
            let rule = question.asking_rule().unwrap_or_default().to_owned();
            text(rule.clone(), v1::ApprovalFilter { rule, ..filter })
        }
        ApprovalGrouping::Amount => match amount {
            Some(amount) => amount_group(amount, filter),
            None => (String::new(), None),
        },
        ApprovalGrouping::Tool | ApprovalGrouping::Unspecified => {
            let tool = question.tool.clone();
            text(tool.clone(), v1::ApprovalFilter { tool, ..filter })
        }
    }
}

/// The range of amounts that holds one, by powers of ten, within the range of the list.
fn amount_group(amount: f64, filter: v1::ApprovalFilter) -> (String, Option<v1::ApprovalFilter>) {
    let (name, from, to) = if amount < 1.0 {
        ("below 1".to_owned(), f64::NEG_INFINITY, 1.0)
    } else {
        let mut from = 1.0;
        while from * 10.0 <= amount {
            from *= 10.0;
        }
        (format!("{from} to below {}", from * 10.0), from, from * 10.0)
    };
    let min_amount = [filter.min_amount, Some(from).filter(|from| from.is_finite())].into_iter().flatten();
    let max_amount = [filter.max_amount, Some(to.next_down())].into_iter().flatten();
    let narrowed = v1::ApprovalFilter {
        min_amount: min_amount.reduce(f64::max),
        max_amount: max_amount.reduce(f64::min),
        ..filter
    };
    (name, Some(narrowed))
}

/// Rank of an amount: the largest first.
fn descending(amount: f64) -> u64 {
    let bits = amount.to_bits();
    let ascending = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_ranked_from_the_largest_one_and_grouped_by_powers_of_ten() {
        let mut amounts = [0.5, -3.0, 1e9, 12.0, 0.0];
        amounts.sort_by_key(|amount| descending(*amount));
        assert_eq!(amounts, [1e9, 12.0, 0.5, 0.0, -3.0]);
        assert!(amounts.into_iter().all(|amount| descending(amount) < u64::MAX));
        let filter = v1::ApprovalFilter { max_amount: Some(50.0), ..Default::default() };
        let (name, narrowed) = amount_group(10.0, filter);
        let narrowed = narrowed.expect("a filter");
        assert_eq!(
            (name.as_str(), narrowed.min_amount, narrowed.max_amount),
            ("10 to below 100", Some(10.0), Some(50.0))
        );
        let (name, narrowed) = amount_group(9.99, v1::ApprovalFilter::default());
        assert_eq!(name, "1 to below 10");
        assert!(narrowed.is_some_and(|narrowed| narrowed.max_amount.is_some_and(|max| (9.99..10.0).contains(&max))));
    }
}
