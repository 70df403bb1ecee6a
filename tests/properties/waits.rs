//! WAIT law: the finding is gone exactly at its time, and not one millisecond earlier.

use callgate_core::{
    domain::{
        call::{Proposal, Request},
        failure::FailureKind,
        finding::{Decision, Finding},
        ids::CallId,
        outcome::OutcomeStatus,
        reason::Reason,
        time::Timestamp,
    },
    engine::Evaluation,
    policy::Policy,
    rules::{Mode, growth},
};
use proptest::{collection::vec, prelude::*};

use crate::{
    alphabet::{Ask, Ending, Step, ask, ending, history, policy},
    cases,
    world::{RequestResult, World},
};

/// Only these rules run, and nothing else gets in the way of their waits.
fn only(policy: Policy, rules: &[&str]) -> Policy {
    let mut policy = policy;
    policy.rules.keep_only(rules);
    policy
}

/// The same finding of the rule on the same call at `now`, if nothing else has happened.
fn says(world: &World, who: usize, proposal: &Proposal, finding: &Finding, now: Timestamp) -> Option<Decision> {
    let Ok(Evaluation::New(verdict, _)) = world.judge(&world.policy, who, proposal, None, now) else {
        return None;
    };
    let same = verdict.findings.iter().find(|f| f.rule == finding.rule && f.reason == finding.reason);
    same.map(|finding| finding.decision)
}

/// When the lease of the call that `proposal` waits for ends.
fn end_of_lease(world: &World, who: usize, proposal: &Proposal, now: Timestamp) -> Option<Timestamp> {
    let (tree, row) = (world.tree(who)?, world.row(who, proposal));
    let previous = tree.previous(proposal.fingerprint, row, now)?;
    let mut calls = tree.calls_of(proposal.fingerprint).filter_map(|(_, _, call)| call.permit.as_ref());
    let mine = calls.find(|permit| permit.seq == previous.seq && !previous.foreign);
    mine.map(|permit| permit.lease_until).or(row.map(|row| row.lease_until))
}

/// Repeats the call after its wait: with the same call_id, and with another.
fn check(world: &World, asked: &RequestResult) -> Result<(), TestCaseError> {
    if asked.verdict.decision != Decision::Wait || asked.verdict.replayed || !asked.stored {
        return Ok(());
    }
    let at = asked.verdict.at;
    let other = CallId::parse("call_id", "another").expect("valid");
    let request = Request { call_id: other, usage: Default::default(), ..asked.proposal.request.clone() };
    for (is_other, proposal) in [(false, asked.proposal.clone()), (true, world.policy.propose(request))] {
        let waits = asked.verdict.findings.iter().filter(|finding| finding.decision == Decision::Wait);
        // To ask under another call_id is to ask faster: that is what `growth` counts.
        let waits = waits.filter(|finding| !is_other || finding.rule != growth::RULE.id);
        // A recheck: the completion time of the prerequisite is unknown.
        for finding in
            waits.filter(|finding| !matches!(finding.reason, Reason::PrerequisiteRunning | Reason::BulkheadFull))
        {
            let told = at.plus_ms(finding.retry_after_ms.unwrap_or(0));
            let until = match finding.reason {
                // A re-check: the call may still run then. It is certain only at the end of the lease.
                Reason::CallInFlight => end_of_lease(world, asked.who, &proposal, at).expect("something is in flight"),
                _ => told,
            };
            prop_assert!(told > at, "a wait of no time: {finding:?}");
            let (before, then) = (Timestamp::from_millis(until.as_millis() - 1), until);
            // The caller of a slow read is presumed gone before its lease expires.
            let may_end = proposal.effect.kind.is_look() && finding.reason == Reason::CallInFlight;
            let earlier = says(world, asked.who, &proposal, finding, before);
            prop_assert!(
                may_end || earlier >= Some(Decision::Wait),
                "gone 1 ms before: {finding:?} of {:?}",
                asked.proposal
            );
            let later = says(world, asked.who, &proposal, finding, then);
            prop_assert!(
                later != Some(Decision::Wait),
                "not gone at the time told: {finding:?} of {:?}",
                asked.proposal
            );
        }
    }
    Ok(())
}

fn check_all(policy: Policy, history: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::new(policy);
    history.iter().try_for_each(|step| {
        // Later steps change the world, so each wait is checked immediately.
        world.step(&without_time(step)).map_or(Ok(()), |asked| check(&world, &asked))?;
        if let Step::Ask(ask) = step {
            world.now = world.now.plus_ms(ask.then_ms);
        }
        Ok(())
    })
}

fn without_time(step: &Step) -> Step {
    match step {
        Step::Ask(ask) => Step::Ask(Ask { then_ms: 0, ..ask.clone() }),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn a_retry_and_a_running_call_wait_as_long_as_told(policy in policy(), history in history(50)) {
        check_all(only(policy, &["same_call"]), &history)?;
    }

    /// Longer than attempts live: they restart after ten idle minutes, and an advised wait is not idle.
    #[test]
    fn a_long_wait_is_as_long_as_told(
        policy in policy(), first in ask(), ending in ending(), wait in 450_000..562_000_u64
    ) {
        let limited =
            Ending { status: OutcomeStatus::Error, kind: FailureKind::RateLimited, after_ms: Some(wait), ..ending };
        let first = Ask { outcome: Some(limited), ..first };
        let again = Ask { again: None, ..first.clone() };
        check_all(only(policy, &["same_call"]), &[Step::Ask(first), Step::Ask(again)])?;
    }

    #[test]
    fn a_burst_of_calls_waits_as_long_as_told(policy in policy(), history in history(50)) {
        let mut policy = only(policy, &[growth::RULE.id]);
        let growth = policy.rules.get_mut::<growth::Params>();
        growth.calls_per_second.get_or_insert(2);
        (growth.tokens_per_minute, growth.tokens_per_minute_stop) = (None, None);
        check_all(policy, &history)?;
    }

    #[test]
    fn a_burst_of_tokens_waits_as_long_as_told(policy in policy(), history in history(50)) {
        let mut policy = only(policy, &[growth::RULE.id]);
        let growth = policy.rules.get_mut::<growth::Params>();
        growth.tokens_per_minute.get_or_insert(600);
        growth.calls_per_second = None;
        check_all(policy, &history)?;
    }

    #[test]
    fn two_rates_at_once_wait_for_the_slower_one(
        policy in policy(),
        first in ask(),
        pass in 58_000..60_000_u64,
        burst in vec((ask(), 0..300_u64), 1..8),
    ) {
        let mut policy = only(policy, &[growth::RULE.id]);
        let growth = policy.rules.get_mut::<growth::Params>();
        growth.calls_per_second.get_or_insert(2);
        (growth.tokens_per_minute, growth.tokens_per_minute_stop) = (Some(500), None);
        let first = Step::Ask(Ask { who: 0, tokens: 500, ..first });
        let step = |(ask, then_ms)| Step::Ask(Ask { who: 0, tokens: 0, outcome: None, then_ms, ..ask });
        let burst = burst.into_iter().map(step);
        let history: Vec<Step> = [first, Step::Pass(pass)].into_iter().chain(burst).collect();
        check_all(policy, &history)?;
    }

    #[test]
    fn with_all_rules_on_waits_are_as_long_as_told(policy in policy(), history in history(50)) {
        let mut policy = policy;
        policy.rules.iter_mut().for_each(|slot| slot.mode = Mode::Enforce);
        check_all(policy, &history)?;
    }
}
