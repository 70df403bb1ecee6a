//! `callgate tokens`: API tokens. Over a running server, or, for the first token of a deployment that other machines
//! can reach, on its database.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tonic::{body::Body, client::GrpcService, codegen::StdError};

use super::target::CommandTarget;
use callgate_client::{
    json::OutputFormat,
    remote::{ActorArgs, at, into_response},
};
use callgate_core::domain::identity::Role;
use callgate_proto::{
    time::duration,
    v1::{
        self, CreateTokenRequest, GetCallerRequest, ListTokensRequest, RevokeTokenRequest, RotateTokenRequest, Token,
        server_service_client::ServerServiceClient, token_service_client::TokenServiceClient,
    },
};
use callgate_server::grpc;

/// Page size: the server's maximum.
const PAGE: u32 = 500;
const DAY_MS: u64 = 86_400_000;

/// Arguments of `callgate tokens`.
#[derive(Debug, Args)]
pub(super) struct TokensArgs {
    #[command(subcommand)]
    action: Action,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    place: CommandTarget,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a token; it is printed once, alone on standard output
    Create {
        /// The holder's name (a person, a service, an agent), stored with its actions
        name: String,
        /// Roles: agent, approver, operator, analyst, admin; repeatable or comma-separated
        #[arg(long, required = true, value_delimiter = ',', value_parser = role)]
        role: Vec<Role>,
        /// Approver groups of the holder; repeatable or comma-separated
        #[arg(long, value_delimiter = ',')]
        group: Vec<String>,
        /// Pattern of the agents that the holder may name: 'desk-*|planner' [default: any]
        #[arg(long, value_name = "PATTERN", default_value = "", hide_default_value = true)]
        agents: String,
        /// Allow calls in sessions that other credentials opened
        #[arg(long)]
        any_session: bool,
        /// Write the token to this new file, readable by its owner only, instead of to standard output
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        term: Term,
    },
    /// List the tenant's tokens
    List {
        /// Also list expired and revoked tokens
        #[arg(long)]
        all: bool,
    },
    /// Revoke a token, on every replica within two seconds
    Revoke {
        /// The token's id, from `tokens list`
        id: String,
    },
    /// Replace a token by a new one, which is printed once; the old one stays valid for a while
    Rotate {
        /// The old token's id
        id: String,
        /// Hours that the old token stays valid
        #[arg(long, default_value = "24")]
        overlap_hours: u64,
        #[command(flatten)]
        term: Term,
    },
}

/// Validity of a token.
#[derive(Debug, Args)]
struct Term {
    /// Days until the token expires [default: never]
    #[arg(long, value_name = "DAYS")]
    days: Option<u64>,
}

impl Term {
    fn ttl(&self) -> Option<prost_types::Duration> {
        self.days.map(|days| duration(days.saturating_mul(DAY_MS)))
    }
}

fn role(text: &str) -> Result<Role, String> {
    Role::from_name(text).ok_or_else(|| format!("{text:?} is none of {}", Role::ALL.map(Role::as_str).join(", ")))
}

/// Runs `callgate tokens`.
pub(super) async fn run(args: TokensArgs) -> anyhow::Result<()> {
    let TokensArgs { action, json, place } = args;
    let form = OutputFormat { json };
    if let Action::Create { file: Some(file), .. } = &action
        && file.exists()
    {
        errln!("{} already exists: no token was created.", file.display());
        return Ok(());
    }
    let Some((gate, tenant)) = place.database().await? else {
        let wire = place.remote.connect().await?;
        if matches!(action, Action::Create { .. } | Action::Rotate { .. }) && !form.json {
            let caller = ServerServiceClient::new(wire.clone()).get_caller(GetCallerRequest {}).await;
            let caller = caller.ok().and_then(|caller| caller.into_inner().caller);
            caller.iter().for_each(|caller| errln!("Tenant: {}", caller.tenant));
        }
        return act(TokenServiceClient::new(wire), action, form, &place.by).await;
    };
    if matches!(action, Action::Create { .. } | Action::Rotate { .. }) && !form.json {
        errln!("Tenant: {}", place.tenant());
    }
    let done = act(grpc::tokens_of(Arc::clone(&gate.identities), tenant), action, form, &place.by).await;
    gate.close().await;
    done
}

async fn act<S>(
    mut client: TokenServiceClient<S>,
    action: Action,
    form: OutputFormat,
    by: &ActorArgs,
) -> anyhow::Result<()>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<StdError> + Send,
{
    match action {
        Action::Create { name, role, group, agents, any_session, file, term } => {
            let role = role.iter().map(|role| format!("ROLE_{}", role.as_str().to_uppercase()));
            let roles = role.filter_map(|name| v1::Role::from_str_name(&name)).map(i32::from).collect();
            let ttl = term.ttl();
            let request = CreateTokenRequest { name, roles, groups: group, agent_pattern: agents, any_session, ttl };
            // Opened first: a token that cannot be written would be lost.
            let create = |path: PathBuf| {
                let created = create_private(&path).with_context(|| format!("--file {}", path.display()));
                created.map(|file| (file, path))
            };
            let file = file.map(create).transpose()?;
            let made = match into_response(client.create_token(by.sign_request(request)?).await) {
                Ok(made) => made,
                Err(error) => {
                    file.map(|(_, path)| std::fs::remove_file(path)).transpose()?;
                    return Err(error);
                }
            };
            match file {
                None => form.print_item(&made, |made| print_token(made.token.as_ref(), &made.secret))?,
                Some((mut file, path)) => {
                    let written = file.write_all(made.secret.as_bytes()).and_then(|()| file.sync_all());
                    written
                        .with_context(|| format!("--file {}: created, not saved; revoke the token", path.display()))?;
                    errln!("{}", made.token.as_ref().map(describe_token).unwrap_or_default());
                }
            }
        }
        Action::List { all } => list(&mut client, all, form).await?,
        Action::Revoke { id } => {
            let request = by.sign_request(RevokeTokenRequest { token_id: id.clone() })?;
            let revoked = into_response(client.revoke_token(request).await)?;
            form.print_item(&revoked, |_| outln!("{id} is revoked, on every replica within two seconds."))?;
        }
        Action::Rotate { id, overlap_hours, term } => {
            let overlap = Some(duration(overlap_hours.saturating_mul(3_600_000)));
            let request = RotateTokenRequest { token_id: id, ttl: term.ttl(), overlap };
            let made = into_response(client.rotate_token(by.sign_request(request)?).await)?;
            form.print_item(&made, |made| print_token(made.token.as_ref(), &made.secret))?;
        }
    }
    Ok(())
}

/// A new file that its owner alone may read.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Only the token goes to standard output, for scripts.
fn print_token(token: Option<&Token>, secret: &str) {
    if let Some(token) = token {
        errln!("{}", describe_token(token));
        errln!("The token is shown only once. Callers pass it in CALLGATE_TOKEN, or as `authorization: Bearer …`.");
    }
    outln!("{secret}");
}

async fn list<S>(client: &mut TokenServiceClient<S>, all: bool, form: OutputFormat) -> anyhow::Result<()>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<StdError> + Send,
{
    let (mut page_token, mut shown) = (String::new(), 0);
    loop {
        let request = ListTokensRequest { page_size: PAGE, page_token };
        let page = into_response(client.list_tokens(request).await)?;
        for token in page.tokens.iter().filter(|token| all || token.revoke_time.is_none()) {
            form.print_item(token, |token| outln!("{}", describe_token(token)))?;
            shown += 1;
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if shown == 0 && !form.json {
        outln!("No tokens.");
    }
    Ok(())
}

fn describe_token(token: &Token) -> String {
    let role = |role: v1::Role| role.as_str_name().trim_start_matches("ROLE_").to_lowercase();
    let roles: Vec<String> = token.roles().map(role).collect();
    let mut text = format!("{}  {}  {}", token.token_id, token.name, roles.join(","));
    let parts = [
        (!token.groups.is_empty()).then(|| format!("groups {}", token.groups.join(","))),
        (!token.agent_pattern.is_empty()).then(|| format!("agents {}", token.agent_pattern)),
        token.any_session.then(|| "any session".to_owned()),
        Some(format!("created {} by {}", at(token.create_time.as_ref()), token.created_by)),
        token.expire_time.as_ref().map(|time| format!("expires {}", at(Some(time)))),
        token.last_use_time.as_ref().map(|time| format!("used {}", at(Some(time)))),
        token.revoke_time.as_ref().map(|time| format!("revoked {}", at(Some(time)))),
    ];
    for part in parts.into_iter().flatten() {
        text.push_str("  ");
        text.push_str(&part);
    }
    text
}
