//! What came of a call, and what is advised.

use super::{Misuse, Recorded, Shared, ledger_key_of, reach};
use crate::{
    domain::{
        budget::{CounterAdd, Dimension, Left, Spent, Usage},
        call::{Call, Permit, Proposal},
        digest,
        effect::EffectKind,
        event::{Change, Event, Judged, Settled},
        failure::{ErrorReport, FailureKind},
        fingerprint::{ResultDigest, idempotency_key},
        ids::{CallId, SessionId},
        ledger::{LedgerChange, LedgerRow, LedgerState},
        outcome::{Advice, OutcomeStatus},
        time::Timestamp,
        tree::{CallTree, Session},
    },
    policy::Policy,
    retry::{advice, classify},
    rules::{Mode, budget},
};

/// What a caller says about a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Whose call.
    pub session: SessionId,
    /// The call.
    pub call_id: CallId,
    /// What came of it.
    pub status: OutcomeStatus,
    /// What went wrong, for errors; may go with `unknown`.
    pub error: Option<ErrorReport>,
    /// The whole answer, as JSON text or plain text.
    pub result: Option<String>,
    /// A digest of the answer by the caller, when the answer itself stays with it.
    pub result_digest: Option<String>,
    /// Size of the whole answer, in bytes.
    pub result_bytes: Option<u64>,
    /// Does the answer hold everything there is?
    pub is_complete: Option<bool>,
    /// How many matches there are in all.
    pub total_matches: Option<u64>,
    /// How far a running call has come.
    pub progress_note: Option<String>,
    /// Model usage since the last call, and the actual cost of this one.
    pub usage: Usage,
    /// Nobody reports: the lease ran out.
    pub by_lease: bool,
    /// How long the call took, in milliseconds.
    pub duration_ms: Option<u64>,
    /// For a call that nobody asked about: what it was.
    pub observed: Option<Box<Proposal>>,
}

impl Report {
    /// A report that says no more than what came of the call.
    #[must_use]
    pub fn new(session: SessionId, call_id: CallId, status: OutcomeStatus) -> Self {
        Self {
            session,
            call_id,
            status,
            error: None,
            result: None,
            result_digest: None,
            result_bytes: None,
            is_complete: None,
            total_matches: None,
            progress_note: None,
            usage: Usage::default(),
            by_lease: false,
            duration_ms: None,
            observed: None,
        }
    }
}

/// Takes in what came of a call.
///
/// # Errors
/// [`Misuse`]: the caller's own fault, and nothing is to be stored.
pub fn record(
    policy: &Policy,
    tree: &CallTree,
    shared: &Shared,
    report: &Report,
    now: Timestamp,
) -> Result<Recorded, Misuse> {
    let now = now.max(tree.last_at);
    let known = tree
        .sessions
        .get(&report.session)
        .and_then(|session| session.call(&report.call_id));
    let Some(call) = known else {
        let proposal = report.observed.as_deref().ok_or(Misuse::UnknownCall)?;
        return Ok(observe(policy, tree, shared, report, proposal, now));
    };
    let permit = call.permit.as_ref().ok_or(Misuse::NotPermitted)?;
    let settled = settle(policy, tree, call, permit, report, now);
    if let Some(outcome) = &call.outcome {
        let same = outcome.status == settled.status && outcome.digest == settled.digest;
        if same {
            let settled = Settled {
                advice: outcome.advice,
                seq: outcome.seq,
                at: outcome.at,
                ..settled
            };
            return Ok(answer(policy, tree, shared, call, settled, None));
        }
        if outcome.status != OutcomeStatus::Unknown {
            return Err(Misuse::AlreadySettled);
        }
    }
    if is_superseded(tree, shared, call, permit) {
        return Err(Misuse::AttemptSuperseded);
    }
    let change = change(policy, tree, shared, call, permit, &settled);
    Ok(answer(policy, tree, shared, call, settled, Some(Box::new(change))))
}

/// A call that nobody asked about is stored as if it had been allowed, learned from, and seen by the loop rules.
fn observe(
    policy: &Policy,
    tree: &CallTree,
    shared: &Shared,
    report: &Report,
    proposal: &Proposal,
    now: Timestamp,
) -> Recorded {
    let request = &proposal.request;
    let session = tree.sessions.get(&report.session);
    let mut event = Judged::of(proposal, tree.version + 1, now);
    let same_run = session.filter(|session| session.run.id == request.run);
    event.parent = session.map_or_else(|| request.parent.clone(), |session| session.parent.clone());
    event.depth = session.map_or(u32::from(request.parent.is_some()), |session| session.depth);
    event.run_from = same_run.map_or(event.seq, |session| session.run.from);
    event.usage = Usage::default();
    event.observed = true;
    event.policy.clone_from(&policy.version);
    let within = reach(&tree.root, proposal.effect.once);
    event.permit = Some(Permit {
        attempt: 1,
        occurrence: event.seq,
        idempotency_key: idempotency_key(tree.tenant, within, &proposal.fingerprint, event.seq),
        at: now,
        seq: event.seq,
        lease_until: now.plus_ms(proposal.lease_ms),
        reserved_micros: 0,
        ledger_revision: 0,
    });
    let judged = Event::Judged(Box::new(event));
    let mut after = tree.clone();
    after.apply(&judged);
    let report = Report {
        observed: None,
        ..report.clone()
    };
    // The call is there now, permitted and open: taking in its report can only succeed.
    let recorded = record(policy, &after, shared, &report, now);
    let Ok(mut recorded) = recorded else {
        unreachable!("an observed call is open when it is reported on")
    };
    if let Some(change) = recorded.change.as_mut() {
        change.events.insert(0, judged);
    }
    recorded
}

fn settle(policy: &Policy, tree: &CallTree, call: &Call, permit: &Permit, report: &Report, now: Timestamp) -> Settled {
    let spec = policy.tool(&call.tool);
    let failure = report.error.as_ref().map(classify::classify);
    let status = match report.status {
        OutcomeStatus::Error | OutcomeStatus::Cancelled if call.effect.is_unsafe_to_repeat() => {
            let open =
                report.status == OutcomeStatus::Cancelled || failure.is_some_and(FailureKind::leaves_effect_open);
            if open { OutcomeStatus::Unknown } else { report.status }
        }
        status => status,
    };
    let failure = match status {
        OutcomeStatus::Error => Some(failure.unwrap_or(FailureKind::Other)),
        _ => failure,
    };
    let signature = report
        .error
        .as_ref()
        .map(|error| classify::error_signature(&error.message));
    let digest = match status {
        OutcomeStatus::Success => Some(match (&report.result, &report.result_digest) {
            (Some(result), _) => digest::of_success(result, &spec.volatile),
            (None, digest) => ResultDigest::of_success(digest.as_deref().unwrap_or_default()),
        }),
        OutcomeStatus::Error => {
            failure.map(|kind| ResultDigest::of_error(kind.as_str(), signature.as_deref().unwrap_or_default()))
        }
        _ => None,
    };
    let session = tree.sessions.get(&report.session);
    let is_new = digest
        .zip(session)
        .is_some_and(|(digest, session)| session.is_new(&call.fingerprint, &digest));
    let progress = status == OutcomeStatus::Success && (is_new || call.effect.kind == EffectKind::Write);
    Settled {
        seq: tree.version + 1,
        at: now,
        session: report.session.clone(),
        call_id: report.call_id.clone(),
        permit_seq: permit.seq,
        status,
        failure,
        error_signature: signature,
        digest,
        progress,
        advice: failure.map(|kind| advise(policy, session, call, permit, report, status, kind)),
        lease_until: (status == OutcomeStatus::Running).then(|| now.plus_ms(spec.lease_ms)),
        by_lease: report.by_lease,
        ledger_revision: 0,
        usage: report.usage,
        duration_ms: report.duration_ms,
        is_complete: report.is_complete,
        total_matches: report.total_matches,
        progress_note: report.progress_note.clone(),
        result: report.result.clone(),
        result_bytes: report
            .result_bytes
            .or_else(|| report.result.as_ref().map(|result| result.len() as u64)),
        error_message: report.error.as_ref().map(|error| error.message.clone()),
    }
}

fn advise(
    policy: &Policy,
    session: Option<&Session>,
    call: &Call,
    permit: &Permit,
    report: &Report,
    status: OutcomeStatus,
    kind: FailureKind,
) -> Advice {
    let error = report.error.as_ref();
    let asked_ms = error.and_then(|error| {
        error
            .retry_after_ms
            .or_else(|| classify::retry_after_in_message(&error.message))
    });
    let earlier = session.into_iter().flat_map(|session| session.calls.iter().rev());
    let rate_limited = earlier
        .filter(|other| other.tool == call.tool && !(other.call_id == call.call_id && other.seq == call.seq))
        .filter_map(|other| other.outcome.as_ref())
        .take_while(|outcome| outcome.failure == Some(FailureKind::RateLimited))
        .count() as u32;
    let case = advice::Case {
        kind,
        attempt: permit.attempt,
        asked_ms,
        is_unsafe: status == OutcomeStatus::Unknown && call.effect.is_unsafe_to_repeat(),
        rate_limit_run: if kind == FailureKind::RateLimited {
            rate_limited + 1
        } else {
            0
        },
        seed: seed(call, permit),
    };
    advice::advise(&policy.retry, &case)
}

/// The jitter of a wait comes from the call, so that a replay gives the same bytes and two sessions do not meet again.
fn seed(call: &Call, permit: &Permit) -> u64 {
    let mut seed = permit.seq;
    for byte in call.fingerprint.0.iter().chain(call.call_id.as_str().as_bytes()) {
        seed = (seed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    seed ^ (seed >> 32)
}

fn is_superseded(tree: &CallTree, shared: &Shared, call: &Call, permit: &Permit) -> bool {
    let newer = tree
        .calls_of(call.fingerprint)
        .filter_map(|(_, _, other)| other.permit.as_ref());
    let newer = newer
        .filter(|other| other.seq > permit.seq && other.occurrence == permit.occurrence)
        .count()
        > 0;
    let elsewhere = shared
        .ledger
        .as_ref()
        .is_some_and(|row| row.root != tree.root && row.permitted_at > permit.at && row.state != LedgerState::Vacant);
    newer || elsewhere
}

fn change(
    policy: &Policy,
    tree: &CallTree,
    shared: &Shared,
    call: &Call,
    permit: &Permit,
    settled: &Settled,
) -> Change {
    let mut settled = settled.clone();
    let mut ledger = Vec::new();
    if let Some(expected) = ledger_revision(tree, shared, call, permit) {
        settled.ledger_revision = expected + 1;
        let row = ledger_row(tree, call, permit, &settled);
        ledger.extend(ledger_key_of(&tree.root, call).map(|key| LedgerChange { key, expected, row }));
    }
    Change {
        counters: counters(policy, call, permit, &settled),
        ledger,
        events: vec![Event::Settled(Box::new(settled))],
    }
}

/// The revision of the call's ledger row, while the row is still about this permit: as this tree has moved it in
/// changes on their way, or as read.
fn ledger_revision(tree: &CallTree, shared: &Shared, call: &Call, permit: &Permit) -> Option<u64> {
    let newer = |(_, _, other): (_, _, &Call)| other.permit.as_ref().is_some_and(|other| other.seq > permit.seq);
    if call.effect.kind != EffectKind::Write || tree.calls_of(call.fingerprint).any(newer) {
        return None;
    }
    let row = shared
        .ledger
        .as_ref()
        .filter(|row| row.root == tree.root && row.seq <= permit.seq);
    let read = row.filter(|row| row.seq == permit.seq).map(|row| row.revision);
    let moved = (permit.ledger_revision > 0).then_some(permit.ledger_revision);
    moved.max(read)
}

fn ledger_row(tree: &CallTree, call: &Call, permit: &Permit, settled: &Settled) -> LedgerRow {
    let advice = settled.advice.as_ref();
    LedgerRow {
        revision: settled.ledger_revision,
        state: match settled.status {
            OutcomeStatus::Running => LedgerState::Permitted,
            OutcomeStatus::Success => LedgerState::Succeeded,
            OutcomeStatus::Error => LedgerState::Failed,
            OutcomeStatus::Cancelled => LedgerState::Cancelled,
            OutcomeStatus::Unknown => LedgerState::Unknown,
        },
        root: tree.root.clone(),
        session: settled.session.clone(),
        call_id: settled.call_id.clone(),
        fingerprint: call.fingerprint,
        seq: permit.seq,
        occurrence: permit.occurrence,
        attempt: permit.attempt,
        permitted_at: permit.at,
        lease_until: settled.lease_until.unwrap_or(permit.lease_until),
        settled_at: (settled.status != OutcomeStatus::Running).then_some(settled.at),
        digest: settled.digest,
        retryable: advice.is_some_and(|advice| advice.retryable),
        retry_after_ms: advice.map_or(0, |advice| advice.retry_after_ms),
        retries_remaining: advice.map_or(0, |advice| advice.max_retries_remaining),
    }
}

/// Books the actual cost on the day of the permit, and gives back what was reserved.
fn counters(policy: &Policy, call: &Call, permit: &Permit, settled: &Settled) -> Vec<CounterAdd> {
    let keeps = matches!(settled.status, OutcomeStatus::Running | OutcomeStatus::Unknown);
    let reserved = if keeps { 0 } else { permit.reserved_micros };
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let keys = policy.rules.budget.counters(call.agent.as_ref(), permit.at.day());
    let adds = keys.map(|(key, _)| {
        let amount = match key.dimension {
            Dimension::Cost => signed(settled.usage.cost_micros).saturating_sub(signed(reserved)),
            Dimension::Tokens => signed(settled.usage.tokens()),
            _ => 0,
        };
        CounterAdd {
            key,
            amount,
            limit: None,
        }
    });
    adds.filter(|add| add.amount != 0).collect()
}

fn answer(
    policy: &Policy,
    tree: &CallTree,
    shared: &Shared,
    call: &Call,
    settled: Settled,
    change: Option<Box<Change>>,
) -> Recorded {
    let session = tree.sessions.get(&settled.session);
    let books = budget::Books {
        tree,
        run: session.map(|session| &session.run),
        session,
        depth: session.map_or(0, |session| session.depth),
        agent: call.agent.as_ref(),
        tool: &call.tool,
        counters: &shared.counters,
        now: settled.at,
    };
    let booked = if change.is_some() {
        settled.usage
    } else {
        Usage::default()
    };
    let extra = Spent {
        cost_micros: booked.cost_micros,
        tokens: booked.tokens(),
        ..Spent::default()
    };
    let mut left = books.left(&policy.rules.budget, &extra);
    let released = change.is_some() && !matches!(settled.status, OutcomeStatus::Running | OutcomeStatus::Unknown);
    if let Some(permit) = call.permit.as_ref().filter(|_| released) {
        let cost = left.iter_mut().filter(|left| left.dimension == Dimension::Cost);
        cost.for_each(|left| left.used = left.used.saturating_sub(permit.reserved_micros));
    }
    let enforced = policy.mode == Mode::Enforce && policy.rules.mode(budget::ID) == Mode::Enforce;
    let tools_disabled = enforced && budget::is_spent(&left);
    Recorded {
        advice: settled.advice,
        context_hint: context_hint(tree, call, &settled, tools_disabled, &left),
        tools_disabled,
        left,
        settled,
        change,
    }
}

fn context_hint(tree: &CallTree, call: &Call, settled: &Settled, disabled: bool, left: &[Left]) -> Option<String> {
    if disabled {
        let spent = left.iter().find(|left| left.remaining() == 0)?;
        let budget = spent.dimension.in_words(spent.limit);
        return Some(format!(
            "The budget of {budget} is used up and tools are disabled: give the final answer now."
        ));
    }
    if settled.status != OutcomeStatus::Success || settled.progress {
        return None;
    }
    let equal = |other: &&Call| other.outcome.as_ref().is_some_and(|o| o.digest == settled.digest);
    let times = tree
        .calls_of(call.fingerprint)
        .map(|(_, _, other)| other)
        .filter(equal)
        .count()
        + 1;
    (times > 1).then(|| {
        format!(
            "{} gave the same result as before, {times} times now. Another call will not change it.",
            call.tool
        )
    })
}
