//! `--approvals-webhook FILE`: sends each new approval request to a URL. It runs beside the calls: no call waits for a
//! slow or broken receiver. Of all replicas one sends a request, and retries until the receiver takes it, or nobody can
//! answer it any more.

mod file;
mod message;

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use http::{HeaderName, HeaderValue};
use tokio::time::{MissedTickBehavior, interval};

use self::message::RequestMessage;
use crate::gate::{Gate, NoAnswer};
use callgate_core::domain::{
    ids::TenantId,
    inbox::{Question, QuestionState},
};
use callgate_net::outgoing::HttpRequest;

pub(super) use file::Webhook;

/// Polling interval of open approval requests.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Requests that are sent concurrently, and claimed for one round.
const AT_ONCE: usize = 4;
const ROUND: usize = 16;
/// Lifetime of a claim: longer than a round takes, at ten seconds an answer.
const CLAIM: Duration = Duration::from_secs(60);
/// The first wait after a failure, doubled with each, and the longest.
const WAIT_S: u64 = 1;
const WAIT_MAX_S: u64 = 300;
/// Longest part of a response that is read, in bytes.
const ANSWER_BYTES: usize = 64 << 10;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Sends approval requests for as long as the server runs.
pub(super) async fn run(webhook: Webhook, gate: Arc<Gate>) {
    let mut tick = interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_troubled, mut told) = (false, std::collections::BTreeSet::new());
    loop {
        tick.tick().await;
        let looked = round(&webhook, &gate, &mut told).await;
        if let Err(error) = &looked
            && !is_troubled
        {
            tracing::warn!(%error, "the webhook of --approvals-webhook gets no approval requests meanwhile");
        }
        is_troubled = looked.is_err();
    }
}

/// Sends the due requests. `done` has those that this replica knows to be sent.
async fn round(webhook: &Webhook, gate: &Gate, done: &mut std::collections::BTreeSet<String>) -> Result<(), NoAnswer> {
    let Some(tenant) = gate.store.find_tenants(std::slice::from_ref(&webhook.tenant)).await?.remove(&webhook.tenant)
    else {
        return Ok(());
    };
    let (open, now) = (gate.approvals.open_questions(tenant).await?, gate.store.now());
    done.retain(|id| open.iter().any(|question| question.approval_id == *id));
    let is_new =
        |question: &&Question| question.state(now) == QuestionState::Pending && !done.contains(&question.approval_id);
    // The oldest request is sent first.
    let new: Vec<Question> = open.iter().rev().filter(is_new).cloned().collect();
    if new.is_empty() {
        return Ok(());
    }
    let ends: Vec<_> = new.iter().map(|one| (one.approval_id.clone(), one.expires_at)).collect();
    let claims = gate.store.claim_notices(tenant, &ends, (ROUND, CLAIM)).await?;
    done.extend(claims.told);
    let claimed = claims.mine.into_iter().filter_map(|claim| {
        let question = new.iter().find(|question| question.approval_id == claim.approval_id)?;
        Some((question, claim.attempts))
    });
    let tell = claimed.map(|(question, attempts)| async move {
        let again = match send_request(webhook, gate, tenant, question).await {
            Ok(()) => None,
            Err(problem) => {
                let wait = wait(attempts);
                let (id, again_s) = (&question.approval_id, wait.as_secs());
                tracing::warn!(approval = id, attempts, again_s, "a webhook got no approval request: {problem}");
                Some(wait)
            }
        };
        let noted = gate.store.note_notice(tenant, &question.approval_id, again).await;
        noted.map(|()| again.is_none().then(|| question.approval_id.clone()))
    });
    let tell: Vec<_> = tell.collect();
    let results: Vec<_> = stream::iter(tell).buffer_unordered(AT_ONCE).collect().await;
    for result in results {
        done.extend(result?);
    }
    Ok(())
}

/// Wait before the next attempt after so many.
fn wait(attempts: u32) -> Duration {
    let doubled = WAIT_S.checked_shl(attempts.saturating_sub(1)).filter(|wait| *wait > 0);
    Duration::from_secs(doubled.unwrap_or(WAIT_MAX_S).min(WAIT_MAX_S))
}

/// Sends one approval request. Errors do not hold the address, which may be a secret.
async fn send_request(webhook: &Webhook, gate: &Gate, tenant: TenantId, question: &Question) -> Result<(), String> {
    let (risk, because) = gate.approvals.risk(tenant, question);
    let body = message::body(
        webhook,
        &RequestMessage { question, route: &gate.approvals.route(tenant, question), risk, because },
    );
    let (id, at_s) = (&question.approval_id, gate.store.now().as_millis() / 1_000);
    let header = |text: &str| HeaderValue::from_str(text).map_err(|_| "its id is no header".to_owned());
    let mut ask = HttpRequest::post(&webhook.url, HeaderValue::from_static("application/json"), body.clone())
        .header(ID, header(id)?)
        .header(TIMESTAMP, HeaderValue::from(at_s))
        .authority(webhook.ca.as_deref());
    if let Some(secret) = &webhook.secret {
        ask = ask.header(SIGNATURE, header(&message::signature(secret, id, at_s, &body))?);
    }
    let answer = ask.send(ANSWER_BYTES).await.map_err(|failed| failed.problem)?;
    match answer.status.is_success() {
        true => Ok(()),
        false => Err(format!("it answers {}", answer.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_minutes() {
        let waits: Vec<u64> = [1, 2, 3, 9, 10, 64, 65, u32::MAX].map(|n| wait(n).as_secs()).to_vec();
        assert_eq!(waits, [1, 2, 4, 256, 300, 300, 300, 300]);
    }
}
