//! Shared helpers of tests with a real PostgreSQL. Each test has a server of its own, so that stopping it affects no
//! other, and everything is removed at the end of the test, however it ends.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod certificates;
pub(crate) mod citus;
pub(crate) mod gates;
pub(crate) mod invariants;
pub(crate) mod issuer;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod wire;

use std::{future::Future, time::Duration};

/// Timeout of any step of a test, generous because a busy machine is no failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Poll interval of conditions.
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// Waits until `holds`, looking again and again.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(STEP).await;
        }
    };
    in_time(what, wait).await;
}

/// The result of `future` within [`PATIENCE`].
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(PATIENCE, what, future).await
}

/// The result of `future` within `limit`.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(limit, future).await;
    outcome.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Runs all at once, each as a task of its own, and gives their results in order.
pub(crate) async fn all<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = futures.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(in_time("a task", task).await.expect("no panic in a task"));
    }
    results
}
