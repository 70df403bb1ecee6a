//! Hints at earlier creations: by a near duplicate, or by the same agent in another call tree.

use crate::domain::{
    answer::ResultMarkers,
    creation::Creation,
    effect::EffectKind,
    finding::{Decision, Finding, Level},
    reason::Reason,
    similarity::NearDuplicate,
    time::wait_in_words,
};

use super::{RULE, RuleContext};

/// For the first call of an undeclared tool with content: the tool succeeded in this run with near-duplicate arguments,
/// or the same agent made the same call elsewhere.
pub(super) fn made_before(cx: &RuleContext<'_>) -> Option<Finding> {
    let effect = &cx.proposal.effect;
    let is_act = matches!(effect.kind, EffectKind::Unknown | EffectKind::Write) && !effect.writes_a_named_thing();
    if !is_act || !cx.has_content() || cx.tree.calls_of(cx.fingerprint()).any(|(_, _, call)| call.permit.is_some()) {
        return None;
    }
    near_duplicate(cx).or_else(|| by_the_same_agent(cx))
}

fn near_duplicate(cx: &RuleContext<'_>) -> Option<Finding> {
    let tool = &cx.proposal.request.tool;
    let mut earlier = cx.run_calls().filter(|call| call.tool == *tool && !cx.is_same(call));
    let (outcome, near) = earlier.find_map(|call| {
        let outcome = call.success()?;
        let marks = outcome.marks.as_deref()?;
        let is_made = call.effect.kind == EffectKind::Write || names_something(marks);
        let near = cx.proposal.shape.near_duplicate_of(call.shape.as_deref().filter(|_| is_made)?)?;
        // A setting that is left out has the value that a declared tool's schema may state.
        (near.omitted.is_empty() || !cx.proposal.declared).then_some((outcome, near))
    })?;
    let name = outcome.marks.as_deref().and_then(|marks| marks.named.iter().next());
    let situation = format!(
        "{tool} succeeded {} ago with arguments that differ only in {}{}.",
        wait_in_words(cx.now.since_ms(outcome.at)),
        differences(&near),
        gave(name.map(|(_, name)| name)),
    );
    Some(hint(&situation, name.map(|(_, name)| name)))
}

fn by_the_same_agent(cx: &RuleContext<'_>) -> Option<Finding> {
    let Creation { call, at, name } = cx.creation.filter(|it| !cx.tree.sessions.contains_key(&it.call.session))?;
    let situation = format!(
        "{} succeeded {} ago with these arguments, for the same agent in session {}{}.",
        cx.tool(),
        wait_in_words(cx.now.since_ms(*at)),
        call.session,
        gave(name.as_deref()),
    );
    Some(hint(&situation, name.as_deref()))
}

fn hint(situation: &str, name: Option<&str>) -> Finding {
    let it = name.unwrap_or("that result");
    let message = format!("{situation} If the same thing is meant, go on with {it} and do not make another.");
    Finding::new(RULE.id, Decision::Allow, Reason::RepeatedSuccess, message).at_level(Level::Warning, 2)
}

/// True when the result names something, or contains a recent creation time.
pub(crate) fn names_something(marks: &ResultMarkers) -> bool {
    marks.made_now || !marks.names.is_empty()
}

fn gave(name: Option<&str>) -> String {
    name.map(|name| format!(", and gave {name}")).unwrap_or_default()
}

/// ``white space, case or punctuation of `title`, and in `notify`, which one of the two calls leaves out``.
fn differences(near: &NearDuplicate<'_>) -> String {
    let listed = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ");
    let spelling = format!("white space, case or punctuation of {}", listed(&near.respelled));
    let omitted = format!("{}, which one of the two calls leaves out", listed(&near.omitted));
    match (near.respelled.is_empty(), near.omitted.is_empty()) {
        (false, true) => spelling,
        (true, _) => omitted,
        (false, false) => format!("{spelling}, and in {omitted}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::{check, play};

    fn list_messages(story: &str) -> Vec<String> {
        let said = play(story, None).unwrap_or_else(|problem| panic!("{problem}"));
        said.iter().map(|verdict| verdict.findings.first().map(|it| it.message.clone()).unwrap_or_default()).collect()
    }

    #[test]
    fn a_near_duplicate_is_named_once_with_what_differs() {
        let said = list_messages(
            "rules same_success
             step 60s
             create_document {\"title\":\"Q3 report\"} -> ok {\"id\":\"doc_1\"} => allow
             create_document {\"title\":\"q3  report.\"} -> ok {\"id\":\"doc_2\"} => whatever
             create_document {\"title\":\"q3  report.\"} -> ok {\"id\":\"doc_3\"} => allow
             create_document {\"title\":\"Q3 Report\",\"notify\":false} => whatever
             create_document {\"title\":\"Q4 report\"} => allow",
        );
        let expected = "create_document succeeded 60 s ago with arguments that differ only in white space, case or \
                        punctuation of `title`, and gave doc_1. If the same thing is meant, go on with doc_1 and do \
                        not make another.";
        assert_eq!(said[1], expected);
        assert!(said[2].is_empty(), "{said:?}");
        assert!(said[3].contains("of `title`, and in `notify`, which one of the two calls leaves out, and gave doc_"));
        assert!(said[4].is_empty(), "{said:?}");
    }

    #[test]
    fn declared_call_or_one_without_a_creation_is_no_near_duplicate() {
        check(
            "rules same_success
             search {\"q\":\"late orders\"} -> ok \"none found\" => allow
             search {\"q\":\"Late orders\"} -> ok \"none found\" => allow
             tool find read
             find {\"q\":\"late orders\"} -> ok {\"id\":\"doc_1\"} => allow
             find {\"q\":\"Late orders\"} -> ok {\"id\":\"doc_1\"} => allow
             tool rename write doc/{id}
             rename {\"id\":\"d1\",\"to\":\"late orders\"} -> ok {\"id\":\"rev_1\"} => allow
             rename {\"id\":\"d1\",\"to\":\"Late orders\"} -> ok {\"id\":\"rev_2\"} => allow
             create_document {\"title\":\"Q3 report\"} -> ok {\"id\":\"doc_1\"} => allow
             run next
             create_document {\"title\":\"q3 report\"} -> ok {\"id\":\"doc_2\"} => allow",
        );
    }

    #[test]
    fn an_agent_that_was_restarted_is_told_what_it_made() {
        let said = list_messages(
            "rules same_success
             agent writer
             create_document {\"title\":\"Q3 report\"} -> ok {\"id\":\"doc_1\"} => allow
             wait 59s
             session restarted
             create_document {\"title\":\"Q3 report\"} -> ok {\"id\":\"doc_2\"} => whatever
             session other
             agent reader
             create_document {\"title\":\"Q3 report\"} -> ok {\"id\":\"doc_3\"} => allow
             agent writer
             wait 6m
             session late
             create_document {\"title\":\"Q3 report\"} -> ok {\"id\":\"doc_4\"} => allow",
        );
        let expected = "create_document succeeded 60 s ago with these arguments, for the same agent in session s, and \
                        gave doc_1. If the same thing is meant, go on with doc_1 and do not make another.";
        assert_eq!(said[1], expected);
    }
}
