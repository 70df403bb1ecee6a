//! `callgate mcp`: settings of hosts, and tool inventories of servers.

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{inventories::InventoryFile, qualify_tool_name, wrap};
use crate::mcp::inventory::Inventory;
use callgate_client::{json::OutputFormat, process::block_on};
use callgate_core::tool_list::{self, ToolList};

/// Arguments of `callgate mcp`.
#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put a host's MCP servers behind the gate in its settings, or undo that
    ///
    /// Prints the lines that change. Options after `--` go to each `callgate mcp-proxy`.
    Wrap(wrap::WrapArgs),
    /// List a server's tools, and changes since their approval
    Tools {
        #[command(flatten)]
        server: ServerArgs,
        #[command(flatten)]
        form: OutputFormat,
    },
    /// Approve a server's tools as they are now
    Approve {
        #[command(flatten)]
        server: ServerArgs,
        #[command(flatten)]
        form: OutputFormat,
    },
    /// Print a policy for a server's tools, with the effects from its annotations
    Effects(EffectsArgs),
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// The server's name, as in --server-name of its proxy
    server: String,
}

#[derive(Debug, Args)]
struct EffectsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Activate the effects from the annotations; by default they are comments
    #[arg(long)]
    trust_annotations: bool,
}

/// Runs the command.
pub fn run(args: &McpArgs) -> anyhow::Result<()> {
    match &args.command {
        Command::Wrap(args) => block_on(wrap::run(args)),
        Command::Tools { server, form } => tools(&server.server, *form),
        Command::Approve { server, form } => approve(&server.server, *form),
        Command::Effects(args) => effects(args),
    }
}

fn load_inventory(server: &str) -> anyhow::Result<(InventoryFile, Inventory)> {
    let seen = InventoryFile::of(server)?;
    let inventory = seen.load()?.with_context(|| {
        format!("no tools of {server} are known yet: its host has to list them through the proxy first")
    })?;
    Ok((seen, inventory))
}

/// The tools with the names that policies use.
fn to_tool_list(server: &str, inventory: &Inventory) -> anyhow::Result<ToolList> {
    let list = inventory.list(|tool| qualify_tool_name(server, tool));
    tool_list::read(server, &list).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect();
        anyhow!("cannot read the tools of {server}: {}", problems.join("; "))
    })
}

fn tools(server: &str, form: OutputFormat) -> anyhow::Result<()> {
    let (_, inventory) = load_inventory(server)?;
    let list = to_tool_list(server, &inventory)?;
    if form.json {
        let drifts = inventory.drifts();
        for tool in &list.tools {
            let drift = drifts.iter().find(|drift| qualify_tool_name(server, &drift.tool) == tool.name);
            let changed = drift.map(|drift| &drift.members);
            outln!(
                "{}",
                json!({"tool": tool.name, "description": tool.description, "approved": drift.is_none(),
                    "changed": changed.cloned().unwrap_or_default()})
            );
        }
        return Ok(());
    }
    for tool in &list.tools {
        let description = tool.description.lines().next().unwrap_or_default();
        outln!("{}  {}", tool.name, description.escape_debug());
    }
    let drifts = inventory.drifts();
    for drift in &drifts {
        outln!("not approved: {drift}");
        if let Some((before, now)) = inventory.descriptions(&drift.tool) {
            outln!("  before: {}", before.escape_debug());
            outln!("  now:    {}", now.escape_debug());
        }
    }
    if !drifts.is_empty() {
        outln!("Approve the changes: callgate mcp approve {server}");
    }
    Ok(())
}

fn approve(server: &str, form: OutputFormat) -> anyhow::Result<()> {
    let (seen, mut inventory) = load_inventory(server)?;
    let drifts = inventory.drifts();
    inventory.approve();
    seen.save(&inventory)?;
    if form.json {
        for drift in &drifts {
            outln!(
                "{}",
                json!({"tool": qualify_tool_name(server, &drift.tool), "approved": true, "changed": drift.members})
            );
        }
        return Ok(());
    }
    match drifts.len() {
        0 => outln!("No tools of {server} have changed since their approval."),
        count => outln!("{count} changed tools of {server} are approved."),
    }
    Ok(())
}

fn effects(args: &EffectsArgs) -> anyhow::Result<()> {
    let server = &args.server.server;
    let (_, inventory) = load_inventory(server)?;
    let list = to_tool_list(server, &inventory)?;
    let write = if args.trust_annotations { tool_list::import_trusting } else { tool_list::import };
    out!("{}", write(&list, true));
    Ok(())
}
