//! State shared by the hooks of one conversation: a small file per session, for hosts without turn numbers or
//! compaction events. If lost, two runs are merged.

use std::{collections::BTreeMap, fs, path::PathBuf};

use callgate_proto::v1::RecordRequest;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    hooks::{HookMemory, leave},
    hosts::{Host, HostFile},
    pending_call::{self, PendingCall},
};
use callgate_net::clock::Clock;

/// State files of one host's sessions.
pub(super) struct SessionFiles {
    folder: Option<PathBuf>,
    /// The pending call of this hook.
    asked: Mutex<Option<PendingCall>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct KnownSession {
    /// Number of user turns.
    runs: u64,
    /// True while the model needs a summary.
    owes: bool,
    /// Texts kept for the model.
    kept: Vec<String>,
    /// Calls at the user's prompt, each with its approval request.
    asked: BTreeMap<String, String>,
    /// Tools whose calls are at the host's prompt.
    at_prompt: Vec<String>,
}

impl SessionFiles {
    pub(super) fn of(host: Host) -> Self {
        let folder = pending_call::folder("hooks").map(|folder| folder.join(host.as_str()));
        Self { folder, asked: Mutex::default() }
    }

    fn path(&self, session: &str) -> Option<PathBuf> {
        // A session's name is the host's, and no path.
        Some(self.folder.as_ref()?.join(&hex::encode(Sha256::digest(session))[..32]))
    }

    /// Folder of pending calls.
    fn calls(&self, session: &str) -> Option<PathBuf> {
        Some(self.path(session)?.with_extension("asked"))
    }

    /// The pending call of this hook, if unanswered.
    pub(super) fn unanswered_call(&self) -> Option<PendingCall> {
        self.asked.lock().take()
    }

    /// Pending calls of killed hooks of the session, except this call.
    pub(super) fn take_abandoned_calls(&self, session: &str, but: Option<&str>) -> Vec<PendingCall> {
        let left = self.calls(session).map(|folder| PendingCall::take_abandoned(&folder)).unwrap_or_default();
        left.into_iter().filter(|(_, report)| Some(&*report.call_id) != but).map(|(asked, _)| asked).collect()
    }

    fn open_session(&self, session: &str) -> KnownSession {
        let text = self.path(session).and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Write errors are ignored: the hook continues without memory.
    fn change(&self, session: &str, change: impl FnOnce(&mut KnownSession)) {
        let (Some(path), mut known) = (self.path(session), self.open_session(session)) else { return };
        change(&mut known);
        let _ = path.parent().map(fs::create_dir_all);
        let _ = serde_json::to_string(&known).map(|text| fs::write(path, text));
    }
}

impl HookMemory for SessionFiles {
    fn run(&self, session: &str) -> Option<String> {
        let runs = self.open_session(session).runs;
        (runs > 0).then(|| format!("turn-{runs}"))
    }

    fn begin_run(&self, session: &str) {
        self.change(session, |known| known.runs += 1);
    }

    fn owe(&self, session: &str) {
        self.change(session, |known| known.owes = true);
    }

    fn is_owed(&self, session: &str) -> bool {
        let owes = self.open_session(session).owes;
        if owes {
            self.change(session, |known| known.owes = false);
        }
        owes
    }

    fn keep(&self, session: &str, text: &str) {
        self.change(session, |known| known.kept.push(text.to_owned()));
    }

    fn take_kept_texts(&self, session: &str) -> Option<String> {
        let kept = self.open_session(session).kept;
        if kept.is_empty() {
            return None;
        }
        self.change(session, |known| known.kept.clear());
        Some(kept.join("\n"))
    }

    fn begins(&self, cancellation: &RecordRequest) {
        let session = cancellation.caller.as_ref().map_or("", |caller| &caller.session_id);
        // A host may run the tool of a hook that was killed.
        let killed = RecordRequest { not_started: false, ..cancellation.clone() };
        let asked = self.calls(session).and_then(|folder| PendingCall::note(&folder, &killed));
        *self.asked.lock() = asked;
    }

    fn is_answered(&self) {
        if let Some(asked) = self.unanswered_call() {
            asked.forget();
        }
    }

    fn ask(&self, session: &str, call_id: &str, question: &str) {
        self.change(session, |known| drop(known.asked.insert(call_id.to_owned(), question.to_owned())));
    }

    fn take_request(&self, session: &str, call_id: &str) -> Option<String> {
        let asked = self.open_session(session).asked.remove(call_id)?;
        self.change(session, |known| drop(known.asked.remove(call_id)));
        Some(asked)
    }

    fn take_unanswered_requests(&self, session: &str) -> Vec<String> {
        let asked = self.open_session(session).asked;
        if !asked.is_empty() {
            self.change(session, |known| known.asked.clear());
        }
        asked.into_values().collect()
    }

    fn at_prompt(&self, session: &str, tool: &str) {
        self.change(session, |known| known.at_prompt.push(tool.to_owned()));
    }

    fn has_run(&self, session: &str, tool: &str) {
        if self.open_session(session).at_prompt.iter().any(|waiting| waiting == tool) {
            self.change(session, |known| leave(&mut known.at_prompt, tool));
        }
    }

    fn left_at_prompt(&self, session: &str) -> Vec<String> {
        let at_prompt = self.open_session(session).at_prompt;
        if !at_prompt.is_empty() {
            self.change(session, |known| known.at_prompt.clear());
        }
        at_prompt
    }

    fn forget(&self, session: &str) {
        // One that is taken up again has its summary to come.
        if !self.open_session(session).owes {
            let _ = self.calls(session).map(fs::remove_dir_all);
            let _ = self.path(session).map(fs::remove_file);
        }
    }

    fn witness(&self, file: &HostFile) -> Option<String> {
        super::witness::of(file.clone())
    }

    fn stamp(&self) -> String {
        Clock::System.now().as_millis().to_string()
    }
}
