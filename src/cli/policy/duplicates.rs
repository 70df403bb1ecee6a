//! `callgate policy test --inject-duplicates`: proposes each recorded call a second time, right after it.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::cli::recorded::RecordedArgs;
use callgate_client::json::OutputFormat;
use callgate_core::offline::duplicates::{Doubles, doubles};
use callgate_server::policy_file::load_policy;

/// Arguments of `callgate policy test`.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// The policy
    #[arg(value_name = "POLICY")]
    policy: PathBuf,
    /// Repeat each recorded success, and count the repetitions that are refused
    #[arg(long, required = true)]
    inject_duplicates: bool,
    #[command(flatten)]
    form: OutputFormat,
    #[command(flatten)]
    recorded: RecordedArgs,
}

/// Returns 1 when a duplicate of a declared write was permitted, or nothing was tested: a check that cannot fail is
/// none.
pub(super) async fn test(args: &TestArgs) -> anyhow::Result<u8> {
    let policy = load_policy(Some(&args.policy))?.as_ref().clone();
    let rows = args.recorded.rows().await?;
    let doubles = doubles(&rows, policy).map_err(|problem| anyhow::anyhow!(problem))?;
    if args.form.json {
        for (tool, Doubles { asked, let_through, is_write }) in &doubles {
            let refused = asked - let_through;
            outln!("{}", json!({"tool": tool, "duplicates": asked, "refused": refused, "isWrite": is_write}));
        }
        let is_good = doubles.values().all(|doubles| !doubles.is_write || doubles.let_through == 0);
        return Ok(u8::from(doubles.is_empty() || !is_good));
    }
    if doubles.is_empty() {
        outln!("Nothing was tested: no recorded call succeeded.");
        return Ok(1);
    }
    let mut code = 0;
    outln!("{:>10} {:>8}  tool", "duplicates", "refused");
    for (tool, doubles) in &doubles {
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
    Ok(code)
}
