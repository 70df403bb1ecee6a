//! Commands. This module may use every other; it alone prints, and it alone uses `anyhow`.

mod approvals;
mod audit;
mod backup;
mod completions;
mod database_clock;
mod demo;
mod doctor;
mod evaluate;
mod examples;
mod explain;
mod grants;
mod health;
mod place;
mod policy;
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
    contexts, out,
    process::{failed, runtime, runtime_of},
};

use callgate_server::{config::ServeConfig, serve};

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
    /// Spread the database of a fleet over many machines, or drop what is old
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
    #[command(flatten)]
    AgentSide(AgentSide),
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
    /// Put the MCP servers of a host's settings behind the gate, and look at what they say of their tools
    Mcp(proxy::McpArgs),
    /// Print the script by which a shell completes command lines
    Completions(completions::CompletionsArgs),
    /// Write manual pages
    Man(completions::ManArgs),
}

/// Commands that start with each action of an agent.
#[derive(Debug, Subcommand)]
enum AgentSide {
    /// Answer the hooks of a coding agent: its event on standard input, its dialect on standard output
    Hook(hook::HookArgs),
    /// Run an MCP server behind the gate: all passes as it is, but calls of tools, which are judged first
    McpProxy(proxy::ProxyArgs),
}

/// The command line of these alone: building that of all commands is a fifth of a hook's start.
#[derive(Debug, Parser)]
#[command(name = "callgate", version, about)]
struct AgentSideCli {
    #[command(subcommand)]
    command: AgentSide,
}

/// The command line with its examples.
fn command() -> clap::Command {
    examples::shown(Cli::command())
}

/// Parses the command line; an invalid one ends the process with help.
fn typed() -> Command {
    let first = std::env::args_os().nth(1);
    if first.as_ref().and_then(|first| first.to_str()).is_some_and(AgentSide::has_subcommand) {
        return Command::AgentSide(read::<AgentSideCli>(|| examples::shown(AgentSideCli::command())).command);
    }
    read::<Cli>(command).command
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
    let code = run(typed());
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
        Command::AgentSide(AgentSide::Hook(args)) => return hook::run(&args),
        Command::AgentSide(AgentSide::McpProxy(args)) => return proxy::proxy(args),
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
        Command::Mcp(args) => proxy::run(&args),
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
