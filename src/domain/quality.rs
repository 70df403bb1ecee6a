//! How well tools suit agents: what the calls show of their design.

use super::ids::{CallId, SessionId, ToolName};

/// What a high rate says of a tool's design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// Many calls are retries.
    Retries,
    /// Agents go round in circles with it.
    Loops,
    /// Agents ask for what they have.
    Duplicates,
    /// Agents get its arguments wrong.
    Validation,
    /// Agents write its arguments as another type.
    Coercions,
    /// Nobody knows what came of its calls.
    UnknownOutcomes,
    /// It fails more often than it works.
    Failures,
    /// Its answers do not say whether they are complete.
    MissingIsComplete,
}

impl Flaw {
    /// Every flaw, in the order in which ties are settled.
    pub const ALL: [Self; 8] = [
        Self::Retries,
        Self::Loops,
        Self::Duplicates,
        Self::Validation,
        Self::Coercions,
        Self::UnknownOutcomes,
        Self::Failures,
        Self::MissingIsComplete,
    ];

    /// The rate's name, as in SQL.
    #[must_use]
    pub const fn rate(self) -> &'static str {
        match self {
            Self::Retries => "retry_rate",
            Self::Loops => "loop_rate",
            Self::Duplicates => "duplicate_rate",
            Self::Validation => "validation_failure_rate",
            Self::Coercions => "coercion_rate",
            Self::UnknownOutcomes => "unknown_outcome_rate",
            Self::Failures => "failure_rate",
            Self::MissingIsComplete => "missing_is_complete_rate",
        }
    }

    /// The columns of the view `tool_quality` whose quotient it is: what shows it, and what it is a share of.
    #[must_use]
    pub const fn share(self) -> (&'static str, &'static str) {
        match self {
            Self::Retries => ("retries", "permitted"),
            Self::Loops => ("loops", "calls"),
            Self::Duplicates => ("duplicates", "calls"),
            Self::Validation => ("bad_arguments", "settled + refused_arguments"),
            Self::Coercions => ("coercions", "calls"),
            Self::UnknownOutcomes => ("unknown_outcomes", "settled"),
            Self::Failures => ("failed", "settled"),
            Self::MissingIsComplete => ("silent", "successes"),
        }
    }

    /// The problem of design that it points to; the view `tool_quality` says the same.
    #[must_use]
    pub const fn problem(self) -> &'static str {
        match self {
            Self::Retries => "it fails in ways that pass: retry inside the tool",
            Self::Loops => "its answer does not say what to do next, or that nothing has changed",
            Self::Duplicates => "its answer does not say that it is complete",
            Self::Validation => "its arguments are not constrained, or not said clearly",
            Self::Coercions => "its arguments have other types than models expect",
            Self::UnknownOutcomes => "it is a write without idempotency or without a way to look it up",
            Self::Failures => "it fails more often than it works",
            Self::MissingIsComplete => "its answer leaves open whether there is more",
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Retries => "retry short failures inside the tool, and report only what a caller can act on",
            Self::Loops => "let the answer say what has changed since the last call, and what to call next",
            Self::Duplicates => "return is_complete and total_matches, and say in words when there is nothing more",
            Self::Validation => "use enums, formats, ranges and integers in its schema, and name the fix in its errors",
            Self::Coercions => "give each field the type that models write, or show an example in its description",
            Self::UnknownOutcomes => "accept an idempotency key, and offer a tool that looks the effect up",
            Self::Failures => {
                "mend it, or take it out of the tool list until it works; its errors are in callgate.attempts"
            }
            Self::MissingIsComplete => "return is_complete with every answer, or map it from the result by policy",
        }
    }
}

/// One tool over some days. Rates are shares, 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolQuality {
    pub tool: ToolName,
    /// Calls judged.
    pub calls: u64,
    /// Permits given.
    pub permitted: u64,
    /// The rates, in the order of [`Flaw::ALL`].
    pub rates: [f64; Flaw::ALL.len()],
    /// The share of its calls that were refused for their arguments before they ran.
    pub validation_refusal_rate: f64,
    /// The share of its calls that were refused because a budget was spent, which says nothing of the tool.
    pub budget_refusal_rate: f64,
    /// Calls that show the worst, the newest first.
    pub evidence: Vec<CallName>,
}

impl ToolQuality {
    /// The worst flaw; failures count above one half (some are part of the work), and that answers do not say whether
    /// they are complete counts only where nothing else does.
    #[must_use]
    pub fn worst(&self) -> Option<Flaw> {
        let least = |flaw: Flaw| if flaw == Flaw::Failures { 0.5 } else { 0.0 };
        let rated = || Flaw::ALL.into_iter().zip(self.rates).filter(|(flaw, rate)| *rate > least(*flaw));
        let others = rated().filter(|(flaw, _)| *flaw != Flaw::MissingIsComplete).rev();
        let worst = others.max_by(|(_, a), (_, b)| a.total_cmp(b)).or_else(|| rated().next());
        worst.map(|(flaw, _)| flaw)
    }

    /// The rate of a flaw.
    #[must_use]
    pub fn rate(&self, flaw: Flaw) -> f64 {
        self.rates[flaw as usize]
    }
}

/// A name that agents called, and that is no tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTool {
    pub tool: ToolName,
    /// Calls to it.
    pub calls: u64,
    /// Sessions that called it.
    pub sessions: u64,
}

/// Names a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallName {
    pub session: SessionId,
    pub call_id: CallId,
}

/// Two successes of one tool in one session with the same result and other arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EqualResults {
    pub tool: ToolName,
    /// The earlier call, and its arguments in canonical form.
    pub first: (CallName, String),
    /// The later one.
    pub second: (CallName, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_the_worst_and_silence_only_where_nothing_else_is() {
        let quality = |rates| ToolQuality {
            tool: ToolName::parse("tool", "t").expect("a good name"),
            calls: 1,
            permitted: 1,
            rates,
            validation_refusal_rate: 0.0,
            budget_refusal_rate: 0.0,
            evidence: Vec::new(),
        };
        assert_eq!(quality([0.0; 8]).worst(), None);
        assert_eq!(quality([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]).worst(), Some(Flaw::MissingIsComplete));
        assert_eq!(quality([0.1, 0.0, 0.3, 0.2, 0.0, 0.0, 0.4, 1.0]).worst(), Some(Flaw::Duplicates));
        assert_eq!(quality([0.1, 0.1, 0.0, 0.1, 0.0, 0.0, 0.0, 1.0]).worst(), Some(Flaw::Retries), "ties: the first");
        assert_eq!(quality([0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]).worst(), Some(Flaw::Failures));
        assert_eq!(quality([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]).worst(), Some(Flaw::Validation), "it says more");
    }
}
