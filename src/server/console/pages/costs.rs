//! `/costs`: spend of a period by day, model, tool and agent.

use askama::Template;
use axum::{Router, extract::Query, response::Html, routing::get};
use prost_types::Timestamp;
use serde::Deserialize;

use super::now::{is_outage, usage};
use crate::console::{Console, fault::PageError, filters, frame::Frame, labels, visitor::Visitor};
use callgate_proto::v1::{
    GetUsageRequest, GetUsageResponse, UsageDimension, UsageTotals, fleet_service_client::FleetServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/costs";
/// Periods to choose from, in days.
const DAYS: [u32; 4] = [1, 7, 30, 90];
/// Names in each table.
const LISTED: u32 = 50;

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(show))
}

#[derive(Deserialize)]
struct CostsQuery {
    days: Option<u32>,
    #[serde(default)]
    part: String,
}

#[derive(Template)]
#[template(path = "costs.html", blocks = ["usage"])]
struct Page {
    frame: Frame,
    days: u32,
    /// Reason why the usage is not known.
    problem: Option<String>,
    /// End of the counted calls, where that is earlier than now.
    behind: Option<usage::UsageDelay>,
    total: UsageTotals,
    times: Vec<usage::SpendBar>,
    tables: Vec<CostTable>,
}

/// Spend by one property.
struct CostTable {
    title: &'static str,
    column: &'static str,
    /// For calls that name none.
    unnamed: &'static str,
    rows: Vec<usage::UsageRow>,
}

async fn show(visitor: Visitor, Query(asked): Query<CostsQuery>) -> Result<Html<String>, PageError> {
    let days = asked.days.filter(|days| DAYS.contains(days)).unwrap_or(7);
    let by = [UsageDimension::Time, UsageDimension::Model, UsageDimension::Tool, UsageDimension::Agent];
    let start = visitor.now.as_millis() / 1_000 - i64::from(days) * 86_400;
    let request = GetUsageRequest {
        start_time: Some(Timestamp { seconds: start, nanos: 0 }),
        group_by: by.map(Into::into).to_vec(),
        page_size: LISTED,
        ..Default::default()
    };
    let frame = Frame::new(&visitor, PATH, "Costs");
    let (problem, usage) = match FleetServiceClient::new(visitor.calls.clone()).get_usage(request).await {
        Ok(usage) => (None, usage.into_inner()),
        Err(status) if is_outage(&status) => (Some(status.message().to_owned()), GetUsageResponse::default()),
        Err(status) => return Err(status.into()),
    };
    let table = |title, column, unnamed, dimension, field| CostTable {
        title,
        column,
        unnamed,
        rows: usage::list_rows(&frame, &usage, dimension, field),
    };
    let tables = vec![
        table("By model", "Model", "not named", UsageDimension::Model, None),
        table("By tool", "Tool", "", UsageDimension::Tool, Some("tool")),
        table("By agent", "Agent", "not named", UsageDimension::Agent, Some("agent")),
    ];
    let page = Page {
        days,
        behind: problem.is_none().then(|| usage::find_delay(&usage, visitor.now.as_millis())).flatten(),
        total: usage.total.unwrap_or_default(),
        times: usage::list_bars(&usage, days == 1),
        problem,
        tables,
        frame,
    };
    Ok(Html(if asked.part == "usage" { page.as_usage().render()? } else { page.render()? }))
}
