//! Published reasons: stable strings for callers to branch on. Later versions add to them; none changes its meaning.

use super::closed_set::closed_set;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        closed_set! {
            /// Reason of a decision other than an ALLOW without a warning.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum Reason {
                $($(#[doc = $doc])+ $variant = $name,)+
            }
        }

        impl Reason {
            /// The meaning, in a sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

reasons! {
    /// The same call succeeded already; its result is returned instead.
    DuplicateCallBlocked = "duplicate_call_blocked",
    /// The same call is running.
    CallInFlight = "call_in_flight",
    /// The same call may have taken effect; its outcome is unknown.
    OutcomeUnknown = "outcome_unknown",
    /// Two attempts of one call took effect.
    DoubleEffect = "double_effect",
    /// The same call failed in a way that a retry does not fix.
    NotRetryable = "not_retryable",
    /// The same call failed, and its wait is not over.
    RetryTooEarly = "retry_too_early",
    /// The same call failed as often as it may be tried.
    RetriesExhausted = "retries_exhausted",
    /// The same call gave the same result again and again.
    NoProgress = "no_progress",
    /// A few calls go round in a circle with the same results.
    Cycle = "cycle",
    /// Many calls in a row brought nothing new.
    CircuitBreak = "circuit_break",
    /// Call after call was refused, and the agent insists.
    InsistingOnRefused = "insisting_on_refused",
    /// Calls or tokens come faster than in plausible work.
    Runaway = "runaway",
    /// The tool is rate limited or down, and no session calls it for a while.
    Cooldown = "cooldown",
    /// As many calls are in flight as the policy allows, and the call is queued.
    BulkheadFull = "bulkhead_full",
    /// The number of steps is used up.
    StepBudgetExceeded = "step_budget_exceeded",
    /// Another budget is used up, or the call does not fit into what is left of it.
    BudgetExceeded = "budget_exceeded",
    /// Calls of one tool with nearly the same arguments failed in the same way again and again.
    SameError = "same_error",
    /// The same call succeeded again and again, and created something else each time.
    RepeatedSuccess = "repeated_success",
    /// Calls of one tool with different arguments gave the identical result again and again.
    SameResult = "same_result",
    /// Calls of one tool with nearly the same arguments gave nearly the same results again and again.
    NearDuplicate = "near_duplicate",
    /// There is no such tool.
    UnknownTool = "unknown_tool",
    /// A faulty condition of the policy cannot be evaluated for these arguments. A person decides.
    PolicyFault = "policy_fault",
    /// The arguments do not match the tool's schema.
    ValidationError = "validation_error",
    /// The session's phase does not allow the tool, or cannot change like that.
    PhaseForbids = "phase_forbids",
    /// The session's plan has another write next.
    PlanOrder = "plan_order",
    /// An earlier call of another tool is missing, or its result does not allow this one.
    MissingPrerequisite = "missing_prerequisite",
    /// The earlier call that this one builds on is still running.
    PrerequisiteRunning = "prerequisite_running",
    /// Another call has changed the same resource already.
    ResourceAlreadyChanged = "resource_already_changed",
    /// The granted calls are used up, or there is no grant.
    GrantExceeded = "grant_exceeded",
    /// The policy's limit of calls in that time is reached.
    RateLimitedByPolicy = "rate_limited_by_policy",
    /// No tier matches the tool, and the policy gives it no risk level.
    UnknownRiskLevel = "unknown_risk_level",
    /// The policy forbids the tool, or these arguments.
    ToolDenied = "tool_denied",
    /// The session, the agent, the tool or the tenant is halted.
    SessionHalted = "session_halted",
    /// The database is unavailable, and the policy allows this read without a record.
    StoreUnavailable = "store_unavailable",
    /// A person must approve the call.
    ApprovalRequired = "approval_required",
    /// A person has refused the call.
    ApprovalDenied = "approval_denied",
    /// A person has approved the call with other arguments.
    ApprovalEdited = "approval_edited",
    /// The approval request expired without an answer.
    ApprovalExpired = "approval_expired",
    /// The requester has withdrawn the approval request.
    ApprovalWithdrawn = "approval_withdrawn",
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests read files")]

    use std::fs;

    use super::*;

    const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/callgate/v1/types.proto");

    /// The contract with the table of this file instead of its own: the indented comments above its package.
    fn with_table(contract: &str) -> String {
        let (head, tail) = contract.split_once("package ").expect("a package");
        let is_row = |line: &&str| line.starts_with("//   ");
        let before = head.lines().take_while(|line| !is_row(line)).map(str::to_owned);
        let after = head.lines().skip_while(|line| !is_row(line)).skip_while(is_row).map(str::to_owned);
        let rows = Reason::ALL.map(|reason| format!("//   {}: {}", reason.as_str(), reason.meaning()));
        let head: String = before.chain(rows).chain(after).map(|line| line + "\n").collect();
        format!("{head}package {tail}")
    }

    #[test]
    fn table_of_the_contract_is_up_to_date() {
        let present = fs::read_to_string(CONTRACT).expect("a contract");
        let expected = with_table(&present);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(CONTRACT, &expected).expect("written");
        }
        assert!(
            fs::read_to_string(CONTRACT).expect("a contract") == expected,
            "the reasons in proto/callgate/v1/types.proto differ from src/core/domain/reason.rs; write them with: \
             UPDATE=1 cargo nextest run -p callgate-core reason"
        );
    }

    #[test]
    fn every_name_leads_to_its_reason() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_name(reason.as_str()), Some(reason));
        }
    }
}
