//! `/tools`: tools in trouble now, and the report of tool quality.

use askama::Template;
use axum::{Router, extract::Query, response::Html, routing::get};
use serde::Deserialize;
use tokio::try_join;
use tonic::Code;

use super::{tool_descriptions, unhealthy_tools::TroubleRow};
use crate::console::{Console, fault::PageError, filters, frame::Frame, visitor::Visitor};
use callgate_proto::{
    time::unix_ms,
    v1::{
        CoercedField, FleetPart, GetFleetRequest, GetToolQualityRequest, GetToolQualityResponse, ToolQuality,
        fleet_service_client::FleetServiceClient, profile_service_client::ProfileServiceClient,
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
struct ToolsQuery {
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
    now: QualityView,
    /// Changed descriptions of tools; none where they cannot be read.
    changed: Option<u64>,
}

/// The part that is refreshed each second.
struct QualityView {
    /// Reason why it is not known, where it is not.
    problem: Option<String>,
    troubles: Vec<TroubleRow>,
}

impl QualityView {
    /// Of all tools, or of one.
    async fn read(visitor: &Visitor, frame: &Frame, tool: &str) -> Result<Self, PageError> {
        let request = GetFleetRequest { parts: vec![FleetPart::Tools.into()], ..Default::default() };
        let fleet = match FleetServiceClient::new(visitor.calls.clone()).get_fleet(request).await {
            Ok(fleet) => fleet.into_inner().fleet.unwrap_or_default(),
            Err(status) if matches!(status.code(), Code::Unavailable | Code::ResourceExhausted) => {
                return Ok(Self { problem: Some(status.message().to_owned()), troubles: Vec::new() });
            }
            Err(status) => return Err(status.into()),
        };
        let at = unix_ms(fleet.as_of_time.as_ref());
        let wanted = fleet.tools.iter().filter(|trouble| tool.is_empty() || trouble.tool == tool);
        Ok(Self { problem: None, troubles: wanted.map(|trouble| TroubleRow::new(frame, trouble, at)).collect() })
    }
}

/// That part by itself.
#[derive(Template)]
#[template(path = "tools.html", block = "present")]
struct QualityPart {
    now: QualityView,
    tool: String,
}

async fn show(visitor: Visitor, Query(asked): Query<ToolsQuery>) -> Result<Html<String>, PageError> {
    let (days, tool) = (asked.days.filter(|days| *days > 0).unwrap_or(7), asked.tool.trim().to_owned());
    let frame = Frame::new(&visitor, PATH, "Tools");
    let now = QualityView::read(&visitor, &frame, &tool);
    if asked.part == "now" {
        let now = now.await?;
        return Ok(Html(QualityPart { now, tool }.render()?));
    }
    let wanted = GetToolQualityRequest { tool: tool.clone(), days };
    let mut profiles = ProfileServiceClient::new(visitor.calls.clone());
    let report = async { Ok(profiles.get_tool_quality(wanted).await?.into_inner()) };
    let changed = async { Ok(tool_descriptions::count_changed(&visitor).await.ok()) };
    let (now, report, changed) = try_join!(now, report, changed)?;
    let page = Page { frame, coerced: list_coerced_fields(&report), report, days, tool, now, changed };
    Ok(Html(if asked.part == "report" { page.as_report().render()? } else { page.render()? }))
}

fn list_coerced_fields(report: &GetToolQualityResponse) -> Vec<(String, CoercedField)> {
    let fields = |tool: &ToolQuality| {
        let fields = tool.coerced_fields.iter();
        fields.map(|field| (tool.tool.clone(), field.clone())).collect::<Vec<_>>()
    };
    let mut all: Vec<(String, CoercedField)> = report.tools.iter().flat_map(fields).collect();
    all.sort_by_key(|(_, field)| std::cmp::Reverse(field.calls));
    all.truncate(COERCED_MAX);
    all
}
