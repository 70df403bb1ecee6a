//! `callgate sessions raise`: raises a budget.

use anyhow::Context as _;
use clap::{Args, ValueEnum, builder::PossibleValuesParser};

use super::{WriteArgs, client};
use callgate_client::remote::into_response;
use callgate_core::domain::budget::{Dimension, micros};
use callgate_proto::v1::{BudgetScope, BudgetUsage, RaiseBudgetRequest};
use callgate_server::grpc::{FromWire, ToWire};

/// Scope of a raised budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BudgetOwner {
    /// The budget of the session with its child sessions
    CallTree,
    /// The budget of its current run, until the run ends
    Run,
}

/// Arguments of `callgate sessions raise`.
#[derive(Debug, Args)]
pub(super) struct RaiseArgs {
    /// The session's id
    session: String,
    /// The budget, by its key in the policy
    #[arg(value_parser = PossibleValuesParser::new(Dimension::ALL.map(Dimension::as_str)))]
    budget: String,
    /// The total above the policy's limit: US dollars of cost, milliseconds of time, else a count; 0 removes it
    extra: String,
    /// The budget's scope
    #[arg(long, default_value = "call-tree")]
    scope: BudgetOwner,
    /// Reason, stored in the audit log
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    server: WriteArgs,
}

impl RaiseArgs {
    fn request(&self) -> anyhow::Result<RaiseBudgetRequest> {
        let dimension = Dimension::from_name(&self.budget).context("unknown budget")?;
        let extra = match dimension {
            Dimension::Cost => self.extra.parse().ok().and_then(micros),
            _ => self.extra.parse().ok(),
        };
        let scope = match self.scope {
            BudgetOwner::Run => BudgetScope::Run,
            BudgetOwner::CallTree => BudgetScope::CallTree,
        };
        Ok(RaiseBudgetRequest {
            session_id: self.session.clone(),
            scope: scope.into(),
            dimension: dimension.to_wire().into(),
            extra: extra.with_context(|| format!("{}: the amount must be a number of 0 or more", self.budget))?,
            reason: self.reason.clone(),
        })
    }
}

/// Runs it.
pub(super) async fn run(args: RaiseArgs) -> anyhow::Result<()> {
    let request = args.request()?;
    let (scope, dimension, budget) = (request.scope, request.dimension(), args.budget);
    let raised =
        into_response(client(&args.server.remote).await?.raise_budget(args.server.by.sign_request(request)?).await)?;
    let is_it = |left: &&BudgetUsage| left.scope == scope && left.dimension() == dimension;
    args.server.form.print_item(&raised, |raised| match raised.budgets.iter().find(is_it) {
        Some(BudgetUsage { used, limit, extra, .. }) => {
            let in_words = |amount: u64| match Dimension::from_wire(dimension) {
                Ok(dimension) => dimension.describe_amount(amount),
                Err(_) => amount.to_string(),
            };
            let (used, limit, extra) = (in_words(*used), in_words(*limit), in_words(*extra));
            outln!("{budget}: {used} of {limit} used; {extra} above the policy");
        }
        None => outln!("{budget} is raised"),
    })
}
