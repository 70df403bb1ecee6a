//! Changes made by hand, and how they are appended.

use std::sync::Arc;

use callgate_core::{
    domain::{
        budget::{CounterAdd, CounterKey, Dimension},
        call::Permit,
        event::{Change, Event, JudgmentEvent, SettledEvent},
        fingerprint::LedgerKey,
        ids::{DEFAULT_TENANT, TenantId},
        ledger::{LedgerChange, LedgerRow, LedgerState},
        outcome::OutcomeStatus,
        time::Timestamp,
        tree::CallTree,
    },
    engine,
    policy::Policy,
};
use callgate_store::{ConflictCause, DecisionStore, Pending, Slot, Slots};

use crate::common::gates::{ask, call_id, session};

/// When all of it happens: now, so that there are partitions for it.
pub(super) fn now(store: &dyn DecisionStore) -> Timestamp {
    Timestamp::from_millis(store.now().as_millis() / 60_000 * 60_000)
}

/// A judgement of a call in `in_session`, as the `seq`-th event.
pub(super) fn judgment(in_session: &str, call: &str, seq: u64, at: Timestamp) -> JudgmentEvent {
    let arguments = format!(r#"{{"call":"{call}"}}"#);
    JudgmentEvent {
        policy: "p".into(),
        ..JudgmentEvent::of(&Policy::default().propose(ask(in_session, call, "work", &arguments)), seq, at)
    }
}

/// The same, permitted until `lease_until`.
pub(super) fn permitted_judgment(
    in_session: &str,
    call: &str,
    seq: u64,
    at: Timestamp,
    lease_until: Timestamp,
) -> JudgmentEvent {
    let permit = Permit {
        attempt: 1,
        occurrence: seq,
        idempotency_key: format!("key-{seq}"),
        at,
        seq,
        lease_until,
        reserved_micros: 0,
        ledger_revision: 0,
    };
    JudgmentEvent { permit: Some(permit), ..judgment(in_session, call, seq, at) }
}

/// A report on the permit `permit_seq`.
pub(super) fn report_event(of: &JudgmentEvent, seq: u64, at: Timestamp, result: &str) -> SettledEvent {
    SettledEvent {
        seq,
        at,
        session: of.session.clone(),
        call_id: of.call_id.clone(),
        permit_seq: of.seq,
        status: OutcomeStatus::Success,
        failure: None,
        error_signature: None,
        digest: None,
        witness: None,
        kept: false,
        marks: None,
        news: true,
        progress: true,
        effect_open: false,
        key_sent: false,
        inferred: false,
        double_effect: false,
        advice: None,
        circumstances: None,
        follow_up_ok: None,
        by_lease: false,
        lease_until: None,
        ledger_revision: 0,
        usage: Default::default(),
        model: None,
        duration_ms: None,
        is_complete: Some(true),
        total_matches: Some(3),
        progress_note: None,
        result: Some(result.to_owned()),
        result_bytes: Some(result.len() as u64),
        whole: None,
        gist: None,
        error_line: None,
        error_message: None,
    }
}

pub(super) fn key(byte: u8) -> LedgerKey {
    LedgerKey([byte | 0x80; 32])
}

/// The row after the revision that it was decided on.
pub(super) fn ledger(key: LedgerKey, expected: u64, of: &JudgmentEvent) -> LedgerChange {
    let row = LedgerRow {
        revision: expected + 1,
        state: LedgerState::Permitted,
        root: of.session.clone(),
        session: of.session.clone(),
        call_id: of.call_id.clone(),
        fingerprint: of.fingerprint,
        seq: of.seq,
        occurrence: 1,
        attempt: 1,
        permitted_at: of.at,
        lease_until: of.at.plus_ms(60_000),
        settled_at: None,
        digest: None,
        key_sent: false,
        retryable: false,
        retry_after_ms: 0,
        retries_remaining: 0,
        guard: None,
    };
    LedgerChange { key, expected, row }
}

/// A counter of the tenant on that day.
pub(super) fn counter(day: i32) -> CounterKey {
    CounterKey { agent: None, day, dimension: Dimension::ToolCalls, tier: None }
}

pub(super) fn add(day: i32, amount: i64, limit: Option<u64>) -> CounterAdd {
    CounterAdd { key: counter(day), amount, limit }
}

pub(super) fn change(events: Vec<Event>) -> Change {
    Change { events, ledger: Vec::new(), counters: Vec::new() }
}

pub(super) fn of(judged: JudgmentEvent) -> Change {
    change(vec![Event::Judged(Box::new(judged))])
}

/// A tree that nobody has stored yet, ahead of its commits.
pub(super) fn new(slots: &Slots, root: &str, at: Timestamp) -> Arc<Slot> {
    new_of(slots, DEFAULT_TENANT, root, at)
}

pub(super) fn new_of(slots: &Slots, tenant: TenantId, root: &str, at: Timestamp) -> Arc<Slot> {
    slots.put_tree(CallTree::new(tenant, session(root), at))
}

/// A tree as it is stored, in a cache of its own.
pub(super) async fn load(store: &dyn DecisionStore, root: &str) -> Arc<Slot> {
    Slots::default().put_tree(tree(store, root).await)
}

pub(super) async fn tree(store: &dyn DecisionStore, root: &str) -> CallTree {
    store.tree(DEFAULT_TENANT, &session(root), None).await.expect("readable").expect("stored")
}

/// Folds a change in and sends it; none where it is known by then that an earlier one was lost.
pub(super) async fn send(store: &dyn DecisionStore, slot: &Arc<Slot>, change: Change) -> Option<Pending> {
    let queue = store.queue_slot().await.expect("a slot");
    slot.advance(|tree| queue.send(engine::advance(tree, change), slot))
}

pub(super) async fn append(store: &dyn DecisionStore, slot: &Arc<Slot>, change: Change) -> Result<(), ConflictCause> {
    send(store, slot, change).await.expect("nothing of it was lost").wait_for_commit().await.map(drop)
}

/// Everything that is stored of a tree, as text.
pub(super) async fn dump_tree(store: &dyn DecisionStore, root: &str) -> String {
    let (root, day) = (session(root), now(store).day());
    let tree = store.tree(DEFAULT_TENANT, &root, None).await.expect("readable");
    let rows = store.ledger_rows(DEFAULT_TENANT, &root, (0..4).map(|n| Some(key(n))).collect()).await;
    let counters = store.counters(DEFAULT_TENANT, (0..4).map(|n| (counter(day + n), 0)).collect()).await;
    let call = store.call(DEFAULT_TENANT, &root, &call_id("lost")).await.expect("readable").len();
    format!("{tree:?} {:?} {:?} {call}", rows.expect("readable"), counters.expect("readable"))
}
