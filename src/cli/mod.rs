//! Commands. This module may use every other; it alone prints, and it alone uses `anyhow`.

mod approvals;
mod approvals_bulk;
mod audit;
mod backup;
mod completions;
mod database_clock;
mod demo;
mod doctor;
mod evaluate;
mod examples;
mod explain;
mod export_calls;
mod grants;
mod health;
mod notifications;
mod overview;
mod policy;
mod prices;
mod privacy;
mod profiles;
mod psql;
mod record;
mod recorded;
pub mod replay;
mod report;
mod reseal;
mod retain;
mod run;
mod server_args;
mod sessions;
#[cfg(test)]
mod settings;
pub mod source;
mod target;
mod tenants;
mod tokens;
mod tools;
mod top;
mod upkeep;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::{CommandFactory as _, FromArgMatches, Parser, Subcommand};

use callgate_agent::{agents, hook, proxy};
use callgate_client::{
    contexts, output,
    process::{block_on, block_on_threads, print_failure},
};

use callgate_server::{config::ServeConfig, serve};

/// The policy plane between a fleet of LLM agents and their tools.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the gate, with a private PostgreSQL or --database-url
    Serve(ServeConfig),
    /// Check that a server is ready: exit code 0, else 1
    Health(health::HealthArgs),
    /// Maintain the database: retention, clocks, distribution
    Database(upkeep::DatabaseArgs),
    /// Diagnose a deployment and suggest fixes; exit code 1 on errors
    Doctor(Box<doctor::DoctorArgs>),
    /// Back up the private database, also while its server runs
    Backup(backup::BackupArgs),
    /// Restore a backup, on the same PostgreSQL version or a newer one
    Restore(backup::RestoreArgs),
    /// Open psql on the private PostgreSQL of a running server
    Psql(psql::PsqlArgs),
    /// Play a recorded session, and show the decisions
    Demo(demo::DemoArgs),
    /// Write, check, test and activate policies
    Policy(policy::PolicyArgs),
    /// Explain the decision on a stored call, rule by rule
    Explain(explain::ExplainArgs),
    /// Install, list and remove hooks of coding agents
    Agents(agents::AgentsArgs),
    #[command(flatten)]
    AgentSide(AgentSide),
    /// Request a decision on a call; the exit code is the decision
    Evaluate(evaluate::EvaluateArgs),
    /// Run a command as a call: evaluate, execute, record
    Run(run::RunArgs),
    /// Record the outcome of a call
    Record(record::RecordArgs),
    /// Show decisions, sessions, approval requests and refusals
    Top(top::TopArgs),
    /// List and answer approval requests
    Approvals(approvals::ApprovalsArgs),
    /// Send a test message to the destinations of notifications
    Notifications(notifications::NotificationsArgs),
    /// List, show, halt, resume and settle sessions
    Sessions(sessions::SessionsArgs),
    /// Grant a session a number of calls
    Grants(grants::GrantsArgs),
    /// List and verify the audit log
    Audit(audit::AuditArgs),
    /// Create, list, limit, suspend and delete tenants
    Tenants(tenants::TenantsArgs),
    /// Create, list, rotate and revoke API tokens
    Tokens(tokens::TokensArgs),
    /// Delete the data of a session, an agent or a user
    Forget(privacy::ForgetArgs),
    /// Export calls, or the data of a session, an agent or a user
    Export(privacy::ExportArgs),
    /// List encryption keys, and re-encrypt with the newest one
    Keys(reseal::KeysArgs),
    /// Show learned chances of retries, by tool and failure kind
    Profiles(profiles::ProfilesArgs),
    /// Report tools that cause retries and loops, and suggest fixes
    Report(report::ReportArgs),
    /// Judge recorded traces without a server
    Replay(replay::ReplayArgs),
    /// List and select contexts: named servers with credentials
    Contexts(contexts::ContextsArgs),
    /// Lint tool lists, and import them into a policy file
    Tools(tools::ToolsArgs),
    /// Put MCP servers behind the gate, and approve their tools
    Mcp(proxy::McpArgs),
    /// Print a shell's completion script
    Completions(completions::CompletionsArgs),
    /// Write manual pages
    Man(completions::ManArgs),
}

/// The exit code of a wrong command line, as clap has it.
const WRONG_COMMAND_LINE: u8 = 2;

/// Commands that start with each action of an agent.
#[derive(Debug, Subcommand)]
enum AgentSide {
    /// Answer a coding agent's hook, from stdin to stdout
    Hook(hook::HookArgs),
    /// Run an MCP server behind the gate, which judges its tool calls
    McpProxy(proxy::ProxyArgs),
}

/// The command line of these alone: building that of all commands is a fifth of a hook's start.
#[derive(Debug, Parser)]
#[command(name = "callgate", version, about)]
struct AgentSideCli {
    #[command(subcommand)]
    command: AgentSide,
}

/// The command line with its examples, and with its commands by task.
fn command() -> clap::Command {
    overview::group_commands(examples::add_examples(Cli::command()))
}

/// The typed command, none without arguments. An invalid one ends the process with help.
fn parse_command_line() -> Option<Command> {
    let first = std::env::args_os().nth(1)?;
    if first.to_str().is_some_and(AgentSide::has_subcommand) {
        let read = read::<AgentSideCli>(|| examples::add_examples(AgentSideCli::command()));
        return Some(Command::AgentSide(read.command));
    }
    Some(read::<Cli>(command).command)
}

fn read<C: FromArgMatches>(command: impl Fn() -> clap::Command) -> C {
    let matches = command().get_matches();
    C::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command()).exit())
}

/// True for the name of a command of this program.
#[must_use]
pub fn is_command(name: &str) -> bool {
    Cli::command().find_subcommand(name).is_some()
}

/// Runs the command line; the exit code is 0 for success, 1 for a failure, 75 without an answer of a server, 2 for an
/// invalid command line, and for `callgate evaluate` the decision's (docs/cli.md#exit-codes).
#[must_use]
pub fn main() -> ExitCode {
    let Some(command) = parse_command_line() else {
        errln!("{}", overview::page());
        return ExitCode::from(WRONG_COMMAND_LINE);
    };
    let code = run(command);
    match output::failure() {
        Some(error) => print_failure(&anyhow!("cannot write the output: {error}")),
        None => code,
    }
}

fn run(command: Command) -> ExitCode {
    let outcome = match command {
        Command::Serve(config) => {
            let threads = config.threads.map_or_else(serve::threads, usize::from);
            return to_exit_code(block_on_threads(Some(threads), serve::run(config)));
        }
        Command::Health(args) => block_on(health::run(args)),
        Command::Database(args) => block_on(upkeep::run(args)),
        Command::Doctor(args) => return to_exit_code(block_on(doctor::run(*args))),
        Command::Backup(args) => block_on(backup::backup(args)),
        Command::Restore(args) => block_on(backup::restore(args)),
        Command::Psql(args) => block_on(psql::run(&args)),
        Command::Demo(args) => block_on(demo::run(args)),
        Command::Policy(args) => match block_on(policy::run(args)) {
            Ok(code) => return ExitCode::from(code),
            Err(error) => Err(error),
        },
        Command::Explain(args) => block_on(explain::run(args)),
        Command::Agents(args) => block_on(agents::run(args)),
        Command::AgentSide(AgentSide::Hook(args)) => return hook::run(&args),
        Command::AgentSide(AgentSide::McpProxy(args)) => return proxy::proxy(args),
        Command::Approvals(args) => block_on(approvals::run(args)),
        Command::Notifications(args) => return to_exit_code(block_on(notifications::run(args))),
        Command::Sessions(args) => block_on(sessions::run(args)),
        Command::Grants(args) => block_on(grants::run(args)),
        Command::Audit(args) => return to_exit_code(block_on(audit::run(args))),
        Command::Tenants(args) => block_on(tenants::run(args)),
        Command::Tokens(args) => block_on(tokens::run(args)),
        Command::Forget(args) => block_on(privacy::forget(args)),
        Command::Export(args) => block_on(privacy::export(args)),
        Command::Keys(args) => block_on(reseal::run(args)),
        Command::Profiles(args) => block_on(profiles::run(args)),
        Command::Report(args) => block_on(report::run(args)),
        Command::Replay(args) => replay::run(&args),
        Command::Evaluate(args) => return to_exit_code(block_on(evaluate::evaluate(args))),
        Command::Run(args) => return run::main(args),
        Command::Record(args) => block_on(record::record(args)),
        Command::Top(args) => block_on(top::run(args)),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => completions::man(&args),
        Command::Contexts(args) => contexts::run(&args),
        Command::Tools(args) => return tools::run(args),
        Command::Mcp(args) => proxy::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print_failure(&error),
    }
}

/// The exit code of a command that has its own.
fn to_exit_code(ended: anyhow::Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| print_failure(&error))
}
