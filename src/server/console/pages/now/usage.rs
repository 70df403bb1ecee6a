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
    pub(super) behind: Option<UsageDelay>,
    pub(super) total: UsageTotals,
    pub(super) hours: Vec<SpendBar>,
    pub(super) tools: Vec<UsageRow>,
    pub(super) agents: Vec<UsageRow>,
}

/// A bar of the chart.
pub(in crate::console::pages) struct SpendBar {
    pub(in crate::console::pages) unix: i64,
    pub(in crate::console::pages) words: String,
    /// US dollars, as callers reported them, and of tokens at their prices.
    pub(in crate::console::pages) reported: String,
    pub(in crate::console::pages) priced: String,
}

/// A tool, agent or model.
pub(in crate::console::pages) struct UsageRow {
    pub(in crate::console::pages) name: String,
    pub(in crate::console::pages) link: Option<String>,
    pub(in crate::console::pages) totals: UsageTotals,
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
        Self {
            problem: None,
            behind: find_delay(&usage, now),
            total: usage.total.unwrap_or_default(),
            hours: list_bars(&usage, true),
            tools: list_rows(frame, &usage, UsageDimension::Tool, Some("tool")),
            agents: list_rows(frame, &usage, UsageDimension::Agent, Some("agent")),
        }
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

/// Age of the last counted call from which a page says so, in milliseconds.
const BEHIND_MS: i64 = 60_000;

/// End of the counted calls, where that is not now, and why.
pub(in crate::console::pages) struct UsageDelay {
    pub(in crate::console::pages) until: Option<Timestamp>,
    pub(in crate::console::pages) reason: String,
}

/// The delay of the counted calls, if any.
pub(in crate::console::pages) fn find_delay(usage: &GetUsageResponse, now: i64) -> Option<UsageDelay> {
    let is_behind = now - unix_ms(usage.end_time.as_ref()) > BEHIND_MS;
    is_behind.then(|| UsageDelay { until: usage.end_time, reason: usage.incomplete_reason.clone() })
}

/// The groups of a property. A name leads to the sessions with it, by this field of their search.
pub(in crate::console::pages) fn list_rows(
    frame: &Frame,
    usage: &GetUsageResponse,
    dimension: UsageDimension,
    field: Option<&str>,
) -> Vec<UsageRow> {
    let sessions = |name: &str| match field {
        Some(field) if !name.is_empty() => link(frame, "/sessions", &format!("?{field}={}", encode_query(name))),
        _ => None,
    };
    let row = |group: &UsageGroup| UsageRow {
        name: group.name.clone(),
        link: sessions(&group.name),
        totals: group.totals.unwrap_or_default(),
    };
    usage.groups.iter().filter(|group| group.dimension() == dimension).map(row).collect()
}

/// Every hour or day of the period; one without calls is zero.
pub(in crate::console::pages) fn list_bars(usage: &GetUsageResponse, is_hourly: bool) -> Vec<SpendBar> {
    let (start, end) = (unix_ms(usage.start_time.as_ref()) / 1_000, unix_ms(usage.end_time.as_ref()) / 1_000);
    let (step, format) = if is_hourly { (3_600, "%m-%d %H:%M") } else { (86_400, "%Y-%m-%d") };
    let bar = |unix: i64| {
        let is_it = |group: &&UsageGroup| {
            group.dimension() == UsageDimension::Time && unix_ms(group.start_time.as_ref()) / 1_000 == unix
        };
        let totals = usage.groups.iter().find(is_it).and_then(|group| group.totals).unwrap_or_default();
        let dollars = |micros: u64| format!("{}", micros as f64 / 1e6);
        SpendBar {
            unix,
            words: DateTime::from_timestamp(unix, 0).map(|at| at.format(format).to_string()).unwrap_or_default(),
            reported: dollars(totals.cost_micros),
            priced: dollars(totals.priced_micros),
        }
    };
    (0..).map(|n| start.div_euclid(step) * step + n * step).take_while(|unix| *unix < end).map(bar).collect()
}
