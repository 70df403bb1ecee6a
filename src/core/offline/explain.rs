//! Explanation of the rules without a finding for a stored call: their input is rebuilt from the tree's calls before
//! it.

use super::{
    judge::{outcome, request},
    trace::TraceRow,
    world::World,
};
use crate::{
    domain::{
        call::{Call, Proposal},
        effect::EffectKind,
        ids::{DEFAULT_TENANT, ToolName},
        previous::{Previous, PreviousExecution, RequestStatus},
        time::{Timestamp, wait_in_words},
        tree::{CallTree, Session},
    },
    engine::SharedState,
    policy::Policy,
    rules::{self, Mode, RecordedCall, RuleContext, same_call},
};

/// Explanation of one rule without a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// The rule.
    pub rule: &'static str,
    /// Mode of the rule.
    pub mode: Mode,
    /// Explanation; none for a rule with a finding.
    pub why: Option<String>,
}

/// Explanation of a call, rule by rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallExplanation {
    /// The rules in their order.
    pub rules: Vec<Silence>,
    /// Input of the rules, as names and texts; or why it is unknown.
    pub seen: Result<Vec<(&'static str, String)>, String>,
}

/// Query for an explanation.
#[derive(Debug, Clone, Copy)]
pub struct Explain<'a> {
    /// Judging policy.
    pub policy: &'a Policy,
    /// The call's tool.
    pub tool: &'a ToolName,
    /// The rules with findings.
    pub spoke: &'a [&'a str],
    /// Approver of the call.
    pub approved_by: Option<&'a str>,
}

/// Explains a call. `calls` are those of its tree up to it, itself the last; or why they are unknown.
#[must_use]
pub fn explain(asked: &Explain<'_>, calls: Result<&[TraceRow], String>) -> CallExplanation {
    let Explain { policy, tool, spoke, approved_by } = *asked;
    let seen = calls.and_then(|calls| RuleInput::judge_again(policy, calls));
    let past = seen.as_ref().ok().map(RuleInput::past);
    let of_call = RecordedCall {
        tool: tool.as_str(),
        spec: policy.tool(tool),
        declared: policy.tools().any(|(declared, _)| declared == tool.as_str()),
        has_schema: policy.has_schema(tool),
        approved_by,
        cx: seen.as_ref().ok().zip(past.as_ref()).map(|(seen, past)| seen.context(policy, past)),
    };
    let silence = |slot: &rules::RuleSlot| Silence {
        rule: slot.rule.id,
        mode: slot.mode,
        why: match slot.mode {
            _ if spoke.contains(&slot.rule.id) => None,
            Mode::Off => Some("off".to_owned()),
            _ => Some(slot.silent(&of_call)),
        },
    };
    let rules = policy.rules.iter().map(silence).collect();
    CallExplanation { rules, seen: seen.map(|seen| seen.facts(policy, spoke)) }
}

/// Input of the rules: the call tree before the call, and its proposal.
#[derive(Debug)]
struct RuleInput {
    tree: CallTree,
    proposal: Proposal,
    held: Option<RequestStatus>,
    previous: Option<Previous>,
    /// State beyond the call tree, which stored calls lack.
    shared: SharedState,
    now: Timestamp,
}

impl RuleInput {
    fn judge_again(policy: &Policy, calls: &[TraceRow]) -> Result<Self, String> {
        let Some((it, before)) = calls.split_last() else { return Err("its calls are not stored".to_owned()) };
        let mut world = World::new(DEFAULT_TENANT);
        let mut ran = policy.clone();
        ran.mode = Mode::Shadow;
        for row in before {
            let Some(now) = row.at else { continue };
            // A call refused then did not run, and counts as refused.
            let by = if row.refused { policy } else { &ran };
            let Ok((verdict, _)) = world.evaluate(by, &by.propose(request(row)), None, now) else { continue };
            if let Some(report) = outcome(row).filter(|_| verdict.permit.is_some()) {
                let _ = world.record_as(by, &report, row.estimated, now);
            }
        }
        let now = it.at.ok_or("it has no time")?;
        let tree = world.trees().next().cloned();
        let tree = tree.unwrap_or_else(|| CallTree::new(DEFAULT_TENANT, it.root().clone(), now));
        let proposal = policy.propose(request(it));
        let previous = tree.previous(proposal.fingerprint, None, now);
        let held = tree.valid_request(&proposal, &policy.version, previous.as_ref(), now);
        Ok(Self { tree, proposal, held, previous, shared: SharedState::default(), now })
    }

    fn session(&self) -> Option<&Session> {
        self.tree.sessions.get(&self.proposal.request.session).map(Box::as_ref)
    }

    fn past(&self) -> Vec<&Call> {
        rules::past(self.session(), &self.proposal, true, false)
    }

    fn context<'a>(&'a self, policy: &Policy, past: &'a [&'a Call]) -> RuleContext<'a> {
        RuleContext {
            tree: &self.tree,
            session: self.session(),
            past,
            proposal: &self.proposal,
            held: self.held.as_ref(),
            previous: self.previous.as_ref(),
            creation: None,
            bulkhead: None,
            cooldown: None,
            turn: None,
            halts: &self.shared.halts,
            self_corrections: &self.shared.profiles.self_corrections,
            counters: &self.shared.counters,
            resumes: false,
            is_new: true,
            batch: None,
            depth: 0,
            window: policy.rules.window,
            now: self.now,
        }
    }

    fn facts(&self, policy: &Policy, spoke: &[&str]) -> Vec<(&'static str, String)> {
        let effect = &self.proposal.effect;
        let resource = effect.resource.as_ref().map_or("anything", |resource| resource.as_str());
        let does = match effect.kind {
            EffectKind::Unknown => "its effect is unknown".to_owned(),
            kind => format!("{} on {resource}", kind.as_str()),
        };
        let declared = if self.proposal.declared { "declared" } else { "not declared" };
        let before = match &self.previous {
            None if spoke.contains(&same_call::RULE.id) => {
                "not in this call tree under another call_id; same_call says what it found".to_owned()
            }
            None => "the same call was not made in this call tree".to_owned(),
            Some(previous) => format!(
                "{}, asked for {} earlier: {}",
                previous.call.call_id,
                wait_in_words(self.now.since_ms(previous.last_at)),
                describe_execution(&previous.past)
            ),
        };
        let run = match self.context(policy, &[]).run() {
            None => "it is the first of its run".to_owned(),
            Some(run) => {
                format!("{} judged before it, {} of them let through", run.spent.steps, run.spent.calls)
            }
        };
        vec![
            ("tool", format!("{declared}, {does}")),
            ("known by", self.proposal.fingerprint.to_hex()),
            ("before", before),
            ("run", run),
        ]
    }
}

const fn describe_execution(past: &PreviousExecution) -> &'static str {
    match past {
        PreviousExecution::InFlight => "it was running",
        PreviousExecution::Unknown => "it may have happened",
        PreviousExecution::Succeeded => "it had succeeded",
        PreviousExecution::Failed(_) => "it had failed",
        PreviousExecution::Cancelled => "it had been called off",
    }
}
