//! `--notifications FILE`: notifies destinations of approval requests, halts, budgets and open circuit breakers.
//!
//! It runs beside the calls: no call waits for a slow or broken destination. Every replica queues the events that it
//! finds (`events.rs`), and the queue in the database holds each once per destination. One replica sends a
//! notification, and retries until the destination accepts it or nobody needs it any more.

mod audited;
mod destinations;
mod email;
mod events;
mod message;
mod slack;
mod slack_actions;
mod webhook;

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

pub(crate) use self::destinations::Destinations;
use self::{
    destinations::{Channel, NotificationDestination},
    events::{Collector, NotificationEvent},
    message::NotificationMessage,
};
use crate::{
    gate::{Gate, NoAnswer, NotificationTarget, NotificationTargets, TargetTest, new_id},
    grpc::Callbacks,
};
use callgate_core::domain::{tenant::DEFAULT_TENANT_NAME, time::Timestamp};
use callgate_net::clock::Clock;
use callgate_store::ClaimedNotification;

/// Interval of the reads of events and of the queue.
const EVERY: Duration = Duration::from_secs(1);
/// Notifications of a destination that are sent concurrently, and claimed for one round.
const CONCURRENT_MAX: usize = 4;
const ROUND_MAX: usize = 16;
/// Lifetime of a claim: longer than a round takes, at ten seconds an answer.
const CLAIM: Duration = Duration::from_secs(60);
/// Timeout of an attempt.
const ATTEMPT: Duration = Duration::from_secs(12);
/// The first wait after a failure, doubled with each, and the longest.
const WAIT_S: u64 = 1;
const WAIT_MAX_S: u64 = 300;

/// Starts the workers: one that queues events, and one a destination that sends.
pub(super) fn start(destinations: &Destinations, gate: &Arc<Gate>) -> Vec<JoinHandle<()>> {
    let _ = gate.server.notification_targets.set(Arc::new(destinations.clone()));
    for one in &destinations.0 {
        gate.server.metrics().notifications_expected(one.channel.as_str());
    }
    let collector = Collector::new(Arc::clone(gate), destinations.clone());
    let mut workers = vec![tokio::spawn(collect(collector))];
    workers.extend(destinations.0.iter().map(|one| tokio::spawn(send_all(Arc::clone(one), Arc::clone(gate)))));
    workers
}

async fn collect(mut collector: Collector) {
    let mut log = TroubleLog::default();
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        log.note(collector.collect().await, "the events of --notifications could not be queued");
    }
}

async fn send_all(destination: Arc<NotificationDestination>, gate: Arc<Gate>) {
    let mut log = TroubleLog::default();
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        while let Some(ROUND_MAX) =
            log.note(round(&destination, &gate).await, "the queue of --notifications could not be read")
        {}
    }
}

/// Logs a trouble once until it is over.
#[derive(Default)]
struct TroubleLog {
    is_troubled: bool,
}

impl TroubleLog {
    fn note<T>(&mut self, result: Result<T, NoAnswer>, text: &str) -> Option<T> {
        if let Err(error) = &result
            && !self.is_troubled
        {
            tracing::warn!(%error, "{text}");
        }
        self.is_troubled = result.is_err();
        result.ok()
    }
}

/// Sends due notifications; returns how many were due.
async fn round(destination: &NotificationDestination, gate: &Gate) -> Result<usize, NoAnswer> {
    let claimed = gate.store.claim_notifications(&destination.name, ROUND_MAX, CLAIM).await?;
    let count = claimed.len();
    let sent = claimed.into_iter().map(|one| async move {
        let result = send(destination, gate, &one).await?;
        let again = match &result {
            Ok(_) => None,
            Err(problem) => {
                let wait = wait(one.attempts);
                let (event, attempts, again_s) = (one.event.as_str(), one.attempts, wait.as_secs());
                let to = destination.name.as_str();
                tracing::warn!(destination = to, event, attempts, again_s, "a notification was not sent: {problem}");
                Some((wait, problem.as_str()))
            }
        };
        let name = result.as_ref().map_or("error", |name| name);
        gate.server.metrics().notified(destination.channel.as_str(), event_name(&one.event), name);
        gate.store.settle_notification(one.tenant, &one.key, again).await.map_err(NoAnswer::from)
    });
    let sent: Vec<_> = sent.collect();
    let results: Vec<Result<(), NoAnswer>> = stream::iter(sent).buffer_unordered(CONCURRENT_MAX).collect().await;
    results.into_iter().collect::<Result<(), NoAnswer>>()?;
    Ok(count)
}

/// The name of an event for metrics, of a closed set.
fn event_name(event: &str) -> &'static str {
    NotificationEvent::from_name(event).map_or(crate::telemetry::names::OTHER, NotificationEvent::as_str)
}

/// Sends one notification: `success`, or `cancelled` when nobody needs it any more.
async fn send(
    destination: &NotificationDestination,
    gate: &Gate,
    one: &ClaimedNotification,
) -> Result<Result<&'static str, String>, NoAnswer> {
    let tenant = gate.server.tenants().into_iter().find(|tenant| tenant.id == one.tenant);
    let (Some(tenant), Some(event), Ok(subject)) =
        (tenant, NotificationEvent::from_name(&one.event), serde_json::from_str(&one.subject))
    else {
        return Ok(Ok("cancelled"));
    };
    match NotificationMessage::of(gate, destination, (one.tenant, &tenant.name), (event, &subject)).await? {
        Some(message) => Ok(attempt(destination, &one.key, &message, gate.store.now()).await.map(|()| "success")),
        None => Ok(Ok("cancelled")),
    }
}

/// One attempt. Errors do not hold addresses of receivers, which may be secrets.
async fn attempt(
    destination: &NotificationDestination,
    id: &str,
    message: &NotificationMessage,
    now: Timestamp,
) -> Result<(), String> {
    let sent = async {
        match &destination.channel {
            Channel::Webhook(webhook) => webhook.send(id, message, now).await,
            Channel::Slack(slack) => slack.send(destination, message).await,
            Channel::Email(email) => email.send(id, message).await,
        }
    };
    let sent = tokio::time::timeout(ATTEMPT, sent).await;
    sent.unwrap_or_else(|_| Err(format!("no answer within {} s", ATTEMPT.as_secs())))
}

/// Wait before the next attempt after so many.
fn wait(attempts: u32) -> Duration {
    let doubled = WAIT_S.checked_shl(attempts.saturating_sub(1)).filter(|wait| *wait > 0);
    Duration::from_secs(doubled.unwrap_or(WAIT_MAX_S).min(WAIT_MAX_S))
}

/// Makes the routes that destinations call back.
pub(super) fn callbacks(destinations: &Destinations) -> Callbacks {
    let destinations = destinations.clone();
    Callbacks(Arc::new(move |gate| slack_actions::router(&destinations, gate)))
}

impl NotificationTargets for Destinations {
    fn list_targets(&self, tenant: &str) -> Vec<NotificationTarget> {
        let target = |one: &Arc<NotificationDestination>| NotificationTarget {
            name: one.name.clone(),
            channel: one.channel.as_str(),
            events: one.events.iter().map(|event| event.as_str()).collect(),
            groups: one.groups().to_vec(),
        };
        self.0.iter().filter(|one| one.is_of(tenant)).map(target).collect()
    }

    fn test_target<'a>(&'a self, tenant: &'a str, name: &'a str) -> TargetTest<'a> {
        Box::pin(async move {
            let one = self.0.iter().find(|one| one.name == name && one.is_of(tenant))?;
            let now = Clock::System.now();
            Some(attempt(one, &new_id("test"), &NotificationMessage::test(one, tenant, now), now).await)
        })
    }
}

/// Result of a test of a destination.
#[derive(Debug)]
pub struct TestResult {
    /// Name of the destination.
    pub destination: String,
    /// Way to it: `webhook`, `slack` or `email`.
    pub channel: &'static str,
    /// The problem, if the destination did not accept the message.
    pub problem: Option<String>,
}

/// Sends a test message to each destination of a file, or to those that are named.
///
/// # Errors
/// A file that cannot be used, or a name that it does not have.
pub async fn test(file: &Path, names: &[String]) -> anyhow::Result<Vec<TestResult>> {
    let Destinations(all) = Destinations::read(file)?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|one| one.name != **name)) {
        anyhow::bail!("--notifications {} has no destination {unknown:?}", file.display());
    }
    let mut results = Vec::new();
    for one in all.iter().filter(|one| names.is_empty() || names.contains(&one.name)) {
        let now = Clock::System.now();
        let message = NotificationMessage::test(one, DEFAULT_TENANT_NAME, now);
        let sent = attempt(one, &new_id("test"), &message, now).await;
        let channel = one.channel.as_str();
        results.push(TestResult { destination: one.name.clone(), channel, problem: sent.err() });
    }
    Ok(results)
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
