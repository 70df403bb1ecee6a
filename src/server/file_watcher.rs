//! Watcher of a policy file: a saved text is active a second or two later, if it is a valid policy; SIGHUP reads it at
//! once.
//!
//! Replicas with different files: the one that applies last wins. A file that has not changed since this process
//! applied it is never applied again, neither by a poll nor by SIGHUP, so it cannot undo a later activation. A start
//! applies its file whenever another policy is active.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    gate::{Apply, ApplyOutcome, Author, Policies, compile_policy},
    policy_file::read_policy,
};
use callgate_core::{
    domain::{audit::Actor, ids::DEFAULT_TENANT},
    policy,
};

/// Polling interval of the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time for which a changed file has to stay as it is: half of a policy may well be a policy too.
const SETTLED: Duration = Duration::from_millis(200);

/// Makes the file's policy the active one, unless it is already.
pub(super) async fn apply(policies: &Policies, path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.display();
    let note = format!("serve --policy {name}");
    let author = Author { by: &Actor::from("serve"), note: &note, expected: None };
    match policies.apply_policy(DEFAULT_TENANT, text, &author, Apply::Activate).await {
        Ok(ApplyOutcome::Stored { .. }) => Ok(()),
        Ok(ApplyOutcome::Invalid(errors)) => {
            bail!("the policy cannot be used, {} problem(s): {}", errors.len(), list_errors(path, &errors))
        }
        Ok(ApplyOutcome::Changed { .. }) => bail!(
            "the policy could not be activated, because other policies were activated at the same time \
             again and again; start again"
        ),
        Err(error) => Err(error).context("the policy cannot be stored"),
    }
}

fn list_errors(path: &Path, errors: &[impl Display]) -> String {
    let errors: Vec<String> = errors.iter().map(|error| format!("{}: {error}", path.display())).collect();
    errors.join("; ")
}

/// A followed file.
#[derive(Debug)]
pub(super) struct FollowedFile {
    path: PathBuf,
    hangup: Signal,
    /// Hash of the text that this process applied last.
    applied: String,
    /// Hash of the last text, valid or not.
    seen: String,
    /// A problem was logged, and persists.
    troubled: bool,
    /// A start with the file as it was read last would fail.
    is_rejected: bool,
}

impl FollowedFile {
    /// Listens to SIGHUP from now on; `text` is applied first.
    pub(super) fn new(path: &Path, text: &str) -> anyhow::Result<Self> {
        let hangup = signal(SignalKind::hangup()).context("no handler for SIGHUP can be installed")?;
        let applied = policy::hash(text);
        Ok(Self { path: path.to_owned(), hangup, seen: applied.clone(), applied, troubled: false, is_rejected: false })
    }

    /// Applies the file whenever it changes, until it is dropped. An invalid one is logged once, with all its problems,
    /// and the active policy stays.
    pub(super) async fn run(mut self, policies: Arc<Policies>) {
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let told = tokio::select! {
                _ = tick.tick() => false,
                _ = self.hangup.recv() => true,
            };
            let changed = self.read_change(told).await;
            policies.server.metrics().policy_file(self.is_rejected);
            let Some(text) = changed else { continue };
            let hash = policy::hash(&text);
            if let Err(errors) = compile_policy(&text).await {
                let error = list_errors(&self.path, &errors);
                tracing::error!(%error, "the changed policy file cannot be used; the active policy stays as it was");
                (self.seen, self.troubled, self.is_rejected) = (hash, false, true);
                continue;
            }
            match apply(&policies, &self.path, &text).await {
                Ok(()) => {
                    (self.applied, self.seen) = (hash.clone(), hash);
                    (self.troubled, self.is_rejected) = (false, false);
                }
                // It is tried again at the next look.
                Err(error) => self.trouble(told, "the changed policy file could not be applied yet", &error),
            }
        }
    }

    /// The file's text, if it is new and the file is stable; on a signal (`told`), a known bad text is new too.
    async fn read_change(&mut self, told: bool) -> Option<String> {
        let text = self.read(told)?;
        let hash = policy::hash(&text);
        if hash == self.applied {
            (self.seen, self.troubled, self.is_rejected) = (hash, false, false);
            if told {
                tracing::info!("the policy file has not changed since it was applied; nothing was done");
            }
            return None;
        }
        if told {
            return Some(text);
        }
        if hash == self.seen {
            return None;
        }
        sleep(SETTLED).await;
        self.read(told).filter(|again| *again == text)
    }

    fn read(&mut self, told: bool) -> Option<String> {
        match read_policy(&self.path) {
            Ok(text) => Some(text),
            Err(error) => {
                self.trouble(told, "the policy file cannot be read; the active policy stays as it was", &error);
                self.is_rejected = true;
                None
            }
        }
    }

    fn trouble(&mut self, told: bool, what: &str, error: &anyhow::Error) {
        if told || !self.troubled {
            tracing::warn!(error = %format!("{error:#}"), "{what}");
        }
        self.troubled = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_still_being_written_waits_for_the_next_look() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("policy.yaml");
        let write = |text: &str| std::fs::write(&path, text).expect("writable");
        let mut follow = FollowedFile::new(&path, "applied").expect("a signal");
        write("half");
        let mut look = Box::pin(follow.read_change(false));
        tokio::select! {
            biased;
            text = &mut look => panic!("{text:?} was not waited for"),
            () = std::future::ready(()) => write("half and whole"),
        }
        assert_eq!(look.await, None);
        assert_eq!(follow.read_change(false).await.as_deref(), Some("half and whole"));
        write("told");
        assert_eq!(follow.read_change(true).await.as_deref(), Some("told"));
        write("applied");
        assert_eq!(follow.read_change(true).await, None);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!((follow.read_change(false).await, follow.is_rejected), (None, true), "no start reads it");
        write("applied");
        assert_eq!((follow.read_change(false).await, follow.is_rejected), (None, false));
    }
}
