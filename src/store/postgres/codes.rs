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
