//! Policy check: errors and warnings of a policy's text, and its effect.

use std::fmt;

use super::{NoAnswer, Policies, policies::compile_policy};
use callgate_core::{
    domain::{ids::TenantId, revision::Revision},
    policy::{
        self, PolicyError,
        unlisted::{UnlistedToolDecision, without_tier},
    },
};

/// Number of revisions that are searched for that of a text.
const LOOK_BACK_MAX: usize = 500;

/// One thing that is wrong, or doubtful, in a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProblem {
    /// Line in the text, from 1, where it is known.
    pub line: Option<u64>,
    /// Column in that line, in characters from 1, where it is known.
    pub column: Option<u64>,
    /// Path of the key: `tool_schemas.pay.effect`.
    pub path: String,
    /// The fault and its fix.
    pub problem: String,
    /// All of it in one line: position, fault and fix.
    pub text: String,
}

impl fmt::Display for PolicyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

pub(super) fn problems(errors: Vec<PolicyError>) -> Vec<PolicyProblem> {
    errors
        .into_iter()
        .map(|error| PolicyProblem {
            line: error.line,
            column: error.column,
            text: error.to_string(),
            path: error.path,
            problem: error.problem,
        })
        .collect()
}

/// Result of the check of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPolicy {
    /// Its hash.
    pub hash: String,
    /// Errors; none for a valid policy.
    pub errors: Vec<PolicyProblem>,
    /// Warnings.
    pub warnings: Vec<PolicyProblem>,
    /// Its decision on unlisted tools; none for an invalid policy.
    pub unlisted: Option<UnlistedToolDecision>,
    /// Declared tools that wait for a person since neither a tier nor a risk level is theirs.
    pub without_tier: Vec<String>,
    /// This very text is stored.
    pub is_stored: bool,
    /// Its newest activation.
    pub revision: Option<Revision>,
}

impl Policies {
    /// Checks a text: its problems, and its effect. One text at a time: compiling is work.
    ///
    /// # Errors
    /// [`NoAnswer`] when it is unknown whether it is stored.
    pub async fn check_policy(&self, tenant: TenantId, text: &str) -> Result<CheckedPolicy, NoAnswer> {
        let hash = policy::hash(text);
        let compiled = {
            let _turn = self.trials.check().await;
            compile_policy(text).await
        };
        let is_stored = self.stored_policy(tenant, &hash).await?.is_some();
        let revision = match is_stored {
            true => {
                let all = self.operators.revisions(tenant, None, LOOK_BACK_MAX).await?;
                all.into_iter().find(|revision| revision.hash == hash)
            }
            false => None,
        };
        let checked = CheckedPolicy {
            hash,
            errors: Vec::new(),
            warnings: Vec::new(),
            unlisted: None,
            without_tier: Vec::new(),
            is_stored,
            revision,
        };
        Ok(match compiled {
            Ok(policy) => CheckedPolicy {
                unlisted: Some(UnlistedToolDecision::by(&policy)),
                without_tier: without_tier(&policy).into_iter().map(str::to_owned).collect(),
                warnings: problems(policy.warnings),
                ..checked
            },
            Err(errors) => CheckedPolicy { errors: problems(errors), ..checked },
        })
    }
}
