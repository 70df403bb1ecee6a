//! `retry_profiles` and `retry_param`: the numbers of the engine, in SQL.

use std::collections::{BTreeMap, BTreeSet};

use callgate_core::{
    domain::{
        failure::FailureKind,
        ids::{TenantId, ToolName},
        outcome::Confidence,
        profile::{
            ATTEMPTS, CELLS, FollowUpKind, HALF_LIFE_MS, HALF_LIVES_KEPT, ProfileCounts, RECENT_HALF_LIFE_MS,
            RetryState, ToolState, WAITS_MS,
        },
        time::Timestamp,
    },
    retry::{
        advice::{INTERVAL_Z, wilson},
        estimate::{
            EXPECTED_EDGE, Estimate, LOGIT_EDGE, M_CELL, M_CURVE, M_KIND, M_RECENT, M_TOOL, RECENT_EDGE, RECENT_MIN,
            prior,
        },
    },
};
use callgate_store::Store;
use sqlx::{Row as _, postgres::PgRow};

use crate::common::{gates::store, invariants::Check, postgres::Postgres};

const CLOSE: f64 = 1e-3;
const TENANTS: [i64; 2] = [1, 2];

/// Five tools and two tenants, every kind of failure, every age from now to past the end; a tool that never recovers
/// and one that always does, for the edges; a tool long unused, and one that was only ever corrected.
const ROLLUPS: [&str; 8] = [
    "insert into tenant (tenant_id, name) values (2, 'other')",
    "insert into retry_hourly
     select 1 + n % 7 / 6, 'tool_' || n % 5, n / 5 % 12, n * 31 / 7 % 3, n * 13 % 5, 1 + n * 7 / 3 % 3, n * 11 / 5 % 3,
       date_trunc('hour', now()) - n * 53 % 1300 * interval '1 hour', 1 + n % 9, (1 + n % 9) * (n * 17 % 6) / 5
     from generate_series(1, 3000) n on conflict do nothing",
    "insert into retry_hourly
     select 1, tool, failure, 0, wait, 1, 0, date_trunc('hour', now()), 4000,
       case tool when 'always' then 4000 else 0 end
     from (values ('always', 0), ('never', 3)) t (tool, wait), generate_series(0, 11) failure",
    // Just beyond retention, and enough to be noticed.
    "insert into retry_hourly
     select 1, tool, 0, 0, 2, 1, 0, date_trunc('hour', now()) - interval '962 hours', 100000, 100000
     from (values ('tool_0'), ('forgotten')) t (tool)",
    "insert into retry_hourly select 1, 'thin', 0, 0, wait, 1, 0, date_trunc('hour', now()), n, 3
     from (values (0, 5), (1, 36)) t (wait, n)",
    "insert into retry_hourly select 1, 'corrected', 0, kind, 0, 1, 0, date_trunc('hour', now()), 50, 50
     from generate_series(1, 2) kind",
    "insert into retry_recent
     select 1 + n % 7 / 6, 'tool_' || n % 5, n / 5 % 12, to_timestamp(floor(extract(epoch from now()) / 600) * 600)
       - n * 53 % 240 * interval '10 minutes', 1 + n % 9, (1 + n % 9) * (n * 17 % 6) / 5, (1 + n % 9) * (n % 10) / 10.0
     from generate_series(1, 600) n on conflict do nothing",
    // Recent levels beyond their edge, and one at the minimum of trials.
    "insert into retry_recent
     select 1, tool, 0, to_timestamp(floor(extract(epoch from now() - hours * interval '1 hour') / 600) * 600), n, 0, e
     from (values ('always', 0, 500, 500.0), ('never', 0, 500, 0.0), ('corrected', 0, 500, 1.0), ('thin', 12, 1, 1.0))
       t (tool, hours, n, e)",
];

async fn seed_store() -> (Postgres, Store) {
    let postgres = Postgres::start().await;
    let store = store(&postgres).await;
    for sql in ROLLUPS {
        postgres.tamper(sql).await;
    }
    (postgres, store)
}

async fn rows(postgres: &Postgres, sql: &str) -> Vec<PgRow> {
    let sql = sqlx::AssertSqlSafe(sql);
    sqlx::query(sql).fetch_all(&mut postgres.connect().await).await.expect("rows")
}

/// The engine's numbers for one tenant.
struct Engine {
    estimate: Estimate,
    as_of: Timestamp,
    /// Of retries, by cell.
    successes: BTreeMap<(ToolName, FailureKind, usize, RetryState), f64>,
}

impl Engine {
    fn of(counts: &ProfileCounts) -> Self {
        let cells = counts.cells.iter().filter(|cell| cell.kind == FollowUpKind::Same);
        let successes = cells.map(|cell| ((cell.tool.clone(), cell.failure, cell.wait, cell.state), cell.k));
        Self { estimate: Estimate::restore(counts), as_of: counts.as_of, successes: successes.collect() }
    }

    /// Number of tools and kinds with retries.
    fn profiles(&self) -> usize {
        self.successes.keys().map(|(tool, failure, ..)| (tool, failure)).collect::<BTreeSet<_>>().len()
    }
}

/// Every cell of the view equals the engine's, and every cell has a row.
async fn agrees(postgres: &Postgres, store: &Store) -> Check {
    let mut engine = BTreeMap::new();
    for tenant in TENANTS {
        let (counts, _) = store.profiles(TenantId(tenant)).await.expect("readable");
        engine.insert(tenant, Engine::of(&counts));
    }
    let view = rows(postgres, "select *, as_of = now() as is_now from retry_profiles").await;
    let mut seen = BTreeSet::new();
    for row in &view {
        agrees_in_row(row, &engine[&row.get::<i64, _>("tenant_id")])?;
        let key = ["tool", "failure", "tool_state"].map(|column| row.get::<String, _>(column));
        let numbers = (row.get::<i64, _>("tenant_id"), row.get::<i16, _>("wait"), row.get::<i16, _>("attempt"));
        seen.insert((key, numbers));
    }
    let expected = CELLS * engine.values().map(Engine::profiles).sum::<usize>();
    if (view.len(), seen.len()) == (expected, expected) {
        return Ok(());
    }
    Err(format!("{} rows of {} cells, expected {expected}", view.len(), seen.len()))
}

fn agrees_in_row(row: &PgRow, engine: &Engine) -> Check {
    let tool = ToolName::parse("tool", row.get::<&str, _>("tool")).expect("a good name");
    let failure = FailureKind::from_name(row.get("failure")).ok_or("no such failure")?;
    let wait = usize::try_from(row.get::<i16, _>("wait")).expect("a bucket");
    let state = ToolState::ALL.into_iter().find(|state| state.as_str() == row.get::<&str, _>("tool_state"));
    let attempt = u32::try_from(row.get::<i16, _>("attempt")).expect("an attempt");
    let state = RetryState { attempt, tool: state.ok_or("no such state")? };
    let odds = engine.estimate.view((&tool, failure), prior(failure), false, engine.as_of).odds(state);
    let (p, trials) = (odds.p[wait], odds.trials[wait]);
    let (low, high) = wilson(p, trials);
    for (column, expected) in [
        ("wait_s", WAITS_MS[wait] as f64 / 1_000.0),
        ("p", p),
        ("p_slow", odds.slow[wait]),
        ("p_low", low),
        ("p_high", high),
        ("trials", trials),
        ("cell_trials", odds.cell[wait]),
    ] {
        let shown: f64 = row.get(column);
        // Counts of thousands fade by more than that while the two are read.
        if (shown - expected).abs() > CLOSE * expected.max(1.0) || !shown.is_finite() {
            return Err(format!("{tool} {failure:?} {wait} {state:?}: {column} is {shown}, expected {expected}"));
        }
    }
    let successes = engine.successes.get(&(tool.clone(), failure, wait, state)).copied().unwrap_or(0.0);
    let shown: f64 = row.get("cell_successes");
    let confidence = Confidence::of(trials).as_str();
    let is_sure = row.get::<&str, _>("confidence") == confidence;
    if (shown - successes).abs() <= CLOSE * successes.max(1.0) && is_sure && row.get("is_now") {
        return Ok(());
    }
    Err(format!("{tool} {failure:?}: {shown} successes, expected {successes}; confidence, expected {confidence}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_view_shows_the_engines_numbers_cell_by_cell() {
    let (postgres, store) = seed_store().await;
    assert_eq!(agrees(&postgres, &store).await, Ok(()));
    let tools = "select distinct tool from retry_profiles where tenant_id = 1 order by 1";
    let tools = postgres.rows(tools).await;
    assert_eq!(tools, ["(always)", "(never)", "(thin)", "(tool_0)", "(tool_1)", "(tool_2)", "(tool_3)", "(tool_4)"]);
    let tenants = "select tenant_id, count(distinct tool) >= 3, count(distinct failure) from retry_profiles group by 1";
    assert_eq!(postgres.rows(tenants).await, ["(1,t,12)", "(2,t,12)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_constant_anywhere_is_seen() {
    let (postgres, store) = seed_store().await;
    let names: Vec<String> = params().into_keys().collect();
    for name in names {
        let by = |factor: &str| format!("update retry_param set value = value {factor} 1.5 where name = '{name}'");
        assert_eq!(postgres.tamper(&by("*")).await, 1);
        assert!(agrees(&postgres, &store).await.is_err(), "{name} does not matter to the view");
        postgres.tamper(&by("/")).await;
    }
    assert_eq!(agrees(&postgres, &store).await, Ok(()));
}

/// The constants of the estimate, by the names that they have in SQL.
fn params() -> BTreeMap<String, f64> {
    let mut params = BTreeMap::from(
        [
            ("half_life_s", HALF_LIFE_MS as f64 / 1_000.0),
            ("recent_half_life_s", RECENT_HALF_LIFE_MS as f64 / 1_000.0),
            ("half_lives_kept", f64::from(HALF_LIVES_KEPT)),
            ("m_kind", M_KIND),
            ("m_curve", M_CURVE),
            ("m_tool", M_TOOL),
            ("m_cell", M_CELL),
            ("m_recent", M_RECENT),
            ("logit_edge", LOGIT_EDGE),
            ("expected_edge", EXPECTED_EDGE),
            ("recent_edge", RECENT_EDGE),
            ("recent_min", RECENT_MIN),
            ("interval_z", INTERVAL_Z),
            ("trials_medium", Confidence::MEDIUM_TRIALS),
            ("trials_high", Confidence::HIGH_TRIALS),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    params.extend(FailureKind::ALL.map(|kind| (format!("prior_{}", kind.as_str()), prior(kind))));
    params.extend(WAITS_MS.iter().enumerate().map(|(at, ms)| (format!("wait_s_{at}"), *ms as f64 / 1_000.0)));
    params
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_constants_in_sql_are_the_servers() {
    let postgres = Postgres::start().await;
    store(&postgres).await.close().await;
    let stored = rows(&postgres, "select name, value from retry_param").await;
    let stored: BTreeMap<String, f64> = stored.iter().map(|row| (row.get("name"), row.get("value"))).collect();
    assert_eq!(stored, params());
    assert_eq!(ATTEMPTS, 3, "the view has cells for so many attempts");
}
