//! `callgate policy`: write, check, compare and activate policies.

mod backtest;
mod check;
mod diff;
mod doubles;
mod stored;
mod suggest;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::server_args::ReadArgs;
use callgate_client::json::Form;

/// What `callgate policy` takes.
#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Say everything that is wrong with policy files; exit code 1 when anything is
    Check {
        /// The files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        form: Form,
    },
    /// Compare two policies key by key; exit code 1 when they differ
    Diff {
        /// A file, `active`, or the beginning of a stored policy's hash
        before: String,
        /// The same
        after: String,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Try a policy on recorded calls: what it would change, by rule and tool
    Backtest(backtest::BacktestArgs),
    /// Try a policy on doubled calls; exit code 1 when the double of a declared write gets through, or when no recorded
    /// call succeeded, so that nothing could be doubled
    Test(doubles::TestArgs),
    /// Propose ceilings, thresholds and effects from recorded calls, each with its evidence
    Suggest(suggest::SuggestArgs),
    /// Print the JSON Schema of policy files
    Schema,
    /// Write a policy to begin with
    Init {
        /// Where; it must not be there yet
        #[arg(default_value = "callgate.yaml", value_name = "FILE")]
        file: PathBuf,
    },
    /// Store a policy and make it the active one, on every replica
    Apply(stored::ApplyArgs),
    /// Show what was active when
    List {
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Print a stored policy
    Show {
        /// The beginning of its hash; the active one when absent
        hash: Option<String>,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Make a stored policy the active one
    Activate {
        /// The beginning of its hash
        hash: String,
        #[command(flatten)]
        change: stored::Change,
    },
    /// Make the policy before the present one active again
    Rollback(stored::Change),
}

/// Runs it; gives the exit code.
pub(super) async fn run(args: PolicyArgs) -> anyhow::Result<u8> {
    match args.action {
        Action::Check { files, form } => check::check(&files, form),
        Action::Diff { before, after, server: ReadArgs { form, remote } } => {
            diff::diff(&before, &after, form, &remote).await
        }
        Action::Backtest(args) => backtest::backtest(&args).await.map(|()| 0),
        Action::Test(args) => doubles::test(&args).await,
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
    }
}
