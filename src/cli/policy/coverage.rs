//! Coverage of a policy in `callgate policy test`, and the results as JUnit XML.

use serde_json::json;

use callgate_core::offline::{coverage::Coverage, duplicates::Doubles};

/// Maximum number of parts without a call in a line.
const LISTED_MAX: usize = 20;

pub(super) fn print(coverage: &Coverage, json: bool) {
    if json {
        for part in &coverage.parts {
            outln!("{}", json!({"kind": part.kind, "name": part.name, "calls": part.calls}));
        }
        return;
    }
    outln!("{:>10} {:>8}  part of the policy, reached by {} calls", "reached", "of", coverage.calls);
    for kind in ["rule", "tool", "tier"] {
        let (reached, all) = coverage.reached(Some(kind));
        let missed: Vec<&str> = coverage
            .parts
            .iter()
            .filter(|part| part.kind == kind && part.calls == 0)
            .map(|part| part.name.as_str())
            .collect();
        let more = missed.len().saturating_sub(LISTED_MAX);
        let more = if more > 0 { format!(" and {more} more (--json lists all)") } else { String::new() };
        let listed = missed.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
        let note = if missed.is_empty() { String::new() } else { format!("; never: {listed}{more}") };
        outln!("{reached:>10} {all:>8}  {kind}s{note}");
    }
    outln!("\n{:.1} % of the policy is covered", coverage.percent());
}

/// The failure of the coverage; none where it is high enough.
pub(super) fn failure(coverage: &Coverage, fail_under: Option<f64>) -> Option<String> {
    if coverage.calls == 0 {
        return Some("nothing was tested: there are no recorded calls".to_owned());
    }
    let least = fail_under.filter(|least| coverage.percent() < *least)?;
    Some(format!("{:.1} % of the policy is covered, less than {least} %", coverage.percent()))
}

/// The results in the format of JUnit: one case a tool with duplicates, one a part of the policy, and one for the
/// threshold. A part without a call is a skipped case.
pub(super) fn junit<'a>(
    doubles: impl Iterator<Item = (&'a String, &'a Doubles)>,
    coverage: Option<(&Coverage, Option<String>)>,
) -> String {
    let mut suites = String::new();
    let case = |class: &str, name: &str, inner: &str| {
        format!("    <testcase classname=\"{class}\" name=\"{}\">{inner}</testcase>\n", escape(name))
    };
    let mut suite = |name: &str, cases: &[String]| {
        let count = |what: &str| cases.iter().filter(|case| case.contains(what)).count();
        suites += &format!(
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n{}  </testsuite>\n",
            cases.len(),
            count("<failure"),
            count("<skipped"),
            cases.concat()
        );
    };
    let doubles = doubles.map(|(tool, doubles)| {
        let is_wrong = doubles.is_write && doubles.let_through > 0;
        let what = format!("{} of {} duplicates of a declared write are allowed", doubles.let_through, doubles.asked);
        case("duplicates", tool, &if is_wrong { failed(&what) } else { String::new() })
    });
    suite("duplicates", &doubles.collect::<Vec<_>>());
    if let Some((coverage, failure)) = coverage {
        let parts = coverage.parts.iter().map(|part| {
            let inner = if part.calls > 0 { "" } else { "<skipped message=\"no recorded call reaches it\"/>" };
            case(&format!("coverage.{}", part.kind), &part.name, inner)
        });
        let total = case("coverage", "total", &failure.map(|why| failed(&why)).unwrap_or_default());
        suite("coverage", &parts.chain([total]).collect::<Vec<_>>());
    }
    let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
    format!("{head}\n<testsuites name=\"callgate policy test\">\n{suites}</testsuites>\n")
}

fn failed(why: &str) -> String {
    format!("<failure message=\"{}\"/>", escape(why))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_core::offline::coverage::CoveredPart;

    #[test]
    fn junit_counts_failures_and_skipped_parts() {
        let part = |name: &str, calls| CoveredPart { kind: "tool", name: name.to_owned(), calls };
        let coverage = Coverage { calls: 3, parts: vec![part("a<b>", 3), part("idle", 0)] };
        let failure = failure(&coverage, Some(80.0));
        assert_eq!(failure.as_deref(), Some("50.0 % of the policy is covered, less than 80 %"));
        let double = ("pay".to_owned(), Doubles { asked: 2, let_through: 1, is_write: true });
        let xml = junit([(&double.0, &double.1)].into_iter(), Some((&coverage, failure)));
        assert!(xml.contains(r#"<testsuite name="duplicates" tests="1" failures="1" skipped="0">"#), "{xml}");
        assert!(xml.contains(r#"<testsuite name="coverage" tests="3" failures="1" skipped="1">"#), "{xml}");
        assert!(xml.contains(r#"classname="coverage.tool" name="a&lt;b&gt;"></testcase>"#), "{xml}");
        let empty = Coverage { calls: 0, parts: Vec::new() };
        assert!(super::failure(&empty, None).is_some(), "a check that cannot fail is none");
        assert_eq!(super::failure(&coverage, Some(50.0)), None);
    }
}
