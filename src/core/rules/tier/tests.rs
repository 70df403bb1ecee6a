//! Tiers, as stories.

use crate::rules::testing::check;

const DOCUMENTS: &str = "policy
    authorization:
      tiers:
        - {name: reads, pattern: 'get_*|list_*', action: allowlist, rate_limit: 100/min}
        - {name: writes, pattern: 'create_*|update_*', action: per_conversation_grant, ceiling: 3, ttl_ms: 60000}
        - {name: destructive, pattern: 'delete_*|transfer_*', action: hitl, require_reason: true}
        - {name: never, pattern: 'drop_*', action: deny}
  end
  rules tier same_call
  ";

#[test]
fn the_first_tier_that_matches_decides() {
    check(&format!(
        "{DOCUMENTS}
         get_order {{}} => allow
         drop_table {{}} => deny tool_denied
         delete_order {{}} => deny validation_error
         delete_order {{}} because the user asked for it => ask approval_required
         something_else {{}} => ask unknown_risk_level"
    ));
}

#[test]
fn a_grant_is_for_so_many_calls_and_so_long_and_sub_agents_share_it() {
    check(&format!(
        "{DOCUMENTS}
         create_order {{\"n\":new}} => allow
         session child parent s
         create_order {{\"n\":new}} => allow   x2
         create_order {{\"n\":new}} => deny grant_exceeded
         session other
         create_order {{\"n\":new}} => allow
         wait 2m
         create_order {{\"n\":new}} => deny grant_exceeded
         grant update_* 1
         create_order {{\"n\":new}} => deny grant_exceeded
         update_order {{\"n\":new}} => allow
         update_order {{\"n\":new}} => deny grant_exceeded"
    ));
}

#[test]
fn a_rate_holds_for_every_minute_whenever_it_begins() {
    check(
        "policy
           authorization: {tiers: [{name: all, pattern: '*', action: allowlist, rate_limit: 2/min}]}
         end
         rules tier
         step 0s
         look {\"n\":new} => allow
         wait 20s
         look {\"n\":new} => allow
         look {\"n\":new} => wait rate_limited_by_policy after 40s
         wait 40s
         look {\"n\":new} => allow
         look {\"n\":new} => wait rate_limited_by_policy after 20s",
    );
}

#[test]
fn a_rate_of_the_tenant_holds_over_sessions() {
    check(
        "policy
           authorization: {tiers: [{name: all, pattern: '*', action: allowlist, rate_limit: 2/min, per: tenant}]}
         end
         rules tier
         step 0s
         look {\"n\":new} => allow
         session b
         look {\"n\":new} => allow
         session c
         look {\"n\":new} => wait rate_limited_by_policy
         wait 59s
         look {\"n\":new} => wait rate_limited_by_policy
         wait 4s
         look {\"n\":new} => allow",
    );
}

#[test]
fn a_condition_can_ask_deny_or_raise_the_risk() {
    check(
        "policy
           tool_schemas:
             pay:
               risk_level: LOW
               conditions:
                 - {when: args.cents > 100000, then: ask}
                 - {when: args.to == 'nobody', then: deny}
             move: {risk_level: LOW, conditions: [{when: args.far, then: HIGH}]}
         end
         rules tier
         pay {\"cents\":100000,\"to\":\"anna\"} => allow
         pay {\"cents\":100001,\"to\":\"anna\"} => ask approval_required
         pay {\"cents\":100001,\"to\":\"nobody\"} => deny tool_denied
         move {\"far\":false} => allow
         move {\"far\":true} => ask approval_required",
    );
}

#[test]
fn risk_decides_where_no_tier_matches() {
    check(
        "policy
           tool_schemas: {look: {risk_level: LOW}, edit: {risk_level: MEDIUM}, drop: {risk_level: HIGH}}
         end
         rules tier
         look {\"n\":new} => allow   x12
         edit {\"n\":new} => allow   x10
         edit {\"n\":new} => deny grant_exceeded
         drop {} => ask approval_required",
    );
}

/// Values equal by Unicode or as doubles execute differently, so an approval binds exact bytes.
#[test]
fn a_yes_is_for_the_very_bytes_that_were_shown() {
    let pairs = [
        (r#""a\u037eb""#, r#""a;b""#),
        (r#""\u212a""#, r#""K""#),
        (r#""\u1fef""#, r#""`""#),
        (r#""/w/caf\u00e9""#, r#""/w/cafe\u0301""#),
        ("0.123456789012345678", "0.123456789012345679"),
        ("900719925474099267", "900719925474099268"),
    ];
    for (shown, other) in pairs {
        check(&format!(
            "{DOCUMENTS}
             tool delete_order once
             delete_order {{\"id\":{shown}}} because asked => ask approval_required as d1
             approve
             delete_order {{\"id\":{other}}} because asked => ask approval_required
             delete_order {{\"id\":{shown}}} because asked => allow as d1
             record d1 ok gone
             delete_order {{\"id\":{other}}} because asked => ask approval_required"
        ));
        check(&format!(
            "rules same_call
             tool look read
             look {{\"at\":{shown}}} -> ok found
             look {{\"at\":{other}}} => allow
             look {{\"at\":{shown}}} => reuse duplicate_call_blocked"
        ));
    }
}
