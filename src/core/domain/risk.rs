//! Risk estimate of an approval, for sorting approval requests by importance. No decision depends on it.

use super::{effect::EffectKind, inbox::Question, reason::Reason, route::ApprovalRoute, tool::RiskLevel};

/// The risk of approving, with its reasons, the weightiest first. `declared` is the policy's risk of the tool, `route`
/// its approvers.
#[must_use]
pub fn of(question: &Question, declared: Option<RiskLevel>, route: &ApprovalRoute) -> (RiskLevel, Vec<&'static str>) {
    let effect = &question.effect;
    let has = |reason: Reason| question.findings.iter().any(|finding| finding.reason == reason);
    let warns = question.findings.iter().any(|finding| finding.level.is_some());
    let writes = effect.kind == EffectKind::Write;
    let signs = [
        (declared == Some(RiskLevel::High), RiskLevel::High, "the policy calls its tool a high risk"),
        (route.people > 1, RiskLevel::High, "two people have to say yes"),
        (effect.once, RiskLevel::High, "doing it twice would harm"),
        (declared == Some(RiskLevel::Medium), RiskLevel::Medium, "the policy calls its tool a medium risk"),
        (has(Reason::PolicyFault), RiskLevel::Medium, "a condition of the policy cannot be judged"),
        (has(Reason::UnknownRiskLevel), RiskLevel::Medium, "the policy does not say how dangerous its tool is"),
        (warns, RiskLevel::Medium, "a loop detector warns"),
        (effect.kind == EffectKind::Unknown, RiskLevel::Medium, "nobody has declared what it does"),
        (writes && !effect.once && !effect.idempotent, RiskLevel::Medium, "it changes something"),
        (writes && effect.idempotent, RiskLevel::Low, "it changes something, and repeating it is harmless"),
        (effect.kind == EffectKind::Check, RiskLevel::Medium, "it runs a program"),
        (matches!(effect.kind, EffectKind::Read | EffectKind::Poll), RiskLevel::Low, "it only looks"),
    ];
    let holds: Vec<_> = signs.into_iter().filter(|(holds, ..)| *holds).collect();
    let risk = holds.iter().map(|(_, risk, _)| *risk).max().unwrap_or(RiskLevel::Low);
    (risk, holds.into_iter().map(|(.., why)| why).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        effect::Effect,
        finding::{Decision, Finding, Level},
        fingerprint::ArgsDigest,
        time::Timestamp,
    };

    fn question(effect: Effect) -> Question {
        Question {
            approval_id: "q".to_owned(),
            session: "s".to_owned(),
            root: "s".to_owned(),
            seq: 1,
            agent: None,
            host: None,
            asked_by: None,
            call_id: "c".to_owned(),
            tool: "pay".to_owned(),
            arguments: "{}".to_owned(),
            args_digest: ArgsDigest([0; 32]),
            effect,
            justification: None,
            findings: Vec::new(),
            asked_at: Timestamp::from_millis(0),
            expires_at: Timestamp::from_millis(1),
            policy: "p".to_owned(),
            seconded_by: Vec::new(),
            edited: None,
            resolution: None,
        }
    }

    fn effect(kind: EffectKind) -> Effect {
        Effect { kind, ..Effect::default() }
    }

    #[test]
    fn risk_is_high_for_once_tools_and_two_approvers_and_low_for_reads() {
        let of = |effect, declared, people| {
            super::of(&question(effect), declared, &ApprovalRoute { people, ..ApprovalRoute::ANYBODY })
        };
        let write = effect(EffectKind::Write);
        let once = Effect { once: true, ..write.clone() };
        let harmless = Effect { idempotent: true, ..write.clone() };
        assert_eq!(of(effect(EffectKind::Read), None, 1), (RiskLevel::Low, vec!["it only looks"]));
        assert_eq!(of(effect(EffectKind::Check), None, 1), (RiskLevel::Medium, vec!["it runs a program"]));
        assert_eq!(of(harmless, None, 1).0, RiskLevel::Low);
        assert_eq!(of(write.clone(), None, 1), (RiskLevel::Medium, vec!["it changes something"]));
        assert_eq!(of(effect(EffectKind::Unknown), Some(RiskLevel::Low), 1).0, RiskLevel::Medium);
        assert_eq!(of(once, None, 1), (RiskLevel::High, vec!["doing it twice would harm"]));
        let (risk, why) = of(effect(EffectKind::Read), Some(RiskLevel::High), 2);
        assert_eq!(risk, RiskLevel::High);
        assert_eq!(why, ["the policy calls its tool a high risk", "two people have to say yes", "it only looks"]);
    }

    #[test]
    fn warning_raises_a_low_risk() {
        let warned = Finding::new("repeat", Decision::Allow, Reason::NoProgress, "again").at_level(Level::Warning, 10);
        let faulty = Finding::new("tier", Decision::Ask, Reason::PolicyFault, "cannot be judged");
        for finding in [warned, faulty] {
            let question = Question { findings: vec![finding], ..question(effect(EffectKind::Read)) };
            assert_eq!(super::of(&question, None, &ApprovalRoute::ANYBODY).0, RiskLevel::Medium);
        }
    }
}
