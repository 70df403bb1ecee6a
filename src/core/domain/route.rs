//! Approval route: the approver group, the escalation group, and the number of required approvals.

use super::{audit::Actor, identity::CredentialId, time::Timestamp};

/// Maximum number of required approvals.
pub const PEOPLE_MAX: u32 = 2;

/// Route of an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRoute {
    /// Approver group; none for every approver.
    pub group: Option<String>,
    /// Escalation, which adds a second group.
    pub escalation: Option<Escalation>,
    /// Number of required approvals; one denial is enough.
    pub people: u32,
}

/// Escalation of an unanswered request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalation {
    /// Delay, in milliseconds.
    pub after_ms: u64,
    /// Group that may answer from then on, in addition to the first.
    pub group: String,
}

impl ApprovalRoute {
    /// One approval by any approver.
    pub const ANYBODY: Self = Self { group: None, escalation: None, people: 1 };

    /// The groups that may answer at `now` a request of `asked_at`; empty for every approver.
    #[must_use]
    pub fn groups(&self, asked_at: Timestamp, now: Timestamp) -> Vec<&str> {
        let is_late = |escalation: &&Escalation| now >= asked_at.plus_ms(escalation.after_ms);
        let late = self.escalation.as_ref().filter(is_late).map(|escalation| escalation.group.as_str());
        self.group.as_deref().into_iter().chain(late).collect()
    }

    /// True when the actor may answer now. Without authentication there are no groups, and everyone may.
    #[must_use]
    pub fn admits(&self, by: &Actor, asked_at: Timestamp, now: Timestamp) -> bool {
        let groups = self.groups(asked_at, now);
        let is_in = |group: &&str| by.groups.iter().any(|own| own == group);
        groups.is_empty() || by.credential == CredentialId::Local || groups.iter().any(is_in)
    }

    /// Description: `a person`, `two people of the group finance`.
    #[must_use]
    pub fn describe_approvers(&self) -> String {
        let people = if self.people > 1 { "two people" } else { "a person" };
        self.group.as_ref().map_or_else(|| people.to_owned(), |group| format!("{people} of the group {group}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(group: &str) -> Actor {
        let credential = CredentialId::Token("t".to_owned());
        Actor { credential, groups: vec![group.to_owned()], ..Actor::from("eve") }
    }

    #[test]
    fn a_question_is_for_its_group_and_after_a_time_for_another_one_too() {
        let escalation = Some(Escalation { after_ms: 1_000, group: "heads".to_owned() });
        let route = ApprovalRoute { group: Some("finance".to_owned()), escalation, people: 2 };
        let at = Timestamp::from_millis;
        for (group, now, may) in [
            ("finance", 5_000, true),
            ("finance", 9_000, true),
            ("heads", 5_999, false),
            ("heads", 6_000, true),
            ("Finance", 9_000, false),
            ("", 9_000, false),
        ] {
            assert_eq!(route.admits(&member(group), at(5_000), at(now)), may, "{group} at {now}");
        }
        assert!(route.admits(&Actor::from("eve"), at(5_000), at(5_000)), "nobody is known to be in a group");
        assert!(ApprovalRoute::ANYBODY.admits(&member("finance"), at(5_000), at(5_000)));
        assert_eq!(route.describe_approvers(), "two people of the group finance");
        assert_eq!(ApprovalRoute::ANYBODY.describe_approvers(), "a person");
    }
}
