//! SQL names of closed sets' stored codes: a code is the index of a member in its set's `ALL`.

use callgate_core::domain::{
    effect::DuplicateScope, effect::EffectKind, failure::FailureKind, finding::Decision, outcome::OutcomeStatus,
};

macro_rules! codes {
    ($($name:ident = $set:ident::$member:ident;)+) => {
        $(pub(super) const $name: i16 = $set::$member as i16;)+

        #[test]
        fn a_code_is_the_place_in_the_set() {
            $(assert_eq!($name, super::row::code(&$set::ALL, &$set::$member));)+
        }
    };
}

codes! {
    RUNNING = OutcomeStatus::Running;
    SUCCESS = OutcomeStatus::Success;
    ERROR = OutcomeStatus::Error;
    CANCELLED = OutcomeStatus::Cancelled;
    UNKNOWN = OutcomeStatus::Unknown;
    ALLOW = Decision::Allow;
    REUSE = Decision::Reuse;
    DENY = Decision::Deny;
    STOP = Decision::Stop;
    READ = EffectKind::Read;
    WRITE = EffectKind::Write;
    CHECK = EffectKind::Check;
    INVALID_ARGUMENT = FailureKind::InvalidArgument;
    OF_TREE = DuplicateScope::Tree;
}

#[cfg(test)]
mod tests {
    use super::{
        super::{decode::ColumnValue, migrations::MIGRATIONS},
        *,
    };
    use callgate_core::domain::{
        finding::Level,
        outcome::{Basis, Confidence, Guard, Repeat},
        profile::FollowUpKind,
    };

    /// Each member's code with its name, as the comment of a column lists them.
    fn coded<'r, T: ColumnValue<StoredForm<'r> = i16> + Copy + 'static>(
        all: &'r [T],
        name: fn(T) -> &'static str,
    ) -> Vec<String> {
        all.iter().map(|member| format!(" {} {}", member.to_stored(), name(*member))).collect()
    }

    #[test]
    fn codes_are_those_that_the_comments_of_their_columns_list() {
        let documented: String = MIGRATIONS.iter().map(|migration| migration.sql.as_str()).collect();
        for (column, coded) in [
            ("call.decision", coded(&Decision::ALL, Decision::as_str)),
            ("call.effect", coded(&EffectKind::ALL, EffectKind::as_str)),
            ("call.level", coded(&Level::ALL, Level::as_str)),
            ("call.retry_kind", coded(&FollowUpKind::ALL, FollowUpKind::as_str)),
            ("outcome.basis", coded(&Basis::ALL, Basis::as_str)),
            ("outcome.confidence", coded(&Confidence::ALL, Confidence::as_str)),
            ("outcome.failure", coded(&FailureKind::ALL, FailureKind::as_str)),
            ("outcome.guard", coded(&Guard::ALL, Guard::as_str)),
            ("outcome.repeat", coded(&Repeat::ALL, Repeat::as_str)),
            ("outcome.status", coded(&OutcomeStatus::ALL, OutcomeStatus::as_str)),
        ] {
            let comment = documented.split_once(&format!("comment on column {column} is '")).expect(column).1;
            let comment = comment.split_once("';").expect(column).0;
            for code in coded {
                assert!(comment.contains(&code), "{column}: not{code}, but {comment}");
            }
        }
    }
}
