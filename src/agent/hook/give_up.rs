//! Cancellation of unanswered calls: the host does not run such a call, but the server may have permitted it. A
//! detached process cancels it once the server is reachable, so that the permit gets an outcome.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use prost::Message as _;
use tokio::time::timeout;
use tonic::Status;

use super::{CONNECT, HookArgs, plane::GateConnection};
use crate::{
    hooks::{HookServer as _, until_called_off},
    host::is_hook_program,
    pending_call::PendingCall,
};
use callgate_proto::v1::RecordRequest;

/// Starts the detached process.
pub(super) fn start(args: &HookArgs, asked: PendingCall) {
    let Ok(program) = std::env::current_exe() else { return };
    let (mut command, (file, lock)) = (Command::new(&program), asked.handed_on());
    command.args((!is_hook_program(&program)).then_some("hook"));
    command.args([args.host.as_str(), "--give-up"]).arg(file);
    // Settings of the environment are inherited.
    command.args(args.remote.args().unwrap_or_default());
    command.stdin(lock).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let _ = command.spawn();
}

/// Cancels the call described in a file, retrying until the server accepts it.
pub(super) fn call_off(args: &HookArgs, file: &Path) -> ExitCode {
    let report = fs::read(file).ok().and_then(|bytes| RecordRequest::decode(&*bytes).ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Some(report), Ok(runtime)) = (report, runtime) else { return ExitCode::FAILURE };
    let tell = || async {
        let late = |_| Status::deadline_exceeded("the server takes no connection");
        let wire = timeout(CONNECT, args.remote.connect()).await.map_err(late)?;
        let wire = wire.map_err(|error| Status::unavailable(format!("{error:#}")))?;
        GateConnection(wire).record(report.clone()).await
    };
    runtime.block_on(until_called_off(tell));
    let _ = fs::remove_file(file);
    ExitCode::SUCCESS
}
