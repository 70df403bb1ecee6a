//! The metrics in the text format of Prometheus, for scrapes.

use opentelemetry_prometheus::PrometheusExporter;
use prometheus::{Encoder as _, Registry, TextEncoder};

/// The present metrics. Clones report the same.
#[derive(Debug, Clone)]
pub struct Scrape(Registry);

impl Scrape {
    /// Content type of the response.
    pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

    /// All metrics.
    ///
    /// # Errors
    /// A figure that has no such form.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.0.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Creates the scrape and its metric reader.
pub(super) fn start() -> Result<(Scrape, PrometheusExporter), String> {
    let registry = Registry::new();
    let exporter = opentelemetry_prometheus::exporter().with_registry(registry.clone()).build();
    Ok((Scrape(registry), exporter.map_err(|error| error.to_string())?))
}
