//! `callgate sessions`: what runs, and the kill switch; with it `callgate grants`.

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use tonic::{Code, Response};

use super::remote::{By, Remote, Wire, asked, at};
use crate::grpc::{
    time::duration,
    v1::{
        CreateGrantRequest, GetSessionStateRequest, HaltRequest, HaltScope, HaltState, ListGrantsRequest,
        ListHaltsRequest, ListSessionsRequest, MarkCompactedRequest, OutcomeStatus, ResumeRequest, RevokeGrantRequest,
        SetPhaseRequest, SettleOutcomeRequest, WatchSessionRequest, gate_service_client::GateServiceClient,
        grant_service_client::GrantServiceClient, session_service_client::SessionServiceClient,
    },
};

/// What `callgate sessions` takes.
#[derive(Debug, Args)]
pub(super) struct SessionsArgs {
    #[command(subcommand)]
    action: Action,
}

/// What a halt stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// One session and all sub-agents below it
    Session,
    /// Every call of one agent
    Agent,
    /// Every call of one tool; others go on
    Tool,
    /// Everything
    All,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Came {
    /// It did what it should
    Happened,
    /// It did nothing, and may be made
    NotHappened,
    /// It failed, and did nothing
    Failed,
}

/// The scopes that a name belongs to.
const NAMED: [(&str, &str); 3] = [("scope", "session"), ("scope", "agent"), ("scope", "tool")];

#[derive(Debug, Subcommand)]
enum Action {
    /// List the sessions that were heard of last, and what is halted
    List(Remote),
    /// Show what a session has done and may still do
    Show {
        /// The session's id
        session: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Stop a session, an agent, a tool, or everything, on every replica
    Halt {
        /// What to stop
        scope: Scope,
        /// Its id or name; left out for `all`
        #[arg(required_if_eq_any(NAMED))]
        name: Option<String>,
        /// Why; models and people are told
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        remote: Remote,
    },
    /// End a halt
    Resume {
        /// What was halted
        scope: Scope,
        /// Its id or name; left out for `all`
        #[arg(required_if_eq_any(NAMED))]
        name: Option<String>,
        /// Why: kept in the audit
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        remote: Remote,
    },
    /// Move a session to a phase, perhaps with the order of the writes to come
    Phase {
        /// The session's id
        session: String,
        /// A phase of the policy that the present one leads to
        phase: String,
        /// The tools of the writes to come, in their order
        plan: Vec<String>,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        remote: Remote,
    },
    /// Say what came of a call of which nobody knows whether it happened, after having looked
    Settle {
        /// The session's id
        session: String,
        /// The call's id
        call: String,
        /// What came of it
        outcome: Came,
        /// What it answered, or what went wrong
        #[arg(long, required_if_eq("outcome", "failed"))]
        with: Option<String>,
        /// How you know
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        remote: Remote,
    },
    /// Tell that the model's context was compacted; prints the text to put back into it
    Compacted {
        /// The session's id
        session: String,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        remote: Remote,
    },
}

/// What `callgate grants` takes.
#[derive(Debug, Args)]
pub(super) struct GrantsArgs {
    #[command(subcommand)]
    action: GrantAction,
}

#[derive(Debug, Subcommand)]
enum GrantAction {
    /// Permit a session a number of calls of some tools
    Create {
        /// The session's id
        session: String,
        /// Which tools, as a pattern: `create_*|update_*`
        tools: String,
        /// How many calls are permitted
        ceiling: u64,
        /// For how many minutes the permission holds
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// Why: stored with the grant
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        remote: Remote,
    },
    /// List the grants of a session's call tree
    List {
        /// The session's id
        session: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Take a grant back
    Revoke {
        /// The session's id
        session: String,
        /// The grant's id, as `grants list` shows it
        grant_id: String,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        remote: Remote,
    },
}

async fn client(remote: &Remote) -> anyhow::Result<SessionServiceClient<Wire>> {
    Ok(SessionServiceClient::new(remote.connect().await?))
}

/// The scope and name of a halt, as the contract has them.
fn what(scope: Scope, name: Option<String>) -> anyhow::Result<(i32, String)> {
    let encoded = match scope {
        Scope::Session => HaltScope::Session,
        Scope::Agent => HaltScope::Agent,
        Scope::Tool => HaltScope::Tool,
        Scope::All => HaltScope::Tenant,
    };
    match (scope, name) {
        (Scope::All, Some(name)) => bail!("`all` takes no name; leave out {name}"),
        (_, name) => Ok((encoded.into(), name.unwrap_or_default())),
    }
}

/// Runs it.
pub(super) async fn run(args: SessionsArgs) -> anyhow::Result<()> {
    match args.action {
        Action::List(remote) => list(client(&remote).await?).await,
        Action::Show { session, remote } => {
            // The first message of a watch: a state alone does not tell of a halt.
            let request = WatchSessionRequest { session_id: session };
            let mut states = asked(client(&remote).await?.watch_session(request).await)?;
            let now = asked(states.message().await.map(Response::new))?.unwrap_or_default();
            now.halt.iter().for_each(|halt| outln!("halted: {}", of_halt(halt)));
            now.state.iter().for_each(|state| outln!("{}", state.summary_for_model));
            Ok(())
        }
        Action::Halt { scope, name, reason, by, remote } => {
            let (scope, name) = what(scope, name)?;
            halt(HaltRequest { scope, name, reason }, &by, &remote).await
        }
        Action::Resume { scope, name, reason, by, remote } => {
            let (scope, name) = what(scope, name)?;
            let request = ResumeRequest { scope, name, reason };
            let what = in_words(request.scope(), &request.name);
            let was = asked(client(&remote).await?.resume(by.signed(request)?).await)?.was_halted;
            outln!("{what} {}", if was { "goes on" } else { "was not halted" });
            Ok(())
        }
        Action::Phase { session, phase, plan, by, remote } => {
            let request = SetPhaseRequest { session_id: session, phase, plan, reason: String::new() };
            let phase = asked(client(&remote).await?.set_phase(by.signed(request)?).await)?.phase;
            outln!("the session is in phase {phase}");
            Ok(())
        }
        Action::Settle { session, call, outcome, with, reason, by, remote } => {
            let request = settlement((session, call), outcome, with, reason);
            let call = request.call_id.clone();
            asked(client(&remote).await?.settle_outcome(by.signed(request)?).await)?;
            outln!(
                "{call} {}",
                match outcome {
                    Came::Happened => "succeeded: asked for again, it is answered from memory",
                    Came::NotHappened => "did not happen: it may be made",
                    Came::Failed => "failed",
                }
            );
            Ok(())
        }
        Action::Compacted { session, by, remote } => {
            let request = MarkCompactedRequest { session_id: session, summary_tokens: 0 };
            let state = asked(client(&remote).await?.mark_compacted(by.signed(request)?).await)?.state;
            state.iter().for_each(|state| outln!("{}", state.summary_for_model));
            Ok(())
        }
    }
}

fn settlement(
    (session_id, call_id): (String, String),
    outcome: Came,
    with: Option<String>,
    reason: String,
) -> SettleOutcomeRequest {
    let (status, result, error) = match outcome {
        Came::Happened => (OutcomeStatus::Success, with, None),
        Came::NotHappened => (OutcomeStatus::Cancelled, None, None),
        Came::Failed => (OutcomeStatus::Error, None, with),
    };
    let error_message = error.unwrap_or_default();
    SettleOutcomeRequest { session_id, call_id, status: status.into(), result, error_message, reason }
}

async fn list(mut client: SessionServiceClient<Wire>) -> anyhow::Result<()> {
    let halts = asked(client.list_halts(ListHaltsRequest::default()).await)?.halts;
    let sessions = asked(client.list_sessions(ListSessionsRequest::default()).await)?.sessions;
    halts.iter().for_each(|halt| outln!("halted: {}", of_halt(halt)));
    if sessions.is_empty() {
        outln!("No session has called anything yet.");
    }
    let widest = sessions.iter().map(|session| session.session_id.chars().count()).max().unwrap_or(0);
    for session in &sessions {
        outln!(
            "{}  {:<widest$}  {:>6} calls  {:>3} open  ${}.{:02}{}",
            at(session.update_time.as_ref()),
            session.session_id,
            session.calls,
            session.open_calls,
            session.cost_micros / 1_000_000,
            session.cost_micros % 1_000_000 / 10_000,
            if session.halted { "  halted" } else { "" }
        );
    }
    Ok(())
}

async fn halt(request: HaltRequest, by: &By, remote: &Remote) -> anyhow::Result<()> {
    let (scope, name) = (request.scope(), request.name.clone());
    let reason = request.reason.clone();
    if let Some(halt) = asked(client(remote).await?.halt(by.signed(request)?).await)?.halt {
        let is_other = !remote.is_named_by_credential()? && halt.by != by.name();
        let is_earlier = is_other || halt.reason != reason;
        outln!("{}: {}", if is_earlier { "halted before" } else { "halted" }, of_halt(&halt));
    }
    // A name that is misspelt stops nothing, and whoever pulls the switch should know.
    if scope == HaltScope::Session {
        let request = GetSessionStateRequest { session_id: name.clone(), last_calls: 1, summary_tokens: 0 };
        let known = GateServiceClient::new(remote.connect().await?).get_session_state(request).await;
        if known.is_err_and(|status| status.code() == Code::NotFound) {
            errln!("note: session {name} has not asked for any call yet; is that its name?");
        }
    }
    Ok(())
}

fn in_words(scope: HaltScope, name: &str) -> String {
    match scope {
        HaltScope::Tenant => "everything".to_owned(),
        scope => format!("{} {name}", scope.as_str_name().trim_start_matches("HALT_SCOPE_").to_lowercase()),
    }
}

fn of_halt(halt: &HaltState) -> String {
    let why = if halt.reason.is_empty() { String::new() } else { format!(": {}", halt.reason) };
    let what = in_words(halt.scope(), &halt.name);
    format!("{what}, since {} by {}{why}", at(halt.create_time.as_ref()), halt.by)
}

/// Runs `callgate grants`.
pub(super) async fn grants(args: GrantsArgs) -> anyhow::Result<()> {
    match args.action {
        GrantAction::Create { session, tools, ceiling, minutes, reason, by, remote } => {
            let mut client = GrantServiceClient::new(remote.connect().await?);
            let ttl = Some(duration(minutes.saturating_mul(60_000)));
            let request = CreateGrantRequest { session_id: session, tool_pattern: tools, ceiling, ttl, reason };
            if let Some(grant) = asked(client.create_grant(by.signed(request)?).await)?.grant {
                let (id, tools, session) = (grant.grant_id, grant.tool_pattern, grant.session_id);
                let until = at(grant.expire_time.as_ref());
                outln!("{id}: {} calls of {tools} for session {session}, until {until}", grant.ceiling);
            }
            Ok(())
        }
        GrantAction::List { session, remote } => {
            let mut client = GrantServiceClient::new(remote.connect().await?);
            let request = ListGrantsRequest { session_id: session, ..ListGrantsRequest::default() };
            let grants = asked(client.list_grants(request).await)?.grants;
            if grants.is_empty() {
                outln!("No grant is open.");
            }
            for grant in grants {
                outln!(
                    "{}  {}  {} of {} used, until {}",
                    grant.grant_id,
                    grant.tool_pattern,
                    grant.used,
                    grant.ceiling,
                    at(grant.expire_time.as_ref())
                );
            }
            Ok(())
        }
        GrantAction::Revoke { session, grant_id, by, remote } => {
            let mut client = GrantServiceClient::new(remote.connect().await?);
            let done = format!("{grant_id} is taken back");
            let request = RevokeGrantRequest { session_id: session, grant_id, reason: String::new() };
            asked(client.revoke_grant(by.signed(request)?).await)?;
            outln!("{done}");
            Ok(())
        }
    }
}
