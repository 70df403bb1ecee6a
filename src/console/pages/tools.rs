//! `/tools`: how well tools suit agents.

use askama::Template;
use axum::{Router, extract::Query, response::Html, routing::get};
use serde::Deserialize;

use crate::{
    console::{Console, fault::Fault, filters, frame::Frame, visitor::Visitor},
    grpc::v1::{
        CoercedField, GetToolQualityRequest, GetToolQualityResponse, ToolQuality,
        profile_service_client::ProfileServiceClient,
    },
};

/// Its link.
pub(super) const PATH: &str = "/tools";
/// Fields in the list of those that were read as another type.
const COERCED_MAX: usize = 50;

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(show))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    tool: String,
    days: Option<u32>,
    part: String,
}

#[derive(Template)]
#[template(path = "tools.html", blocks = ["report"])]
struct Page {
    frame: Frame,
    report: GetToolQualityResponse,
    /// Fields that were read as another type, by tool, the most frequent first.
    coerced: Vec<(String, CoercedField)>,
    days: u32,
    tool: String,
}

async fn show(visitor: Visitor, Query(asked): Query<Asked>) -> Result<Html<String>, Fault> {
    let (days, tool) = (asked.days.filter(|days| *days > 0).unwrap_or(7), asked.tool.trim().to_owned());
    let wanted = GetToolQualityRequest { tool: tool.clone(), days };
    let report = ProfileServiceClient::new(visitor.calls.clone()).get_tool_quality(wanted).await?.into_inner();
    let page = Page { frame: Frame::new(&visitor, PATH, "Tools"), coerced: coerced(&report), report, days, tool };
    Ok(Html(if asked.part == "report" { page.as_report().render()? } else { page.render()? }))
}

fn coerced(report: &GetToolQualityResponse) -> Vec<(String, CoercedField)> {
    let fields = |tool: &ToolQuality| {
        let fields = tool.coerced_fields.iter();
        fields.map(|field| (tool.tool.clone(), field.clone())).collect::<Vec<_>>()
    };
    let mut all: Vec<(String, CoercedField)> = report.tools.iter().flat_map(fields).collect();
    all.sort_by_key(|(_, field)| std::cmp::Reverse(field.calls));
    all.truncate(COERCED_MAX);
    all
}
