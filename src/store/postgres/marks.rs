//! What loop rules read of a result, as it is stored: JSON in the `marks` column.

use serde::{Deserialize, Serialize};

use super::decode::{Loaded, corrupt, member};
use callgate_core::domain::answer::{Marks, Says};

#[derive(Debug, Serialize, Deserialize)]
struct StoredMarks {
    shape: String,
    numberless: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    names: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    named: Vec<String>,
    says: i16,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    failed: bool,
}

pub(super) fn json(marks: &Marks) -> String {
    let hex = |hash: u64| format!("{hash:016x}");
    let stored = StoredMarks {
        shape: hex(marks.shape),
        numberless: hex(marks.numberless),
        names: marks.names.map(hex),
        named: marks.named.clone(),
        says: super::row::code(&Says::ALL, &marks.says),
        failed: marks.failed,
    };
    serde_json::to_string(&stored).unwrap_or_default()
}

pub(super) fn read(text: &str) -> Loaded<Marks> {
    let stored: StoredMarks = serde_json::from_str(text).map_err(|error| corrupt(&error.to_string()))?;
    let hash = |hex: &str| u64::from_str_radix(hex, 16).map_err(|error| corrupt(&error.to_string()));
    Ok(Marks {
        shape: hash(&stored.shape)?,
        numberless: hash(&stored.numberless)?,
        names: stored.names.as_deref().map(hash).transpose()?,
        named: stored.named,
        says: member(&Says::ALL, stored.says)?,
        failed: stored.failed,
    })
}
