//! Attempts with an open effect: their keys, their settlement, and double effects.

use crate::rules::testing::check;

#[test]
fn a_write_whose_provider_knows_the_key_again_may_be_sent_again_with_it() {
    check(
        "rules same_call
         tool pay once key_honored
         pay {} -> error timeout sent   key k1
         pay {} -> ok paid sent   key k1
         pay {} => reuse duplicate_call_blocked",
    );
}

#[test]
fn write_with_a_provider_key_that_was_not_sent_needs_a_person_to_repeat() {
    check(
        "rules same_call
         tool pay once key_honored
         tool book write key_honored lease 1m
         pay {} -> error timeout
         pay {} => deny outcome_unknown
         session other
         pay {} => deny outcome_unknown
         session s
         book {\"n\":1} -> error timeout sent
         book {\"n\":1} -> error timeout
         book {\"n\":1} => deny outcome_unknown
         book {\"n\":2} => allow
         wait 2m
         book {\"n\":2} => deny outcome_unknown",
    );
}

#[test]
fn an_open_payment_is_closed_in_all_trees_whatever_comes_between() {
    check(
        "rules same_call
         tool pay once
         tool look read
         run one
         pay {} => allow as p1
         record p1 error timeout
         run two
         compacted
         look {} -> ok nothing
         wait 30m
         pay {} => deny outcome_unknown
         session other
         pay {} => deny outcome_unknown
         wait 30h
         pay {} => deny outcome_unknown
         session s
         record p1 ok paid
         session other
         pay {} => reuse duplicate_call_blocked",
    );
}

#[test]
fn already_exists_settles_the_first_attempt_as_a_success() {
    check(
        "rules same_call
         tool pay once key_honored
         pay {} -> error timeout sent   key k1
         pay {} -> error conflict sent saying payment already exists   key k1
         pay {} => reuse duplicate_call_blocked
         session other
         pay {} => reuse duplicate_call_blocked
         session s
         make {\"title\":\"Q3 report\"} => allow as m1
         record m1 error timeout
         wait 1m
         make {\"title\":\"Q3 report\"} => allow outcome_unknown as m2
         record m2 error invalid_argument saying Q3 report already exists => final
         make {\"title\":\"Q3 report\"} => reuse duplicate_call_blocked
         record m1 ok made
         record m1 ok more => settled
         make {\"title\":\"other report\"} -> error invalid_argument saying other report already exists
         make {\"title\":\"other report\"} => deny not_retryable",
    );
}

#[test]
fn a_success_reported_after_an_operators_no_is_accepted() {
    check(
        "rules same_call
         tool pay once
         pay {} => allow as p1
         record p1 error timeout
         record p1 cancelled by_operator
         record p1 ok paid
         record p1 error timeout => settled
         pay {} => reuse duplicate_call_blocked
         session other
         pay {} => reuse duplicate_call_blocked",
    );
    check(
        "rules same_call
         tool pay once
         pay {} => allow as p1
         record p1 error timeout
         record p1 cancelled by_operator
         pay {} => allow as p2
         record p2 ok paid
         record p1 ok paid
         summary says Done twice:
         session other
         pay {} => reuse duplicate_call_blocked",
    );
    check(
        "rules same_call
         refund {\"note\":\"late parcel\"} => allow as r1
         record r1 error timeout
         wait 1m
         refund {\"note\":\"late parcel\"} => allow outcome_unknown as r2
         record r2 error timeout
         wait 1m
         refund {\"note\":\"late parcel\"} => deny outcome_unknown
         record r2 cancelled by_operator
         refund {\"note\":\"late parcel\"} => allow",
    );
    check(
        "rules same_call
         tool pay once
         pay {} => allow as p1
         record p1 unstarted
         record p1 ok paid => settled",
    );
}

#[test]
fn two_successes_of_one_call_are_told_once() {
    check(
        "rules same_call
         refund {\"note\":\"late parcel\"} => allow as r1
         record r1 error timeout
         wait 1m
         refund {\"note\":\"late parcel\"} -> ok {\"id\":\"re_1\"}
         look {} -> ok nothing
         record r1 ok {\"id\":\"re_2\"}
         summary says Done twice:
         summary says refund {note: late parcel} succeeded in two attempts
         look {\"n\":1} => allow double_effect
         look {\"n\":2} => allow",
    );
    check(
        "rules same_call
         tool pay once key_honored
         pay {} => allow as p1
         record p1 error timeout sent
         wait 1m
         pay {} => allow as p2
         record p1 ok paid sent
         record p2 ok paid sent
         summary lacks Done twice
         look {} => allow
         pay {} => reuse duplicate_call_blocked",
    );
}
