use crate::{
    domain::verdict::Verdict,
    rules::testing::{check, play},
};

#[test]
fn the_third_of_one_shape_warns_and_the_fifth_is_refused() {
    for made in [
        "{\"id\":\"doc_$n\",\"title\":\"Q3\"}",
        "{\"documentId\":$n,\"title\":\"Q3\"}",
        "\"created doc_$n\"",
        "\"created $u\"",
        "{\"id\":\"$u\"}",
        "{\"html_url\":\"https://example.com/d/q3-$n\"}",
        "{\"content\":[{\"type\":\"text\",\"text\":\"{\\\"id\\\":$n}\"}]}",
    ] {
        check(&format!(
            "rules same_success
             create_document {{\"title\":\"Q3 report\"}} -> ok {made} => allow x2
             create_document {{\"title\":\"Q3 report\"}} -> ok {made} => allow, warning same_success 3
             create_document {{\"title\":\"Q3 report\"}} -> ok {made} => allow
             create_document {{\"title\":\"Q3 report\"}} => deny repeated_success, critical same_success 5
             create_document {{\"title\":\"Q3 report\"}} => deny repeated_success, critical same_success 5 x6
             create_document {{\"title\":\"Q4 report\"}} -> ok {made} => allow
             run next
             create_document {{\"title\":\"Q3 report\"}} => allow"
        ));
    }
}

#[test]
fn counts_are_no_receipts_and_other_work_in_between_is_warned_of_only() {
    check(
        "rules same_success
         make {\"of\":\"two words\"} -> ok \"there are $n of them\" => allow x12
         session between
         (make {\"of\":\"two words\"} -> ok {\"id\":$n}; edit {\"n\":new} -> ok edited) x6
         make {\"of\":\"two words\"} => allow",
    );
}

#[test]
fn acts_count_over_the_call_tree() {
    check(
        "rules same_success
         plan {} -> ok done
         session a parent s
         make {\"title\":\"two words\"} -> ok {\"id\":\"doc_$n\"} => allow x2
         session b parent s
         make {\"title\":\"two words\"} -> ok {\"id\":\"doc_$n\"} => allow, warning same_success 3
         make {\"title\":\"other words\"} -> ok {\"id\":\"doc_$n\"} => allow
         session c parent s
         make {\"title\":\"two words\"} -> ok {\"id\":\"doc_$n\"} => allow
         session d parent a
         make {\"title\":\"two words\"} => deny repeated_success, critical same_success 5
         make {\"title\":\"third words\"} => allow",
    );
}

#[test]
fn repeatable_call_is_not_counted() {
    for fact in ["read", "poll", "check", "write repeatable"] {
        check(&format!(
            "rules same_success
             tool take {fact}
             take {{}} -> ok {{\"id\":$n}} => allow x12
             take {{}} -> ok ok => allow x12"
        ));
    }
}

#[test]
fn another_shape_or_the_same_thing_again_is_not_it() {
    check(
        "rules same_success
         look {} -> ok {\"id\":$n,\"left\":4} => allow
         look {} -> ok {\"id\":$n,\"left\":3} => allow
         look {} -> ok {\"id\":$n,\"left\":2} => allow
         look {} -> ok {\"id\":$n,\"left\":1} => allow
         look {} => allow
         session same
         upsert {} -> ok {\"id\":7,\"title\":\"the_same_document_in_more_than_sixty-four_bytes_of_text\"} => allow x9",
    );
}

#[test]
fn a_key_is_pressed_nineteen_times_and_a_mail_is_slowed_at_the_fifth() {
    check(
        "rules same_success
         press_key {\"key\":\"down\"} -> ok ok => allow x9
         press_key {\"key\":\"down\"} -> ok ok => allow, warning same_success 10
         press_key {\"key\":\"down\"} -> ok ok => allow x9
         press_key {\"key\":\"down\"} => wait repeated_success after 14s, critical same_success 20
         wait 13s
         press_key {\"key\":\"down\"} -> ok ok => allow, warning same_success 20
         press_key {\"key\":\"down\"} => wait repeated_success after 29s
         press_key {\"key\":\"left\"} -> ok ok => allow
         press_key {\"key\":\"down\"} => allow
         session mails
         step 6m
         send {\"text\":\"good morning\"} -> ok sent => allow x2
         send {\"text\":\"good morning\"} -> ok sent => allow, warning same_success 3
         send {\"text\":\"good morning\"} -> ok sent => allow
         send {\"text\":\"good morning\"} -> ok sent x5
         send {\"text\":\"good morning\"} => deny repeated_success, critical same_success 10
         session fast
         step 1s
         send {\"text\":\"good morning\"} -> ok sent x4
         send {\"text\":\"good morning\"} => wait repeated_success after 14s, critical same_success 5",
    );
}

#[test]
fn result_without_content_waits_before_it_is_refused() {
    check(
        "rules same_success
         take_job {\"queue\":\"q\",\"worker\":\"w\"} -> ok {\"id\":$n} => allow x2
         take_job {\"queue\":\"q\",\"worker\":\"w\"} -> ok {\"id\":$n} => allow, warning same_success 3
         take_job {\"queue\":\"q\",\"worker\":\"w\"} -> ok {\"id\":$n} => allow
         take_job {\"queue\":\"q\",\"worker\":\"w\"} => wait repeated_success after 14s, critical same_success 5
         session bare
         screenshot {} -> ok {\"id\":$n} => allow x4
         screenshot {} -> ok {\"id\":$n} => allow, warning same_success 5
         screenshot {} -> ok {\"id\":$n} => allow x4
         screenshot {} => wait repeated_success after 14s, critical same_success 10",
    );
}

#[test]
fn a_repetition_that_is_meant_is_a_question_to_a_person() {
    check(
        "rules same_success
         make {\"of\":\"two words\"} -> ok {\"id\":$n} x4
         make {\"of\":\"two words\"} repeat => ask repeated_success, critical same_success 5",
    );
}

#[test]
fn a_nonce_makes_no_other_call_and_refuses_none() {
    check(
        "rules same_success
         make {\"title\":\"Q3\",\"nonce\":\"$u\"} -> ok {\"id\":$n} => allow x2
         make {\"title\":\"Q3\",\"nonce\":\"$u\"} -> ok {\"id\":$n} => allow, warning same_success 3
         make {\"title\":\"Q3\",\"nonce\":\"$u\"} -> ok {\"id\":$n} => allow x2
         make {\"title\":\"Q4\",\"nonce\":\"$u\"} => allow",
    );
}

#[test]
fn the_refusal_names_what_was_made() {
    let made = "make {\"of\":\"two words\"} -> ok {\"id\":\"doc_$n\",\"owner_id\":\"u_7\"} x4";
    let story = &format!("rules same_success\n{made}\nmake {{\"of\":\"two words\"}} => deny repeated_success");
    let said = play(story, None).unwrap_or_else(|problem| panic!("{problem}"));
    let told = said.last().and_then(Verdict::winner).expect("a finding");
    assert!(told.message.contains("4 times") && told.message.contains("doc_2, doc_4, doc_6 and doc_8"), "{told:?}");
    assert_eq!(told.next_action.as_deref(), Some("Go on with doc_8; for something different, change the arguments."));
}
