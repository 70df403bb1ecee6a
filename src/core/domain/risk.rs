//! Risk estimate of an approval, for sorting approval requests by importance. No decision depends on it.

use super::{effect::EffectKind, inbox::Question, reason::Reason, route::ApprovalRoute, tool::RiskLevel};

/// The risk of approving, with its reasons, the weightiest first. `declared` is the policy's risk of the tool, which
/// wins: only a condition of the policy raises it. `route` is its approvers.
#[must_use]
pub fn of(question: &Question, declared: Option<RiskLevel>, route: &ApprovalRoute) -> (RiskLevel, Vec<&'static str>) {
    let has = |reason: Reason| question.findings.iter().any(|finding| finding.reason == reason);
    let raised = question.findings.iter().filter_map(|finding| finding.raised_risk).max();
    let of_policy = [
        (declared == Some(RiskLevel::High), RiskLevel::High, "the policy calls its tool a high risk"),
        (declared == Some(RiskLevel::Medium), RiskLevel::Medium, "the policy calls its tool a medium risk"),
        (declared == Some(RiskLevel::Low), RiskLevel::Low, "the policy calls its tool a low risk"),
        (raised.is_some(), raised.unwrap_or(RiskLevel::Low), "a condition of the policy raises it"),
        (has(Reason::PolicyFault), RiskLevel::Medium, "a condition of the policy cannot be judged"),
    ];
    let effect = &question.effect;
    let warns = question.findings.iter().any(|finding| finding.level.is_some());
    let writes = effect.kind == EffectKind::Write;
    let of_call = [
        (route.people > 1, RiskLevel::High, "two people have to say yes"),
        (effect.once, RiskLevel::High, "doing it twice would harm"),
        (has(Reason::UnknownRiskLevel), RiskLevel::Medium, "the policy does not say how dangerous its tool is"),
        (warns, RiskLevel::Medium, "a loop detector warns"),
        (effect.kind == EffectKind::Unknown, RiskLevel::Medium, "nobody has declared what it does"),
        (writes && !effect.once && !effect.idempotent, RiskLevel::Medium, "it changes something"),
        (writes && effect.idempotent, RiskLevel::Low, "it changes something, and repeating it is harmless"),
        (effect.kind == EffectKind::Check, RiskLevel::Medium, "it runs a program"),
        (matches!(effect.kind, EffectKind::Read | EffectKind::Poll), RiskLevel::Low, "it only looks"),
    ];
    let of_call = of_call.into_iter().filter(|_| declared.is_none());
    let mut holds: Vec<_> = of_policy.into_iter().chain(of_call).filter(|(holds, ..)| *holds).collect();
    holds.sort_by_key(|(_, risk, _)| std::cmp::Reverse(*risk));
    let risk = holds.first().map_or(RiskLevel::Low, |(_, risk, _)| *risk);
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
        assert_eq!(of(once.clone(), None, 1), (RiskLevel::High, vec!["doing it twice would harm"]));
        assert_eq!(of(write, None, 2).1, ["two people have to say yes", "it changes something"]);
        // A declared risk wins.
        let low = (RiskLevel::Low, vec!["the policy calls its tool a low risk"]);
        assert_eq!(of(once, Some(RiskLevel::Low), 2), low);
        assert_eq!(of(effect(EffectKind::Unknown), Some(RiskLevel::Low), 1), low);
        let high = (RiskLevel::High, vec!["the policy calls its tool a high risk"]);
        assert_eq!(of(effect(EffectKind::Read), Some(RiskLevel::High), 1), high);
    }

    #[test]
    fn risk_is_raised_by_a_condition_and_never_lowered() {
        let raised = |raised_risk| Finding {
            raised_risk,
            ..Finding::new("tier", Decision::Ask, Reason::ApprovalRequired, "a person must approve it")
        };
        for (declared, to, expected) in [
            (Some(RiskLevel::Low), RiskLevel::High, RiskLevel::High),
            (Some(RiskLevel::High), RiskLevel::Medium, RiskLevel::High),
            (None, RiskLevel::High, RiskLevel::High),
            (None, RiskLevel::Low, RiskLevel::Medium),
        ] {
            let question = Question { findings: vec![raised(Some(to))], ..question(effect(EffectKind::Write)) };
            let (risk, why) = super::of(&question, declared, &ApprovalRoute::ANYBODY);
            assert_eq!(risk, expected, "{declared:?} {to:?}");
            assert!(why.contains(&"a condition of the policy raises it"), "{why:?}");
        }
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
