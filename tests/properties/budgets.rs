//! Budgets under any interleaving of requests and reports: no reservation exceeds a limit, and totals are consistent.

use callgate_core::{
    domain::{
        budget::{BudgetLimits, Budgets, CounterKey, Dimension},
        event::Event,
        finding::Decision,
        outcome::OutcomeStatus,
    },
    policy::Policy,
    rules::budget,
};
use proptest::prelude::*;

use crate::{
    alphabet::{Ask, Step, history, policy},
    cases,
    world::{RequestResult, World},
};

/// Only the budget runs, with limits on everything that is shared.
fn limit_policy(policy: Policy, limits: [u64; 4]) -> Policy {
    let mut policy = policy;
    policy.rules.keep_only(&[budget::RULE.id]);
    let [run, call_tree, agent, tenant] = limits.map(|cost| {
        BudgetLimits::new([
            (Dimension::Steps, 8 + cost / 1_000),
            (Dimension::Cost, cost),
            (Dimension::ToolCalls, 5 + cost / 900),
            (Dimension::CallsPerTool, 2 + cost / 2_000),
            (Dimension::Tokens, cost),
        ])
    });
    *policy.rules.get_mut() = Budgets { run, call_tree, agent, tenant };
    policy
}

fn counter(world: &World, asked: &RequestResult, of_agent: bool, dimension: Dimension) -> u64 {
    let agent = asked.proposal.request.agent.clone().filter(|_| of_agent);
    let key = CounterKey { agent, day: asked.verdict.at.day(), dimension, tier: None };
    world.store.counters().get(&key).copied().unwrap_or(0)
}

/// Right after a permit: all reservations and bookings fit.
fn check_limits(world: &World, asked: &RequestResult) -> Result<(), TestCaseError> {
    if asked.verdict.decision != Decision::Allow || asked.verdict.replayed || !asked.stored {
        return Ok(());
    }
    let limits = world.policy.rules.get::<Budgets>();
    let tree = world.tree(asked.who).expect("it asked");
    let session = &tree.sessions[&asked.proposal.request.session];
    let is_new = session.call(&asked.proposal.request.call_id).is_some_and(|call| call.round == 1);
    let run = &session.run;
    let tool = &asked.proposal.request.tool;
    for (limits, spent, by_tool, of) in
        [(&limits.run, &run.spent, &run.by_tool, Some(run.from)), (&limits.call_tree, &tree.spent, &tree.by_tool, None)]
    {
        let given = |dimension| {
            let raise = tree.raised.iter().find(|raise| (raise.run, raise.dimension) == (of, dimension));
            raise.map_or(0, |raise| raise.extra)
        };
        let within = |dimension, used: u64| limits.of(dimension).is_none_or(|limit| used <= limit + given(dimension));
        prop_assert!(within(Dimension::Cost, spent.cost_micros + spent.reserved_micros), "{spent:?} of {limits:?}");
        prop_assert!(!is_new || within(Dimension::Steps, spent.steps), "{spent:?} of {limits:?}");
        prop_assert!(within(Dimension::ToolCalls, spent.calls), "{spent:?} of {limits:?}");
        prop_assert!(within(Dimension::CallsPerTool, by_tool[tool]), "{by_tool:?} of {limits:?}");
    }
    for (limits, of_agent) in [(&limits.agent, true), (&limits.tenant, false)] {
        for dimension in [Dimension::Steps, Dimension::Cost, Dimension::ToolCalls] {
            let used = counter(world, asked, of_agent, dimension);
            let reserves = match dimension {
                Dimension::Steps => is_new,
                Dimension::Cost => asked.proposal.cost_micros > 0,
                _ => true,
            };
            let fits = limits.of(dimension).is_none_or(|limit| used <= limit);
            prop_assert!(fits || !reserves, "{used} {dimension:?} of {limits:?}");
        }
    }
    Ok(())
}

/// Reservations equal those of open permits, and the trees' spending equals the tenant's counters.
fn check_books(world: &World) -> Result<(), TestCaseError> {
    let (mut costs, mut calls) = (0, 0);
    for (root, tree) in &world.trees {
        let spent = tree.spent;
        let unsettled = tree
            .calls()
            .filter(|call| call.outcome.as_ref().is_none_or(|outcome| outcome.status == OutcomeStatus::Unknown));
        let reserved: u64 =
            unsettled.filter_map(|call| call.permit.as_ref()).map(|permit| permit.reserved_micros).sum();
        prop_assert_eq!(spent.reserved_micros, reserved);
        let open = tree.calls().filter(|call| call.is_open()).count();
        prop_assert_eq!(tree.open_calls as usize, open);
        costs += spent.cost_micros + spent.reserved_micros;
        let executed = |event: &&Event| matches!(event, Event::Judged(e) if e.permit.is_some());
        calls += world.store.events(root).iter().filter(executed).count() as u64;
    }
    let counted = |dimension| {
        let tenants =
            world.store.counters().iter().filter(|(key, _)| key.agent.is_none() && key.dimension == dimension);
        tenants.map(|(_, used)| used).sum::<u64>()
    };
    prop_assert_eq!(counted(Dimension::Cost), costs);
    prop_assert_eq!(counted(Dimension::ToolCalls), calls);
    Ok(())
}

fn check_all(policy: Policy, history: &[Step], counters_lag: bool) -> Result<(), TestCaseError> {
    let mut world = World::new(policy);
    world.counters_lag = counters_lag;
    for step in history {
        // Reports are facts, independent of limits. Only the request is checked, before its own report.
        let (question, report) = apart(step);
        if let Some(asked) = world.step(&question) {
            check_limits(&world, &asked)?;
        }
        report.and_then(|report| world.step(&report));
        check_books(&world)?;
        if matches!(step, Step::Pass(_)) {
            world.seen_counters = world.store.counters().clone();
        }
    }
    Ok(())
}

/// A request, and its immediate report.
fn apart(step: &Step) -> (Step, Option<Step>) {
    let Step::Ask(ask) = step else {
        return (step.clone(), None);
    };
    let report = ask.outcome.clone().map(|outcome| Step::Report { which: 0, outcome });
    (Step::Ask(Ask { outcome: None, ..ask.clone() }), report)
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn no_reservation_passes_a_limit(policy in policy(), limits in any_limits(), history in history(40)) {
        check_all(limit_policy(policy, limits), &history, false)?;
    }

    /// Replicas see old counters; the store has the last word.
    #[test]
    fn nor_one_that_was_decided_on_old_counters(policy in policy(), limits in any_limits(), history in history(40)) {
        check_all(limit_policy(policy, limits), &history, true)?;
    }
}

fn any_limits() -> impl Strategy<Value = [u64; 4]> {
    [2_000..20_000_u64, 2_000..30_000, 2_000..30_000, 2_000..40_000]
}
