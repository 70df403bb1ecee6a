//! Encoding of the retry history: the same retries summed by predicted chance, by probe, and overall.

use std::collections::BTreeMap;

use crate::grpc::{encode::failure, time::timestamp};
use callgate_core::domain::retries::{CORRECTIONS_MAX, FieldCorrections, RetryGroup, RetryHistory};
use callgate_proto::{time::duration, v1};

pub(super) fn encode_history(history: &RetryHistory) -> v1::GetRetryHistoryResponse {
    let days = history.days.iter();
    v1::GetRetryHistoryResponse {
        days: days
            .map(|day| v1::RetryDay {
                start_time: Some(timestamp(day.at)),
                trials: day.trials,
                successes: day.successes,
            })
            .collect(),
        calibration: calibration(&history.retries),
        worth: Some(encode_worth(&history.retries)),
        probes: probes(&history.retries),
        self_corrections: history.self_corrections.iter().take(CORRECTIONS_MAX).map(encode_corrections).collect(),
        data_start_time: history.back_to.map(timestamp),
    }
}

fn calibration(retries: &[RetryGroup]) -> Vec<v1::RetryCalibration> {
    let mut tenths: BTreeMap<u8, (u64, u64, f64)> = BTreeMap::new();
    for one in retries.iter().filter(|one| !one.probe && one.known > 0) {
        let Some(tenth) = one.tenth else { continue };
        let (known, succeeded, predicted) = tenths.entry(tenth).or_default();
        *known += one.known;
        *succeeded += one.succeeded;
        *predicted += one.predicted;
    }
    let told = |(tenth, (trials, succeeded, predicted)): (u8, (u64, u64, f64))| v1::RetryCalibration {
        tenth: u32::from(tenth) + 1,
        trials,
        predicted: predicted / trials as f64,
        observed: succeeded as f64 / trials as f64,
    };
    tenths.into_iter().map(told).collect()
}

fn encode_worth(retries: &[RetryGroup]) -> v1::RetryWorth {
    let sum = |part: fn(&RetryGroup) -> u64| retries.iter().map(part).fold(0, u64::saturating_add);
    v1::RetryWorth {
        retries: sum(|one| one.retries),
        succeeded: sum(|one| one.succeeded),
        failed: sum(|one| one.failed),
        against_advice: sum(|one| one.against_advice),
        cost_micros: sum(|one| one.cost_micros),
        tokens: sum(|one| one.tokens),
        lost_time: Some(duration(sum(|one| one.lost_ms))),
    }
}

fn probes(retries: &[RetryGroup]) -> Vec<v1::RetryProbe> {
    let mut probes: Vec<v1::RetryProbe> = Vec::new();
    // They come in the order of tools and kinds.
    for one in retries.iter().filter(|one| one.probe) {
        let (tool, kind) = (one.tool.to_string(), failure(Some(one.failure)));
        if probes.last().is_none_or(|last| (&last.tool, last.failure) != (&tool, kind)) {
            probes.push(v1::RetryProbe { tool, failure: kind, ..v1::RetryProbe::default() });
        }
        if let Some(last) = probes.last_mut() {
            last.probes += one.retries;
            last.successes += one.succeeded;
            let at = timestamp(one.last_at);
            if last.last_time.as_ref().is_none_or(|known| (known.seconds, known.nanos) < (at.seconds, at.nanos)) {
                last.last_time = Some(at);
            }
        }
    }
    probes
}

fn encode_corrections(known: &FieldCorrections) -> v1::SelfCorrection {
    v1::SelfCorrection {
        tool: known.count.tool.to_string(),
        field: known.count.field.clone(),
        rule: known.count.rule.clone(),
        refusals: known.count.refusals,
        corrected: known.count.corrected,
        asks_user: known.is_for_the_user,
    }
}
