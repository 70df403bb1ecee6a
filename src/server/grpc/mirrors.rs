//! Closed sets on both sides of the wire, each pair of members once.

use callgate_core::domain::{
    budget::{BudgetScope, Dimension},
    calls::{NameKind, SessionOrder, SessionStatus},
    difference::DifferenceKind,
    failure::FailureKind,
    finding::{Decision, Level},
    fleet::FleetPart,
    identity::Role,
    inbox::QuestionState,
    outcome::{Basis, Confidence, Guard, OutcomeStatus, Repeat},
    profile::{FollowUpKind, ToolState},
    rollout::RolloutState,
    session_state::CallState,
    tenant::TenantState,
    tool::RiskLevel,
    tool_descriptions::DescriptionState,
    usage_report::UsageDimension,
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

/// The contract's member: of the same name, where no other is given.
macro_rules! twin {
    ($mirror:ident $member:ident) => {
        v1::$mirror::$member
    };
    ($mirror:ident $member:ident $twin:ident) => {
        v1::$mirror::$twin
    };
}

macro_rules! mirrors {
    ($($noun:ident = $mirror:ident { $($member:ident $(= $twin:ident)?),+ $(,)? })+) => {$(
        impl ToWire for $noun {
            type Wire = v1::$mirror;

            fn to_wire(self) -> v1::$mirror {
                match self {
                    $($noun::$member => twin!($mirror $member $($twin)?),)+
                }
            }
        }

        impl FromWire<v1::$mirror> for $noun {
            fn from_wire(wire: v1::$mirror) -> Result<Self, v1::$mirror> {
                match wire {
                    v1::$mirror::Unspecified => Err(wire),
                    $(twin!($mirror $member $($twin)?) => Ok(Self::$member),)+
                }
            }
        }
    )+};
}

mirrors! {
    Decision = Decision { Allow, Ask, Wait, Reuse, Deny, Stop }
    Level = LoopLevel { Warning, Critical, Break }
    OutcomeStatus = OutcomeStatus { Running, Success, Error, Cancelled, Unknown }
    FailureKind = FailureKind {
        Timeout, RateLimited, Unavailable, Network, Conflict, Auth, Permission, NotFound, InvalidArgument,
        QuotaExhausted, Internal, Other,
    }
    RiskLevel = ApprovalRisk { Low, Medium, High }
    BudgetScope = BudgetScope { Run, CallTree, Agent, Tenant }
    Dimension = BudgetDimension {
        Steps, ToolCalls, Cost = CostMicros, Tokens, Elapsed = ElapsedMs, CallsPerTool, ConsecutiveSameTool,
        SessionDepth,
    }
    Confidence = Confidence { Low, Medium, High }
    Basis = EstimateBasis { Prior, Kind, Tool, Cell }
    Guard = AdviceGuard { Unsafe, RateLimitEscalation, Attempts, RetryBudget }
    Repeat = Repeat { ByClient, ByModel, ByPerson, Never }
    CallState = CallState { Refused, Held, InFlight, Unknown, Succeeded, Failed, Cancelled }
    SessionStatus = SessionStatus { Halted, Held, Calling, Stopped, Quiet = Idle }
    SessionOrder = SessionOrder { Latest, Cost, Calls, Duration }
    NameKind = NameKind { Agent, User, Tool }
    FollowUpKind = FollowUpKind { Same, Near, Changed }
    QuestionState = ApprovalState { Pending, Approved, Denied, Expired, Withdrawn, Edited }
    ToolState = ToolState { Working, Failing, Down }
    FleetPart = FleetPart {
        Decisions, Approvals, Halts, Running, Stopped, StoppedMinutes, Tools, Budgets, Savings,
    }
    UsageDimension = UsageDimension { Time, Tool, Agent, Model }
    Role = Role { Agent, Approver, Operator, Analyst, Admin }
    TenantState = TenantState { Active, Suspended, Deleted }
    DescriptionState = ToolDescriptionState { First, Changed, Accepted, Rejected }
    RolloutState = PolicyRolloutState { Running, Promoted, Aborted }
    DifferenceKind = BacktestChangeKind { NewlyRefused, NewlyAsked, NewlyDelayed, NewlyAllowed, OtherwiseRefused }
}
