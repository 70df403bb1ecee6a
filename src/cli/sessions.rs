//! `callgate sessions`: sessions and the kill switch.

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use tonic::{Code, Response};

use super::server_args::{ReadArgs, WriteArgs};
use callgate_client::{
    json::OutputFormat,
    remote::{ActorArgs, AuthenticatedChannel, Remote, at, into_response},
};
use callgate_proto::v1::{
    GetSessionStateRequest, HaltRequest, HaltScope, HaltState, ListHaltsRequest, ListNamesRequest,
    MarkCompactedRequest, OutcomeStatus, ResumeRequest, SetPhaseRequest, SettleOutcomeRequest, WatchSessionRequest,
    gate_service_client::GateServiceClient, session_service_client::SessionServiceClient,
};

mod list;
mod raise;

/// Page size when all are requested: the server's maximum.
const PAGE: u32 = 500;

/// Arguments of `callgate sessions`.
#[derive(Debug, Args)]
pub(super) struct SessionsArgs {
    #[command(subcommand)]
    action: Action,
}

/// Scope of a halt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// One session and its child sessions
    Session,
    /// Every call of one agent
    Agent,
    /// Every call of one tool
    Tool,
    /// Every call of the tenant
    All,
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutcomeFilter {
    /// The call succeeded
    Happened,
    /// The call had no effect and may be repeated
    NotHappened,
    /// The call failed without an effect
    Failed,
}

/// Scopes that have a name.
const NAMED: [(&str, &str); 3] = [("scope", "session"), ("scope", "agent"), ("scope", "tool")];

#[derive(Debug, Subcommand)]
enum Action {
    /// List the sessions with the newest calls, and all halts
    List {
        /// List all stored sessions
        #[arg(long)]
        all: bool,
        /// The order, descending
        #[arg(long, value_enum, default_value_t = list::Order::Latest)]
        sort: list::Order,
        #[command(flatten)]
        like: list::ListFilter,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// List all halts
    Halts {
        #[command(flatten)]
        server: ReadArgs,
    },
    /// List names of agents, users and tools with a text in them, for the filters of `list`
    Names {
        /// The text; all names without one
        #[arg(default_value = "", hide_default_value = true)]
        text: String,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Show a session's calls, loops and budgets
    Show {
        /// The session's id
        session: String,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Halt a session, an agent, a tool, or all calls, on every replica
    Halt {
        /// The scope of the halt
        scope: Scope,
        /// The id or name; omit it for `all`
        #[arg(required_if_eq_any(NAMED))]
        name: Option<String>,
        /// Reason, shown to models and users and stored in the audit log; without it they see only the halt
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        #[command(flatten)]
        server: WriteArgs,
    },
    /// Resume after a halt
    Resume {
        /// The scope of the halt
        scope: Scope,
        /// The id or name; omit it for `all`
        #[arg(required_if_eq_any(NAMED))]
        name: Option<String>,
        /// Reason, stored in the audit log
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        #[command(flatten)]
        server: WriteArgs,
    },
    /// Move a session to a phase, and optionally fix the order of its next writes
    Phase {
        /// The session's id
        session: String,
        /// A phase that may follow the current one
        phase: String,
        /// The tools of the next writes, in order
        plan: Vec<String>,
        #[command(flatten)]
        server: WriteArgs,
    },
    /// Settle the outcome of a call whose outcome is unknown
    Settle {
        /// The session's id
        session: String,
        /// The call's id
        call: String,
        /// The outcome
        outcome: OutcomeFilter,
        /// The result of a call that happened
        #[arg(long)]
        result: Option<String>,
        /// The error message of a call that failed
        #[arg(long, required_if_eq("outcome", "failed"), conflicts_with = "result")]
        error: Option<String>,
        /// Evidence for the outcome, stored in the audit log
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        #[command(flatten)]
        server: WriteArgs,
    },
    /// Raise a session's budget above the policy's limit, and let it continue
    Raise(raise::RaiseArgs),
    /// Record a compaction of the model's context, and print the summary to put back into it
    Compacted {
        /// The session's id
        session: String,
        #[command(flatten)]
        server: WriteArgs,
    },
}

async fn client(remote: &Remote) -> anyhow::Result<SessionServiceClient<AuthenticatedChannel>> {
    Ok(SessionServiceClient::new(remote.connect().await?))
}

/// Scope and name of a halt, in the contract's form.
fn encode_scope(scope: Scope, name: Option<String>) -> anyhow::Result<(i32, String)> {
    let encoded = match scope {
        Scope::Session => HaltScope::Session,
        Scope::Agent => HaltScope::Agent,
        Scope::Tool => HaltScope::Tool,
        Scope::All => HaltScope::Tenant,
    };
    match (scope, name) {
        (Scope::All, Some(name)) => bail!("`all` takes no name; omit {name}"),
        (_, name) => Ok((encoded.into(), name.unwrap_or_default())),
    }
}

/// Runs it.
pub(super) async fn run(args: SessionsArgs) -> anyhow::Result<()> {
    match args.action {
        Action::List { all, sort, like, server: ReadArgs { form, remote } } => {
            list::run(all, sort, &like, form, client(&remote).await?).await
        }
        Action::Halts { server: ReadArgs { form, remote } } => {
            let halts = halts(&mut client(&remote).await?).await?;
            if halts.is_empty() && !form.json {
                outln!("No halts.");
            }
            form.print_items(&halts, |halt| outln!("{}", of_halt(halt)))
        }
        Action::Names { text, server: ReadArgs { form, remote } } => {
            let request = ListNamesRequest { text, max_names: PAGE, ..ListNamesRequest::default() };
            let found = into_response(client(&remote).await?.list_names(request).await)?;
            form.print_items(&found.names, |entry| {
                let kind = entry.kind().as_str_name().trim_start_matches("NAME_KIND_").to_lowercase();
                outln!("{kind:5} {}", entry.name);
            })
        }
        Action::Show { session, server: ReadArgs { form, remote } } => {
            // The first message of a watch: a state alone does not tell of a halt.
            let request = WatchSessionRequest { session_id: session };
            let mut states = into_response(client(&remote).await?.watch_session(request).await)?;
            let now = into_response(states.message().await.map(Response::new))?.unwrap_or_default();
            form.print_item(&now, |now| {
                now.halt.iter().for_each(|halt| outln!("halted: {}", of_halt(halt)));
                now.state.iter().for_each(|state| outln!("{}", state.summary_for_model));
            })
        }
        Action::Halt { scope, name, reason, server: WriteArgs { by, form, remote } } => {
            let (scope, name) = encode_scope(scope, name)?;
            halt(HaltRequest { scope, name, reason }, form, &by, &remote).await
        }
        Action::Resume { scope, name, reason, server: WriteArgs { by, form, remote } } => {
            let (scope, name) = encode_scope(scope, name)?;
            let request = ResumeRequest { scope, name, reason };
            let what = describe_scope(request.scope(), &request.name);
            let resumed = into_response(client(&remote).await?.resume(by.sign_request(request)?).await)?;
            form.print_item(&resumed, |resumed| {
                outln!("{what} {}", if resumed.was_halted { "is resumed" } else { "was not halted" });
            })
        }
        Action::Phase { session, phase, plan, server: WriteArgs { by, form, remote } } => {
            let request = SetPhaseRequest { session_id: session, phase, plan, reason: String::new() };
            let set = into_response(client(&remote).await?.set_phase(by.sign_request(request)?).await)?;
            form.print_item(&set, |set| outln!("the session is in phase {}", set.phase))
        }
        Action::Settle { session, call, outcome, result, error, reason, server } => {
            let WriteArgs { by, form, remote } = server;
            let request = settlement((session, call), outcome, result, error, reason);
            let call = request.call_id.clone();
            let settled = into_response(client(&remote).await?.settle_outcome(by.sign_request(request)?).await)?;
            let what = match outcome {
                OutcomeFilter::Happened => "succeeded: a repetition returns its result",
                OutcomeFilter::NotHappened => "did not happen: it may be repeated",
                OutcomeFilter::Failed => "failed",
            };
            form.print_item(&settled, |_| outln!("{call} {what}"))
        }
        Action::Raise(args) => raise::run(args).await,
        Action::Compacted { session, server: WriteArgs { by, form, remote } } => {
            let request = MarkCompactedRequest { session_id: session, summary_tokens: 0 };
            let state = into_response(client(&remote).await?.mark_compacted(by.sign_request(request)?).await)?.state;
            form.print_items(state.as_slice(), |state| outln!("{}", state.summary_for_model))
        }
    }
}

fn settlement(
    (session_id, call_id): (String, String),
    outcome: OutcomeFilter,
    result: Option<String>,
    error: Option<String>,
    reason: String,
) -> SettleOutcomeRequest {
    let (status, result, error) = match outcome {
        OutcomeFilter::Happened => (OutcomeStatus::Success, result, None),
        OutcomeFilter::NotHappened => (OutcomeStatus::Cancelled, None, None),
        OutcomeFilter::Failed => (OutcomeStatus::Error, None, error),
    };
    let error_message = error.unwrap_or_default();
    SettleOutcomeRequest { session_id, call_id, status: status.into(), result, error_message, reason }
}

async fn halts(client: &mut SessionServiceClient<AuthenticatedChannel>) -> anyhow::Result<Vec<HaltState>> {
    let (mut all, mut request) = (Vec::new(), ListHaltsRequest { page_size: PAGE, ..ListHaltsRequest::default() });
    loop {
        let page = into_response(client.list_halts(request.clone()).await)?;
        all.extend(page.halts);
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        request.page_token = page.next_page_token;
    }
}

async fn halt(request: HaltRequest, form: OutputFormat, by: &ActorArgs, remote: &Remote) -> anyhow::Result<()> {
    let (scope, name) = (request.scope(), request.name.clone());
    let reason = request.reason.clone();
    if let Some(halt) = into_response(client(remote).await?.halt(by.sign_request(request)?).await)?.halt {
        let is_other = !remote.is_named_by_credential()? && halt.by != by.name();
        let is_earlier = is_other || halt.reason != reason;
        let what = if is_earlier { "halted before" } else { "halted" };
        form.print_item(&halt, |halt| outln!("{what}: {}", of_halt(halt)))?;
    }
    // A halt of a misspelled name has no effect, which the operator should know.
    if scope == HaltScope::Session {
        let request = GetSessionStateRequest { session_id: name.clone(), last_calls: 1, summary_tokens: 0 };
        let known = GateServiceClient::new(remote.connect().await?).get_session_state(request).await;
        if known.is_err_and(|status| status.code() == Code::NotFound) {
            errln!("note: session {name} has no calls yet; check its id");
        }
    }
    Ok(())
}

fn describe_scope(scope: HaltScope, name: &str) -> String {
    match scope {
        HaltScope::Tenant => "everything".to_owned(),
        scope => format!("{} {name}", scope.as_str_name().trim_start_matches("HALT_SCOPE_").to_lowercase()),
    }
}

fn of_halt(halt: &HaltState) -> String {
    let why = if halt.reason.is_empty() { String::new() } else { format!(": {}", halt.reason) };
    let what = describe_scope(halt.scope(), &halt.name);
    format!("{what}, since {} by {}{why}", at(halt.create_time.as_ref()), halt.by)
}
