//! The commands. This room may use every other; it alone prints, and it alone uses `anyhow`.

#[macro_use]
pub mod out;

mod agents;
mod approvals;
mod asked;
mod audit;
mod backup;
mod chores;
mod completions;
mod contexts;
pub mod credential;
mod database;
mod database_clock;
mod demo;
mod doctor;
mod evaluate;
mod examples;
mod expiry;
mod explain;
mod follow;
mod grants;
mod health;
mod hook;
mod host;
mod json;
mod keys;
mod mcp;
mod place;
mod plane;
mod policy;
mod privacy;
mod profiles;
mod psql;
mod record;
mod recorded;
mod refused;
pub mod remote;
pub mod replay;
mod report;
mod reseal;
mod retain;
mod run;
mod serve;
mod sessions;
#[cfg(test)]
mod settings;
pub mod signal;
pub mod source;
mod tenant_keys;
mod tenants;
mod tokens;
mod tools;
mod top;
mod traced;
mod upkeep;
mod webhook;

use std::{path::Path, process::ExitCode, sync::Arc};

use anyhow::{Context as _, anyhow, bail};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::ServeConfig;
use callgate_core::policy::Policy;

/// The policy plane between a fleet of LLM agents and their tools.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the gate over gRPC, with a private PostgreSQL unless --database-url names one
    Serve(ServeConfig),
    /// Say whether a server serves: exit code 0 if it does, else 1
    Health(health::HealthArgs),
    /// Move the private database to a newer PostgreSQL, spread that of a fleet over many machines, or drop what is old
    Database(upkeep::DatabaseArgs),
    /// Look at a deployment, and say of what is not as it should be how to mend it; exit code 1 when anything is wrong
    Doctor(Box<doctor::DoctorArgs>),
    /// Write the private database into a folder, while its server runs or not
    Backup(backup::BackupArgs),
    /// Make a private database of such a folder, on the same version of PostgreSQL or a newer one
    Restore(backup::RestoreArgs),
    /// Open psql on the private PostgreSQL of a server that runs
    Psql(psql::PsqlArgs),
    /// Play a recorded session against a server and show what the gate says
    Demo(demo::DemoArgs),
    /// Write, check, compare and activate policies
    Policy(policy::PolicyArgs),
    /// Say why a stored call was judged as it was, rule by rule
    Explain(explain::ExplainArgs),
    /// Put callgate's hooks into the settings of coding agents, list them, or take them away
    Agents(agents::AgentsArgs),
    /// Answer the hooks of a coding agent: its event on standard input, its dialect on standard output
    Hook(hook::HookArgs),
    /// Ask whether a call may run: for scripts, with the decision as the exit code
    Evaluate(evaluate::EvaluateArgs),
    /// Run a command if its call may run, and report what came of it
    Run(run::RunArgs),
    /// Report what came of a call
    Record(record::RecordArgs),
    /// Watch a fleet on a terminal: what is decided, who waits, what is refused
    Top(top::TopArgs),
    /// List and answer the questions that calls wait for
    Approvals(approvals::ApprovalsArgs),
    /// List and show sessions, halt and resume them, and set their phases
    Sessions(sessions::SessionsArgs),
    /// Permit a session a number of calls of some tools
    Grants(grants::GrantsArgs),
    /// Show what people and administrators did, and check that nobody has changed the record of it
    Audit(audit::AuditArgs),
    /// Make, list, limit, suspend and delete tenants
    Tenants(tenants::TenantsArgs),
    /// Make, list, replace and revoke the API tokens of callers
    Tokens(tokens::TokensArgs),
    /// Forget a session, an agent or a person: delete what is stored of them
    Forget(privacy::ForgetArgs),
    /// Write what is stored of a session, an agent or a person, one JSON object a line
    Export(privacy::ExportArgs),
    /// Show which keys the stored values need, and seal them anew with the newest one
    Keys(reseal::KeysArgs),
    /// Show what a running server has learned of retries, by tool and kind of failure
    Profiles(profiles::ProfilesArgs),
    /// Show which tools make agents retry, loop and ask again, and what to mend in them
    Report(report::ReportArgs),
    /// Judge recorded sessions offline, without a database
    Replay(replay::ReplayArgs),
    /// List the servers that the file of contexts names, and choose one
    Contexts(contexts::ContextsArgs),
    /// Import a list of tools into a policy file, or lint it
    Tools(tools::ToolsArgs),
    /// Run an MCP server behind the gate: all passes as it is, but calls of tools, which are judged first
    McpProxy(mcp::ProxyArgs),
    /// Put the MCP servers of a host's settings behind the gate, and look at what they say of their tools
    Mcp(mcp::McpArgs),
    /// Print the script by which a shell completes command lines
    Completions(completions::CompletionsArgs),
    /// Write manual pages
    Man(completions::ManArgs),
}

/// The command line with its examples.
fn command() -> clap::Command {
    examples::shown(Cli::command())
}

/// What was typed; what cannot be read ends the process with help.
fn typed() -> Cli {
    let matches = command().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command()).exit())
}

/// True for the name of a command of this program.
#[must_use]
pub fn is_command(name: &str) -> bool {
    Cli::command().find_subcommand(name).is_some()
}

/// Runs the command line; the exit code is 0 for success, 1 for a failure, 75 where a server gave no answer, 2 for a
/// wrong command line, and for `callgate evaluate` the decision's (docs/cli.md#exit-codes).
#[must_use]
pub fn main() -> ExitCode {
    let code = run(typed().command);
    match out::failure() {
        Some(error) => failed(&anyhow!("the output cannot be written: {error}")),
        None => code,
    }
}

fn run(command: Command) -> ExitCode {
    let outcome = match command {
        Command::Serve(config) => {
            let threads = config.threads.map_or_else(serve::threads, usize::from);
            runtime_of(Some(threads)).and_then(|runtime| runtime.block_on(serve::run(config)))
        }
        Command::Health(args) => runtime().and_then(|runtime| runtime.block_on(health::run(args))),
        Command::Database(args) => runtime().and_then(|runtime| runtime.block_on(upkeep::run(args))),
        Command::Doctor(args) => return coded(runtime().and_then(|runtime| runtime.block_on(doctor::run(*args)))),
        Command::Backup(args) => runtime().and_then(|runtime| runtime.block_on(backup::backup(args))),
        Command::Restore(args) => runtime().and_then(|runtime| runtime.block_on(backup::restore(args))),
        Command::Psql(args) => runtime().and_then(|runtime| runtime.block_on(psql::run(&args))),
        Command::Demo(args) => runtime().and_then(|runtime| runtime.block_on(demo::run(args))),
        Command::Policy(args) => match runtime().and_then(|runtime| runtime.block_on(policy::run(args))) {
            Ok(code) => return ExitCode::from(code),
            Err(error) => Err(error),
        },
        Command::Explain(args) => runtime().and_then(|runtime| runtime.block_on(explain::run(args))),
        Command::Agents(args) => runtime().and_then(|runtime| runtime.block_on(agents::run(args))),
        Command::Hook(args) => return hook::run(&args),
        Command::Approvals(args) => runtime().and_then(|runtime| runtime.block_on(approvals::run(args))),
        Command::Sessions(args) => runtime().and_then(|runtime| runtime.block_on(sessions::run(args))),
        Command::Grants(args) => runtime().and_then(|runtime| runtime.block_on(grants::run(args))),
        Command::Audit(args) => return coded(runtime().and_then(|runtime| runtime.block_on(audit::run(args)))),
        Command::Tenants(args) => runtime().and_then(|runtime| runtime.block_on(tenants::run(args))),
        Command::Tokens(args) => runtime().and_then(|runtime| runtime.block_on(tokens::run(args))),
        Command::Forget(args) => runtime().and_then(|runtime| runtime.block_on(privacy::forget(args))),
        Command::Export(args) => runtime().and_then(|runtime| runtime.block_on(privacy::export(args))),
        Command::Keys(args) => runtime().and_then(|runtime| runtime.block_on(reseal::run(args))),
        Command::Profiles(args) => runtime().and_then(|runtime| runtime.block_on(profiles::run(args))),
        Command::Report(args) => runtime().and_then(|runtime| runtime.block_on(report::run(args))),
        Command::Replay(args) => replay::run(&args),
        Command::Evaluate(args) => {
            return coded(runtime().and_then(|runtime| runtime.block_on(evaluate::evaluate(args))));
        }
        Command::Run(args) => return run::main(args),
        Command::Record(args) => runtime().and_then(|runtime| runtime.block_on(record::record(args))),
        Command::Top(args) => runtime().and_then(|runtime| runtime.block_on(top::run(args))),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => completions::man(&args),
        Command::Contexts(args) => contexts::run(&args),
        Command::Tools(args) => return tools::run(&args),
        Command::McpProxy(args) => return mcp::proxy(args),
        Command::Mcp(args) => mcp::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// The exit code of a command that has its own.
fn coded(ended: anyhow::Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| failed(&error))
}

/// The exit code of who could ask nobody, by the convention of `sysexits.h` for what may be tried again.
const UNANSWERED: u8 = 75;

/// Prints why a command failed, and gives its exit code.
#[must_use]
pub fn failed(error: &anyhow::Error) -> ExitCode {
    errln!("callgate: {error:#}");
    match error.downcast_ref::<remote::Unanswered>() {
        Some(_) => ExitCode::from(UNANSWERED),
        None => ExitCode::FAILURE,
    }
}

/// A runtime with as many threads as there are cores.
///
/// # Errors
/// Threads that cannot be started.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    runtime_of(None)
}

/// Tasks after which a thread alone looks for news on its connections, though it has more to do.
const EVENT_INTERVAL: u32 = 16;

/// A runtime with so many threads; without a number, as many as there are cores. One alone takes tasks in the order in
/// which they were woken: all calls of a commit are answered before their connection sends, once for all of them. Among
/// several, what a task wakes comes next, so that every answer is sent by itself.
fn runtime_of(threads: Option<usize>) -> anyhow::Result<tokio::runtime::Runtime> {
    use tokio::runtime::Builder;
    let mut builder = match threads {
        Some(1) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let builder = match threads {
        Some(1) => builder.event_interval(EVENT_INTERVAL),
        Some(threads) => builder.worker_threads(threads),
        None => &mut builder,
    };
    builder.enable_all().build().context("cannot start the async runtime")
}

/// The text of a policy file.
///
/// # Errors
/// A file that cannot be read.
pub fn read_policy(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read the policy {}", path.display()))
}

/// The policy of a file, or the default one. Everything wrong with a file is said at once.
fn load_policy(path: Option<&Path>) -> anyhow::Result<Arc<Policy>> {
    let Some(path) = path else {
        return Ok(Arc::new(Policy::default()));
    };
    let name = path.display();
    match callgate_core::policy::compile(&read_policy(path)?) {
        Ok(policy) => Ok(Arc::new(policy)),
        Err(errors) => {
            let errors: Vec<String> = errors.iter().map(|error| format!("\n  {name}: {error}")).collect();
            bail!("the policy cannot be used, {} problem(s):{}", errors.len(), errors.concat())
        }
    }
}
