//! Where telemetry goes: is it reached, and does it take what is sent?

use super::check::{Area, Check};
use crate::telemetry::probe;

const AREA: Area = Area::Collector;

/// Each signal by itself, since collectors may take some alone.
pub(super) async fn looked_at(endpoint: Option<&str>) -> Vec<Check> {
    let (probed, warnings) = match probe(endpoint).await {
        Ok(probed) => probed,
        Err(error) => {
            let cure = "mend it, or unset it: docs/telemetry.md#setting-it-up has all of them";
            return vec![Check::wrong(AREA, "settings", error, cure)];
        }
    };
    let mut checks: Vec<Check> = warnings
        .into_iter()
        .map(|warning| {
            let cure = "docs/telemetry.md#setting-it-up says what is followed";
            Check::warning(AREA, "settings", warning, cure)
        })
        .collect();
    if probed.is_empty() {
        checks.push(Check::not(AREA, "all", "no collector is named: --otlp-endpoint, or OTEL_EXPORTER_OTLP_ENDPOINT"));
    }
    checks.extend(probed.into_iter().map(|probed| match probed.refused {
        None => Check::ok(AREA, probed.signal, format!("{} takes them", probed.endpoint)),
        // Nothing waits for a collector: without one, calls are judged, and nobody sees them.
        Some(why) => Check::warning(
            AREA,
            probed.signal,
            format!("{} takes none: {why}", probed.endpoint),
            "start the collector, or mend its address, protocol, certificate or headers (OTEL_EXPORTER_OTLP_*); a \
             signal that nobody wants is turned off by OTEL_{TRACES,METRICS,LOGS}_EXPORTER=none",
        ),
    }));
    checks
}
