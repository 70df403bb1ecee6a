//! `callgate grants`: calls permitted in advance.

use clap::{Args, Subcommand};

use super::server_args::{ReadArgs, WriteArgs};
use callgate_client::remote::{at, into_response};
use callgate_proto::{
    time::duration,
    v1::{CreateGrantRequest, Grant, ListGrantsRequest, RevokeGrantRequest, grant_service_client::GrantServiceClient},
};

/// Page size: the server's maximum.
const PAGE: u32 = 500;

/// Arguments of `callgate grants`.
#[derive(Debug, Args)]
pub(super) struct GrantsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Grant a session a number of calls
    Create {
        /// The session's id
        session: String,
        /// Pattern of the granted tools: `create_*|update_*`
        tools: String,
        /// The number of calls
        ceiling: u64,
        /// Minutes until the grant expires
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// Reason, stored with the grant
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        server: WriteArgs,
    },
    /// List the grants of a session's call tree
    List {
        /// The session's id
        session: String,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Revoke a grant
    Revoke {
        /// The session's id
        session: String,
        /// The grant's id, from `grants list`
        grant_id: String,
        #[command(flatten)]
        server: WriteArgs,
    },
}

/// Runs `callgate grants`.
pub(super) async fn run(args: GrantsArgs) -> anyhow::Result<()> {
    match args.action {
        Action::Create { session, tools, ceiling, minutes, reason, server: WriteArgs { by, form, remote } } => {
            let mut client = GrantServiceClient::new(remote.connect().await?);
            let ttl = Some(duration(minutes.saturating_mul(60_000)));
            let request = CreateGrantRequest { session_id: session, tool_pattern: tools, ceiling, ttl, reason };
            let made = into_response(client.create_grant(by.sign_request(request)?).await)?;
            form.print_items(made.grant.as_slice(), |grant| {
                let Grant { grant_id, session_id, tool_pattern, ceiling, expire_time, .. } = grant;
                let until = at(expire_time.as_ref());
                outln!("{grant_id}: {ceiling} calls of {tool_pattern} for session {session_id}, until {until}");
            })
        }
        Action::List { session, server: ReadArgs { form, remote } } => {
            let mut client = GrantServiceClient::new(remote.connect().await?);
            let mut request = ListGrantsRequest { session_id: session, page_size: PAGE, ..Default::default() };
            loop {
                let page = into_response(client.list_grants(request.clone()).await)?;
                if page.grants.is_empty() && request.page_token.is_empty() && !form.json {
                    outln!("No grants are open.");
                }
                form.print_items(&page.grants, |grant| {
                    let Grant { grant_id, tool_pattern, used, ceiling, expire_time, .. } = grant;
                    let until = at(expire_time.as_ref());
                    outln!("{grant_id}  {tool_pattern}  {used} of {ceiling} used, until {until}");
                })?;
                if page.next_page_token.is_empty() {
                    return Ok(());
                }
                request.page_token = page.next_page_token;
            }
        }
        Action::Revoke { session, grant_id, server: WriteArgs { by, form, remote } } => {
            let mut client = GrantServiceClient::new(remote.connect().await?);
            let done = format!("{grant_id} is revoked");
            let request = RevokeGrantRequest { session_id: session, grant_id, reason: String::new() };
            let revoked = into_response(client.revoke_grant(by.sign_request(request)?).await)?;
            form.print_item(&revoked, |_| outln!("{done}"))
        }
    }
}
