//! A search for sessions, as the parameters of an address.

use chrono::NaiveDateTime;
use prost_types::Timestamp;
use serde::Deserialize;

use crate::console::fault::PageError;
use callgate_proto::v1::{CallFilter, Decision, ListSessionsRequest, OutcomeStatus, SessionOrder, SessionStatus};

/// Search by the parameters of the page's address.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Search {
    pub(super) q: String,
    pub(super) name: String,
    pub(super) agent: String,
    pub(super) user: String,
    pub(super) tool: String,
    pub(super) decision: String,
    pub(super) rule: String,
    pub(super) reason: String,
    pub(super) outcome: String,
    pub(super) state: String,
    /// Hours back; empty for all.
    pub(super) hours: String,
    /// First and last minute, in UTC; empty for all.
    pub(super) from: String,
    pub(super) to: String,
    pub(super) sort: String,
    /// `text`: also where `q` is the id of a session.
    pub(super) by: String,
    pub(super) after: String,
    /// Answers of this search so far, and the call trees that it began with.
    pub(super) answers: u32,
    pub(super) trees: u64,
    pub(super) done: String,
    pub(super) part: String,
}

/// Words of a form, with their values.
pub(super) const DECISIONS: [(&str, Decision); 6] = [
    ("ALLOW", Decision::Allow),
    ("ASK", Decision::Ask),
    ("WAIT", Decision::Wait),
    ("REUSE", Decision::Reuse),
    ("DENY", Decision::Deny),
    ("STOP", Decision::Stop),
];
pub(super) const OUTCOMES: [(&str, OutcomeStatus); 5] = [
    ("running", OutcomeStatus::Running),
    ("success", OutcomeStatus::Success),
    ("error", OutcomeStatus::Error),
    ("cancelled", OutcomeStatus::Cancelled),
    ("unknown", OutcomeStatus::Unknown),
];
pub(super) const STATES: [(&str, SessionStatus); 5] = [
    ("halted", SessionStatus::Halted),
    ("held", SessionStatus::Held),
    ("running", SessionStatus::Calling),
    ("stopped", SessionStatus::Stopped),
    ("idle", SessionStatus::Idle),
];
pub(super) const HOURS: [(&str, &str); 4] =
    [("1", "last hour"), ("24", "last day"), ("168", "last week"), ("720", "last 30 days")];
const ORDERS: [(&str, SessionOrder); 3] =
    [("calls", SessionOrder::Calls), ("cost", SessionOrder::Cost), ("duration", SessionOrder::Duration)];

fn parse_name<T: Copy + Into<i32>>(field: &str, known: &[(&str, T)], name: &str) -> Result<i32, PageError> {
    if name.is_empty() {
        return Ok(0);
    }
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, member)| (*member).into());
    found.ok_or_else(|| PageError::field(format!("{field}: {name} is none of the choices")))
}

/// A minute of a form's field, in UTC.
fn parse_minute(field: &str, text: &str) -> Result<Option<i64>, PageError> {
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M")
        .map_err(|_| PageError::field(format!("{field}: {text} is no time; write it as 2026-01-31T09:30, in UTC")))?;
    Ok(Some(parsed.and_utc().timestamp().max(0)))
}

impl Search {
    /// The filters with their names in the address, and the order.
    fn fields(&self) -> [(&'static str, &str); 14] {
        [
            ("q", &self.q),
            ("name", &self.name),
            ("agent", &self.agent),
            ("user", &self.user),
            ("tool", &self.tool),
            ("decision", &self.decision),
            ("rule", &self.rule),
            ("reason", &self.reason),
            ("outcome", &self.outcome),
            ("state", &self.state),
            ("hours", &self.hours),
            ("from", &self.from),
            ("to", &self.to),
            ("sort", &self.sort),
        ]
    }

    /// No filter, whatever the order.
    pub(super) fn is_empty(&self) -> bool {
        self.fields().iter().all(|(name, value)| *name == "sort" || value.is_empty())
    }

    /// A text that may be the id of a session, and no other filter.
    pub(super) fn id(&self) -> Option<&str> {
        let is_alone = self.fields().iter().all(|(name, value)| matches!(*name, "q" | "sort") || value.is_empty());
        let id = self.q.trim();
        (is_alone && !id.is_empty() && self.after.is_empty() && self.by.is_empty()).then_some(id)
    }

    pub(super) fn request(&self, now_ms: i64) -> Result<ListSessionsRequest, PageError> {
        let back = match self.hours.as_str() {
            "" => None,
            hours => {
                let hours: i64 = hours.parse().map_err(|_| PageError::field("hours: must be a whole number"))?;
                Some((now_ms / 1_000).saturating_sub(hours.saturating_mul(3_600)).max(0))
            }
        };
        let time = |seconds: i64| Timestamp { seconds, nanos: 0 };
        let calls = CallFilter {
            agent_id: self.agent.trim().to_owned(),
            tool: self.tool.trim().to_owned(),
            decision: parse_name("decision", &DECISIONS, &self.decision)?,
            rule: self.rule.trim().to_owned(),
            reason: self.reason.trim().to_owned(),
            status: parse_name("outcome", &OUTCOMES, &self.outcome)?,
            text: self.q.trim().to_owned(),
            start_time: parse_minute("from", &self.from)?.max(back).map(time),
            // The minute belongs to the range.
            end_time: parse_minute("to", &self.to)?.map(|seconds| time(seconds + 60)),
            user_id: self.user.trim().to_owned(),
            name: self.name.trim().to_owned(),
            ..CallFilter::default()
        };
        let status = parse_name("state", &STATES, &self.state)?;
        let order = parse_name("sort", &ORDERS, &self.sort)?;
        let calls = (calls != CallFilter::default()).then_some(calls);
        Ok(ListSessionsRequest {
            page_size: super::sessions::PAGE as u32,
            page_token: self.after.clone(),
            calls,
            status,
            order,
        })
    }

    /// The address of the same search with other values of parameters.
    pub(super) fn path(&self, other: &[(&str, &str)]) -> String {
        let kept = self.fields().into_iter().filter(|(name, _)| other.iter().all(|(given, _)| given != name));
        let fields = kept.chain(other.iter().copied()).filter(|(_, value)| !value.is_empty());
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let query = query.extend_pairs(fields).finish();
        let path = super::sessions::PATH;
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> Search {
        let (q, sort) = ("a b".to_owned(), "cost".to_owned());
        Search { q, sort, ..Search::default() }
    }

    #[test]
    fn a_search_is_its_address() {
        assert_eq!(search().path(&[]), "/sessions?q=a+b&sort=cost");
        assert_eq!(search().path(&[("sort", ""), ("after", "x")]), "/sessions?q=a+b&after=x");
        assert_eq!(Search::default().path(&[]), "/sessions");
    }

    #[test]
    fn a_range_has_both_its_minutes() {
        let of = |from: &str, to: &str, hours: &str| {
            let search = Search { from: from.into(), to: to.into(), hours: hours.into(), ..Search::default() };
            let calls = search.request(7_200_000)?.calls.unwrap_or_default();
            Ok::<_, PageError>((calls.start_time.map(|at| at.seconds), calls.end_time.map(|at| at.seconds)))
        };
        assert_eq!(of("1970-01-01T00:01", "1970-01-01T00:02", "").ok(), Some((Some(60), Some(180))));
        assert_eq!(of("1970-01-01T00:01", "", "1").ok(), Some((Some(3_600), None)), "the later begin");
        assert_eq!(of("", "", "").ok(), Some((None, None)));
        let wrong = of("yesterday", "", "").expect_err("no time");
        assert!(wrong.message().contains("from: yesterday"), "{}", wrong.message());
    }

    #[test]
    fn only_a_text_alone_may_be_an_id() {
        assert_eq!(search().id(), Some("a b"));
        assert_eq!(Search { agent: "x".into(), ..search() }.id(), None);
        assert_eq!(Search { by: "text".into(), ..search() }.id(), None);
    }
}
