//! `/policy/difference`: the changes between two versions of the policy, key by key.

use std::collections::BTreeMap;

use askama::Template;
use axum::{Router, extract::Query, response::Html, routing::get};
use serde::Deserialize;
use tokio::try_join;

use super::policy;
use crate::console::{Console, fault::PageError, filters, frame::Frame, visitor::Visitor};
use callgate_core::policy::differences::{diff_keys, keys};
use callgate_proto::v1::{
    GetPolicyRequest, ListPoliciesRequest, PolicyRevision, policy_service_client::PolicyServiceClient,
};

/// Versions that are offered; any other can be named by its hash.
const OFFERED: u32 = 100;

pub(super) fn router() -> Router<Console> {
    Router::new().route("/policy/difference", get(show))
}

/// A key that differs.
pub(super) struct ChangedKey {
    pub(super) key: String,
    pub(super) before: String,
    pub(super) after: String,
}

/// Keys that differ in `after`; none where one of the texts cannot be read.
pub(super) fn difference(before: &str, after: &str) -> Vec<ChangedKey> {
    let read = |text: &str| if text.trim().is_empty() { Ok(BTreeMap::new()) } else { keys(text) };
    let (Ok(before), Ok(after)) = (read(before), read(after)) else { return Vec::new() };
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    let change = |(key, before, after): (&String, Option<&String>, Option<&String>)| ChangedKey {
        key: key.clone(),
        before: text(before),
        after: text(after),
    };
    diff_keys(&before, &after).into_iter().map(change).collect()
}

/// The versions between which one chooses.
#[derive(Template)]
#[template(path = "policy_difference.html")]
struct Page {
    frame: Frame,
    from: String,
    to: String,
    revisions: Vec<PolicyRevision>,
    difference: Vec<ChangedKey>,
    columns: (&'static str, &'static str),
}

impl Page {
    /// The fields of the form: name, label, and choice.
    fn choices(&self) -> [(&'static str, &'static str, &str); 2] {
        [("from", "Before", &self.from), ("to", "After", &self.to)]
    }

    fn is_offered(&self, hash: &str) -> bool {
        hash.is_empty() || self.revisions.iter().any(|one| one.hash == hash)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DifferenceQuery {
    from: Option<String>,
    to: Option<String>,
}

/// A stored policy; the built-in one, without a text, for an empty hash.
async fn text(visitor: &Visitor, hash: &str) -> Result<(String, String), PageError> {
    if hash.is_empty() {
        return Ok((String::new(), String::new()));
    }
    let mut policies = PolicyServiceClient::new(visitor.calls.clone());
    let found = policies.get_policy(GetPolicyRequest { hash: hash.to_owned() }).await?.into_inner();
    Ok((found.hash, found.text))
}

/// Each policy once, where it was active last.
pub(super) async fn versions(visitor: &Visitor) -> Result<Vec<PolicyRevision>, PageError> {
    let mut policies = PolicyServiceClient::new(visitor.calls.clone());
    let listed = ListPoliciesRequest { page_size: OFFERED, page_token: String::new() };
    let mut revisions = policies.list_policies(listed).await?.into_inner().revisions;
    let mut seen = std::collections::BTreeSet::new();
    revisions.retain(|one| seen.insert(one.hash.clone()));
    Ok(revisions)
}

async fn show(visitor: Visitor, Query(wanted): Query<DifferenceQuery>) -> Result<Html<String>, PageError> {
    let revisions = versions(&visitor).await?;
    let nth = |n: usize| revisions.get(n).map(|one| one.hash.clone()).unwrap_or_default();
    let (from, to) = (wanted.from.unwrap_or_else(|| nth(1)), wanted.to.unwrap_or_else(|| nth(0)));
    let (from, to) = try_join!(text(&visitor, &from), text(&visitor, &to))?;
    let page = Page {
        frame: Frame::new(&visitor, policy::PATH, "Policy comparison"),
        difference: difference(&from.1, &to.1),
        from: from.0,
        to: to.0,
        revisions,
        columns: ("Before", "After"),
    };
    Ok(Html(page.render()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_set_or_not_set_or_other_is_told() {
        let changes = difference("a: 1\nb: 2\n", "b: 3\n");
        let told: Vec<_> =
            changes.iter().map(|one| (one.key.as_str(), one.before.as_str(), one.after.as_str())).collect();
        assert_eq!(told, [("a", "1", ""), ("b", "2", "3")]);
        assert_eq!(difference("", "a: 1\n").len(), 1, "against the built-in one");
    }
}
