//! Attributes of verdicts and of reports, each once. The spans declare them, and the spans and the log lines get their
//! values, from these two lists.
//!
//! Numbers are signed: as others they would reach a collector as text.
//!
//! `$with!` is called with the tokens in brackets, and then the list; where no value is wanted none is evaluated.

/// The attributes of a verdict on a proposal.
macro_rules! verdict_attributes {
    ($with:ident [$($given:tt)*] $verdict:expr, $proposal:expr) => {
        $with! {
            [$($given)*]
            TENANT = $proposal.request.tenant.0,
            SESSION = $proposal.request.session.as_str(),
            AGENT = $proposal.request.agent.as_ref().map(|agent| agent.as_str()),
            CALL_ID = $proposal.request.call_id.as_str(),
            TOOL = $proposal.request.tool.as_str(),
            DECISION = $verdict.decision.as_str(),
            WOULD = (!$verdict.is_enforced()).then(|| $verdict.would.as_str()),
            RULE = $verdict.winner().map(|finding| &*finding.rule),
            REASON = $verdict.winner().map(|finding| finding.reason.as_str()),
            LEVEL = $verdict.winner().and_then(|finding| finding.level).map(Level::as_str),
            COUNT = $verdict.winner().and_then(|finding| finding.count).map(i64::from),
            ATTEMPT = $verdict.permit.as_ref().map(|permit| i64::from(permit.attempt)),
            FINGERPRINT = field::debug($verdict.fingerprint),
            REPLAYED = $verdict.replayed,
            ENFORCED = $verdict.is_enforced(),
            POLICY = &*$verdict.policy,
            RETRY_AFTER_MS = $verdict.retry_after_ms().map(u64::cast_signed),
            SEQ = $verdict.seq.cast_signed(),
        }
    };
}

/// The attributes of a report.
macro_rules! report_attributes {
    ($with:ident [$($given:tt)*] $settled:expr) => {
        $with! {
            [$($given)*]
            SESSION = $settled.session.as_str(),
            CALL_ID = $settled.call_id.as_str(),
            OUTCOME = $settled.status.as_str(),
            FAILURE_KIND = $settled.failure.map(|failure| failure.as_str()),
            RETRYABLE = $settled.advice.map(|advice| advice.retryable),
            REPEAT = $settled.advice.map(|advice| advice.repeat.as_str()),
            EFFECT_OPEN = $settled.effect_open,
            DOUBLE_EFFECT = $settled.double_effect,
            BASIS = $settled.advice.map(|advice| advice.basis.as_str()),
            P_SUCCESS = $settled.advice.map(|advice| advice.p_success),
            PROBE = $settled.advice.map(|advice| advice.probe),
            RETRY_AFTER_MS = retry_after_ms($settled).map(u64::cast_signed),
            BY_LEASE = $settled.by_lease,
            SEQ = $settled.seq.cast_signed(),
        }
    };
}
