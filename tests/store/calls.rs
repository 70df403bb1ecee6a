//! The view `calls` and its hourly rollup, on random histories.

use callgate_core::domain::{
    audit::Actor,
    budget::Usage,
    call::Request,
    finding::Decision,
    forgetting::ErasureSubject,
    ids::{DEFAULT_TENANT, ModelName, UserId},
    outcome::OutcomeStatus,
    report::{Operator, OutcomeReport},
};
use callgate_core::{policy, rules::RULES};
use callgate_server::gate::Gate;
use tokio::sync::mpsc;

use crate::common::{
    gates::{agent, ask, evaluate, failure, gate, report, session, success},
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  unknown_tools: allow
  rules: {growth: {mode: off}}
  authorization:
    tiers:
      - {name: asks, pattern: reset, action: hitl}
      - {name: closed, pattern: wipe, action: deny}
      - {name: rest, pattern: '*', action: allowlist}
  tool_schemas: {look: {effect: read}, pay: {once: true}, save: {effect: write}, test: {effect: check}}
";

const TOOLS: [&str; 6] = ["look", "pay", "save", "reset", "wipe", "test"];
const SESSIONS: u64 = 4;

/// Xorshift: the same history for a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn usage(&mut self) -> Usage {
        let cost_micros = self.below(3) * 100;
        Usage {
            input_tokens: self.below(4),
            output_tokens: self.below(2),
            cache_read_tokens: 0,
            cost_micros,
            ..Usage::default()
        }
    }
}

fn model(name: &str) -> Option<ModelName> {
    ModelName::parse("usage.model", name).ok()
}

/// Some steps of random work: judgments, repeated ones, and reports of every kind, most of which are accepted.
async fn work(gate: &Gate, dice: &mut Dice, steps: u64) {
    for _ in 0..steps {
        let (of, call) = (format!("s{}", dice.below(SESSIONS)), format!("c{}", dice.below(12)));
        let tool = TOOLS[dice.below(TOOLS.len() as u64) as usize];
        let usage = dice.usage();
        match dice.below(10) {
            0..5 => {
                let request = Request {
                    agent: agent(&format!("agent-{of}")),
                    user: UserId::parse("user", &format!("user-{of}")).ok(),
                    usage,
                    model: model(["", "small", "large"][dice.below(3) as usize]),
                    cost_estimate_micros: Some(dice.below(3) * 1_000),
                    ..ask(&of, &call, tool, &format!(r#"{{"n":{}}}"#, dice.below(3)))
                };
                // A call_id that names another call is rejected.
                let _ = Box::pin(gate.decisions.evaluate(vec![request])).await;
            }
            way => {
                let told = match way {
                    5 => report(&of, &call, OutcomeStatus::Running),
                    6 => report(&of, &call, OutcomeStatus::Unknown),
                    7 => failure(&of, &call, ["timeout", "invalid_argument"][dice.below(2) as usize]),
                    _ => success(&of, &call, &format!("result {}", dice.below(4))),
                };
                let by = (dice.below(4) == 0 && way >= 7).then(|| Operator { by: Actor::from("eve"), reason: None });
                let told = OutcomeReport { usage, by, duration_ms: Some(dice.below(90)), ..told };
                let _ = Box::pin(gate.decisions.record(DEFAULT_TENANT, told, None)).await;
            }
        }
    }
}

async fn worked(seed: u64) -> (Postgres, std::sync::Arc<Gate>, Dice) {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy::compile(POLICY).expect("a good policy")).await;
    let mut dice = Dice(seed);
    work(&gate, &mut dice, 400).await;
    (postgres, gate, dice)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_view_agrees_with_the_view_of_single_calls() {
    for seed in [7, 0x9E37_79B9] {
        let (postgres, ..) = worked(seed).await;
        let of = |view: &str, more: &str| {
            format!(
                "select session_id, call_id, round, agent_id, tool, effect, decision, would, rule, reason, judged_at
                 from {view} {more} order by 1, 2"
            )
        };
        let plain = postgres.rows(&of("calls", "where is_last")).await;
        assert!(plain.len() > 20, "{seed}: {plain:?}");
        assert_eq!(plain, postgres.rows(&of("(select *, rounds as round from tool_call) c", "")).await, "{seed}");
        // A call that was judged again keeps its outcome at the permit.
        let outcomes = |view: &str| {
            format!(
                "select session_id, call_id, outcome, failure, recorded_at, duration_ms from {view}
                 where outcome <> 'running' order by 1, 2"
            )
        };
        let last_permit = "(select distinct on (session_id, call_id) * from calls where attempt is not null
            order by session_id, call_id, round desc) c";
        assert_eq!(postgres.rows(&outcomes(last_permit)).await, postgres.rows(&outcomes("tool_call")).await, "{seed}");
        let spent =
            "select session_id, call_id, sum(cost_micros)::int8, sum(input_tokens)::int8, sum(output_tokens)::int8";
        // Every usage but that of heartbeats and of replaced outcomes.
        let stored = "(select session_id, call_id, coalesce(cost_micros, 0) as cost_micros,
              coalesce(input_tokens, 0) as input_tokens, coalesce(output_tokens, 0) as output_tokens from call
            union all select session_id, call_id, coalesce(cost_micros, 0), coalesce(input_tokens, 0),
              coalesce(output_tokens, 0) from outcome o
            where status > 0 and not exists (select from outcome x where x.session_id = o.session_id
              and x.permit_seq = o.permit_seq and x.seq > o.seq and x.status > 0)) u";
        let [plain, stored] = ["calls", stored].map(|from| format!("{spent} from {from} group by 1, 2 order by 1, 2"));
        assert_eq!(postgres.rows(&plain).await, postgres.rows(&stored).await, "{seed}");
        let shown = "select (select count(*) from call where round > 1) > 0, (select count(*) from outcome o
            join outcome x using (session_id, permit_seq) where o.status > 0 and x.status > 0 and x.seq > o.seq) > 0";
        assert_eq!(postgres.rows(shown).await, ["(t,t)"], "{seed}: calls are judged again, outcomes replaced");
        let twice = "select session_id, call_id, round from calls group by 1, 2, 3 having count(*) > 1";
        assert_eq!(postgres.rows(twice).await, [""; 0], "{seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_view_names_model_group_cause_and_savings() {
    let postgres = Postgres::start().await;
    let text = "policy_engine:
  unknown_tools: deny
  approvals: {routes: [{tools: reset, group: finance}]}
  authorization:
    tiers: [{name: asks, pattern: reset, action: hitl}, {name: rest, pattern: '*', action: allowlist}]
  tool_schemas: {look: {effect: read}, reset: {effect: write}, pay: {once: true}, test: {effect: check}}
";
    let gate = gate(&postgres, &policy::compile(text).expect("a good policy")).await;
    let of = |call: &str, tool: &str| Request {
        model: model("large"),
        cost_estimate_micros: Some(700),
        ..ask("s", call, tool, "{}")
    };
    assert_eq!(evaluate(&gate, of("c1", "pay")).await.verdict.decision, Decision::Allow);
    crate::common::gates::record(&gate, success("s", "c1", "paid")).await;
    evaluate(&gate, of("c2", "pay")).await;
    evaluate(&gate, of("c3", "reset")).await;
    evaluate(&gate, of("c4", "lookk")).await;
    for (call, tool, kind) in [("c5", "look", "unavailable"), ("c6", "test", "invalid_argument")] {
        evaluate(&gate, of(call, tool)).await;
        crate::common::gates::record(&gate, failure("s", call, kind)).await;
    }
    let rows = "select call_id, round, model, decision, outcome, cause, approval_group, saved_calls, saved_micros
        from calls order by 1, 2";
    let expected = [
        "(c1,1,large,ALLOW,success,,,0,0)",
        "(c2,1,large,REUSE,,model,,1,700)",
        "(c3,1,large,ASK,,policy,finance,0,0)",
        "(c4,1,large,DENY,,model,,1,700)",
        "(c5,1,large,ALLOW,error,tool,,0,0)",
        "(c6,1,large,ALLOW,error,,,0,0)",
    ];
    assert_eq!(postgres.rows(rows).await, expected);
}

/// A new rule belongs to one of the causes on purpose.
#[test]
fn calls_view_has_a_cause_for_every_rule() {
    let view = include_str!("../../migrations/0232_calls.sql");
    let of_policy = ["halted", "tamper_protection", "phase", "bulkhead", "budget", "tier"];
    for rule in RULES {
        let is_listed = view.contains(&format!("'{}'", rule.id));
        assert_ne!(is_listed, of_policy.contains(&rule.id), "{}", rule.id);
    }
}

/// Rows of the rollup, and those that a count of all calls gives.
async fn assert_exact(postgres: &Postgres, when: &str) {
    let mut counted = postgres.rows("select * from calls_hourly").await;
    let mut expected = postgres.rows(COUNTED).await;
    counted.sort();
    expected.sort();
    assert_eq!(counted, expected, "{when}");
    let mut counted = postgres.rows("select hour, kind, name, word from call_name").await;
    let mut expected = postgres.rows(NAMED).await;
    counted.sort();
    expected.sort();
    assert_eq!(counted, expected, "names: {when}");
}

const NAMED: &str =
    "select distinct date_trunc('hour', at, 'utc') as hour, kind, name, lower(name collate \"C\") as word
  from call
  cross join lateral (values (0::smallint, agent_id), (1::smallint, user_id), (2::smallint, tool)) v(kind, name)
  where at < date_trunc('hour', now() - interval '15 min', 'utc') and name is not null";

const COUNTED: &str =
    "select tenant_id, date_trunc('hour', judged_at, 'utc') as hour, tool, agent_id, model, decision, rule, reason,
    outcome, failure, cause, count(*)::int as judgments, (count(*) filter (where round = 1))::int as calls,
    sum(saved_calls)::int as saved_calls, sum(saved_micros)::bigint as saved_micros,
    sum(cost_micros)::bigint as cost_micros, sum(input_tokens)::bigint as input_tokens,
    sum(output_tokens)::bigint as output_tokens, sum(cache_read_tokens)::bigint as cache_read_tokens,
    sum(cache_write_tokens)::bigint as cache_write_tokens, sum(duration_ms)::bigint as duration_ms,
    count(duration_ms)::int as durations
  from calls where judged_at < date_trunc('hour', now() - interval '15 min', 'utc')
  group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_rollup_is_exact_after_late_outcomes_forgetting_and_settling() {
    for seed in [11, 0xB529_7A4D] {
        let (postgres, gate, mut dice) = worked(seed).await;
        // Into the three hours before the last.
        for table in ["call", "outcome"] {
            postgres
                .tamper(&format!(
                    "update {table} set at = at - (2 + length(session_id || call_id) % 3) * interval '1 hour'"
                ))
                .await;
        }
        assert!(gate.store.roll_up().await.expect("counted"), "{seed}");
        assert!(postgres.number("select count(*) from calls_hourly").await > 10, "{seed}");
        assert_exact(&postgres, "the first count").await;
        assert!(!gate.store.roll_up().await.expect("counted"), "{seed}: nothing is due");
        for late in 0..3 {
            work(&gate, &mut dice, 60).await;
            due(&postgres).await;
            gate.store.roll_up().await.expect("counted");
            assert_exact(&postgres, &format!("{seed}: late outcomes {late}")).await;
        }
        let user = UserId::parse("user", "user-s3").expect("a name");
        // A build from before counts hours without their names.
        postgres.tamper("update tenant set names_counted_before = names_counted_before - interval '5 hours'").await;
        postgres.tamper("delete from call_name").await;
        assert!(gate.store.roll_up().await.expect("counted"), "{seed}: names are due");
        assert_exact(&postgres, &format!("{seed}: counted without names")).await;
        for whom in [
            ErasureSubject::Session(session("s1")),
            ErasureSubject::Agent(agent("agent-s2").expect("a name")),
            ErasureSubject::User(user),
        ] {
            let (told, _told) = mpsc::channel(500);
            let by = Actor::from("officer");
            Box::pin(gate.privacy.forget(DEFAULT_TENANT, &whom, (&by, ""), &told)).await.expect("forgotten");
            let named = "select count(*) from call_hourly where agent_id = 'agent-s2'";
            assert!(!matches!(whom, ErasureSubject::Agent(_)) || postgres.number(named).await == 0, "{seed}");
            let left = postgres.rows("select distinct name from call_name where name in ('agent-s2', 'user-s3')").await;
            let names = ["(agent-s2)", "(user-s3)"];
            let forgotten = match whom {
                ErasureSubject::Session(_) => 0,
                ErasureSubject::Agent(_) => 1,
                ErasureSubject::User(_) => 2,
            };
            assert_eq!(left, names[forgotten..], "{seed}");
            assert!(gate.store.roll_up().await.expect("counted"), "{seed}: forgotten calls are due");
            assert_exact(&postgres, &format!("{seed}: without {whom:?}")).await;
        }
        assert_eq!(postgres.number("select count(*) from forgotten where hours is not null").await, 0, "{seed}");
    }
}

/// As if an hour had passed since the last count.
async fn due(postgres: &Postgres) {
    postgres.tamper("update tenant set calls_counted_before = calls_counted_before - interval '1 hour'").await;
}
