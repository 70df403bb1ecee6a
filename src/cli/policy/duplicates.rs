//! `callgate policy test`: proposes each recorded call a second time, right after it (`--inject-duplicates`), and
//! measures which parts of the policy the calls reach (`--coverage`).

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::json;

use super::coverage;
use crate::cli::recorded::RecordedArgs;
use callgate_client::json::OutputFormat;
use callgate_core::offline::{
    coverage::coverage as measure,
    duplicates::{Doubles, doubles},
};
use callgate_server::policy_file::load_policy;

/// Arguments of `callgate policy test`.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// The policy
    #[arg(value_name = "POLICY")]
    policy: PathBuf,
    /// Repeat each recorded success, and count the repetitions that are refused
    #[arg(long, required_unless_present = "coverage")]
    inject_duplicates: bool,
    /// Count the rules, declared tools and tiers of the policy that the calls reach
    #[arg(long)]
    coverage: bool,
    /// Fail when less than this share of them is reached, in percent
    #[arg(long, value_name = "PERCENT", requires = "coverage")]
    fail_under: Option<f64>,
    /// Write the results to a file as JUnit XML, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    form: OutputFormat,
    #[command(flatten)]
    recorded: RecordedArgs,
}

/// Returns 1 when a duplicate of a declared write was permitted, the coverage is too low, or nothing was tested: a
/// check that cannot fail is none.
pub(super) async fn test(args: &TestArgs) -> anyhow::Result<u8> {
    let policy = load_policy(Some(&args.policy))?.as_ref().clone();
    let rows = args.recorded.rows().await?;
    let mut code = 0;
    let mut tested = BTreeMap::new();
    if args.inject_duplicates {
        tested = doubles(&rows, policy.clone()).map_err(|problem| anyhow!(problem))?;
        code |= print_doubles(&tested, args.form.json);
    }
    let mut covered = None;
    if args.coverage {
        let measured = measure(&rows, policy).map_err(|problem| anyhow!(problem))?;
        coverage::print(&measured, args.form.json);
        let failure = coverage::failure(&measured, args.fail_under);
        failure.iter().for_each(|why| errln!("{why}"));
        code |= u8::from(failure.is_some());
        covered = Some((measured, failure));
    }
    if let Some(file) = &args.junit {
        let covered = covered.as_ref().map(|(measured, failure)| (measured, failure.clone()));
        let xml = coverage::junit(tested.iter(), covered);
        fs::write(file, xml).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(code)
}

fn print_doubles(doubles: &BTreeMap<String, Doubles>, json: bool) -> u8 {
    if json {
        for (tool, Doubles { asked, let_through, is_write }) in doubles {
            let refused = asked - let_through;
            outln!("{}", json!({"tool": tool, "duplicates": asked, "refused": refused, "isWrite": is_write}));
        }
        let is_good = doubles.values().all(|doubles| !doubles.is_write || doubles.let_through == 0);
        return u8::from(doubles.is_empty() || !is_good);
    }
    if doubles.is_empty() {
        outln!("Nothing was tested: no recorded call succeeded.");
        return 1;
    }
    let mut code = 0;
    outln!("{:>10} {:>8}  tool", "duplicates", "refused");
    for (tool, doubles) in doubles {
        let refused = doubles.asked - doubles.let_through;
        let note = match (doubles.let_through, doubles.is_write) {
            (0, _) => "",
            (_, true) => "  a declared write is allowed twice: an error",
            (_, false) => "  a poll, or without a declared effect: repetitions may run",
        };
        code |= u8::from(doubles.is_write && doubles.let_through > 0);
        outln!("{:>10} {refused:>8}  {tool}{note}", doubles.asked);
    }
    let all: u64 = doubles.values().map(|doubles| doubles.asked).sum();
    let through: u64 = doubles.values().map(|doubles| doubles.let_through).sum();
    outln!("\n{} of {all} duplicates are refused", all - through);
    if doubles.values().all(|doubles| !doubles.is_write) {
        outln!("None of them is a declared write, so this test could not fail.");
    }
    code
}
