//! Texts for the model in a story, verbatim as the gate would return them.

use std::sync::LazyLock;

use super::stage::Stage;
use crate::{
    domain::{call::Proposal, finding::CallRef, previous::StoredResult, report::OutcomeReport, verdict::Verdict},
    engine::{
        RecordResult,
        envelope::{self, RefusalContext, ToolResult},
    },
    policy::Policy,
};

impl Stage {
    pub(super) fn text_of(&self, policy: &Policy, proposal: &Proposal, verdict: &Verdict) -> String {
        let reused = verdict.winner().and_then(|winner| winner.reuse.as_ref());
        let beside = RefusalContext {
            suggested_next: &policy.suggested_next(proposal),
            previous: reused.and_then(|call| self.stored_result(call)),
            previous_max: policy.previous_result_bytes(),
            edited: self.edited.as_ref(),
        };
        let text = envelope::refusal(verdict, &beside).map(|text| render_lines(&text));
        let hint = verdict.context_hint().map(|hint| format!("next_context_hint: {hint}"));
        let said: Vec<String> = text.into_iter().chain(hint).collect();
        format!("{}\n{}", verdict.decision.as_str(), said.join("\n"))
    }

    fn stored_result(&self, call: &CallRef) -> Option<&StoredResult> {
        static INFERRED: LazyLock<StoredResult> =
            LazyLock::new(|| StoredResult { is_inferred: true, ..StoredResult::default() });
        let session = self.world.tree(&call.session).and_then(|tree| tree.sessions.get(&call.session));
        let mut same = session.into_iter().flat_map(|session| &session.calls).filter(|one| one.call_id == call.call_id);
        let is_inferred = same.any(|one| one.success().is_some_and(|outcome| outcome.is_inferred));
        if is_inferred { Some(&INFERRED) } else { self.results.get(call.call_id.as_str()) }
    }

    pub(super) fn text_of_report(&self, report: &OutcomeReport, recorded: &RecordResult) -> String {
        let tree = self.world.tree(&report.session);
        let call = tree.and_then(|tree| tree.sessions.get(&report.session)?.find_reported_call(&report.call_id));
        let Some(call) = call else { return String::new() };
        let text = envelope::envelope_of_report(call, self.policy.tool(&call.tool).empty_means, recorded);
        let hint = recorded.context_hint.as_ref().map(|hint| format!("\nnext_context_hint: {hint}"));
        format!("RECORDED\n{}{}", render_lines(&text), hint.unwrap_or_default())
    }
}

/// A member a line, so that a person can review it.
fn render_lines(text: &ToolResult) -> String {
    let value: serde_json::Value = serde_json::from_str(&text.json).expect("an object");
    let members = value.as_object().expect("an object").iter();
    members.map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join("\n")
}
