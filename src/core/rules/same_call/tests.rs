//! One test per row of the table.

use crate::rules::testing::check;

mod open_effects;

#[test]
fn an_undeclared_call_is_answered_after_three_equal_results_for_a_while() {
    check(
        "rules same_call
         step 8s
         list {} -> ok [\"same\"]   x3
         list {} => reuse duplicate_call_blocked after 2s
         list {} -> ok [\"same\"] => allow
         step 1s
         list {} => reuse duplicate_call_blocked after 2s
         run next
         list {} => allow",
    );
}

#[test]
fn an_undeclared_call_is_not_answered_with_what_a_sub_agent_was_given() {
    check(
        "rules same_call
         step 8s
         list {} -> ok [\"same\"]   x2
         step 1s
         list {} -> ok [\"same\"]
         session b parent s
         list {} -> ok [\"other\"] => allow
         session s
         list {} => allow",
    );
}

#[test]
fn a_new_result_elsewhere_frees_an_undeclared_call() {
    check(
        "rules same_call
         step 8s
         list {} -> ok [\"same\"]   x3
         edit {\"n\":1} -> ok done
         list {} => allow",
    );
}

#[test]
fn a_running_call_is_waited_for() {
    check(
        "rules same_call
         slow {} => allow as c1
         slow {} => wait call_in_flight after 1s
         wait 20s
         slow {} => wait call_in_flight after 11s
         slow {} => wait call_in_flight as c2
         record c1 ok done
         slow {} => allow as c2",
    );
}

#[test]
fn an_expired_lease_leaves_the_outcome_unknown() {
    check(
        "rules same_call
         tool pay write
         tool put write idempotent lease 60s
         tool any lease 60s
         pay {} => allow
         put {} => allow
         any {} => allow
         wait 9m
         put {} => allow attempt 2
         any {} => allow outcome_unknown attempt 2
         pay {} => wait call_in_flight after 30s
         wait 1m
         pay {} => deny outcome_unknown",
    );
}

#[test]
fn a_timeout_of_a_write_may_have_happened_and_a_late_record_settles_it() {
    check(
        "rules same_call
         tool pay write
         pay {} => allow as c1
         record c1 error timeout
         pay {} => deny outcome_unknown
         record c1 error not_found
         pay {} => deny not_retryable
         pay {\"n\":2} => allow as c2
         record c2 error timeout
         record c2 ok done
         pay {\"n\":2} => reuse duplicate_call_blocked",
    );
}

#[test]
fn denial_for_an_unknown_outcome_ends_when_the_outcome_is_recorded() {
    check(
        "rules same_call
         tool pay write
         pay {} => allow as c1
         record c1 error timeout
         pay {} as c2 => deny outcome_unknown
         pay {} as c2 => deny outcome_unknown
         record c1 ok done
         pay {} as c2 => reuse duplicate_call_blocked
         pay {} as c2 => reuse duplicate_call_blocked, replayed",
    );
}

#[test]
fn a_write_that_never_ran_may_be_made_and_one_that_was_called_off_may_not() {
    check(
        "rules same_call
         tool pay write
         pay {} => allow as c1
         record c1 cancelled
         pay {} => deny outcome_unknown
         pay {\"n\":2} => allow as c2
         record c2 unstarted
         pay {\"n\":2} => allow",
    );
}

#[test]
fn once_is_once_whatever_happened_since_and_a_person_may_say_again() {
    check(
        "rules same_call
         tool pay once
         pay {} -> ok paid
         edit {} -> ok new
         wait 20h
         pay {} => reuse duplicate_call_blocked
         session other
         pay {} => reuse duplicate_call_blocked
         wait 5h
         pay {} -> ok paid   key k2
         pay {} repeat => ask approval_required as q
         pay {} => ask approval_required
         wait 2h
         pay {} repeat => deny approval_expired as q
         wait 20m
         pay {} => reuse duplicate_call_blocked",
    );
}

#[test]
fn a_declared_poll_may_look_as_often_as_it_likes() {
    check(
        "rules same_call
         tool status poll
         status {} -> ok pending   x9
         status {} => allow",
    );
}

#[test]
fn repeatable_call_is_a_new_occurrence_each_time() {
    check(
        "rules same_call
         tool scroll write repeatable
         scroll {} -> ok same   key k1
         scroll {} -> ok same   key k2
         scroll {} => allow as c3
         scroll {} => allow as c4
         record c4 error timeout
         scroll {} => allow outcome_unknown",
    );
}

#[test]
fn a_declared_read_is_answered_from_memory_until_its_resource_is_written() {
    check(
        "rules same_call
         tool read read file/{path}
         tool write write file/{path}
         read {\"path\":\"a\"} -> ok text
         read {\"path\":\"a\"} => reuse duplicate_call_blocked
         read {\"path\":\"a\"} repeat => allow
         write {\"path\":\"b\"} -> ok done
         read {\"path\":\"b\"} -> ok other
         read {\"path\":\"b\"} => reuse duplicate_call_blocked
         write {\"path\":\"b\",\"text\":1} => allow as w1
         read {\"path\":\"b\"} => allow as r1
         record w1 error not_found
         record r1 ok other
         read {\"path\":\"b\"} => reuse duplicate_call_blocked
         wait 6m
         read {\"path\":\"b\"} => allow",
    );
}

#[test]
fn a_declared_write_is_not_done_twice_unless_its_resource_changed() {
    check(
        "rules same_call
         tool set write row/{id}
         set {\"id\":1,\"v\":1} -> ok done
         set {\"id\":1,\"v\":1} => reuse duplicate_call_blocked
         set {\"id\":1,\"v\":2} -> ok done
         set {\"id\":1,\"v\":1} => allow attempt 1 as c1
         record c1 ok done
         set {\"id\":1,\"v\":1} repeat => ask approval_required",
    );
}

#[test]
fn a_failure_is_retried_when_it_is_worth_it_and_not_before() {
    check(
        "rules same_call
         step 0s
         get {} -> error timeout
         get {} => wait retry_too_early as c1
         wait 2s
         get {} => allow attempt 2 as c1
         get {\"n\":1} -> error auth
         get {\"n\":1} => deny not_retryable
         wait 10m
         get {\"n\":1} => allow attempt 1",
    );
}

#[test]
fn attempts_are_used_up_and_begin_again_in_a_new_run() {
    check(
        "rules same_call
         get {} -> error unavailable   x5
         get {} => deny retries_exhausted
         run next
         get {} => allow attempt 1",
    );
}

#[test]
fn a_call_that_was_called_off_may_be_made() {
    check(
        "rules same_call
         get {} -> cancelled
         get {} => allow attempt 2",
    );
}

#[test]
fn a_failure_is_tried_anew_once_the_world_has_changed() {
    check(
        "rules same_call
         test {} -> error invalid_argument
         test {} => deny not_retryable
         edit {\"n\":1} -> ok done
         test {} => allow attempt 1",
    );
}

#[test]
fn one_key_for_all_attempts_of_an_occurrence_and_a_new_one_for_the_next() {
    check(
        "rules same_call
         get {} -> error timeout   key k1
         wait 5s
         get {} -> ok a   key k1
         other {} -> ok b
         get {} -> ok a   key k2",
    );
}

#[test]
fn open_effect_with_content_may_be_repeated_once() {
    check(
        "rules same_call
         refund {\"order\":7,\"note\":\"for the late parcel\"} -> error timeout
         wait 1m
         refund {\"order\":7,\"note\":\"for the late parcel\"} => allow outcome_unknown as r2
         record r2 error timeout
         refund {\"order\":7,\"note\":\"for the late parcel\"} => deny outcome_unknown
         refund {\"order\":8,\"note\":\"for the late parcel\"} -> error network saying connect ECONNREFUSED
         wait 1m
         refund {\"order\":8,\"note\":\"for the late parcel\"} => allow attempt 2
         run next
         refund {\"order\":7,\"note\":\"for the late parcel\"} => allow",
    );
}

#[test]
fn a_late_success_answers_the_next_attempt_once() {
    check(
        "rules same_call
         refund {\"order\":7,\"note\":\"for the late parcel\"} => allow as r1
         record r1 error timeout
         record r1 ok refunded
         refund {\"order\":7,\"note\":\"for the late parcel\"} => reuse duplicate_call_blocked
         refund {\"order\":7,\"note\":\"for the late parcel\"} => allow attempt 1
         refund {\"order\":8,\"note\":\"for the late parcel\"} => allow as r2
         record r2 error timeout
         wait 1m
         refund {\"order\":8,\"note\":\"for the late parcel\"} => allow outcome_unknown as r3
         record r2 ok refunded
         refund {\"order\":8,\"note\":\"for the late parcel\"} => reuse duplicate_call_blocked
         record r3 error timeout
         record r2 error timeout => settled",
    );
}

#[test]
fn an_error_in_other_words_is_no_repetition() {
    check(
        "rules same_call
         retry probe_share 0
         retry attempts 2
         finish {\"answer\":\"three stars\"} -> error other saying the first star is wrong
         wait 1m
         finish {\"answer\":\"three stars\"} -> error other saying the second star is missing
         wait 1m
         finish {\"answer\":\"three stars\"} => allow
         session same
         finish {\"answer\":\"three stars\"} -> error other saying the first star is wrong
         wait 1m
         finish {\"answer\":\"three stars\"} -> error other saying the first star is wrong
         wait 1m
         finish {\"answer\":\"three stars\"} => deny retries_exhausted",
    );
}

#[test]
fn an_act_is_answered_once_after_a_compaction_and_then_done_again() {
    check(
        "rules same_call
         run one
         make {\"title\":\"two words\"} -> ok {\"id\":\"doc_$n\"}
         find {\"query\":\"two words\"} -> ok {\"rows\":[{\"id\":1,\"n\":2}]}
         make {\"id\":7} -> ok {\"id\":\"doc_$n\"}
         compacted
         find {\"query\":\"two words\"} => allow
         make {\"id\":7} => allow
         make {\"title\":\"other words\"} => allow
         make {\"title\":\"two words\"} => reuse duplicate_call_blocked
         make {\"title\":\"two words\"} -> ok {\"id\":\"doc_$n\"} => allow duplicate_call_blocked
         run two
         make {\"title\":\"two words\"} => allow",
    );
}
