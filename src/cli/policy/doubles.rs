//! `callgate policy test --inject-duplicates`: each recorded call is asked for a second time, right after it.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;

use crate::{
    cli::{
        load_policy,
        recorded::RecordedArgs,
        replay::judge::{outcome, request},
        trace::Row,
    },
    domain::{
        effect::EffectKind,
        finding::Decision,
        ids::{CallId, DEFAULT_TENANT, SessionId},
        outcome::OutcomeStatus,
        time::Timestamp,
    },
    engine::world::World,
    policy::Policy,
    rules::Mode,
};

/// What `callgate policy test` takes.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// The policy
    #[arg(value_name = "POLICY")]
    policy: PathBuf,
    /// Ask for each recorded success a second time, and show what becomes of the doubles
    #[arg(long, required = true)]
    inject_duplicates: bool,
    #[command(flatten)]
    recorded: RecordedArgs,
}

/// What became of the doubles of one tool.
#[derive(Debug, Default, PartialEq, Eq)]
struct Doubles {
    asked: u64,
    let_through: u64,
    is_write: bool,
}

/// Gives 1 when the double of a declared write got through, or when nothing was tried: a check that cannot fail is
/// none.
pub(super) async fn test(args: &TestArgs) -> anyhow::Result<u8> {
    let policy = load_policy(Some(&args.policy))?.as_ref().clone();
    let rows = args.recorded.rows().await?;
    let doubles = doubles(&rows, policy).map_err(|problem| anyhow::anyhow!(problem))?;
    if doubles.is_empty() {
        outln!("There is nothing to double, so nothing was tested: no recorded call succeeded.");
        return Ok(1);
    }
    let mut code = 0;
    outln!("{:>8} {:>8}  tool", "doubles", "refused");
    for (tool, doubles) in &doubles {
        let refused = doubles.asked - doubles.let_through;
        let note = match (doubles.let_through, doubles.is_write) {
            (0, _) => "",
            (_, true) => "  a declared write: this must not be",
            (_, false) => "  not declared as a read or write, or a poll: it may look again",
        };
        code |= u8::from(doubles.is_write && doubles.let_through > 0);
        outln!("{:>8} {refused:>8}  {tool}{note}", doubles.asked);
    }
    let all: u64 = doubles.values().map(|doubles| doubles.asked).sum();
    let through: u64 = doubles.values().map(|doubles| doubles.let_through).sum();
    outln!("\n{} of {all} doubles are refused", all - through);
    if doubles.values().all(|doubles| !doubles.is_write) {
        outln!("None of them is of a declared write, so this test could not fail.");
    }
    Ok(code)
}

fn doubles(rows: &[Row], mut policy: Policy) -> Result<BTreeMap<String, Doubles>, String> {
    // What is recorded ran: only its double is judged for good.
    let judging = policy.clone();
    policy.mode = Mode::Shadow;
    let mut worlds: BTreeMap<SessionId, (World, Timestamp)> = BTreeMap::new();
    let mut doubles: BTreeMap<String, Doubles> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.refused) {
        let start = (World::new(DEFAULT_TENANT), Timestamp::from_millis(1_735_689_600_000));
        let (world, clock) = worlds.entry(row.root().clone()).or_insert(start);
        let now = row.at.unwrap_or(clock.plus_ms(1_000)).max(*clock);
        *clock = now;
        let proposal = policy.propose(request(row));
        let misused = |caller_error| format!("{} {}: {caller_error:?}", row.trace, row.call_id);
        let (verdict, _) = world.evaluate(&policy, &proposal, None, now).map_err(misused)?;
        let Some(report) = outcome(row).filter(|_| verdict.permit.is_some()) else { continue };
        world.record(&policy, &report, now).map_err(misused)?;
        if report.status != OutcomeStatus::Success {
            continue;
        }
        let mut again = request(row);
        again.call_id = CallId::parse("call_id", &format!("{}-again", row.call_id)).map_err(|e| e.problem)?;
        let again = judging.propose(again);
        let verdict = world.preview(&judging, &again, None, now.plus_ms(1)).map_err(misused)?;
        let of_tool = doubles.entry(row.tool.to_string()).or_default();
        of_tool.asked += 1;
        of_tool.let_through += u64::from(verdict.decision == Decision::Allow);
        of_tool.is_write |= again.effect.kind == EffectKind::Write;
    }
    Ok(doubles)
}
