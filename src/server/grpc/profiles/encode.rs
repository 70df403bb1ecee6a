//! Encoding of retry profiles and tool quality as messages.

use crate::{
    gate::{QualityReport, RetryProfile},
    grpc::{
        ToWire,
        encode::{failure, level},
        time::timestamp,
    },
};
use callgate_core::domain::quality::{CallName, Flaw, NearPair, ToolQuality, UnknownTool};
use callgate_proto::{time::duration, v1};

pub(super) fn profile(profile: &RetryProfile) -> v1::RetryProfile {
    let chance = |(wait, (wait_ms, p)): (usize, (u64, f64))| {
        let (p_low, p_high) = profile.interval(wait);
        v1::RetryChance {
            wait: Some(duration(wait_ms)),
            p,
            p_low,
            p_high,
            trials: profile.odds.trials[wait],
            confidence: profile.confidence(wait).to_wire().into(),
        }
    };
    let corrections = profile.corrections;
    v1::RetryProfile {
        tool: profile.tool.to_string(),
        failure: failure(Some(profile.kind)),
        attempt: profile.state.attempt,
        tool_state: profile.state.tool.to_wire().into(),
        chances: profile.chances().enumerate().map(chance).collect(),
        trials: profile.odds.of_tool,
        retryable: profile.advice.retryable,
        retry_after: profile.advice.retryable.then(|| duration(profile.advice.retry_after_ms)),
        basis: profile.advice.basis.to_wire().into(),
        corrections: corrections.n,
        corrected: if corrections.n > 0.0 { corrections.k / corrections.n } else { 0.0 },
        layer: profile.layer.as_ref().map(|layer| {
            let (loss_estimate, loss_layer) = layer.mean_losses();
            v1::RetryLayer {
                outcomes: u32::try_from(layer.outcomes()).unwrap_or(u32::MAX),
                loss_estimate,
                loss_layer,
                promoted: layer.is_promoted(),
            }
        }),
        as_of_time: profile.advice.as_of.map(timestamp),
        prior: profile.prior,
        hint: profile.hint,
    }
}

pub(super) fn quality(report: &QualityReport) -> v1::GetToolQualityResponse {
    let ends = report.loop_ends.iter();
    v1::GetToolQualityResponse {
        tools: report.tools.iter().map(tool).collect(),
        near_pairs: report.near_pairs.iter().map(near_pair).collect(),
        loop_ends: ends.map(|(reached, loops)| v1::LoopEnd { level: level(Some(*reached)), loops: *loops }).collect(),
        unknown_tools: report.unknown_tools.iter().map(unknown_tool).collect(),
        as_of_time: report.as_of.map(timestamp),
        counted_from_time: report.counted_from.map(timestamp),
    }
}

fn tool(quality: &ToolQuality) -> v1::ToolQuality {
    let [retry, loops, duplicate, validation, coercion, unknown, failure, missing] =
        Flaw::ALL.map(|flaw| quality.rate(flaw));
    let coerced = quality.coerced.iter();
    let worst = quality.worst();
    v1::ToolQuality {
        tool: quality.tool.to_string(),
        calls: quality.counts.calls,
        permitted: quality.counts.permitted,
        retry_rate: retry,
        loop_rate: loops,
        duplicate_rate: duplicate,
        validation_failure_rate: validation,
        coercion_rate: Some(coercion),
        unknown_outcome_rate: unknown,
        missing_is_complete_rate: missing,
        failure_rate: failure,
        validation_refusal_rate: quality.validation_refusal_rate(),
        budget_refusal_rate: quality.budget_refusal_rate(),
        worst: worst.map(|flaw| flaw.rate().to_owned()).unwrap_or_default(),
        design_problem: worst.map(|flaw| flaw.problem().to_owned()).unwrap_or_default(),
        remedy: worst.map(|flaw| flaw.remedy().to_owned()).unwrap_or_default(),
        evidence: quality.evidence.iter().map(name).collect(),
        coerced_fields: coerced
            .map(|(field, calls)| v1::CoercedField { field: field.clone(), calls: *calls })
            .collect(),
    }
}

fn unknown_tool(unknown: &UnknownTool) -> v1::UnknownTool {
    v1::UnknownTool { tool: unknown.tool.to_string(), calls: unknown.calls, sessions: unknown.sessions }
}

fn near_pair(pair: &NearPair) -> v1::NearPair {
    let (first, second) = &pair.example;
    v1::NearPair {
        tool: pair.tool.to_string(),
        pairs: pair.pairs,
        fields: pair.fields.clone(),
        first: Some(name(&first.name)),
        second: Some(name(&second.name)),
    }
}

fn name(call: &CallName) -> v1::CallName {
    v1::CallName { session_id: call.session.to_string(), call_id: call.call_id.to_string() }
}
