//! `callgate tools`: imports tool lists into a policy file, and lints them. It reads files and prints results; the tool
//! list module decides.

mod changes;
mod json;
mod lint;
mod sarif;
mod text;

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};

use callgate_client::remote::{Remote, into_response};
use callgate_core::{
    policy::{self, Policy},
    tool_list::{self, LIST_BYTES_MAX, ToolList},
};
use callgate_proto::v1::{GetPolicyRequest, policy_service_client::PolicyServiceClient};

/// Arguments of `callgate tools`.
#[derive(Debug, Args)]
pub(super) struct ToolsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a policy file that names every tool, with proposed risks and effects as comments
    Import(ImportArgs),
    /// Report texts and schemas that mislead models, each with a better text
    ///
    /// Exit code 0: no error, 1: errors, 2: unreadable input.
    Lint(lint::LintArgs),
    /// Print instructions for an agent's system prompt, made from its policy
    Prompt(PromptArgs),
    /// List changed descriptions of the tools of MCP servers, as their proxies reported them
    Changes(changes::ChangesArgs),
    /// Accept a changed description of a tool
    Accept(changes::ResolveArgs),
    /// Reject a changed description of a tool; its next report is a change again
    Reject(changes::ResolveArgs),
}

#[derive(Debug, Args)]
struct PromptArgs {
    /// A policy file [default: the server's active policy]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// Tool lists in the format of OpenAI, Anthropic or MCP; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Omit the schemas of arguments
    #[arg(long)]
    no_schemas: bool,
}

fn prompt(args: &PromptArgs) -> anyhow::Result<()> {
    let policy = match &args.policy {
        Some(path) => callgate_server::policy_file::load_policy(Some(path))?.as_ref().clone(),
        None => super::block_on(active(&args.remote))?,
    };
    out!("{}", policy.prompt());
    Ok(())
}

/// The active policy of a running server.
async fn active(remote: &Remote) -> anyhow::Result<Policy> {
    let mut client = PolicyServiceClient::new(remote.connect().await?);
    let found = into_response(client.get_policy(GetPolicyRequest::default()).await)?;
    if found.hash.is_empty() {
        return Ok(Policy::default());
    }
    policy::compile(&found.text).map_err(|_| anyhow!("this build cannot read the active policy"))
}

/// Exit code for unusable input.
const UNREADABLE: u8 = 2;

/// Runs the command; prints errors to standard error.
pub(super) fn run(args: ToolsArgs) -> ExitCode {
    let outcome = match args.command {
        Command::Import(args) => import(&args).map(|()| ExitCode::SUCCESS),
        Command::Lint(args) => lint::run(&args),
        Command::Prompt(args) => prompt(&args).map(|()| ExitCode::SUCCESS),
        Command::Changes(args) => return asked(changes::list(args)),
        Command::Accept(args) => return asked(changes::resolve(args, true)),
        Command::Reject(args) => return asked(changes::resolve(args, false)),
    };
    outcome.unwrap_or_else(|error| {
        errln!("callgate: {error:#}");
        ExitCode::from(UNREADABLE)
    })
}

/// The exit code of a command that asks a server.
fn asked(outcome: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    super::to_exit_code(super::block_on(outcome).map(|()| ExitCode::SUCCESS))
}

fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let list = read(&args.files)?;
    if !args.no_schemas {
        check_schemas(&list)?;
    }
    let text = tool_list::import(&list, !args.no_schemas);
    match &args.output {
        Some(path) => fs::write(path, text).map_err(|error| anyhow!("{}: cannot be written: {error}", path.display())),
        None => {
            out!("{text}");
            Ok(())
        }
    }
}

/// Reports invalid or remote schemas by tool, which would otherwise fail to compile in the policy.
fn check_schemas(list: &ToolList) -> anyhow::Result<()> {
    let problem = |tool: &tool_list::ToolDoc| {
        let error = jsonschema::options().should_validate_formats(true).build(&tool.input_schema).err()?;
        let problem: Vec<String> = error.to_string().split_whitespace().map(str::to_owned).collect();
        Some(format!("{}:{}: invalid schema of {}: {}", tool.source, tool.line, tool.name, problem.join(" ")))
    };
    let problems: Vec<String> = list.tools.iter().filter_map(problem).collect();
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}\ncallgate: fix it, or omit schemas with --no-schemas", problems.join("\ncallgate: "))
}

/// The tools of all files together.
fn read(files: &[PathBuf]) -> anyhow::Result<ToolList> {
    let mut all = ToolList::default();
    for path in files {
        let name = path.display().to_string();
        let text = read_text(path)?;
        let list = tool_list::read(&name, &text);
        let joined = list.and_then(|list| all.append(list));
        joined.map_err(|problems| {
            let lines = problems.iter().map(|invalid| format!("{name}: {}: {}", invalid.field, invalid.problem));
            anyhow!(lines.collect::<Vec<_>>().join("\ncallgate: "))
        })?;
    }
    if !all.built_in.is_empty() {
        errln!("callgate: omitted, without a schema: {}", all.built_in.join(", "));
    }
    Ok(all)
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let most = LIST_BYTES_MAX as u64 + 1;
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().take(most).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(most).read_to_string(&mut text))
    };
    read.map_err(|error| anyhow!("{}: cannot be read: {error}", path.display()))?;
    Ok(text)
}
