//! Closed sets on both sides of the wire, each pair of members once.

use callgate_core::domain::{
    budget::{BudgetScope, Dimension},
    calls::SessionStatus,
    failure::FailureKind,
    finding::{Decision, Level},
    inbox::QuestionState,
    outcome::{Basis, Confidence, Guard, OutcomeStatus, Repeat},
    profile::{FollowUpKind, ToolState},
    session_state::CallState,
    tool::RiskLevel,
};
use callgate_proto::v1;

/// From a member of the domain's set to that of the contract.
pub trait ToWire {
    /// The contract's set.
    type Wire;

    /// The same member.
    fn to_wire(self) -> Self::Wire;
}

/// From a member of the contract's set to that of the domain.
pub trait FromWire<Wire>: Sized {
    /// The same member.
    ///
    /// # Errors
    /// `UNSPECIFIED`, which the domain does not have.
    fn from_wire(wire: Wire) -> Result<Self, Wire>;
}

macro_rules! mirrors {
    ($($noun:ident = $mirror:ident { $($member:ident = $twin:ident,)+ })+) => {$(
        impl ToWire for $noun {
            type Wire = v1::$mirror;

            fn to_wire(self) -> v1::$mirror {
                match self {
                    $($noun::$member => v1::$mirror::$twin,)+
                }
            }
        }

        impl FromWire<v1::$mirror> for $noun {
            fn from_wire(wire: v1::$mirror) -> Result<Self, v1::$mirror> {
                match wire {
                    v1::$mirror::Unspecified => Err(wire),
                    $(v1::$mirror::$twin => Ok(Self::$member),)+
                }
            }
        }
    )+};
}

mirrors! {
    Decision = Decision {
        Allow = Allow,
        Ask = Ask,
        Wait = Wait,
        Reuse = Reuse,
        Deny = Deny,
        Stop = Stop,
    }
    Level = LoopLevel {
        Warning = Warning,
        Critical = Critical,
        Break = Break,
    }
    OutcomeStatus = OutcomeStatus {
        Running = Running,
        Success = Success,
        Error = Error,
        Cancelled = Cancelled,
        Unknown = Unknown,
    }
    FailureKind = FailureKind {
        Timeout = Timeout,
        RateLimited = RateLimited,
        Unavailable = Unavailable,
        Network = Network,
        Conflict = Conflict,
        Auth = Auth,
        Permission = Permission,
        NotFound = NotFound,
        InvalidArgument = InvalidArgument,
        QuotaExhausted = QuotaExhausted,
        Internal = Internal,
        Other = Other,
    }
    RiskLevel = ApprovalRisk {
        Low = Low,
        Medium = Medium,
        High = High,
    }
    BudgetScope = BudgetScope {
        Run = Run,
        CallTree = CallTree,
        Agent = Agent,
        Tenant = Tenant,
    }
    Dimension = BudgetDimension {
        Steps = Steps,
        ToolCalls = ToolCalls,
        Cost = CostMicros,
        Tokens = Tokens,
        Elapsed = ElapsedMs,
        CallsPerTool = CallsPerTool,
        ConsecutiveSameTool = ConsecutiveSameTool,
        SessionDepth = SessionDepth,
    }
    Confidence = Confidence {
        Low = Low,
        Medium = Medium,
        High = High,
    }
    Basis = EstimateBasis {
        Prior = Prior,
        Kind = Kind,
        Tool = Tool,
        Cell = Cell,
    }
    Guard = AdviceGuard {
        Unsafe = Unsafe,
        RateLimitEscalation = RateLimitEscalation,
        Attempts = Attempts,
        RetryBudget = RetryBudget,
    }
    Repeat = Repeat {
        ByClient = ByClient,
        ByModel = ByModel,
        ByPerson = ByPerson,
        Never = Never,
    }
    CallState = CallState {
        Refused = Refused,
        Held = Held,
        InFlight = InFlight,
        Unknown = Unknown,
        Succeeded = Succeeded,
        Failed = Failed,
        Cancelled = Cancelled,
    }
    SessionStatus = SessionStatus {
        Halted = Halted,
        Held = Held,
        Calling = Calling,
        Stopped = Stopped,
        Quiet = Idle,
    }
    FollowUpKind = FollowUpKind {
        Same = Same,
        Near = Near,
        Changed = Changed,
    }
    QuestionState = ApprovalState {
        Pending = Pending,
        Approved = Approved,
        Denied = Denied,
        Expired = Expired,
        Withdrawn = Withdrawn,
        Edited = Edited,
    }
    ToolState = ToolState {
        Working = Working,
        Failing = Failing,
        Down = Down,
    }
}
