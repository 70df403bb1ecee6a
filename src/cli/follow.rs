//! Following a policy file: what an editor saves is active a second later, if it is a policy; SIGHUP looks at once.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{signal::unix, time::interval};

use super::read_policy;
use crate::{
    domain::ids::DEFAULT_TENANT,
    gate::{Applied, Apply, Author, Gate},
    policy,
};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Makes the file's policy the active one, unless it is already.
pub(super) async fn apply(gate: &Gate, path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.display();
    let note = format!("serve --policy {name}");
    let author = Author { by: "serve", note: &note, expected: None };
    match gate.apply_policy(DEFAULT_TENANT, text, &author, Apply::Activate).await {
        Ok(Applied::Stored { .. }) => Ok(()),
        Ok(Applied::Invalid(errors)) => {
            let errors: Vec<String> = errors.iter().map(|error| format!("\n  {name}: {error}")).collect();
            bail!("the policy cannot be used, {} problem(s):{}", errors.len(), errors.concat())
        }
        Ok(Applied::Changed { revision }) => bail!("revision {revision} was activated at the same time"),
        Err(error) => Err(error).context("the policy cannot be stored"),
    }
}

/// Applies the file whenever it changes, until it is told to end. A file that is no policy is said once, with all that
/// is wrong, and what was active goes on. An unchanged file is never applied over what somebody activated meanwhile.
pub(super) async fn follow(gate: Arc<Gate>, path: PathBuf, applied: String) {
    let mut seen = policy::hash(&applied);
    let mut tick = interval(LOOK_EVERY);
    let Ok(mut hangup) = unix::signal(unix::SignalKind::hangup()) else {
        tracing::error!("SIGHUP cannot be listened to; the policy file is not followed");
        return;
    };
    let mut unreadable = false;
    loop {
        let told = tokio::select! {
            _ = tick.tick() => false,
            _ = hangup.recv() => true,
        };
        let text = match read_policy(&path) {
            Ok(text) => text,
            Err(error) => {
                if !unreadable || told {
                    let error = format!("{error:#}");
                    tracing::warn!(%error, "the policy file cannot be read; what was active goes on");
                }
                unreadable = true;
                continue;
            }
        };
        unreadable = false;
        let hash = policy::hash(&text);
        if hash == seen && !told {
            continue;
        }
        match apply(&gate, &path, &text).await {
            Ok(()) => seen = hash,
            Err(error) => {
                // Said once for each text; a database that was away is asked again.
                let is_policy = policy::compile(&text).is_ok();
                tracing::error!(error = %format!("{error:#}"), "the changed policy file was not applied");
                if !is_policy {
                    seen = hash;
                }
            }
        }
    }
}
