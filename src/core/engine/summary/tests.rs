//! Summary laws: its size is independent of the session's length, and its text depends on stored data alone.

use super::{
    token_limit::{LinePriority, SummaryLine, SummarySection, fit, tokens},
    *,
};
use crate::domain::session_state::SUMMARY_TOKENS_DEFAULT;

fn reads(count: u64) -> Vec<SummarySection> {
    let read = |n| {
        SummaryLine::optional_line(LinePriority::Read, n, format!("  - {{path: src/file_{n}.rs}}: text of 900 bytes"))
            .of("read_file".to_owned())
    };
    let write = |n| {
        SummaryLine::optional_line(LinePriority::Write, n, format!("- create_document {{title: T{n}}} made doc_{n}"))
            .of("create_document".to_owned())
    };
    let paid = SummaryLine::optional_line(LinePriority::Once, 1, "- pay {order: o-1} made p_1".to_owned())
        .of("pay".to_owned());
    let writes = (0..count).map(write).chain([paid]).collect();
    vec![SummarySection::of("Done:", writes), SummarySection::by_tool("Called:", (0..count).map(read).collect())]
}

#[test]
fn a_summary_is_never_longer_than_asked() {
    for count in [0, 1, 10, 100, 1_000, 5_000] {
        for budget in [SUMMARY_TOKENS_MIN, SUMMARY_TOKENS_DEFAULT, SUMMARY_TOKENS_MAX] {
            let text = fit(reads(count), budget);
            assert!(tokens(&text) <= budget, "{count} calls in {budget} tokens: {}", tokens(&text));
            assert!(text.contains("pay {order: o-1} made p_1"), "{count} calls in {budget} tokens:\n{text}");
            let of_tools = |n: u64| {
                let text = format!("  - {{path: src/file_{n}.rs}}: text of 900 bytes");
                SummaryLine::optional_line(LinePriority::Read, n, text).of(format!("read_{}", n % 400))
            };
            let text = fit(vec![SummarySection::by_tool("Called:", (0..count).map(of_tools).collect())], budget);
            assert!(tokens(&text) <= budget, "{count} calls of many tools in {budget} tokens: {}", tokens(&text));
        }
    }
}

#[test]
fn the_oldest_reads_go_first_and_that_is_said() {
    let text = fit(reads(200), SUMMARY_TOKENS_DEFAULT);
    assert!(text.contains("file_199.rs") && !text.contains("file_0.rs"), "{text}");
    assert!(
        text.contains(
            "- create_document: 200 different calls succeeded, the newest create_document {title: T199} made doc_199"
        ),
        "{text}"
    );
    let shown = text.matches("read_file\n").count() + text.matches("src/file_").count() - 1;
    let left_out = format!("read_file\n  - {} earlier calls with other arguments succeeded\n", 200 - shown);
    assert!(text.contains(&left_out), "{text}");
}
