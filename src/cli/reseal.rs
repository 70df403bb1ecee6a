//! `callgate keys`: key usage of a tenant's stored values, and re-encryption with the newest key.

use std::sync::Arc;

use anyhow::bail;
use clap::{Args, Subcommand};
use tonic::{body::Body, client::GrpcService, codegen::StdError};

use super::{privacy::Opening, target::CommandTarget};
use callgate_client::{
    json::OutputFormat,
    remote::{ActorArgs, into_response, refusal},
};
use callgate_proto::v1::{
    ReencryptRequest, ReencryptResponse, StorageKey, privacy_service_client::PrivacyServiceClient,
};
use callgate_server::grpc;

/// Arguments of `callgate keys`.
#[derive(Debug, Args)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// List a tenant's keys, each with the number of rows encrypted with it
    List(KeyTargetArgs),
    /// Re-encrypt values under older keys, and plaintext values, with the newest key
    Reencrypt(KeyTargetArgs),
}

#[derive(Debug, Args)]
struct KeyTargetArgs {
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    form: OutputFormat,
    #[command(flatten)]
    place: CommandTarget,
}

/// Runs `callgate keys`.
pub(super) async fn run(args: KeysArgs) -> anyhow::Result<()> {
    let (KeyTargetArgs { opening, form, place }, validate_only) = match args.command {
        KeysCommand::List(of) => (of, true),
        KeysCommand::Reencrypt(of) => (of, false),
    };
    let request = ReencryptRequest { validate_only };
    let Some((gate, tenant)) = place.database().await? else {
        return resealing(PrivacyServiceClient::new(place.remote.connect().await?), request, form, &place.by).await;
    };
    opening.open(&gate, tenant).await?;
    let done = resealing(grpc::privacy_of(Arc::clone(&gate.privacy), tenant), request, form, &place.by).await;
    gate.close().await;
    done
}

async fn resealing<S>(
    mut client: PrivacyServiceClient<S>,
    request: ReencryptRequest,
    form: OutputFormat,
    by: &ActorArgs,
) -> anyhow::Result<()>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<StdError> + Send,
{
    let mut answers = into_response(client.reencrypt(by.sign_request(request)?).await)?;
    let mut last = ReencryptResponse::default();
    while let Some(told) = answers.message().await.map_err(|status| refusal(&status))? {
        if told.percent < 100 {
            errln!("{} %", told.percent);
        }
        last = told;
    }
    if last.percent < 100 {
        bail!("the server interrupted it; run it again to continue");
    }
    if form.json {
        return form.print_item(&last, |_| ());
    }
    if !request.validate_only {
        outln!("Rows re-encrypted: {}.", last.rows);
    }
    for (place, key) in last.keys.iter().enumerate() {
        outln!("{}", describe_key(key, place == 0));
    }
    if last.unencrypted_rows > 0 {
        outln!("Unencrypted: {} rows.", last.unencrypted_rows);
    }
    Ok(())
}

fn describe_key(StorageKey { key_id, rows, is_available }: &StorageKey, is_newest: bool) -> String {
    let what = match (is_available, rows) {
        (false, _) => "is needed, but missing on the server",
        (true, _) if is_newest => "encrypts new values",
        (true, 0) => "is unused",
        (true, _) => "is needed",
    };
    format!("{key_id}: {rows} rows; {what}")
}
