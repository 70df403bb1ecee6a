//! Stored marks of a result, for loop rules: JSON in the `marks` column.

use serde::{Deserialize, Serialize};

use super::decode::{LoadedRow, corrupt, member};
use callgate_core::domain::answer::{ContentAmount, Number, PackedNames, ResultMarkers};

#[derive(Debug, Serialize, Deserialize)]
struct StoredMarks {
    frame: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    inside: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    inside_frame: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    names: Vec<String>,
    /// Value, and whether it counts.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    numbers: Vec<(f64, bool)>,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    named: String,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    made_now: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    lapses: Option<String>,
    says: i16,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    failed: bool,
}

/// Marks of earlier builds, of which only the amount of information is still valid.
#[derive(Debug, Deserialize)]
struct FormerMarks {
    shape: String,
    says: i16,
    #[serde(default)]
    failed: bool,
}

pub(super) fn json(marks: &ResultMarkers) -> String {
    let hex = |hash: &u64| format!("{hash:016x}");
    let stored = StoredMarks {
        frame: hex(&marks.frame),
        inside: (marks.inside != 0).then(|| hex(&marks.inside)),
        inside_frame: (marks.inside_frame != 0).then(|| hex(&marks.inside_frame)),
        names: marks.names.iter().map(hex).collect(),
        numbers: marks.numbers.iter().map(|number| (number.value, number.counts)).collect(),
        named: marks.named.as_str().to_owned(),
        made_now: marks.made_now,
        lapses: marks.lapses.as_ref().map(hex),
        says: super::row::code(&ContentAmount::ALL, &marks.says),
        failed: marks.failed,
    };
    serde_json::to_string(&stored).unwrap_or_default()
}

pub(super) fn read(text: &str) -> LoadedRow<ResultMarkers> {
    let hash = |hex: &str| u64::from_str_radix(hex, 16).map_err(|error| corrupt(&error.to_string()));
    if let Ok(FormerMarks { shape, says, failed }) = serde_json::from_str(text) {
        return Ok(ResultMarkers::without_parts(hash(&shape)?, member(&ContentAmount::ALL, says)?, failed));
    }
    let stored: StoredMarks = serde_json::from_str(text).map_err(|error| corrupt(&error.to_string()))?;
    Ok(ResultMarkers {
        frame: hash(&stored.frame)?,
        inside: stored.inside.as_deref().map_or(Ok(0), hash)?,
        inside_frame: stored.inside_frame.as_deref().map_or(Ok(0), hash)?,
        names: stored.names.iter().map(|name| hash(name)).collect::<LoadedRow<_>>()?,
        numbers: stored.numbers.into_iter().map(|(value, counts)| Number { value, counts }).collect(),
        named: PackedNames::from_stored(stored.named),
        made_now: stored.made_now,
        lapses: stored.lapses.as_deref().map(hash).transpose()?,
        says: member(&ContentAmount::ALL, stored.says)?,
        failed: stored.failed,
    })
}
