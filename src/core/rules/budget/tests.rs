//! Every dimension, in every scope that has it.

use crate::rules::testing::check;

#[test]
fn steps_stop_the_run_and_the_last_one_says_so() {
    check(
        "rules budget
         limit run max_steps 5
         call {\"n\":new} => allow   x3
         call {\"n\":new} => allow, warning budget 80
         call {\"n\":new} => allow disabled, warning budget 100
         call {\"n\":new} => stop step_budget_exceeded disabled
         run next
         call {\"n\":new} => allow",
    );
}

#[test]
fn refused_calls_are_steps_and_no_calls() {
    check(
        "rules same_call budget
         limit run max_steps 4
         limit call_tree max_tool_calls 2
         call {} -> error auth
         call {} => deny not_retryable
         call {\"n\":1} => allow disabled
         call {\"n\":2} => stop budget_exceeded disabled
         call {\"n\":3} => stop step_budget_exceeded disabled",
    );
}

#[test]
fn budget_takes_one_step_for_a_call_that_waits_under_however_many_ids() {
    check(
        "rules same_call budget
         limit run max_steps 4
         limit agent max_steps 4
         agent one
         call {} => allow as c1
         call {} => wait call_in_flight
         call {} => wait call_in_flight   x30
         call {\"n\":1} => allow
         call {} => wait call_in_flight
         record c1 ok done
         call {} => allow as c2
         call {\"n\":2} => allow disabled, warning budget 100
         call {} => stop step_budget_exceeded disabled",
    );
}

#[test]
fn budget_takes_a_step_after_a_wait_for_another_call_or_in_another_run() {
    check(
        "rules same_call budget
         limit run max_steps 4
         call {\"n\":new} => allow
         call {} => allow as c1
         call {} => wait call_in_flight
         call {\"n\":new} => allow disabled, warning budget 100
         call {\"n\":new} => stop step_budget_exceeded disabled
         run next
         call {} => wait call_in_flight
         call {\"n\":new} => allow   x2
         call {} => wait call_in_flight
         call {\"n\":new} => allow disabled, warning budget 100",
    );
}

#[test]
fn an_allow_reserves_and_a_record_books_the_actual() {
    check(
        "rules budget
         limit call_tree max_total_cost_usd 1.00
         call {\"n\":1} cost 0.60 => allow as c1
         call {\"n\":2} cost 0.60 => deny budget_exceeded
         record c1 ok done cost 0.10
         call {\"n\":3} cost 0.60 => allow as c3
         record c3 cancelled
         call {\"n\":4} cost 0.75 => allow as c4, warning budget 80
         record c4 unknown
         call {\"n\":5} cost 0.20 => deny budget_exceeded
         record c4 ok done cost 1.50
         call {\"n\":6} => stop budget_exceeded disabled",
    );
}

#[test]
fn tokens_of_every_kind_count_when_they_are_reported() {
    check(
        "rules budget
         limit run max_tokens 1000
         call {\"n\":1} tokens 500 => allow
         call {\"n\":2} tokens 500 => stop budget_exceeded disabled",
    );
}

#[test]
fn time_runs_out() {
    check(
        "rules budget
         limit run max_elapsed 60000
         call {\"n\":1} => allow
         wait 60s
         call {\"n\":2} => stop budget_exceeded disabled
         run next
         call {\"n\":3} => allow",
    );
}

#[test]
fn a_tools_own_limits_deny_that_tool_only() {
    check(
        "rules budget
         limit run max_calls_per_tool 3
         limit run max_consecutive_same_tool 2
         a {\"n\":1} => allow
         a {\"n\":2} => allow
         a {\"n\":3} => deny budget_exceeded
         b {\"n\":1} => allow
         a {\"n\":4} => allow
         b {\"n\":2} => allow
         a {\"n\":5} => deny budget_exceeded",
    );
}

#[test]
fn a_tree_shares_its_budget_and_its_depth_is_bounded() {
    check(
        "rules budget
         limit call_tree max_tool_calls 10
         limit call_tree max_session_depth 1
         session root
         a {\"n\":1} => allow   x2
         session child parent root
         a {\"n\":new} => allow   x5
         session grandchild parent child
         a {\"n\":1} => stop budget_exceeded
         session child
         a {\"n\":new} => allow, warning budget 80
         a {\"n\":new} => allow, warning budget 90
         a {\"n\":new} => allow disabled, warning budget 100
         session root
         a {\"n\":new} => stop budget_exceeded disabled",
    );
}

#[test]
fn an_agent_and_a_tenant_share_their_day() {
    check(
        "rules budget
         limit agent max_tool_calls 2
         limit tenant max_tool_calls 3
         agent one
         a {\"n\":1} => allow
         session other
         a {\"n\":2} => allow disabled, warning budget 100
         a {\"n\":3} => stop budget_exceeded disabled
         agent two
         session third
         a {\"n\":4} => allow disabled, warning budget 100
         a {\"n\":5} => stop budget_exceeded disabled
         wait 24h
         a {\"n\":6} => allow",
    );
}

#[test]
fn a_spent_budget_disables_no_tool_that_is_in_shadow() {
    check(
        "policy
           tool_schemas: {look: {effect: read, mode: shadow}, edit: {effect: write}}
         end
         rules budget
         limit run max_steps 1
         look {} => allow step_budget_exceeded, warning budget 100
         edit {} => stop step_budget_exceeded
         look {\"n\":1} => allow step_budget_exceeded",
    );
}
