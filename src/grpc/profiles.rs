//! The profile service: decode, ask the gate, encode.

mod encode;

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{
    decode::{self, Decoded, optional, wrong},
    service, status, v1,
};
use crate::{
    domain::{
        failure::FailureKind,
        ids::ToolName,
        profile::{RetryState, ToolState},
    },
    gate::Gate,
};

const PAGE_DEFAULT: u32 = 100;
const PAGE_MAX: u32 = 500;
const DAYS_DEFAULT: u32 = 7;
const DAYS_MAX: u32 = 90;
/// Later attempts are one.
const ATTEMPT_MAX: u32 = 1_000;

/// The service over a gate.
#[derive(Debug, Clone)]
pub(super) struct ProfileService {
    gate: Arc<Gate>,
}

impl ProfileService {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        Self { gate }
    }
}

fn tool(text: &str) -> Decoded<Option<ToolName>> {
    optional(text, |text| ToolName::parse("tool", text))
}

fn failure(code: i32) -> Decoded<Option<FailureKind>> {
    match v1::FailureKind::try_from(code) {
        Ok(v1::FailureKind::Unspecified) => Ok(None),
        Ok(known) => {
            let name = known.as_str_name().trim_start_matches("FAILURE_KIND_").to_ascii_lowercase();
            Ok(FailureKind::from_name(&name))
        }
        Err(_) => wrong("failure", format!("is {code}, which is no kind of failure")),
    }
}

fn state(request: &v1::GetRetryProfileRequest) -> Decoded<RetryState> {
    let tool = match v1::ToolState::try_from(request.tool_state) {
        Ok(v1::ToolState::Unspecified | v1::ToolState::Working) => ToolState::Working,
        Ok(v1::ToolState::Failing) => ToolState::Failing,
        Ok(v1::ToolState::Down) => ToolState::Down,
        Err(_) => return wrong("tool_state", format!("is {}, which is no state", request.tool_state)),
    };
    if request.attempt > ATTEMPT_MAX {
        return wrong("attempt", format!("is {}; at most {ATTEMPT_MAX} is allowed", request.attempt));
    }
    Ok(RetryState { attempt: request.attempt.max(1), tool })
}

pub(super) fn between(field: &str, given: u32, default: u32, most: u32) -> Decoded<u32> {
    match given {
        0 => Ok(default),
        n if n <= most => Ok(n),
        n => wrong(field, format!("is {n}; 0 to {most} are allowed")),
    }
}

/// `kind tool`: where the page before ended.
fn page(token: &str) -> Decoded<Option<(ToolName, FailureKind)>> {
    if token.is_empty() {
        return Ok(None);
    }
    let parts = token
        .split_once(' ')
        .and_then(|(kind, tool)| Some((ToolName::parse("page_token", tool).ok()?, FailureKind::from_name(kind)?)));
    match parts {
        Some(parts) => Ok(Some(parts)),
        None => wrong("page_token", "is none that this method has given"),
    }
}

#[tonic::async_trait]
impl v1::profile_service_server::ProfileService for ProfileService {
    async fn list_retry_profiles(
        &self,
        request: Request<v1::ListRetryProfilesRequest>,
    ) -> Result<Response<v1::ListRetryProfilesResponse>, Status> {
        let message = request.into_inner();
        let decoded = || -> Decoded<_> {
            let size = between("page_size", message.page_size, PAGE_DEFAULT, PAGE_MAX)?;
            Ok((tool(&message.tool)?, failure(message.failure)?, size as usize, page(&message.page_token)?))
        };
        let (tool, kind, size, after) = decoded().map_err(|status| *status)?;
        let all = self.gate.retry_profiles(decode::tenant(), tool.as_ref(), kind, after.as_ref());
        let mut profiles = service::within(all).await?;
        let more = profiles.len() > size;
        profiles.truncate(size);
        let last = profiles.last().filter(|_| more);
        let next_page_token = last.map(|last| format!("{} {}", last.kind.as_str(), last.tool)).unwrap_or_default();
        let profiles = profiles.iter().map(encode::profile).collect();
        Ok(Response::new(v1::ListRetryProfilesResponse { profiles, next_page_token }))
    }

    async fn get_retry_profile(
        &self,
        request: Request<v1::GetRetryProfileRequest>,
    ) -> Result<Response<v1::GetRetryProfileResponse>, Status> {
        let message = request.into_inner();
        let decoded = || -> Decoded<_> {
            let tool = tool(&message.tool)?.map_or_else(|| wrong("tool", "is required"), Ok)?;
            let kind = failure(message.failure)?.map_or_else(|| wrong("failure", "is required"), Ok)?;
            Ok((tool, kind, state(&message)?))
        };
        let (tool, kind, state) = decoded().map_err(|status| *status)?;
        let profile = service::within(self.gate.retry_profile(decode::tenant(), &tool, kind, state)).await?;
        let profile = profile.ok_or_else(|| status::profile_unknown(tool.as_str(), kind.as_str()))?;
        Ok(Response::new(v1::GetRetryProfileResponse { profile: Some(encode::profile(&profile)) }))
    }

    async fn get_tool_quality(
        &self,
        request: Request<v1::GetToolQualityRequest>,
    ) -> Result<Response<v1::GetToolQualityResponse>, Status> {
        let message = request.into_inner();
        let decoded =
            || -> Decoded<_> { Ok((tool(&message.tool)?, between("days", message.days, DAYS_DEFAULT, DAYS_MAX)?)) };
        let (tool, days) = decoded().map_err(|status| *status)?;
        let days = i32::try_from(days).unwrap_or(i32::MAX);
        let report = service::within(self.gate.quality(decode::tenant(), tool.as_ref(), days)).await?;
        Ok(Response::new(encode::quality(&report)))
    }

    async fn rebuild_retry_profiles(
        &self,
        _request: Request<v1::RebuildRetryProfilesRequest>,
    ) -> Result<Response<v1::RebuildRetryProfilesResponse>, Status> {
        // It may take longer than an answer to an agent may.
        let trials = self.gate.rebuild_profiles().await.map_err(status::gate)?;
        Ok(Response::new(v1::RebuildRetryProfilesResponse { trials }))
    }
}
