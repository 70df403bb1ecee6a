//! Waiting for an approver's answer, an in-flight duplicate's result, or the end of a pause. It costs its caller no
//! polling, and a call that another one holds up for two milliseconds waits two milliseconds.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::sleep;

use super::{Decisions, EvaluateAnswer, EvaluateError, LOOK_EVERY, NoAnswer, OPEN_MAX, approvals::read_question};
use callgate_core::domain::{
    call::{Approval, Request},
    finding::Decision,
    fingerprint::Fingerprint,
    reason::Reason,
};
use callgate_net::clock::Tick;

/// The first pause between two reads of this replica's own state; it grows with the time of the wait.
const LOOK_AFTER: Duration = Duration::from_millis(2);

/// Event that one call waits for.
enum WaitTarget {
    /// A person's answer.
    Answer(Approval),
    /// The end of another execution of the same call, and a re-check at the latest then.
    Twin(Fingerprint, Duration),
    /// The end of a pause.
    Pause(Duration),
}

impl Decisions {
    /// May these calls of one session run? Where none may yet, and some may later, waits until one of those is judged
    /// otherwise, `most` at the longest. Calls that may run are answered at once: they need not wait for the others. A
    /// caller with less time `left` than a judgement would take is rejected.
    ///
    /// # Errors
    /// [`EvaluateError`]: nothing was decided, or not again.
    pub async fn evaluate_and_wait(
        &self,
        requests: Vec<Request>,
        most: Duration,
        left: Option<Duration>,
    ) -> Result<Vec<EvaluateAnswer>, EvaluateError> {
        if most.is_zero() {
            return self.evaluate_in(requests, left).await;
        }
        let started = self.server.clock.tick();
        let mut questions: Option<BTreeSet<String>> = None;
        loop {
            let judged = self.server.clock.tick();
            let in_time = left.map(|left| left.saturating_sub(self.server.clock.elapsed_since(started)));
            let answers = self.evaluate_in(requests.clone(), in_time).await?;
            let left = most.saturating_sub(self.server.clock.elapsed_since(started));
            let mut awaited = list_wait_targets(&answers, left);
            let asked = awaited.iter().filter_map(|awaited| match awaited {
                WaitTarget::Answer(question) => Some(question.id.clone()),
                _ => None,
            });
            let asked: BTreeSet<String> = asked.collect();
            // A new approval request ends the wait.
            if questions.get_or_insert_with(|| asked.clone()).is_superset(&asked) {
                Box::pin(self.wait_for_targets(&requests, &mut awaited, judged, left)).await?;
            } else {
                awaited.clear();
            }
            if awaited.is_empty() || self.server.clock.elapsed_since(started) >= most {
                return Ok(answers);
            }
        }
    }

    /// Waits until one of these has come, or the time is over; empties them then. The suspension of the tenant ends it.
    async fn wait_for_targets(
        &self,
        requests: &[Request],
        awaited: &mut Vec<WaitTarget>,
        judged: Tick,
        left: Duration,
    ) -> Result<(), NoAnswer> {
        let Some(request) = requests.first() else { return Ok(()) };
        let began = self.server.clock.tick();
        while !awaited.is_empty() {
            let waited = self.server.clock.elapsed_since(began);
            if waited >= left {
                awaited.clear();
                return Ok(());
            }
            let people_only = awaited.iter().all(|one| matches!(one, WaitTarget::Answer(_)));
            let pause = if people_only { LOOK_EVERY } else { (waited / 4).clamp(LOOK_AFTER, LOOK_EVERY) };
            sleep(pause.min(left - waited)).await;
            self.server.admits(request.tenant)?;
            for one in awaited.iter() {
                if self.has_come(request, one, judged).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn has_come(&self, request: &Request, awaited: &WaitTarget, judged: Tick) -> Result<bool, NoAnswer> {
        Ok(match awaited {
            // No approver answers faster, and all waiting callers share one read.
            WaitTarget::Answer(_) if self.server.clock.elapsed_since(judged) < LOOK_EVERY => false,
            WaitTarget::Answer(question) => !self.is_open(request, question, judged).await?,
            WaitTarget::Pause(pause) => self.server.clock.elapsed_since(judged) >= *pause,
            WaitTarget::Twin(twin, recheck) => {
                self.server.clock.elapsed_since(judged) >= *recheck || !self.is_running(request, *twin).await?
            }
        })
    }

    /// True while an execution of the call may be running, as far as this replica knows.
    async fn is_running(&self, request: &Request, twin: Fingerprint) -> Result<bool, NoAnswer> {
        let Some(root) = self.known_root(request.tenant, &request.session).await? else { return Ok(false) };
        let Some(slot) = self.server.slots.get(request.tenant, &root) else { return Ok(true) };
        let runs = slot.advance(|tree| tree.calls_of(twin).any(|(_, _, call)| call.is_open()));
        Ok(runs.unwrap_or(true))
    }

    async fn is_open(&self, request: &Request, asked: &Approval, since: Tick) -> Result<bool, NoAnswer> {
        if self.store.now() >= asked.expires_at {
            return Ok(false);
        }
        let open = self.looked_at(request.tenant, Some(since)).await?;
        if open.len() < OPEN_MAX || open.iter().any(|question| question.approval_id == asked.id) {
            return Ok(open.iter().any(|question| question.approval_id == asked.id));
        }
        let question = read_question(&*self.store, request.tenant, &asked.id).await?;
        Ok(question.is_some_and(|question| question.resolution.is_none()))
    }
}

/// Events that the calls wait for; none when one may run. A pause that ends too late is not among them.
fn list_wait_targets(answers: &[EvaluateAnswer], left: Duration) -> Vec<WaitTarget> {
    if left.is_zero() || answers.iter().any(|answer| answer.verdict.decision == Decision::Allow) {
        return Vec::new();
    }
    let of = |answer: &EvaluateAnswer| {
        let verdict = &answer.verdict;
        let pause = Duration::from_millis(verdict.retry_after_ms().unwrap_or(0));
        match verdict.decision {
            Decision::Ask => verdict.approval.as_deref().cloned().map(WaitTarget::Answer),
            Decision::Wait if verdict.decided_by().is_some_and(|by| by.reason == Reason::CallInFlight) => {
                Some(WaitTarget::Twin(verdict.fingerprint, pause))
            }
            Decision::Wait if pause <= left => Some(WaitTarget::Pause(pause)),
            _ => None,
        }
    };
    answers.iter().filter_map(of).collect()
}
