//! What the hooks of one conversation know of each other: a small file a session, for hosts that number no turns, or
//! say nothing once a context is compacted. Lost, it costs a run that is not told from the last.

use std::{collections::BTreeMap, fs, path::PathBuf};

use callgate_proto::v1::RecordRequest;
use etcetera::BaseStrategy as _;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    hooks::{Memory, leave},
    hosts::{File, Host},
};
use callgate_net::clock::Clock;

/// The files of one host's sessions.
pub(super) struct Remembered {
    folder: Option<PathBuf>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Known {
    /// User turns so far.
    runs: u64,
    /// True while the model is owed a summary.
    owes: bool,
    /// What it is still to be told.
    kept: Vec<String>,
    /// Calls that the host's user is asked about, each with its question.
    asked: BTreeMap<String, String>,
    /// Tools whose calls are at the host's prompt.
    at_prompt: Vec<String>,
}

impl Remembered {
    pub(super) fn of(host: Host) -> Self {
        let home = etcetera::choose_base_strategy().ok();
        let state = home.map(|home| home.state_dir().unwrap_or_else(|| home.data_dir()));
        Self { folder: state.map(|state| state.join("callgate").join("hooks").join(host.as_str())) }
    }

    fn path(&self, session: &str) -> Option<PathBuf> {
        // A session's name is the host's, and no path.
        Some(self.folder.as_ref()?.join(&hex::encode(Sha256::digest(session))[..32]))
    }

    /// The files of calls of a session that were asked about by this process and got no answer.
    pub(super) fn asked_by_this(&self, session: &str) -> Vec<PathBuf> {
        let mark = format!(".{}", std::process::id());
        let folder = self.path(session).map(|path| path.with_extension("asked"));
        let entries = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
        let files = entries.map(|entry| entry.path());
        files.filter(|file| file.to_string_lossy().ends_with(&mark)).collect()
    }

    /// Forgets those files.
    pub(super) fn drop_asked(&self, session: &str) {
        self.asked_by_this(session).iter().for_each(|file| drop(fs::remove_file(file)));
    }

    /// Where it is noted that a call is asked about, by this process.
    fn asked_file(&self, session: &str, call_id: &str) -> Option<PathBuf> {
        let name = format!("{}.{}", &hex::encode(Sha256::digest(call_id))[..32], std::process::id());
        Some(self.path(session)?.with_extension("asked").join(name))
    }

    fn known(&self, session: &str) -> Known {
        let text = self.path(session).and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Who cannot write goes on as if there were nothing to remember.
    fn change(&self, session: &str, change: impl FnOnce(&mut Known)) {
        let (Some(path), mut known) = (self.path(session), self.known(session)) else { return };
        change(&mut known);
        let _ = path.parent().map(fs::create_dir_all);
        let _ = serde_json::to_string(&known).map(|text| fs::write(path, text));
    }
}

impl Memory for Remembered {
    fn run(&self, session: &str) -> Option<String> {
        let runs = self.known(session).runs;
        (runs > 0).then(|| format!("turn-{runs}"))
    }

    fn begin_run(&self, session: &str) {
        self.change(session, |known| known.runs += 1);
    }

    fn owe(&self, session: &str) {
        self.change(session, |known| known.owes = true);
    }

    fn is_owed(&self, session: &str) -> bool {
        let owes = self.known(session).owes;
        if owes {
            self.change(session, |known| known.owes = false);
        }
        owes
    }

    fn keep(&self, session: &str, text: &str) {
        self.change(session, |known| known.kept.push(text.to_owned()));
    }

    fn kept(&self, session: &str) -> Option<String> {
        let kept = self.known(session).kept;
        if kept.is_empty() {
            return None;
        }
        self.change(session, |known| known.kept.clear());
        Some(kept.join("\n"))
    }

    fn begins(&self, cancellation: &RecordRequest) {
        let session = cancellation.caller.as_ref().map_or("", |caller| &caller.session_id);
        let Some(file) = self.asked_file(session, &cancellation.call_id) else { return };
        let _ = file.parent().map(fs::create_dir_all);
        // Left by a hook that was killed and had the same process id: its call may run.
        self.drop_asked(session);
        let _ = fs::write(file, cancellation.encode_to_vec());
    }

    fn is_answered(&self, session: &str, call_id: &str) {
        let _ = self.asked_file(session, call_id).map(fs::remove_file);
    }

    fn ask(&self, session: &str, call_id: &str, question: &str) {
        self.change(session, |known| drop(known.asked.insert(call_id.to_owned(), question.to_owned())));
    }

    fn asked(&self, session: &str, call_id: &str) -> Option<String> {
        let asked = self.known(session).asked.remove(call_id)?;
        self.change(session, |known| drop(known.asked.remove(call_id)));
        Some(asked)
    }

    fn unanswered(&self, session: &str) -> Vec<String> {
        let asked = self.known(session).asked;
        if !asked.is_empty() {
            self.change(session, |known| known.asked.clear());
        }
        asked.into_values().collect()
    }

    fn at_prompt(&self, session: &str, tool: &str) {
        self.change(session, |known| known.at_prompt.push(tool.to_owned()));
    }

    fn has_run(&self, session: &str, tool: &str) {
        if self.known(session).at_prompt.iter().any(|waiting| waiting == tool) {
            self.change(session, |known| leave(&mut known.at_prompt, tool));
        }
    }

    fn left_at_prompt(&self, session: &str) -> Vec<String> {
        let at_prompt = self.known(session).at_prompt;
        if !at_prompt.is_empty() {
            self.change(session, |known| known.at_prompt.clear());
        }
        at_prompt
    }

    fn forget(&self, session: &str) {
        // One that is taken up again has its summary to come.
        if !self.known(session).owes {
            let _ = self.path(session).map(|path| fs::remove_dir_all(path.with_extension("asked")));
            let _ = self.path(session).map(fs::remove_file);
        }
    }

    fn witness(&self, file: &File) -> Option<String> {
        super::witness::of(file.clone())
    }

    fn stamp(&self) -> String {
        Clock::System.now().as_millis().to_string()
    }
}
