//! Published reasons: stable strings for callers to branch on. Later versions add to them; none changes its meaning.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Reason of a decision other than a plain ALLOW.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Reason {
            /// Every reason, with its meaning.
            pub const TABLE: &'static [(Self, &'static str)] =
                &[$((Self::$variant, concat!($($doc),+).trim_ascii()),)+];

            /// The stable string.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Its meaning, in a sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii(),)+
                }
            }

            /// The reason of that string.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::TABLE.iter().map(|(reason, _)| *reason).find(|reason| reason.as_str() == name)
            }
        }
    };
}

reasons! {
    /// The same call succeeded already; its result is handed back instead.
    DuplicateCallBlocked = "duplicate_call_blocked",
    /// The same call is running.
    CallInFlight = "call_in_flight",
    /// The same call may have taken effect; nobody knows.
    OutcomeUnknown = "outcome_unknown",
    /// Two attempts of one call took effect.
    DoubleEffect = "double_effect",
    /// The same call failed in a way that a retry does not mend.
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
    /// Calls or tokens come faster than any sane work does.
    Runaway = "runaway",
    /// The tool is limited or down for everybody, and left alone for a while.
    Cooldown = "cooldown",
    /// The number of steps is used up.
    StepBudgetExceeded = "step_budget_exceeded",
    /// Another budget is used up, or the call does not fit into what is left of it.
    BudgetExceeded = "budget_exceeded",
    /// Calls of one tool with nearly the same arguments failed in the same way again and again.
    SameError = "same_error",
    /// The same call succeeded again and again, and made something else each time.
    RepeatedSuccess = "repeated_success",
    /// Calls of one tool with different arguments gave the identical result again and again.
    SameResult = "same_result",
    /// Calls of one tool with nearly the same arguments gave nearly the same results again and again.
    NearDuplicate = "near_duplicate",
    /// There is no such tool.
    UnknownTool = "unknown_tool",
    /// A condition of the policy cannot be judged for these arguments: its owner's fault. A person decides.
    PolicyFault = "policy_fault",
    /// The arguments are not what the tool takes.
    ValidationError = "validation_error",
    /// The session's phase does not allow the tool, or cannot change like that.
    PhaseForbids = "phase_forbids",
    /// The session's plan has another write next.
    PlanOrder = "plan_order",
    /// An earlier call of another tool is missing, or its result does not allow this one.
    MissingPrerequisite = "missing_prerequisite",
    /// The earlier call that this one builds on is still running.
    PrerequisiteRunning = "prerequisite_running",
    /// Another call has changed the same thing already.
    ResourceAlreadyChanged = "resource_already_changed",
    /// The calls that were granted are used up, or there is no grant.
    GrantExceeded = "grant_exceeded",
    /// The policy allows so many calls in that time.
    RateLimitedByPolicy = "rate_limited_by_policy",
    /// No tier names the tool, and nothing says how dangerous it is.
    UnknownRiskLevel = "unknown_risk_level",
    /// The policy forbids the tool, or these arguments.
    ToolDenied = "tool_denied",
    /// The session, the agent, the tool or the tenant is halted.
    SessionHalted = "session_halted",
    /// The database is out of reach, and the policy lets this read run without a record.
    StoreUnavailable = "store_unavailable",
    /// A person must approve the call.
    ApprovalRequired = "approval_required",
    /// A person has refused the call.
    ApprovalDenied = "approval_denied",
    /// A person has approved the call with other arguments.
    ApprovalEdited = "approval_edited",
    /// Nobody answered in time.
    ApprovalExpired = "approval_expired",
    /// Who asked has taken the question back.
    ApprovalWithdrawn = "approval_withdrawn",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_published_with_the_contract() {
        let contract = include_str!("../../../proto/callgate/v1/types.proto");
        for (reason, meaning) in Reason::TABLE {
            let row = format!("//   {}: {meaning}", reason.as_str());
            assert!(contract.contains(&row), "proto/callgate/v1/types.proto lacks the line\n{row}");
            assert_eq!(Reason::from_name(reason.as_str()), Some(*reason));
        }
    }
}
