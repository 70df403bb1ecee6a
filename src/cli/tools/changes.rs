//! `callgate tools changes`, `accept` and `reject`: descriptions of the tools of MCP servers that have changed.

use anyhow::bail;
use clap::Args;

use crate::cli::server_args::{ReadArgs, WriteArgs};
use callgate_client::remote::{AuthenticatedChannel, at, into_response, member_name};
use callgate_proto::v1::{
    ListToolDescriptionsRequest, ResolveToolDescriptionRequest, ToolDescriptionState, ToolDescriptionVersion,
    fleet_service_client::FleetServiceClient,
};

#[derive(Debug, Args)]
pub(super) struct ChangesArgs {
    /// List all stored descriptions, also first, accepted and rejected ones
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    server: ReadArgs,
}

#[derive(Debug, Args)]
pub(super) struct ResolveArgs {
    /// The MCP server's name
    mcp_server: String,
    /// The tool's name, as in the list of changes
    tool: String,
    /// The description's digest, or its beginning
    digest: String,
    /// Reason, stored in the audit log
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    server: WriteArgs,
}

/// Lists descriptions.
pub(super) async fn list(args: ChangesArgs) -> anyhow::Result<()> {
    let ReadArgs { form, remote } = args.server;
    let mut client = FleetServiceClient::new(remote.connect().await?);
    let mut request = ListToolDescriptionsRequest { only_changed: !args.all, ..Default::default() };
    loop {
        let page = into_response(client.list_tool_descriptions(request.clone()).await)?;
        if page.descriptions.is_empty() && request.page_token.is_empty() && !form.json {
            outln!("{}", if args.all { "No proxy has reported tools." } else { "No description has changed." });
        }
        form.print_items(&page.descriptions, print)?;
        if page.next_page_token.is_empty() {
            return Ok(());
        }
        request.page_token = page.next_page_token;
    }
}

fn print(version: &ToolDescriptionVersion) {
    let ToolDescriptionVersion { server, tool, digest, first_reported_by, .. } = version;
    let state = member_name(version.state().as_str_name(), "TOOL_DESCRIPTION_STATE_");
    let by = if first_reported_by.is_empty() { String::new() } else { format!(" by {first_reported_by}") };
    let (short, since) = (digest.get(..16).unwrap_or(digest), at(version.first_report_time.as_ref()));
    outln!("{server}  {tool}  {short}  {state}, reported {since}{by}");
    if version.state() != ToolDescriptionState::Changed {
        return;
    }
    let accepted = version.accepted.clone().unwrap_or_default();
    for (name, before, now) in [
        ("description", &accepted.description, &version.description),
        ("schemas", &accepted.schema_json, &version.schema_json),
    ] {
        if before != now {
            outln!("  {name} before: {}", before.escape_debug());
            outln!("  {name} now:    {}", now.escape_debug());
        }
    }
    if accepted.description == version.description && accepted.schema_json == version.schema_json {
        outln!("  the stored texts are cut, and the descriptions differ behind their end");
    }
}

/// Accepts or rejects a description.
pub(super) async fn resolve(args: ResolveArgs, accept: bool) -> anyhow::Result<()> {
    let ResolveArgs { mcp_server, tool, digest, reason, server: WriteArgs { by, form, remote } } = args;
    let mut client = FleetServiceClient::new(remote.connect().await?);
    let digest = find_digest(&mut client, (&mcp_server, &tool), digest).await?;
    let request = ResolveToolDescriptionRequest { server: mcp_server, tool, digest, accept, reason };
    let resolved = into_response(client.resolve_tool_description(by.sign_request(request)?).await)?;
    form.print_items(resolved.description.as_slice(), print)
}

/// The one stored digest of the tool that begins so.
async fn find_digest(
    client: &mut FleetServiceClient<AuthenticatedChannel>,
    (server, tool): (&str, &str),
    prefix: String,
) -> anyhow::Result<String> {
    if prefix.len() == 64 {
        return Ok(prefix);
    }
    let mut request = ListToolDescriptionsRequest::default();
    let mut found = Vec::new();
    loop {
        let page = into_response(client.list_tool_descriptions(request.clone()).await)?;
        let of_tool = page.descriptions.into_iter().filter(|one| one.server == server && one.tool == tool);
        found.extend(of_tool.map(|one| one.digest).filter(|digest| digest.starts_with(&prefix)));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => bail!("no stored description of {tool} of {server} has a digest that begins with {prefix:?}"),
        _ => {
            bail!("{} stored descriptions of {tool} of {server} have a digest that begins with {prefix:?}", found.len())
        }
    }
}
