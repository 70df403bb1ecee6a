//! Token limit of a summary: order and form of omissions.

use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of tools with a count of omitted calls, and the approximate tokens of a count.
const COUNTED_MAX: usize = 12;
const COUNT_TOKENS: usize = 14;

/// Priority of a line, the lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinePriority {
    Read,
    Failure,
    /// An undeclared call that may have created something.
    Made,
    Write,
    Once,
}

/// A line of the summary.
pub(super) struct SummaryLine {
    text: String,
    /// Priority and age; none for a line that is never omitted.
    cut: Option<(LinePriority, u64)>,
    /// Group of the line.
    of: Option<String>,
}

impl SummaryLine {
    /// A line that is never omitted.
    pub(super) fn fixed_line(text: String) -> Self {
        Self { text, cut: None, of: None }
    }

    /// A line that can be omitted.
    pub(super) fn optional_line(class: LinePriority, seq: u64, text: String) -> Self {
        Self { text, cut: Some((class, seq)), of: None }
    }

    /// The line in that group.
    pub(super) fn of(self, name: String) -> Self {
        Self { of: Some(name), ..self }
    }
}

/// Lines under a heading.
pub(super) struct SummarySection {
    heading: &'static str,
    lines: Vec<SummaryLine>,
    by_tool: bool,
}

impl SummarySection {
    pub(super) fn of(heading: &'static str, lines: Vec<SummaryLine>) -> Self {
        Self { heading, lines, by_tool: false }
    }

    pub(super) fn fixed_section(heading: &'static str, lines: Vec<SummaryLine>) -> Self {
        Self::of(heading, lines)
    }

    /// Groups lines by tool, in the order of each tool's newest line.
    pub(super) fn by_tool(heading: &'static str, lines: Vec<SummaryLine>) -> Self {
        Self { heading, lines, by_tool: true }
    }

    fn text(&self) -> Vec<&str> {
        if self.lines.is_empty() {
            return Vec::new();
        }
        let heading = (!self.heading.is_empty()).then_some(self.heading);
        if !self.by_tool {
            return heading.into_iter().chain(self.lines.iter().map(|line| line.text.as_str())).collect();
        }
        let mut tools: Vec<&str> = Vec::new();
        for line in self.lines.iter().rev() {
            let of = line.of.as_deref().unwrap_or_default();
            if !tools.contains(&of) {
                tools.push(of);
            }
        }
        let of_tool = |tool: &'_ str| {
            let lines = self.lines.iter().filter(move |line| line.of.as_deref() == Some(tool));
            lines.map(|line| line.text.as_str()).collect::<Vec<_>>()
        };
        let by_tool = tools.iter().rev().flat_map(|tool| std::iter::once(*tool).chain(of_tool(tool)));
        heading.into_iter().chain(by_tool).collect()
    }
}

/// Estimated tokens of a text: slightly more than a tokenizer yields for English and JSON, and one per character of
/// other scripts.
pub(crate) fn tokens(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    (ascii * 2).div_ceil(7) + text.chars().filter(|c| !c.is_ascii()).count()
}

/// The parts as one text of about `budget` tokens at most.
pub(super) fn fit(mut parts: Vec<SummarySection>, budget: usize) -> String {
    // Reserves room for the counts of omitted lines.
    let budget = budget.saturating_sub(40);
    if cost(&parts) > budget {
        for class in [LinePriority::Write, LinePriority::Once] {
            if cost_of_writes(&parts) > budget / 2 {
                fold(&mut parts, class);
            }
        }
    }
    let left_out = leave_out(&mut parts, budget);
    let mut lines: Vec<&str> = parts.iter().flat_map(SummarySection::text).collect();
    let note = describe_left_out(&left_out);
    lines.extend(note.as_deref());
    lines.join("\n")
}

/// Tokens including one for each line break.
fn cost(parts: &[SummarySection]) -> usize {
    parts.iter().flat_map(SummarySection::text).map(|line| tokens(line) + 1).sum()
}

fn cost_of_writes(parts: &[SummarySection]) -> usize {
    let lines = parts.iter().flat_map(|part| &part.lines);
    let writes = lines.filter(|line| line.cut.is_some_and(|(class, _)| class >= LinePriority::Write));
    writes.map(|line| tokens(&line.text) + 1).sum()
}

/// Folds writes of one tool and kind of resource into one line with their number and the newest.
fn fold(parts: &mut [SummarySection], of: LinePriority) {
    for part in parts {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let is_of = |line: &SummaryLine| line.cut.is_some_and(|(class, _)| class == of);
        for line in part.lines.iter().filter(|line| is_of(line)) {
            *counts.entry(line.of.clone().unwrap_or_default()).or_default() += 1;
        }
        let mut seen = counts.clone();
        part.lines.retain_mut(|line| {
            if !is_of(line) {
                return true;
            }
            let kind = line.of.clone().unwrap_or_default();
            let (Some(count), Some(left)) = (counts.get(&kind), seen.get_mut(&kind)) else { return true };
            *left -= 1;
            if *left == 0 && *count > 1 {
                line.text = format!("- {kind}: {count} different calls succeeded, the newest {}", &line.text[2..]);
            }
            *left == 0
        });
    }
}

/// Omits lines by priority, then the oldest first; returns the number per class.
fn leave_out(parts: &mut [SummarySection], budget: usize) -> BTreeMap<LinePriority, usize> {
    let mut left_out = BTreeMap::new();
    let mut all = cost(parts);
    if all <= budget {
        return left_out;
    }
    let counted =
        parts.iter().filter(|part| part.by_tool).flat_map(|part| part.lines.iter().filter_map(|l| l.of.clone()));
    let counted: Vec<String> = counted.collect::<BTreeSet<_>>().into_iter().take(COUNTED_MAX).collect();
    let budget = budget.saturating_sub(counted.len() * COUNT_TOKENS).max(budget / 2);
    let lines = parts.iter().flat_map(|part| &part.lines);
    let mut order: Vec<((LinePriority, u64), usize)> =
        lines.filter_map(|line| Some((line.cut?, tokens(&line.text) + 1))).collect();
    order.sort_unstable();
    let mut last = None;
    for (cut, tokens) in order {
        if all <= budget {
            break;
        }
        all = all.saturating_sub(tokens);
        last = Some(cut);
    }
    for part in parts {
        let mut of_tools: BTreeMap<&String, usize> = BTreeMap::new();
        let is_kept = |line: &SummaryLine| line.cut.is_none_or(|cut| Some(cut) > last);
        for line in part.lines.iter().filter(|line| !is_kept(line)) {
            let tool = line.of.as_ref().filter(|_| part.by_tool).and_then(|of| counted.iter().find(|tool| *tool == of));
            match (tool, line.cut) {
                (Some(tool), _) => *of_tools.entry(tool).or_default() += 1,
                (None, Some((class, _))) => *left_out.entry(class).or_default() += 1,
                (None, None) => {}
            }
        }
        part.lines.retain(is_kept);
        part.lines.splice(
            0..0,
            of_tools.into_iter().map(|(tool, count)| {
                let calls = if count == 1 { "earlier call" } else { "earlier calls" };
                SummaryLine::fixed_line(format!("  - {count} {calls} with other arguments succeeded")).of(tool.clone())
            }),
        );
    }
    left_out
}

fn describe_left_out(left_out: &BTreeMap<LinePriority, usize>) -> Option<String> {
    let one = |(class, count): (&LinePriority, &usize)| {
        let what = match (class, *count == 1) {
            (LinePriority::Read | LinePriority::Made, true) => "earlier call that succeeded",
            (LinePriority::Read | LinePriority::Made, false) => "earlier calls that succeeded",
            (LinePriority::Failure, true) => "earlier failure",
            (LinePriority::Failure, false) => "earlier failures",
            (LinePriority::Write | LinePriority::Once, true) => "earlier write",
            (LinePriority::Write | LinePriority::Once, false) => "earlier writes",
        };
        format!("{count} {what}")
    };
    let parts: Vec<String> = left_out.iter().map(one).collect();
    (!parts.is_empty()).then(|| format!("Left out for want of room: {}.", parts.join(", ")))
}
