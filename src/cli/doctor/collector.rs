//! Check of the telemetry collector: reachable, and accepting data.

use super::check::{Area, DoctorCheck};
use url::Url;

use callgate_server::telemetry::{ProbeOutcome, probe};

const AREA: Area = Area::Collector;

/// Checks each signal separately, because collectors may accept only some.
pub(super) async fn looked_at(endpoint: Option<&str>) -> Vec<DoctorCheck> {
    let (probed, warnings) = match probe(endpoint).await {
        Ok(probed) => probed,
        Err(error) => {
            let cure = "fix or unset it: docs/telemetry.md#setting-it-up lists all variables";
            return vec![DoctorCheck::wrong(AREA, "settings", error, cure)];
        }
    };
    let mut checks: Vec<DoctorCheck> = warnings
        .into_iter()
        .map(|warning| {
            let cure = "docs/telemetry.md#setting-it-up lists the supported variables";
            DoctorCheck::warning(AREA, "settings", warning, cure)
        })
        .collect();
    if probed.is_empty() {
        checks.push(DoctorCheck::skipped(
            AREA,
            "all",
            "no collector is set: --otlp-endpoint, or OTEL_EXPORTER_OTLP_ENDPOINT",
        ));
    }
    let mut refusals: Vec<Refusal> = Vec::new();
    for ProbeOutcome { signal, endpoint, refused } in probed {
        let Some(why) = refused else {
            checks.push(DoctorCheck::ok(AREA, signal, format!("{endpoint} accepts them")));
            continue;
        };
        let place = Url::parse(&endpoint).map_or(endpoint, |url| url.origin().ascii_serialization());
        match refusals.iter_mut().find(|refusal| refusal.place == place && refusal.why == why) {
            Some(known) => known.signals.push(signal),
            None => refusals.push(Refusal { place, why, signals: vec![signal] }),
        }
    }
    checks.extend(refusals.into_iter().map(Refusal::into_check));
    checks
}

/// One cause, with the affected signals.
struct Refusal {
    place: String,
    why: String,
    signals: Vec<&'static str>,
}

impl Refusal {
    /// A warning only: without a collector calls are judged, but not observed.
    fn into_check(self) -> DoctorCheck {
        let Self { place, why, signals } = self;
        // By the name of the signal where it is one, since collectors may take some alone.
        let name = if let [signal] = signals.as_slice() { signal } else { "reachable" };
        DoctorCheck::warning(
            AREA,
            name,
            format!("{place} accepts no {}: {why}", signals.join(", no ")),
            "start the collector, or fix its address, protocol, certificate or headers (OTEL_EXPORTER_OTLP_*); \
             OTEL_{TRACES,METRICS,LOGS}_EXPORTER=none turns a signal off",
        )
    }
}
