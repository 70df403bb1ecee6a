//! Outcomes of retries, compared with their predictions.

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram},
};

use super::{super::names, instruments::InstrumentFactory};
use callgate_core::domain::profile::{FollowUpKind, Trial};

/// Bounds of the predicted chances' buckets: tenths, as a calibration plot has them.
const CHANCES: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

#[derive(Debug, Clone)]
pub(super) struct RetryMetrics {
    settled: Counter<u64>,
    predicted: Histogram<f64>,
}

impl RetryMetrics {
    pub(super) fn new(make: &InstrumentFactory<'_>) -> Self {
        let predicted = make.0.f64_histogram(names::METRIC_RETRY_PREDICTED);
        let predicted = predicted.with_description("Predicted chances of retries, by result.");
        Self {
            settled: make.counter(names::METRIC_RETRIES, "{retry}", "Retries with a known result."),
            predicted: predicted.with_boundaries(CHANCES.to_vec()).build(),
        }
    }

    /// A retry with the same arguments has an outcome. One with others is no evidence on the advice, which was about
    /// these.
    pub(super) fn record_trial(&self, trial: &Trial) {
        let Trial { follow_up, ok, .. } = trial;
        if follow_up.kind != FollowUpKind::Same {
            return;
        }
        let labels = [
            KeyValue::new(names::FAILURE_KIND, follow_up.failure.as_str()),
            KeyValue::new(names::RETRYABLE, follow_up.retryable_said),
            KeyValue::new(names::PROBE, follow_up.probe),
            KeyValue::new(names::RETRY_OK, *ok),
        ];
        self.settled.add(1, &labels);
        self.predicted.record(follow_up.p_predicted.clamp(0.0, 1.0), &labels[3..]);
    }
}
