//! `callgate policy`: write, check, compare and activate policies.

mod backtest;
mod check;
mod coverage;
mod diff;
mod duplicates;
mod rollout;
mod stored;
mod suggest;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::server_args::ReadArgs;
use callgate_client::json::OutputFormat;

/// Arguments of `callgate policy`.
#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check policy files; exit code 1 when one has errors
    Check {
        /// The policy files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        form: OutputFormat,
    },
    /// Compare two policies key by key; exit code 1 when they differ
    Diff {
        /// The old policy: a file, `active`, or the beginning of a stored policy's hash
        before: String,
        /// The new policy, in the same forms
        after: String,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Test a policy on recorded calls: changes of decisions, by rule and tool
    Backtest(backtest::BacktestArgs),
    /// Test a policy on recorded calls: with repetitions, and by its coverage; exit code 1 when a repeated declared
    /// write is allowed, too little is covered, or nothing was tested
    Test(duplicates::TestArgs),
    /// Suggest limits, thresholds and effects from recorded calls, each with its evidence
    Suggest(suggest::SuggestArgs),
    /// Print the JSON Schema of policy files
    Schema,
    /// Write a first policy
    Init {
        /// The new file
        #[arg(default_value = "callgate.yaml", value_name = "FILE")]
        file: PathBuf,
    },
    /// Store a policy and activate it, on every replica
    Apply(stored::ApplyArgs),
    /// List the activated policies
    List {
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Print a stored policy
    Show {
        /// The policy's hash, or its beginning [default: the active policy]
        hash: Option<String>,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Activate a stored policy
    Activate {
        /// The policy's hash, or its beginning
        hash: String,
        #[command(flatten)]
        change: stored::ActivationArgs,
    },
    /// Activate the previous policy again
    Rollback(stored::ActivationArgs),
    /// Let a stored policy judge a part of the sessions first, compare it, and promote or abort it
    Rollout(rollout::RolloutArgs),
}

/// Runs it; gives the exit code.
pub(super) async fn run(args: PolicyArgs) -> anyhow::Result<u8> {
    match args.action {
        Action::Check { files, form } => check::check(&files, form),
        Action::Diff { before, after, server: ReadArgs { form, remote } } => {
            diff::diff(&before, &after, form, &remote).await
        }
        Action::Backtest(args) => backtest::backtest(&args).await.map(|()| 0),
        Action::Test(args) => duplicates::test(&args).await,
        Action::Suggest(args) => suggest::suggest(&args).await.map(|()| 0),
        Action::Schema => check::schema().map(|()| 0),
        Action::Init { file } => check::init(&file).map(|()| 0),
        Action::Apply(args) => stored::apply(&args).await.map(|()| 0),
        Action::List { server: ReadArgs { form, remote } } => stored::list(form, &remote).await.map(|()| 0),
        Action::Show { hash, server: ReadArgs { form, remote } } => {
            stored::show(hash.as_deref(), form, &remote).await.map(|()| 0)
        }
        Action::Activate { hash, change } => stored::activate(&hash, &change).await.map(|()| 0),
        Action::Rollback(change) => stored::rollback(&change).await.map(|()| 0),
        Action::Rollout(args) => rollout::run(args).await.map(|()| 0),
    }
}
