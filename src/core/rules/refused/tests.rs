use crate::rules::testing::check;

#[test]
fn the_eleventh_call_after_ten_refusals_stops_the_run() {
    check(
        "rules same_call refused
         (pay {} -> error auth; buy {} -> error auth)
         pay {} => deny not_retryable   x3
         look {} => allow, warning refused 3
         (pay {} => deny not_retryable; buy {} => deny not_retryable)   x5
         look {\"n\":2} => stop insisting_on_refused, break refused 10
         look {\"n\":3} => stop insisting_on_refused, break refused 10
         run next
         look {\"n\":4} => allow",
    );
}

#[test]
fn repeating_a_refused_call_ends_the_run_unless_others_run_between() {
    check(
        "rules same_call refused
         tool look read
         pay {} -> error auth
         (pay {} => deny not_retryable; look {\"n\":new} -> ok new => allow) x12
         pay {} => deny not_retryable   x10
         look {\"n\":2} => stop insisting_on_refused, break refused 10
         run next
         pay {} => allow",
    );
}

#[test]
fn session_without_context_gets_thirty_answers_and_two_repetitions() {
    let asked: String = (0..30).map(|n| format!("read {{\"page\":{n}}} => reuse duplicate_call_blocked\n")).collect();
    let first: String = (0..30).map(|n| format!("read {{\"page\":{n}}} -> ok page-{n} => allow\n")).collect();
    check(&format!("tool read read\n{first}{asked}look {{}} => allow"));
}

#[test]
fn a_refusal_for_other_fields_is_work_in_progress() {
    check(
        "policy
           tool_schemas:
             book:
               schema: {type: object, required: [a, b, c], properties: {a: {}, b: {}, c: {}, n: {type: integer}}}
         end
         rules schema refused
         book {\"n\":1} => deny validation_error
         book {\"n\":1,\"a\":1} => deny validation_error
         book {\"n\":1,\"a\":1,\"b\":1} => deny validation_error
         book {\"n\":\"x\",\"a\":1,\"b\":1,\"c\":1} => deny validation_error
         book {\"n\":\"y\",\"a\":1,\"b\":1,\"c\":1} => deny validation_error x3
         book {\"n\":\"z\",\"a\":1,\"b\":1,\"c\":1} => deny validation_error, warning refused 3",
    );
}
