//! Alphabet of histories: few tools, arguments and results, so that calls repeat; low levels and limits, so that every
//! rule fires within a short story.

use callgate_core::{
    domain::{
        budget::{BudgetLimits, Budgets, Dimension},
        effect::{EffectKind, ResourceTemplate},
        failure::FailureKind,
        outcome::OutcomeStatus,
        tool::ToolSpec,
    },
    policy::{Policy, compile_with},
    rules::{Mode, RULES, Rule, growth, levels::DetectorLevels},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

pub(crate) const ARGUMENTS: [&str; 8] = [
    r#"{"id":1}"#,
    r#"{"id":2}"#,
    r#"{"id":1,"deep":true}"#,
    "{}",
    // Variants of one another.
    r#"{"id":1,"text":"all the late orders of May in the north of the country"}"#,
    r#"{"id":1,"text":"all the late orders of May in the south of the country"}"#,
    r#"{"id":1,"text":"all the late orders of May in the west of the country"}"#,
    r#"{"id":1,"text":"all the late orders of May in the east of the country"}"#,
];
pub(crate) const RESULTS: [&str; 7] = [
    "done",
    r#"{"rows":[]}"#,
    "other",
    // Occurrences of one thing.
    r#"{"id":"doc_1"}"#,
    r#"{"id":"doc_2"}"#,
    r#"{"id":"doc_3"}"#,
    r#"{"id":"doc_4"}"#,
];
pub(crate) const TOOLS: usize = 4;

/// Something that happens.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A session asks for a call.
    Ask(Ask),
    /// A report on a permitted call: the `which`-th, counted from the newest.
    Report { which: usize, outcome: Ending },
    /// A report on an unrequested call.
    Observe(Ask, Ending),
    /// Time passes, in milliseconds.
    Pass(u64),
    /// A session begins its next run.
    NextRun { who: usize },
    /// A person or a system does something to a session.
    Control { who: usize, what: Control },
}

/// Command on a session.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    /// The newest open approval request is answered, or withdrawn.
    Answer { approve: Option<bool> },
    /// It moves to another phase, perhaps with a plan.
    Phase { act: bool, plan: bool },
    /// Its context was compacted.
    Compacted,
    /// It is given calls.
    Grant,
    /// Its run, or its call tree, is given more steps than the policy has for it.
    Raise { of_run: bool, extra: u8 },
    /// The session, or a tool, is halted or resumed.
    Halt { tool: Option<usize>, on: bool },
}

/// An evaluation request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) who: usize,
    pub(crate) tool: usize,
    pub(crate) arguments: usize,
    /// The same call_id again, counted from the newest, with its original arguments.
    pub(crate) again: Option<usize>,
    /// In the batch of the previous request.
    pub(crate) joins: bool,
    pub(crate) cost_micros: Option<u64>,
    pub(crate) used_micros: u64,
    pub(crate) tokens: u64,
    pub(crate) repeat_intended: bool,
    /// Reported at once, if permitted.
    pub(crate) outcome: Option<Ending>,
    /// Time that passes after it.
    pub(crate) then_ms: u64,
}

/// Outcome of a call.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) status: OutcomeStatus,
    pub(crate) kind: FailureKind,
    pub(crate) after_ms: Option<u64>,
    pub(crate) result: usize,
    pub(crate) cost_micros: u64,
    pub(crate) tokens: u64,
}

pub(crate) fn ending() -> BoxedStrategy<Ending> {
    use FailureKind::{InvalidArgument, Network, NotFound, RateLimited, Timeout, Unavailable};
    let status = prop_oneof![
        8 => Just(OutcomeStatus::Success),
        6 => Just(OutcomeStatus::Error),
        1 => Just(OutcomeStatus::Cancelled),
        1 => Just(OutcomeStatus::Unknown),
        1 => Just(OutcomeStatus::Running),
    ];
    let kind = select(vec![Timeout, RateLimited, Unavailable, Network, NotFound, InvalidArgument]);
    let after_ms =
        prop_oneof![6 => Just(None), 2 => (1..40_000_u64).prop_map(Some), 1 => (400_000..560_000_u64).prop_map(Some)];
    (status, kind, after_ms, 0..RESULTS.len(), 0..3_000_u64, prop_oneof![Just(0), 0..400_u64])
        .prop_map(|(status, kind, after_ms, result, cost_micros, tokens)| Ending {
            status,
            kind,
            after_ms,
            result,
            cost_micros,
            tokens,
        })
        .boxed()
}

pub(crate) fn ask() -> BoxedStrategy<Ask> {
    let what =
        (prop_oneof![6 => Just(0), 2 => Just(1), 1 => Just(2), 2 => Just(3_usize)], 0..TOOLS, 0..ARGUMENTS.len());
    let again = prop_oneof![5 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    let numbers = (
        option::of(0..4_000_u64),
        prop_oneof![3 => Just(0), 1 => 0..1_500_u64],
        prop_oneof![2 => Just(0), 1 => 0..600_u64],
        prop_oneof![2 => Just(0), 3 => 0..900_u64, 1 => 900..30_000_u64],
    );
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.1), prop::option::weighted(0.7, ending()));
    (what, again, numbers, flags)
        .prop_map(|((who, tool, arguments), again, numbers, (joins, repeat_intended, outcome))| {
            let (cost_micros, used_micros, tokens, then_ms) = numbers;
            Ask {
                who,
                tool,
                arguments,
                again,
                joins,
                cost_micros,
                used_micros,
                tokens,
                repeat_intended,
                outcome,
                then_ms,
            }
        })
        .boxed()
}

pub(crate) fn step() -> BoxedStrategy<Step> {
    let pass = prop_oneof![0..2_000_u64, 2_000..70_000_u64, 300_000..700_000_u64];
    prop_oneof![
        14 => ask().prop_map(Step::Ask),
        3 => (0..6_usize, ending()).prop_map(|(which, outcome)| Step::Report { which, outcome }),
        1 => (ask(), ending()).prop_map(|(ask, ending)| Step::Observe(Ask { again: None, ..ask }, ending)),
        2 => pass.prop_map(Step::Pass),
        1 => (0..3_usize).prop_map(|who| Step::NextRun { who }),
        2 => (0..3_usize, control()).prop_map(|(who, what)| Step::Control { who, what }),
    ]
    .boxed()
}

fn control() -> BoxedStrategy<Control> {
    let halt = (option::of(0..TOOLS), prop::bool::weighted(0.3));
    prop_oneof![
        4 => option::weighted(0.8, any::<bool>()).prop_map(|approve| Control::Answer { approve }),
        3 => (any::<bool>(), any::<bool>()).prop_map(|(act, plan)| Control::Phase { act, plan }),
        2 => Just(Control::Compacted),
        2 => Just(Control::Grant),
        2 => (any::<bool>(), 0..4_u8).prop_map(|(of_run, extra)| Control::Raise { of_run, extra }),
        1 => halt.prop_map(|(tool, on)| Control::Halt { tool, on }),
    ]
    .boxed()
}

/// Policy files that enable the rules that need one, beside the built-in policy.
const FILES: [&str; 4] = [
    "policy_engine: {}",
    "policy_engine:
  presets: [coding_agents]
  authorization:
    tiers:
      - {name: few, pattern: tool0, action: per_conversation_grant, ceiling: 2, ttl_ms: 60000}
      - {name: slow, pattern: tool1, action: allowlist, rate_limit: 3/min}
      - {name: shared, pattern: tool2, action: hitl, rate_limit: 9/min, per: tenant}
      - {name: rest, pattern: '*', action: allowlist}
",
    "policy_engine:
  unknown_tools: deny
  phases: [{name: LOOK, tools: 'tool0|tool1', next: [ACT]}, {name: ACT, tools: '*', next: [LOOK]}]
  tool_schemas:
    tool0:
      effect: read
      schema: {type: object, properties: {id: {type: integer, maximum: 1}, deep: {type: boolean}}}
      conditions: [{check: '!has(args.deep) || session.calls < 3'}]
    tool1: {effect: write, side_effect_resource: 'order/{id}', requires: [{tool: tool0, match: {id: args.id}}]}
    tool2: {effect: write, side_effect_resource: 'order/{id}', requires: [{tool: tool0}]}
",
    "policy_engine:
  deduplication: {loop_threshold: 4, max_repeat: 6, last_n: 8, scope: tenant}
  side_effects: {second_change: deny}
  bulkhead: {limits: [{name: one, tools: tool3, max_in_flight: 1}]}
  tool_schemas:
    tool0: {effect: write, side_effect_resource: 'order/{id}', risk_level: MEDIUM}
    tool1: {effect: write, side_effect_resource: 'order/{id}', risk_level: HIGH}
    tool2: {effect: poll, risk_level: LOW, conditions: [{when: args.id == 2, then: deny}]}
    tool3: {effect: read}
",
];

pub(crate) fn history(longest: usize) -> BoxedStrategy<Vec<Step>> {
    vec(step(), 1..=longest).boxed()
}

fn tool() -> BoxedStrategy<ToolSpec> {
    let resource =
        prop_oneof![Just(None), select(vec!["order/{id}", "order", "file/{id}", ".git/hooks/{id}"]).prop_map(Some)];
    let lease_ms = select(vec![5_000, 60_000, 600_000_u64]);
    let flags = [0.2, 0.3, 0.1, 0.1].map(prop::bool::weighted);
    (select(EffectKind::ALL.to_vec()), resource, flags, lease_ms, 0..2_000_u64)
        .prop_map(|(effect, resource, [once, idempotent, key_honoured, repeatable], lease_ms, cost_micros)| ToolSpec {
            effect,
            resource: resource.and_then(|template| ResourceTemplate::parse("resource", template).ok()),
            once,
            idempotent,
            key_honoured,
            repeatable: repeatable && !once,
            lease_ms,
            cost_micros,
            ..ToolSpec::default()
        })
        .boxed()
}

fn levels() -> BoxedStrategy<DetectorLevels> {
    (option::of(1..4_u32), option::of(0..4_u32), option::of(0..4_u32))
        .prop_map(|(warning, critical, break_at)| {
            let base = warning.unwrap_or(2);
            let critical = critical.map(|more| base + 1 + more);
            DetectorLevels { warning, critical, break_at: break_at.map(|more| critical.unwrap_or(base) + 1 + more) }
        })
        .boxed()
}

fn rates() -> BoxedStrategy<growth::Params> {
    (option::of(1..6_u32), 1..6_u32, option::of(300..1_500_u64), option::of(1_500..4_000_u64))
        .prop_map(|(calls_per_second, patience, tokens_per_minute, tokens_per_minute_stop)| growth::Params {
            calls_per_second,
            max_waits: patience,
            tokens_per_minute,
            tokens_per_minute_stop,
        })
        .boxed()
}

pub(crate) fn limits() -> BoxedStrategy<BudgetLimits> {
    let limit = |dimension| {
        let amount = match dimension {
            Dimension::Cost => 2_000..40_000_u64,
            Dimension::Tokens => 500..10_000,
            Dimension::Elapsed => 10_000..4_000_000,
            Dimension::SessionDepth => 0..3,
            Dimension::ConsecutiveSameTool => 2..6,
            _ => 4..40,
        };
        prop::option::weighted(0.25, amount).prop_map(move |amount| amount.map(|amount| (dimension, amount)))
    };
    Dimension::ALL.map(limit).prop_map(|limits| BudgetLimits::new(limits.into_iter().flatten())).boxed()
}

fn budgets() -> BoxedStrategy<Budgets> {
    (limits(), limits(), limits(), limits())
        .prop_map(|(run, call_tree, agent, tenant)| Budgets { run, call_tree, agent, tenant })
        .boxed()
}

/// A policy under which every rule fires early; with and without limits.
pub(crate) fn policy() -> BoxedStrategy<Policy> {
    policy_of(RULES)
}

/// The same, with these rules.
pub(crate) fn policy_of(rules: &[Rule]) -> BoxedStrategy<Policy> {
    let files = FILES.map(|file| compile_with(file, rules).expect("a good policy"));
    let detectors: Vec<Rule> = rules.iter().filter(|rule| rule.defaults().levels().is_some()).copied().collect();
    let bounds = (rates(), prop::option::weighted(0.5, budgets()), 5..31_usize);
    (vec(tool(), TOOLS), vec(levels(), detectors.len()), bounds, prop::bool::weighted(0.5), 0..FILES.len())
        .prop_map(move |(tools, levels, bounds, brakes, file)| {
            let mut policy = files[file].clone();
            let (growth, budget, window) = bounds;
            for (rule, levels) in detectors.iter().zip(levels) {
                policy.rules.set_levels(rule.id, None, shape_levels(rule, levels));
            }
            policy.rules.window = window;
            *policy.rules.get_mut() = growth;
            *policy.rules.get_mut() = budget.unwrap_or_default();
            if !brakes {
                policy.rules.set_mode(growth::RULE.id, Mode::Off);
            }
            // A file sets arbitrary tool facts.
            for (i, spec) in tools.into_iter().enumerate().filter(|_| file < 2) {
                policy.declare(&format!("tool{i}"), spec);
            }
            policy
        })
        .boxed()
}

/// A detector that warns of nothing by itself refuses as soon as others warn.
fn shape_levels(rule: &Rule, levels: DetectorLevels) -> DetectorLevels {
    match rule.defaults().levels() {
        Some(DetectorLevels { warning: None, .. }) => {
            DetectorLevels { warning: None, critical: levels.warning.or(Some(1)), break_at: None }
        }
        _ => levels,
    }
}
