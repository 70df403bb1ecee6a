//! Constructors of instruments, each with its unit and description.

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};

/// Bounds of the durations' buckets, in seconds. OpenTelemetry's own are made for milliseconds.
const SECONDS: [f64; 15] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Bounds of the buckets of shares: at 0.8 and 0.9 models are warned.
const SHARES: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.99, 1.0];

/// Makes instruments of one meter.
pub(super) struct InstrumentFactory<'a>(pub(super) &'a Meter);

impl InstrumentFactory<'_> {
    pub(super) fn counter(&self, name: &'static str, unit: &'static str, of: &'static str) -> Counter<u64> {
        self.0.u64_counter(name).with_unit(unit).with_description(of).build()
    }

    pub(super) fn gauge(&self, name: &'static str, unit: &'static str, of: &'static str) -> Gauge<u64> {
        self.0.u64_gauge(name).with_unit(unit).with_description(of).build()
    }

    /// A gauge of a time.
    pub(super) fn age(&self, name: &'static str, of: &'static str) -> Gauge<f64> {
        self.0.f64_gauge(name).with_unit("s").with_description(of).build()
    }

    /// A histogram of shares of a limit, which may be passed.
    pub(super) fn shares(&self, name: &'static str, of: &'static str) -> Histogram<f64> {
        self.0.f64_histogram(name).with_description(of).with_boundaries(SHARES.to_vec()).build()
    }

    /// A histogram of times of calls, from 0.1 ms on.
    pub(super) fn seconds(&self, name: &'static str, of: &'static str) -> Histogram<f64> {
        self.seconds_by(name, of, SECONDS.to_vec())
    }

    pub(super) fn seconds_by(&self, name: &'static str, of: &'static str, bounds: Vec<f64>) -> Histogram<f64> {
        self.0.f64_histogram(name).with_unit("s").with_description(of).with_boundaries(bounds).build()
    }
}
