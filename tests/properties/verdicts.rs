//! Verdict laws: rules only add strictness, and judgments are deterministic.

#[path = "../own_rule/same_tool.rs"]
mod same_tool;

use std::collections::BTreeSet;

use callgate_core::{
    domain::{
        budget::{BudgetLimits, BudgetScope, Budgets, Dimension},
        call::Proposal,
        finding::Decision,
    },
    engine::Evaluation,
    policy::Policy,
    rules::{Mode, RULES, Rule, budget, growth, levels::DetectorLevels},
};
use proptest::{collection::vec, prelude::*};

use crate::{
    alphabet::{Ask, Step, ask, history, limits, policy, policy_of},
    cases,
    world::World,
};

/// The verdict of a call that is judged now, and not stored; none for one that was answered before.
fn decide(world: &World, policy: &Policy, who: usize, proposal: &Proposal) -> Option<(Decision, Option<u64>)> {
    match world.judge(policy, who, proposal, None, world.now) {
        Ok(Evaluation::New(verdict, _)) => Some((verdict.decision, verdict.retry_after_ms())),
        _ => None,
    }
}

fn with_mode(policy: &Policy, rule: &str, mode: Mode) -> Policy {
    let mut policy = policy.clone();
    policy.rules.set_mode(rule, mode);
    policy
}

/// Restrictions added to a policy.
#[derive(Debug, Clone)]
struct Screws {
    levels: Vec<u32>,
    calls_per_second: Option<u32>,
    patience: u32,
    tokens: Option<u64>,
    limits: [BudgetLimits; 4],
}

fn screws() -> impl Strategy<Value = Screws> {
    let growth = (prop::option::of(1..4_u32), 1..4_u32, prop::option::of(200..2_000_u64));
    let detectors = RULES.iter().filter(|rule| rule.defaults().levels().is_some()).count();
    (vec(0..3_u32, detectors), growth, [limits(), limits(), limits(), limits()]).prop_map(
        |(levels, (calls_per_second, patience, tokens), limits)| Screws {
            levels,
            calls_per_second,
            patience,
            tokens,
            limits,
        },
    )
}

fn lower<T: Ord + Copy>(known: &mut Option<T>, asked: Option<T>) {
    *known = match (*known, asked) {
        (Some(known), Some(asked)) => Some(known.min(asked)),
        (known, asked) => known.or(asked),
    };
}

fn tighten_policy(policy: &Policy, screws: &Screws) -> Policy {
    let mut policy = policy.clone();
    let rules = &mut policy.rules;
    let detectors = rules.iter().filter_map(|slot| Some((slot.rule.id, *slot.levels()?))).collect::<Vec<_>>();
    for ((id, mut levels), by) in detectors.into_iter().zip(&screws.levels) {
        let DetectorLevels { warning, critical, break_at } = &mut levels;
        for level in [warning, &mut *critical, &mut *break_at] {
            *level = level.map(|count| count.saturating_sub(*by).max(1));
        }
        lower(critical, (*by == 2).then_some(3));
        lower(break_at, (*by == 2).then_some(5));
        rules.set_levels(id, None, levels);
    }
    let growth = rules.get_mut::<growth::Params>();
    lower(&mut growth.calls_per_second, screws.calls_per_second);
    growth.max_waits = growth.max_waits.min(screws.patience);
    lower(&mut growth.tokens_per_minute, screws.tokens);
    lower(&mut growth.tokens_per_minute_stop, screws.tokens.map(|tokens| tokens * 2));
    for (scope, asked) in BudgetScope::ALL.into_iter().zip(&screws.limits) {
        let limits = rules.get_mut::<Budgets>().of_mut(scope);
        for dimension in Dimension::ALL {
            let mut limit = limits.of(dimension);
            lower(&mut limit, asked.of(dimension));
            limits.set(dimension, limit);
        }
    }
    assert!(
        BudgetScope::ALL.iter().all(|scope| policy.rules.get::<Budgets>().of(*scope) != &BudgetLimits::default())
            || !screws.limits.is_empty()
    );
    policy
}

/// New requests, each judged on the current world.
fn probes() -> impl Strategy<Value = Vec<Ask>> {
    vec(ask(), 4)
}

/// Each rule, off, in shadow and on, over the same history.
fn never_loosens(policy: &Policy, history: &[Step], probes: &[Ask]) -> Result<(), TestCaseError> {
    let mut world = World::after(policy, history);
    for probe in probes {
        let (who, proposal) = world.propose(probe);
        for rule in policy.rules.iter().map(|slot| slot.rule.id) {
            let judge = |mode| decide(&world, &with_mode(policy, rule, mode), who, &proposal);
            let (off, shadow, on) = (judge(Mode::Off), judge(Mode::Shadow), judge(Mode::Enforce));
            prop_assert!(on.map(|v| v.0) >= off.map(|v| v.0), "{rule} turns {off:?} into {on:?}");
            prop_assert_eq!(shadow.map(|v| v.0), off.map(|v| v.0), "{} is not enforced and yet holds", rule);
            if let (Some((Decision::Wait, before)), Some((Decision::Wait, after))) = (off, on) {
                prop_assert!(after >= before, "{rule} shortens a wait from {before:?} to {after:?}");
            }
        }
    }
    Ok(())
}

/// The rules with a custom one among them.
fn own_rules() -> Vec<Rule> {
    RULES.iter().copied().chain([same_tool::RULE]).collect()
}

fn own_policy() -> BoxedStrategy<Policy> {
    policy_of(&own_rules())
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn adding_a_rule_never_loosens_a_verdict(policy in policy(), history in history(60), probes in probes()) {
        never_loosens(&policy, &history, &probes)?;
    }

    #[test]
    fn nor_does_adding_one_of_somebodys_own(policy in own_policy(), history in history(60), probes in probes()) {
        never_loosens(&policy, &history, &probes)?;
    }

    #[test]
    fn tightening_never_loosens_a_verdict(
        policy in policy(),
        screws in screws(),
        history in history(60),
        probes in probes(),
    ) {
        let mut world = World::after(&policy, &history);
        let tighter = tighten_policy(&policy, &screws);
        for probe in &probes {
            let (who, proposal) = world.propose(probe);
            let (loose, tight) = (decide(&world, &policy, who, &proposal), decide(&world, &tighter, who, &proposal));
            prop_assert!(tight.map(|v| v.0) >= loose.map(|v| v.0), "{loose:?} became {tight:?}");
        }
    }

    #[test]
    fn shadowed_policy_allows_all_but_halted(policy in policy(), history in history(40), probes in probes()) {
        let mut world = World::after(&policy, &history);
        let mut shadowed = policy.clone();
        shadowed.mode = Mode::Shadow;
        for probe in &probes {
            let (who, proposal) = world.propose(probe);
            let shadow = world.judge(&shadowed, who, &proposal, None, world.now);
            let decided = decide(&world, &policy, who, &proposal);
            if let (Ok(Evaluation::New(shadow, _)), Some((decision, _))) = (shadow, decided) {
                // An operator's halt holds under any policy.
                let is_halted = shadow.findings.iter().any(|finding| finding.enforced);
                prop_assert_eq!(shadow.would, decision);
                prop_assert_eq!(shadow.decision > Decision::Allow, is_halted);
                prop_assert_eq!(shadow.permit.is_some() && !shadow.tools_disabled, !is_halted);
            }
        }
    }

    #[test]
    fn the_same_history_gives_the_same_verdicts(policy in policy(), history in history(80)) {
        let (mut one, mut other) = (World::new(policy.clone()), World::new(policy));
        for step in &history {
            let verdict = |world: &mut World| world.step(step).map(|asked| asked.verdict);
            prop_assert_eq!(verdict(&mut one), verdict(&mut other));
        }
        prop_assert_eq!(&one.trees, &other.trees);
        prop_assert_eq!(one.store, other.store);
    }
}

/// A history without findings proves nothing: each rule must fire somewhere.
#[test]
fn the_histories_make_every_rule_speak() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut spoke = BTreeSet::new();
    let mut decided = BTreeSet::new();
    let silent = |spoke: &BTreeSet<String>| -> Vec<&str> {
        own_rules().iter().map(|rule| rule.id).filter(|id| !spoke.contains(*id)).collect()
    };
    // Some rules speak seldom.
    for _ in 0..2_000 {
        if silent(&spoke).is_empty() && decided.len() == Decision::ALL.len() {
            break;
        }
        let (policy, history) = (own_policy(), history(60)).new_tree(&mut runner).expect("a value").current();
        let mut world = World::new(policy);
        for step in &history {
            let Some(asked) = world.step(step) else { continue };
            decided.insert(asked.verdict.decision);
            spoke.extend(asked.verdict.findings.iter().map(|finding| finding.rule.to_string()));
        }
    }
    let silent = silent(&spoke);
    assert!(silent.is_empty(), "{silent:?} never spoke; {budget} did", budget = budget::RULE.id);
    assert_eq!(decided.len(), Decision::ALL.len(), "{decided:?}");
}
