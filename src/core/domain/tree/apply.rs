//! Fold of one event into a call tree.

use std::sync::Arc;

use super::{
    BATCH_CALLS, CALLS_MAX, CHANGES_MAX, CallTree, ChangedResource, FAILED_ARGUMENTS_MAX, HELD_MAX, PACE_MAX,
    PACE_TOKENS_MS, RunBreak, SHAPES_MAX, Session, SessionRun, TreeRate,
};
use crate::domain::{
    budget::BudgetSpend,
    call::Call,
    effect::{EffectKind, Resource},
    event::{Event, JudgmentEvent, SettledEvent},
    finding::{Decision, Finding, Level},
    ids::ToolName,
    outcome::{Outcome, OutcomeStatus},
    previous::IDLE_MS,
    reason::Reason,
    time::Timestamp,
};

impl CallTree {
    /// Folds one event. Events come in the order of their `seq`.
    pub fn apply(&mut self, event: &Event) {
        self.version = event.seq();
        self.last_at = event.at();
        match event {
            Event::Judged(judged) => self.apply_judgment(judged),
            Event::Settled(settled) => self.apply_report(settled),
            Event::Controlled(controlled) => self.apply_control(controlled),
        }
        self.keep_due(event);
    }

    fn apply_judgment(&mut self, event: &JudgmentEvent) {
        self.sessions.or_insert_with(&self.root, Box::default);
        let session = self.sessions.or_insert_with(&event.session, || {
            Box::new(Session { parent: event.parent.clone(), depth: event.depth, ..Session::default() })
        });
        if session.run.from != event.run_from {
            let (id, from) = (event.run.clone(), event.run_from);
            session.run = SessionRun { id, from, started_at: event.at, last_at: event.at, ..SessionRun::default() };
        }
        // Releases before stored a session that went on after idleness in its old run.
        if event.resumes {
            session.run.closed.clear();
        }
        session.run.add_time(event.at, event.round > 1);
        self.pace.count_judgment(event);
        for used in &event.uses {
            self.uses.insert(used.key.clone(), used.clone());
        }
        for spent in [&mut self.spent, &mut session.run.spent] {
            spent.count_judgment(event);
        }
        if event.permit.is_some() {
            self.open_calls += 1;
            *self.by_tool.or_insert_with(&event.tool, u64::default) += 1;
        }
        // Names that come again and again are kept once.
        let tool = self.by_tool.key(&event.tool).unwrap_or(&event.tool).clone();
        if event.permit.is_some() {
            *session.run.by_tool.or_insert_with(&tool, u64::default) += 1;
        }
        for finding in event.findings.iter().filter(|f| f.enforced && f.level == Some(Level::Break)) {
            session.run.close(finding, event);
        }
        session.put_call(event, tool);
        let forgotten = session.forget();
        self.forgotten_change = self.forgotten_change.max(forgotten);
        self.changing(event);
        self.use_up(event);
    }

    /// Records the resource that a permitted write changes.
    fn changing(&mut self, event: &JudgmentEvent) {
        let (EffectKind::Write, Some(permit)) = (event.effect.kind, &event.permit) else { return };
        let Some(resource) = event.effect.resource.clone().filter(Resource::is_named) else { return };
        let (tool, fingerprint) = (event.tool.clone(), event.fingerprint);
        self.changes.push_back(ChangedResource { resource, tool, fingerprint, seq: permit.seq });
        if self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
        }
    }

    fn apply_report(&mut self, event: &SettledEvent) {
        self.pace.tokens(event.at, event.usage.tokens());
        let Some(session) = self.sessions.get_mut(&event.session) else {
            return;
        };
        session.run.add_time(event.at, false);
        let (run_from, run_spent) = (session.run.from, &mut session.run.spent);
        let found = session.calls.iter_mut().rev().find(|call| {
            call.call_id == event.call_id && call.permit.as_ref().is_some_and(|permit| permit.seq == event.permit_seq)
        });
        let in_run = found.as_ref().is_some_and(|call| call.run_from == run_from);
        let mut books = vec![&mut self.spent];
        if in_run {
            books.push(run_spent);
        }
        books.iter_mut().for_each(|spent| spent.add_usage(event.usage.cost_micros, event.usage.tokens()));
        let Some(call) = found else { return };
        let was_open = call.is_open();
        let (tool, arguments) = (call.tool.clone(), call.arguments.clone());
        let Some(permit) = call.permit.as_mut() else { return };
        permit.ledger_revision = permit.ledger_revision.max(event.ledger_revision);
        if event.status == OutcomeStatus::Running {
            permit.lease_until = event.lease_until.unwrap_or(permit.lease_until);
            return;
        }
        // An unknown outcome stays charged until settled.
        if event.status != OutcomeStatus::Unknown {
            let reserved = std::mem::take(&mut permit.reserved_micros);
            books.iter_mut().for_each(|spent| spent.reserved_micros = spent.reserved_micros.saturating_sub(reserved));
        }
        // A tree that was read while others wrote may know a call that its total does not count yet.
        self.open_calls = self.open_calls.saturating_sub(u32::from(was_open));
        // A failed call's follow-up is compared with it.
        let kept = event.failure.is_some()
            && call.arguments.as_ref().is_some_and(|arguments| arguments.len() <= FAILED_ARGUMENTS_MAX);
        if !kept {
            call.arguments = None;
        }
        if matches!(event.status, OutcomeStatus::Error | OutcomeStatus::Cancelled) {
            self.changes.retain(|changed| changed.seq != event.permit_seq);
        }
        call.witness = event.witness;
        let was_left_open = call.outcome.as_ref().is_some_and(Outcome::allows_late_success);
        call.outcome = Some(Outcome {
            status: event.status,
            failure: event.failure,
            digest: event.digest,
            marks: event.marks.clone(),
            news: event.news,
            progress: event.progress,
            result_bytes: event.result_bytes.map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
            at: event.at,
            seq: event.seq,
            advice: event.advice.map(Box::new),
            circumstances: event.circumstances.map(Box::new),
            error_line: event.error_line.clone(),
            effect_open: event.effect_open,
            is_late: was_left_open && event.status == OutcomeStatus::Success,
            key_sent: event.key_sent,
            is_inferred: event.inferred,
            is_double: event.double_effect,
            is_by_operator: false,
        });
        if let (OutcomeStatus::Success, Some(digest)) = (event.status, &event.digest) {
            let fingerprint = call.fingerprint;
            session.remember(&fingerprint, digest);
        }
        if event.kept {
            session.advance_plan(&tool, event.seq);
            self.keep(event, tool, arguments.as_deref());
        }
    }
}

impl Session {
    /// Stores the judged call: replaces the open one of the same request, otherwise adds a new one.
    fn put_call(&mut self, event: &JudgmentEvent, tool: ToolName) {
        let known = self.calls.iter_mut().rev().find(|call| call.call_id == event.call_id);
        if let Some(call) = known.filter(|call| call.was_refused()) {
            call.at = event.at;
            call.run_from = event.run_from;
            call.decision = event.decision;
            call.reason = event.reason;
            call.findings.clone_from(&event.findings);
            call.round = event.round;
            call.permit.clone_from(&event.permit);
            call.arguments = event.permit.is_some().then(|| event.arguments.clone()).flatten();
            call.shape.clone_from(&event.shape);
            call.witness = event.witness;
            // A row stored by another replica holds the request as first made, not its answer.
            let is_known =
                call.approval.as_ref().map(|known| &known.id) == event.approval.as_ref().map(|asked| &asked.id);
            if !is_known {
                call.approval.clone_from(&event.approval);
            }
            call.policy.clone_from(&event.policy);
            call.follow_up.clone_from(&event.follow_up);
            return;
        }
        // A ring that doubles is half empty in most sessions, and a call is large.
        if self.calls.len() == self.calls.capacity() {
            self.calls.reserve_exact(1 + self.calls.len() / 8);
        }
        let before = self.calls.back();
        let agent = before.map(|call| &call.agent).filter(|agent| event.agent == **agent).unwrap_or(&event.agent);
        let policy = before.map(|call| &call.policy).filter(|policy| event.policy == **policy).unwrap_or(&event.policy);
        let (agent, policy) = (agent.clone(), Arc::clone(policy));
        self.calls.push_back(Call {
            call_id: event.call_id.clone(),
            run_from: event.run_from,
            batch: event.batch,
            agent,
            tool,
            arguments: event.permit.is_some().then(|| event.arguments.clone()).flatten(),
            shape: event.shape.clone(),
            fingerprint: event.fingerprint,
            args_digest: event.args_digest,
            effect: event.effect.clone(),
            witness: event.witness,
            seq: event.seq,
            round: event.round,
            at: event.at,
            decision: event.decision,
            reason: event.reason,
            findings: event.findings.clone(),
            permit: event.permit.clone(),
            approval: event.approval.clone(),
            policy,
            outcome: None,
            follow_up: event.follow_up.clone(),
        });
        // Detectors look back no further.
        if let Some(past) = self.calls.len().checked_sub(SHAPES_MAX + 1).and_then(|at| self.calls.get_mut(at)) {
            past.shape = None;
        }
    }

    /// Evicts the oldest calls beyond the limits; returns the `seq` of the latest possible change among them.
    fn forget(&mut self) -> u64 {
        let mut change = 0;
        while self.calls.len() > CALLS_MAX {
            let beyond = self
                .beyond(OutstandingInput::Answer, HELD_MAX)
                .or_else(|| self.beyond(OutstandingInput::Nothing, CALLS_MAX));
            let Some(call) = beyond.and_then(|at| self.calls.remove(at)) else { break };
            change = change.max(call.changed_the_world_at());
        }
        change
    }

    /// The oldest call in this state, where more than `max` are.
    fn beyond(&self, owed: OutstandingInput, max: usize) -> Option<usize> {
        let mut found = (0..self.calls.len()).filter(|at| self.outstanding_input(*at) == owed);
        let oldest = found.next()?;
        (found.count() >= max).then_some(oldest)
    }

    fn outstanding_input(&self, at: usize) -> OutstandingInput {
        let call = &self.calls[at];
        if call.is_open() {
            return OutstandingInput::Outcome;
        }
        let is_asked = call.was_refused() && call.approval.as_ref().is_some_and(|asked| asked.answer.is_open());
        // The executed call used up the approval, and must not be evicted before the request.
        let used_up = |call: &Call| {
            self.calls.range(at + 1..).any(|later| later.permit.is_some() && later.fingerprint == call.fingerprint)
        };
        if is_asked && !used_up(call) { OutstandingInput::Answer } else { OutstandingInput::Nothing }
    }
}

/// Outstanding input of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutstandingInput {
    /// Its outcome, by the caller.
    Outcome,
    /// An approver's answer, or the caller's next poll.
    Answer,
    /// None.
    Nothing,
}

impl SessionRun {
    /// Adds the time of an event; `waited` for a repeated call after a wait.
    fn add_time(&mut self, at: Timestamp, waited: bool) {
        let gap_ms = at.since_ms(self.last_at);
        if waited || gap_ms > IDLE_MS {
            self.idle_ms += gap_ms;
        }
        self.last_at = self.last_at.max(at);
    }

    /// Records a break; one of the same rule and call keeps its first count.
    fn close(&mut self, finding: &Finding, event: &JudgmentEvent) {
        let (fingerprint, tool) = (event.fingerprint, event.tool.clone());
        let is_known = |closed: &RunBreak| {
            closed.rule == finding.rule && closed.fingerprint == fingerprint && closed.decision == finding.decision
        };
        if !self.closed.iter().any(is_known) {
            let count = finding.count.unwrap_or(0);
            let (rule, decision) = (finding.rule.clone(), finding.decision);
            self.closed.push(RunBreak { rule, decision, count, tool, fingerprint });
        }
    }
}

impl Call {
    /// `seq` of the latest possible change by this call; 0 without one.
    fn changed_the_world_at(&self) -> u64 {
        let Some(permit) = &self.permit else { return 0 };
        match &self.outcome {
            Some(_) if matches!(self.effect.kind, EffectKind::Read | EffectKind::Check) => 0,
            Some(outcome) if outcome.status == OutcomeStatus::Success => outcome.seq,
            Some(outcome) if matches!(outcome.status, OutcomeStatus::Error | OutcomeStatus::Cancelled) => 0,
            _ if self.effect.kind == EffectKind::Write => permit.seq,
            _ => 0,
        }
    }
}

impl BudgetSpend {
    fn count_judgment(&mut self, event: &JudgmentEvent) {
        self.steps += event.steps();
        self.add_usage(event.usage.cost_micros, event.usage.tokens());
        if let Some(permit) = &event.permit {
            self.calls += u64::from(!event.terminal);
            self.reserved_micros += permit.reserved_micros;
        }
    }

    fn add_usage(&mut self, cost_micros: u64, tokens: u64) {
        self.cost_micros = self.cost_micros.saturating_add(cost_micros);
        self.tokens = self.tokens.saturating_add(tokens);
    }
}

impl TreeRate {
    fn count_judgment(&mut self, event: &JudgmentEvent) {
        self.tokens(event.at, event.usage.tokens());
        if event.round > 1 || event.observed {
            return;
        }
        if !self.batches.iter().any(|(batch, _)| *batch == event.batch) {
            push_bounded(&mut self.batches, (event.batch, 0));
        }
        let calls = self.batches.iter_mut().rev().find(|(batch, _)| *batch == event.batch).map(|(_, calls)| {
            *calls += 1;
            *calls
        });
        if calls.is_some_and(|calls| calls == 1 || calls > BATCH_CALLS) {
            push_bounded(&mut self.judged, (event.batch, event.at));
        }
        let is_slowed = event.decision == Decision::Wait && event.reason == Some(Reason::Runaway);
        if is_slowed && !self.slowed.iter().any(|(batch, _)| *batch == event.batch) {
            push_bounded(&mut self.slowed, (event.batch, event.at));
        }
    }

    fn tokens(&mut self, at: Timestamp, tokens: u64) {
        if tokens == 0 {
            return;
        }
        let second = at.second();
        match self.tokens.back_mut() {
            Some((last, sum)) if *last == second => *sum = sum.saturating_add(tokens),
            _ => self.tokens.push_back((second, tokens)),
        }
        while self.tokens.front().is_some_and(|(first, _)| at.since_ms(*first) >= PACE_TOKENS_MS) {
            self.tokens.pop_front();
        }
    }
}

fn push_bounded<T>(ring: &mut std::collections::VecDeque<T>, item: T) {
    // As for a session's calls.
    if ring.len() == ring.capacity() {
        ring.reserve_exact(1 + ring.len() / 4);
    }
    ring.push_back(item);
    if ring.len() > PACE_MAX {
        ring.pop_front();
    }
}
