//! What a report comes to: status, failure kind, digest, progress and advice.

use super::Report;
use crate::{
    domain::{
        call::{Call, Permit},
        digest,
        effect::EffectKind,
        event::Settled,
        failure::FailureKind,
        fingerprint::ResultDigest,
        outcome::{Advice, OutcomeStatus},
        time::Timestamp,
        tree::{CallTree, Session},
    },
    policy::Policy,
    retry::{advice, classify},
};

pub(super) fn settle(
    policy: &Policy,
    tree: &CallTree,
    call: &Call,
    permit: &Permit,
    report: &Report,
    now: Timestamp,
) -> Settled {
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
    let signature = report.error.as_ref().map(|error| classify::error_signature(&error.message));
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
    let is_new = digest.zip(session).is_some_and(|(digest, session)| session.is_new(&call.fingerprint, &digest));
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
        result_bytes: report.result_bytes.or_else(|| report.result.as_ref().map(|result| result.len() as u64)),
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
    let asked_ms =
        error.and_then(|error| error.retry_after_ms.or_else(|| classify::retry_after_in_message(&error.message)));
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
        rate_limit_run: if kind == FailureKind::RateLimited { rate_limited + 1 } else { 0 },
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
