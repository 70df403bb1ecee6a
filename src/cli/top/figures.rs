//! Metrics of a replica, parsed from its `/metrics`.

use std::collections::BTreeMap;

/// Metrics used by `callgate top`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ReplicaFigures {
    /// Verdicts by decision, rule, reason and tool.
    pub(super) verdicts: BTreeMap<VerdictLabels, f64>,
    /// Evaluates in execution and in the queue.
    pub(super) at_work: f64,
    pub(super) waiting: f64,
    /// Number of shed Evaluates.
    pub(super) turned_away: f64,
    /// Total duration of commits, in seconds, and their number.
    pub(super) commit_s: f64,
    pub(super) commits: f64,
    /// Number of activations that the policy is behind, and seconds since the last check.
    pub(super) policy_behind: f64,
    pub(super) policy_unconfirmed_s: f64,
}

/// Labels of verdicts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VerdictLabels {
    pub(super) decision: String,
    pub(super) rule: String,
    pub(super) reason: String,
    pub(super) tool: String,
}

impl ReplicaFigures {
    /// Parses the text format of Prometheus.
    pub(super) fn read(text: &str) -> Self {
        let mut figures = Self::default();
        for (name, mut labels, value) in text.lines().filter_map(sample) {
            match name {
                "callgate_evaluations_total" => {
                    let mut label = |name: &str| labels.remove(name).unwrap_or_default();
                    let verdict = VerdictLabels {
                        decision: label("callgate_decision"),
                        rule: label("callgate_rule"),
                        reason: label("callgate_reason"),
                        tool: label("gen_ai_tool_name"),
                    };
                    *figures.verdicts.entry(verdict).or_default() += value;
                }
                "callgate_admission_in_progress" => figures.at_work += value,
                "callgate_admission_queued" => figures.waiting += value,
                "callgate_shed_total" => figures.turned_away += value,
                "callgate_commit_duration_seconds_sum" => figures.commit_s += value,
                "callgate_commit_duration_seconds_count" => figures.commits += value,
                "callgate_policy_behind" => figures.policy_behind = figures.policy_behind.max(value),
                "callgate_policy_unconfirmed_seconds" => {
                    figures.policy_unconfirmed_s = figures.policy_unconfirmed_s.max(value);
                }
                _ => {}
            }
        }
        figures
    }
}

/// `name{label="value",…} 1`
fn sample(line: &str) -> Option<(&str, BTreeMap<String, String>, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

/// Labels up to the closing brace, and the rest.
fn labels(mut text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(name.to_owned(), value);
        text = &rest[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_with_every_label() {
        let text = "# HELP callgate_evaluations_total verdicts\n\
            callgate_evaluations_total{callgate_decision=\"DENY\",callgate_reason=\"a \\\"b\\\", c}\",\
            callgate_rule=\"budget\",gen_ai_tool_name=\"pay\"} 3\n\
            callgate_evaluations_total{callgate_decision=\"DENY\",callgate_reason=\"a \\\"b\\\", c}\",\
            callgate_rule=\"budget\",gen_ai_tool_name=\"pay\",callgate_mode=\"shadow\"} 2 1700000000\n\
            callgate_admission_queued 7\nnonsense\ncallgate_policy_behind{x=\"1} 2\n";
        let figures = ReplicaFigures::read(text);
        let verdict = VerdictLabels {
            decision: "DENY".into(),
            rule: "budget".into(),
            reason: "a \"b\", c}".into(),
            tool: "pay".into(),
        };
        assert_eq!(figures.verdicts, BTreeMap::from([(verdict, 5.0)]));
        assert_eq!((figures.waiting, figures.policy_behind), (7.0, 0.0), "what is cut off is left out");
    }
}
