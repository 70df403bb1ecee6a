//! Decoding and encoding of rollouts.

use tonic::Status;

use super::{
    decode::{DecodeResult, decode_in_range, wrong},
    policies::encode_activation,
    status,
    time::timestamp,
};
use crate::{gate::RolloutOutcome, grpc::ToWire};
use callgate_core::domain::{
    ids::AgentId,
    rollout::{AGENTS_MAX, Arm, Comparison, Rollout, RolloutChange, RolloutPart, SHARE_MAX},
};
use callgate_proto::v1;

pub(super) fn decode_part(message: &v1::StartPolicyRolloutRequest) -> DecodeResult<RolloutPart> {
    let share = decode_in_range("share_basis_points", message.share_basis_points.into(), 0..=SHARE_MAX.into())?;
    if message.agent_ids.len() > AGENTS_MAX {
        return wrong("agent_ids", format!("must be at most {AGENTS_MAX}"));
    }
    let mut agents = message
        .agent_ids
        .iter()
        .enumerate()
        .map(|(at, agent)| AgentId::parse(&format!("agent_ids[{at}]"), agent))
        .collect::<Result<Vec<_>, _>>()?;
    agents.sort_unstable();
    agents.dedup();
    Ok(RolloutPart { share: share as u16, agents })
}

/// True to promote.
pub(super) fn decode_end(message: &v1::EndPolicyRolloutRequest) -> DecodeResult<bool> {
    match message.end() {
        v1::PolicyRolloutEnd::Promote => Ok(true),
        v1::PolicyRolloutEnd::Abort => Ok(false),
        v1::PolicyRolloutEnd::Unspecified => wrong("end", "must be PROMOTE or ABORT"),
    }
}

pub(super) fn encode_outcome(outcome: RolloutOutcome, named: &str) -> Result<v1::PolicyRollout, Status> {
    match outcome {
        RolloutOutcome::Change(RolloutChange::Done(rollout)) => Ok(encode(*rollout)),
        RolloutOutcome::Change(change) => Err(status::rollout_status(change, named)),
        RolloutOutcome::Invalid(problems) => Err(status::invalid_policy(&problems)),
        RolloutOutcome::Activation(activation) => {
            encode_activation(activation, || status::policy_unknown(named))?;
            Err(status::rollout_status(RolloutChange::NotRunning, named))
        }
    }
}

fn encode(rollout: Rollout) -> v1::PolicyRollout {
    v1::PolicyRollout {
        hash: rollout.hash,
        baseline_hash: rollout.baseline,
        share_basis_points: rollout.part.share.into(),
        agent_ids: rollout.part.agents.iter().map(ToString::to_string).collect(),
        state: rollout.state.to_wire().into(),
        start_time: Some(timestamp(rollout.started_at)),
        change_time: Some(timestamp(rollout.at)),
        changed_by: rollout.by,
        note: rollout.note,
    }
}

pub(super) fn encode_comparison(compared: Option<(Rollout, Comparison)>) -> v1::GetPolicyRolloutResponse {
    let Some((rollout, compared)) = compared else { return v1::GetPolicyRolloutResponse::default() };
    let arm = |Arm { calls, sessions }: Arm| Some(v1::PolicyRolloutCount { calls, sessions });
    let decisions = compared.calls.iter().map(|calls| v1::PolicyRolloutDecisions {
        decision: calls.decision.to_wire().into(),
        rule: calls.rule.clone().unwrap_or_default(),
        reason: calls.reason.clone().unwrap_or_default(),
        rollout: arm(calls.rollout),
        baseline: arm(calls.baseline),
        differs: compared.differs(calls),
        examples: calls
            .examples
            .iter()
            .cloned()
            .map(|(session_id, call_id)| v1::PolicyRolloutExample { session_id, call_id })
            .collect(),
    });
    let comparison = v1::PolicyRolloutComparison {
        decisions: decisions.collect(),
        rollout: arm(compared.rollout),
        baseline: arm(compared.baseline),
        more_calls: compared.is_more,
    };
    v1::GetPolicyRolloutResponse { rollout: Some(encode(rollout)), comparison: Some(comparison) }
}
