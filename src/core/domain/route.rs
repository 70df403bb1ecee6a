//! Who is asked about a call: which group of people, which other one after a while, and how many of them must say yes.

use super::{audit::Actor, identity::Credential, time::Timestamp};

/// People that may be needed for one yes.
pub const PEOPLE_MAX: u32 = 2;

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Whose members may answer; none for whoever may answer at all.
    pub group: Option<String>,
    /// Whose members may answer too, from so many milliseconds after the question on.
    pub escalation: Option<Escalation>,
    /// How many of them must say yes; one who says no is enough.
    pub people: u32,
}

/// Where a question goes that nobody answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalation {
    /// In milliseconds.
    pub after_ms: u64,
    /// Whose members may answer from then on, beside those of the first group.
    pub group: String,
}

impl Route {
    /// One person, whoever may answer.
    pub const ANYBODY: Self = Self { group: None, escalation: None, people: 1 };

    /// The groups whose members may answer at `now` what was asked at `asked_at`; none for whoever may answer at all.
    #[must_use]
    pub fn groups(&self, asked_at: Timestamp, now: Timestamp) -> Vec<&str> {
        let is_late = |escalation: &&Escalation| now >= asked_at.plus_ms(escalation.after_ms);
        let late = self.escalation.as_ref().filter(is_late).map(|escalation| escalation.group.as_str());
        self.group.as_deref().into_iter().chain(late).collect()
    }

    /// May they answer now? Where nobody shows a credential nobody is known to be in a group, and everybody may.
    #[must_use]
    pub fn admits(&self, by: &Actor, asked_at: Timestamp, now: Timestamp) -> bool {
        let groups = self.groups(asked_at, now);
        let is_in = |group: &&str| by.groups.iter().any(|own| own == group);
        groups.is_empty() || by.credential == Credential::Local || groups.iter().any(is_in)
    }

    /// Who is asked, in words: `a person`, `two people of the group finance`.
    #[must_use]
    pub fn whom(&self) -> String {
        let people = if self.people > 1 { "two people" } else { "a person" };
        self.group.as_ref().map_or_else(|| people.to_owned(), |group| format!("{people} of the group {group}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(group: &str) -> Actor {
        let credential = Credential::Token("t".to_owned());
        Actor { credential, groups: vec![group.to_owned()], ..Actor::from("eve") }
    }

    #[test]
    fn a_question_is_for_its_group_and_after_a_time_for_another_one_too() {
        let escalation = Some(Escalation { after_ms: 1_000, group: "heads".to_owned() });
        let route = Route { group: Some("finance".to_owned()), escalation, people: 2 };
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
        assert!(Route::ANYBODY.admits(&member("finance"), at(5_000), at(5_000)));
        assert_eq!(route.whom(), "two people of the group finance");
        assert_eq!(Route::ANYBODY.whom(), "a person");
    }
}
