//! Usage of the last 24 hours: spend, the latency of tools, and the agents and tools that spend most.

use chrono::DateTime;
use prost_types::Timestamp;

use super::{encode_query, is_outage, link, one_or_many};
use crate::console::{fault::PageError, filters, frame::Frame, labels, visitor::Visitor};
use callgate_proto::{
    time::unix_ms,
    v1::{
        GetUsageRequest, GetUsageResponse, UsageDimension, UsageGroup, UsageTotals,
        fleet_service_client::FleetServiceClient,
    },
};

/// Tools and agents in the lists.
const TOP: u32 = 5;

/// Usage of the last 24 hours, or the reason why it is not known.
pub(super) struct DayUsage {
    pub(super) problem: Option<String>,
    /// End of the counted calls, where that is earlier than now.
    pub(super) behind: Option<Option<Timestamp>>,
    pub(super) total: UsageTotals,
    pub(super) hours: Vec<HourSpend>,
    pub(super) tools: Vec<UsageRow>,
    pub(super) agents: Vec<UsageRow>,
}

/// A bar of the chart.
pub(super) struct HourSpend {
    pub(super) unix: i64,
    pub(super) words: String,
    pub(super) dollars: String,
}

/// A tool or agent.
pub(super) struct UsageRow {
    pub(super) name: String,
    pub(super) link: Option<String>,
    pub(super) totals: UsageTotals,
}

impl DayUsage {
    pub(super) async fn read(visitor: &Visitor, frame: &Frame) -> Result<Self, PageError> {
        let by = [UsageDimension::Time, UsageDimension::Tool, UsageDimension::Agent];
        let request = GetUsageRequest { group_by: by.map(Into::into).to_vec(), page_size: TOP, ..Default::default() };
        match FleetServiceClient::new(visitor.calls.clone()).get_usage(request).await {
            Ok(usage) => Ok(Self::of(frame, usage.into_inner(), visitor.now.as_millis())),
            Err(status) if is_outage(&status) => Ok(Self {
                problem: Some(status.message().to_owned()),
                behind: None,
                total: UsageTotals::default(),
                hours: Vec::new(),
                tools: Vec::new(),
                agents: Vec::new(),
            }),
            Err(status) => Err(status.into()),
        }
    }

    fn of(frame: &Frame, usage: GetUsageResponse, now: i64) -> Self {
        let is_behind = now - unix_ms(usage.end_time.as_ref()) > BEHIND_MS;
        let rows = |dimension: UsageDimension, field: &str| {
            let row = |group: &UsageGroup| UsageRow {
                name: group.name.clone(),
                link: (!group.name.is_empty())
                    .then(|| link(frame, "/sessions", &format!("?{field}={}&hours=24", encode_query(&group.name))))
                    .flatten(),
                totals: group.totals.unwrap_or_default(),
            };
            usage.groups.iter().filter(|group| group.dimension() == dimension).map(row).collect()
        };
        let (tools, agents) = (rows(UsageDimension::Tool, "tool"), rows(UsageDimension::Agent, "agent"));
        let hours = list_hours(&usage);
        let behind = is_behind.then_some(usage.end_time);
        Self { problem: None, behind, total: usage.total.unwrap_or_default(), hours, tools, agents }
    }

    pub(super) fn mean_latency(&self) -> String {
        self.total.mean_duration.as_ref().map_or_else(|| "unknown".to_owned(), |mean| labels::span(Some(mean)))
    }

    /// Spend on models, where prices are known.
    pub(super) fn priced(&self) -> String {
        let UsageTotals { tokens, unpriced_tokens, priced_micros, .. } = self.total;
        match tokens - unpriced_tokens.min(tokens) {
            0 if tokens == 0 => "No tokens were reported.".to_owned(),
            0 => format!("{} without a price.", one_or_many(tokens, "token", "tokens")),
            _ if unpriced_tokens == 0 => {
                format!("Tokens at their prices: {}.", filters::dollars(priced_micros))
            }
            _ => format!(
                "Tokens at their prices: {}, and {} without a price.",
                filters::dollars(priced_micros),
                one_or_many(unpriced_tokens, "token", "tokens")
            ),
        }
    }
}

/// Age of the last counted call from which the page says so, in milliseconds.
const BEHIND_MS: i64 = 60_000;
const HOUR_S: i64 = 3_600;

/// Every hour of the period; one without calls is zero.
fn list_hours(usage: &GetUsageResponse) -> Vec<HourSpend> {
    let (start, end) = (unix_ms(usage.start_time.as_ref()) / 1_000, unix_ms(usage.end_time.as_ref()) / 1_000);
    let spend = |unix: i64| {
        let is_it = |group: &&UsageGroup| {
            group.dimension() == UsageDimension::Time && unix_ms(group.start_time.as_ref()) / 1_000 == unix
        };
        let totals = usage.groups.iter().find(is_it).and_then(|group| group.totals);
        totals.map_or(0, |totals| totals.cost_micros)
    };
    let hour = |unix: i64| HourSpend {
        unix,
        words: DateTime::from_timestamp(unix, 0).map(|at| at.format("%m-%d %H:%M").to_string()).unwrap_or_default(),
        dollars: format!("{}", spend(unix) as f64 / 1e6),
    };
    (start..end).step_by(HOUR_S as usize).map(hour).collect()
}
