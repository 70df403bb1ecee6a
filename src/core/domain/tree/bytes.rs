//! Memory accounting of trees, for the bound of their cache. The estimate is compared with real allocations in
//! `tests/memory.rs`.

use super::{CallTree, ChangedResource, Denial, RetainedSuccess, RunBreak, Session};
use crate::domain::{
    budget::Raise,
    call::{Approval, Call},
    control::Clearance,
    finding::Finding,
    grant::{Burst, Grant},
    json::Json,
    outcome::Advice,
    profile::Circumstances,
    sorted::SortedMap,
    tree::EditedCall,
};

/// Overhead of an allocation: its header and rounding.
const ALLOCATION: usize = 8;
/// Reference counts of an `Arc`.
const COUNTS: usize = 16;

fn text(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.len() + ALLOCATION }
}

fn shared_bytes(of: &str) -> usize {
    of.len() + COUNTS + ALLOCATION
}

fn entries<K, V>(map: &SortedMap<K, V>) -> usize {
    if map.is_empty() { 0 } else { ALLOCATION + map.capacity() * size_of::<(K, V)>() }
}

impl CallTree {
    /// Approximate size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let sessions = self.sessions.iter().map(|(id, session)| shared_bytes(id.as_str()) + session.bytes());
        let tools = self.by_tool.keys().map(|tool| shared_bytes(tool.as_str()));
        let uses = self.uses.iter().map(|(key, used)| 2 * text(key) + used.recent.capacity() * size_of::<Burst>());
        let changes = self.changes.iter().map(|changed| text(changed.resource.as_str()));
        let pace = &self.pace;
        let paces = [pace.judged.capacity(), pace.batches.capacity(), pace.slowed.capacity(), pace.tokens.capacity()];
        let rings = paces.into_iter().sum::<usize>() * size_of::<(u64, u64)>()
            + self.changes.capacity() * size_of::<ChangedResource>()
            + self.kept.capacity() * size_of::<RetainedSuccess>()
            + self.grants.capacity() * size_of::<Grant>()
            + self.raised.capacity() * size_of::<Raise>()
            + self.denials.capacity() * size_of::<Denial>()
            + self.clearances.capacity() * 2 * size_of::<Clearance>()
            + self.edits.capacity() * 2 * size_of::<EditedCall>();
        size_of::<Self>()
            + entries(&self.sessions)
            + sessions.sum::<usize>()
            + entries(&self.by_tool)
            + tools.sum::<usize>()
            + entries(&self.uses)
            + uses.sum::<usize>()
            + changes.sum::<usize>()
            + self.kept.iter().map(count_retained_bytes).sum::<usize>()
            + rings
    }
}

fn count_retained_bytes(kept: &RetainedSuccess) -> usize {
    let values = [&kept.arguments, &kept.result].into_iter().flatten();
    values.map(|value| COUNTS + json(value)).sum::<usize>()
}

fn json(value: &Json) -> usize {
    let inner = match value {
        Json::Null | Json::Bool(_) => 0,
        Json::Number(value) | Json::String(value) => text(value),
        Json::Array(items) => ALLOCATION + items.iter().map(json).sum::<usize>(),
        Json::Object(members) => {
            ALLOCATION + members.iter().map(|(key, value)| size_of::<String>() + text(key) + json(value)).sum::<usize>()
        }
    };
    size_of::<Json>() + inner
}

impl Session {
    fn bytes(&self) -> usize {
        // One name that many calls share.
        let agent =
            self.calls.back().and_then(|call| call.agent.as_ref()).map_or(0, |agent| shared_bytes(agent.as_str()));
        let calls = self.calls.iter().map(call).sum::<usize>() + agent;
        let plan =
            self.plan.iter().flat_map(|plan| &plan.order).map(|tool| 16 + shared_bytes(tool.as_str())).sum::<usize>();
        size_of::<Self>()
            + ALLOCATION
            + self.calls.capacity() * size_of::<Call>()
            + self.seen.capacity() * size_of::<u64>()
            + self.run.closed.capacity() * size_of::<RunBreak>()
            + self.phase.as_deref().map_or(0, text)
            + calls
            + entries(&self.run.by_tool)
            + plan
    }
}

/// Heap size of a call.
fn call(call: &Call) -> usize {
    let outcome = call.outcome.as_ref().map_or(0, |outcome| {
        let marks = outcome.marks.as_deref().map_or(0, |marks| {
            COUNTS
                + ALLOCATION
                + size_of_val(marks)
                + size_of_val(&*marks.names)
                + size_of_val(&*marks.numbers)
                + text(marks.named.as_str())
        });
        let advised = outcome.advice.as_ref().map_or(0, |_| size_of::<(Advice, Circumstances)>() + 2 * ALLOCATION);
        marks + advised + outcome.error_line.as_deref().map_or(0, shared_bytes)
    });
    let approval = call.approval.as_ref().map_or(0, |asked| {
        ALLOCATION + size_of::<Approval>() + text(&asked.id) + asked.reason.as_deref().map_or(0, text)
    });
    shared_bytes(call.call_id.as_str())
        + if call.was_refused() { shared_bytes(call.tool.as_str()) } else { 0 }
        + call.arguments.as_deref().map_or(0, shared_bytes)
        + call.shape.as_deref().map_or(0, |shape| COUNTS + ALLOCATION + shape.bytes())
        + call.effect.resource.as_ref().map_or(0, |resource| text(resource.as_str()))
        + call.findings.iter().map(finding).sum::<usize>()
        + call.permit.as_ref().map_or(0, |permit| text(&permit.idempotency_key))
        + call.follow_up.as_deref().map_or(0, |follow_up| ALLOCATION + size_of_val(follow_up))
        + approval
        + outcome
}

fn finding(finding: &Finding) -> usize {
    let texts = [&finding.next_action, &finding.for_people].into_iter().flatten();
    let violations = finding.violations.iter().map(|violation| {
        size_of_val(violation) + text(&violation.field) + text(&violation.message) + text(&violation.keyword)
    });
    size_of::<Finding>() + text(&finding.message) + texts.map(|of| text(of)).sum::<usize>() + violations.sum::<usize>()
}
