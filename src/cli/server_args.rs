//! Arguments that commands over a server have in common.

use clap::Args;

use callgate_client::{
    json::OutputFormat,
    remote::{ActorArgs, Remote},
};

/// Of a command that reads.
#[derive(Debug, Args)]
pub(super) struct ReadArgs {
    #[command(flatten)]
    pub(super) form: OutputFormat,
    #[command(flatten)]
    pub(super) remote: Remote,
}

/// Of a command that changes something.
#[derive(Debug, Args)]
pub(super) struct WriteArgs {
    #[command(flatten)]
    pub(super) by: ActorArgs,
    #[command(flatten)]
    pub(super) form: OutputFormat,
    #[command(flatten)]
    pub(super) remote: Remote,
}
