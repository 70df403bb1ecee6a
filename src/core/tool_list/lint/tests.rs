use super::{testing::run, *};

const LIST: &str = "
- {name: delete_user, description: Deletes., input_schema: {properties: {amount_usd: {type: number}}}}
- {name: pay, policy: {effect: write}, input_schema: {properties: {idempotency_key: {type: string}}}}
";

/// Reports as `severity lint tool`, in their order.
fn list_reports(levels: &SeverityOverrides) -> Vec<String> {
    let brief = |(lint, text): (String, String)| {
        let mut words = text.split([' ', ':']);
        format!("{} {lint} {}", words.next().unwrap_or_default(), words.next().unwrap_or_default())
    };
    run(LIST, levels).into_iter().map(brief).collect()
}

#[test]
fn every_lint_has_its_id_its_manual_and_a_summary() {
    for lint in LINTS {
        assert_eq!(LINTS.iter().filter(|other| other.id == lint.id).count(), 1, "{}", lint.id);
        assert!(lint.manual().starts_with(&format!("{}: ", lint.id)), "{}", lint.manual());
        assert!(!lint.summary().is_empty() && !lint.summary().contains('\n'), "{}", lint.id);
        assert!(find(lint.id).is_some_and(|found| found.id == lint.id));
    }
    assert!(find("siblngs").is_none());
}

#[test]
fn reports_come_by_tool_and_then_by_lint() {
    assert_eq!(
        list_reports(&SeverityOverrides::default()),
        [
            "note destructive_confirmation delete_user",
            "error money_minor_units delete_user",
            "warning use_when delete_user",
            "note write_idempotency delete_user",
            "note undo delete_user",
            "warning additional_properties delete_user",
            "warning unbounded_number delete_user",
            "error visible_idempotency_key pay",
            "warning use_when pay",
            "warning write_idempotency pay",
            "warning undo pay",
            "warning additional_properties pay",
        ]
    );
}

#[test]
fn common_report_is_made_once_unless_denied() {
    let tools = (0..9).map(|n| format!("- {{name: show_page_{n}, description: Shows page {n}.}}\n"));
    let list = tools.collect::<String>();
    let of = |levels: &SeverityOverrides| -> Vec<String> {
        let told = run(&list, levels).into_iter().filter(|(lint, _)| lint == "use_when");
        told.map(|(_, text)| text).collect()
    };
    let once = of(&SeverityOverrides::default());
    assert_eq!(once.len(), 1, "{once:?}");
    assert!(once[0].starts_with("warning -: 9 of 9 tools: a description that does not say when to use"), "{once:?}");
    assert!(once[0].ends_with("better: `--deny use_when` tells each with its better text"), "{once:?}");
    assert_eq!(of(&SeverityOverrides { denied: vec!["use_when".to_owned()], ..SeverityOverrides::default() }).len(), 9);
}

#[test]
fn the_caller_allows_and_denies_and_guesses_stay_notes() {
    let all = list_reports(&SeverityOverrides::default());
    let levels = SeverityOverrides {
        allowed: vec!["money_minor_units".to_owned()],
        denied: vec!["undo".to_owned()],
        deny_warnings: false,
    };
    let mut expected: Vec<String> = all
        .iter()
        .filter(|line| !line.contains("money_minor_units"))
        .map(|line| line.replace("warning undo", "error undo"))
        .collect();
    // The tool with the only errors comes first.
    let first = expected.iter().position(|line| line.ends_with(" pay")).expect("there");
    expected.rotate_left(first);
    assert_eq!(list_reports(&levels), expected);
    let strict = list_reports(&SeverityOverrides { deny_warnings: true, ..SeverityOverrides::default() });
    let expected: Vec<String> = all.iter().map(|line| line.replace("warning", "error")).collect();
    assert_eq!(strict, expected);
    assert!(strict.iter().any(|line| line.starts_with("note")));
}
