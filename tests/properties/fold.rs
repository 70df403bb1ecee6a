//! Fold laws: a tree is the fold of its events, and its last events with totals restore it.

use std::{collections::BTreeMap, sync::Arc};

use callgate_core::domain::{
    control::ControlEvent,
    effect::EffectKind,
    event::{Event, JudgmentEvent},
    ids::SessionId,
    json::Json,
    outcome::OutcomeStatus,
    tree::{CallTree, RunTotals, Totals},
};
use proptest::{collection::vec, prelude::*, sample::select};

use crate::{
    alphabet::{Ask, Ending, Step, ask, ending, history, policy},
    cases,
    world::World,
};

/// Judgments of a session that a cold tree is folded from; the store reads as many.
const ROWS_MAX: usize = 160;

/// One tree as it is stored.
struct GrownTree<'a> {
    fold: &'a CallTree,
    events: &'a [Event],
}

fn grown<'a>(world: &'a World, root: &SessionId) -> GrownTree<'a> {
    GrownTree { fold: world.store.tree(root).expect("stored"), events: world.store.events(root) }
}

/// The last judgements of each session, all that are open and all that a person is asked about, with their reports.
fn last_events(grown: &GrownTree<'_>, rows: usize) -> Vec<Event> {
    let mut judged: BTreeMap<_, Vec<&JudgmentEvent>> = BTreeMap::new();
    for event in grown.events {
        if let Event::Judged(event) = event {
            judged.entry(&event.session).or_default().push(event);
        }
    }
    let open =
        |seq: u64| grown.fold.calls().any(|call| call.is_open() && call.permit.as_ref().is_some_and(|p| p.seq == seq));
    let held = |event: &JudgmentEvent| {
        let used_up = |later: &JudgmentEvent| later.fingerprint == event.fingerprint && later.permit.is_some();
        let mut newer = judged[&event.session].iter().rev().take_while(|later| later.seq > event.seq);
        event.approval.is_some() && !newer.any(|later| later.call_id == event.call_id || used_up(later))
    };
    let kept = |event: &JudgmentEvent| {
        let newer = judged[&event.session].iter().rev().take_while(|other| other.seq > event.seq).count();
        newer < rows || open(event.seq) || held(event)
    };
    let kept: Vec<u64> = judged.values().flatten().filter(|event| kept(event)).map(|event| event.seq).collect();
    let is_kept = |event: &&Event| match event {
        Event::Judged(event) => kept.contains(&event.seq),
        Event::Settled(event) => kept.contains(&event.permit_seq),
        Event::Controlled(_) => false,
    };
    grown.events.iter().filter(is_kept).cloned().collect()
}

/// The sums over all rows, as the store makes them. Sums that the tree has are taken from it: a test with a database
/// compares them with the store's.
fn totals(grown: &GrownTree<'_>, given: &[Event]) -> Totals {
    let tree = grown.fold;
    let judged = grown.events.iter().filter_map(|event| match event {
        Event::Judged(event) => Some((event.seq, event.fingerprint)),
        Event::Settled(_) | Event::Controlled(_) => None,
    });
    let fingerprints: BTreeMap<u64, _> = judged.collect();
    let seen = grown.events.iter().filter_map(|event| match event {
        Event::Settled(event) if event.status == OutcomeStatus::Success => {
            Some((event.session.clone(), fingerprints[&event.permit_seq], event.digest?))
        }
        _ => None,
    });
    let is_given = |seq: u64| given.iter().any(|event| event.seq() == seq);
    let forgotten = grown.events.iter().filter_map(|event| match event {
        Event::Judged(event) if !is_given(event.seq) => Some(changed_at(grown, event)),
        _ => None,
    });
    let sessions = tree.sessions.iter().map(|(id, session)| {
        let run = RunTotals {
            started_at: session.run.started_at,
            idle_ms: session.run.idle_ms,
            spent: session.run.spent,
            by_tool: session.run.by_tool.clone(),
        };
        (id.clone(), session.parent.clone(), session.depth, run)
    });
    let kept = tree.kept.iter().map(|kept| {
        let text = |value: &Option<Arc<Json>>| value.as_ref().map(|value| value.canonical());
        (kept.seq, kept.session.clone(), kept.tool.clone(), text(&kept.arguments), text(&kept.result))
    });
    Totals {
        version: tree.version,
        last_at: tree.last_at,
        spent: tree.spent,
        by_tool: tree.by_tool.clone(),
        open_calls: tree.open_calls,
        due: tree.due,
        sessions: sessions.collect(),
        seen: seen.collect(),
        forgotten_change: forgotten.max().unwrap_or(0),
        controls: grown.events.iter().filter_map(as_control_event).collect(),
        uses: tree.uses.values().cloned().collect(),
        changes: tree.changes.iter().cloned().collect(),
        kept: kept.collect(),
    }
}

fn as_control_event(event: &Event) -> Option<ControlEvent> {
    match event {
        Event::Controlled(event) => Some((**event).clone()),
        Event::Judged(_) | Event::Settled(_) => None,
    }
}

/// When a call may have changed the world, by its rows; 0 when it did not.
fn changed_at(grown: &GrownTree<'_>, call: &JudgmentEvent) -> u64 {
    let reports = grown.events.iter().rev().filter_map(|event| match event {
        Event::Settled(event) if event.permit_seq == call.seq => Some(event),
        _ => None,
    });
    let outcome = reports.into_iter().find(|event| event.status != OutcomeStatus::Running);
    match outcome.map(|outcome| outcome.status) {
        Some(_) if matches!(call.effect.kind, EffectKind::Read | EffectKind::Check) => 0,
        Some(OutcomeStatus::Success) => outcome.map_or(0, |o| o.seq),
        Some(OutcomeStatus::Error | OutcomeStatus::Cancelled) => 0,
        _ if call.permit.is_some() && call.effect.kind == EffectKind::Write => call.seq,
        _ => 0,
    }
}

/// A request whose call, if permitted, is settled at once: an open call is evicted by its request's time, and loaded by
/// its last judgment's.
fn settled_step() -> impl Strategy<Value = Step> {
    (ask(), ending(), select(vec![OutcomeStatus::Success, OutcomeStatus::Error, OutcomeStatus::Unknown])).prop_map(
        |(ask, ending, status)| {
            Step::Ask(Ask { repeat_intended: false, outcome: Some(Ending { status, ..ending }), ..ask })
        },
    )
}

fn restore_tree(grown: &GrownTree<'_>, rows: usize) -> CallTree {
    let first = grown.events.first().map(Event::at).unwrap_or_default();
    let given = last_events(grown, rows);
    let new = CallTree::new(grown.fold.tenant, grown.fold.root.clone(), first);
    new.restore(&given, totals(grown, &given))
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn folding_all_events_gives_the_tree(policy in policy(), history in history(120)) {
        let world = World::after(&policy, &history);
        for (root, tree) in &world.trees {
            let grown = grown(&world, root);
            prop_assert_eq!(tree, grown.fold);
            prop_assert_eq!(&restore_tree(&grown, ROWS_MAX), grown.fold);
            let (due, end) = (tree.due, tree.first_lease_end());
            prop_assert!(end.is_none_or(|end| due.is_some_and(|due| due <= end)), "{:?} after {:?}", due, end);
        }
    }
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn the_last_events_and_the_totals_judge_like_the_whole_tree(
        policy in policy(),
        history in vec(settled_step(), 280..360),
        next in vec(settled_step(), 12),
    ) {
        let mut warm = World::after(&policy, &history);
        let mut cold = warm.clone();
        for (root, tree) in &mut cold.trees {
            *tree = restore_tree(&grown(&warm, root), ROWS_MAX);
        }
        for step in &next {
            let (warm, cold) = (warm.step(step), cold.step(step));
            prop_assert_eq!(warm.map(|asked| asked.verdict), cold.map(|asked| asked.verdict));
        }
    }
}
