//! Prices of models: the owner's file, and the table that it replaces.

use std::collections::BTreeSet;

use chrono::NaiveDate;
use serde::Deserialize;
use sqlx::{Connection as _, postgres::PgConnectOptions};

use super::{SCHEMA, connect};
use crate::error::OpenError;

/// The dearest price, in US dollars per million tokens.
const USD_MAX: f64 = 1_000_000.0;
/// Longest name of a model, in bytes, as in the contract.
const MODEL_BYTES_MAX: usize = 200;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceFile {
    prices: Vec<PriceEntry>,
}

/// A price in US dollars per million tokens, until the model's next one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceEntry {
    model: String,
    valid_from: String,
    input: f64,
    output: f64,
    /// As `input`, unless given.
    cache_read: Option<f64>,
    cache_write: Option<f64>,
}

/// Prices of models, each from a day on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ModelPrices {
    models: Vec<String>,
    from: Vec<String>,
    /// Of input, output, cache reads and cache writes.
    micros: [Vec<i64>; 4],
}

impl ModelPrices {
    /// Reads the owner's file, in YAML.
    ///
    /// # Errors
    /// The problem, with the model and the field at fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: PriceFile = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let (mut prices, mut known) = (Self::default(), BTreeSet::new());
        for entry in file.prices {
            let PriceEntry { model, valid_from, input, output, cache_read, cache_write } = entry;
            if model.is_empty() || model.len() > MODEL_BYTES_MAX {
                return Err(format!("model {model:?}: a name has 1 to {MODEL_BYTES_MAX} bytes"));
            }
            let day: NaiveDate = valid_from
                .parse()
                .map_err(|_| format!("{model}: valid_from {valid_from:?} is no day such as 2026-01-31"))?;
            if !known.insert((model.clone(), day)) {
                return Err(format!("{model}: there are two prices from {day} on"));
            }
            let fields = [
                ("input", input),
                ("output", output),
                ("cache_read", cache_read.unwrap_or(input)),
                ("cache_write", cache_write.unwrap_or(input)),
            ];
            for (column, (field, usd)) in prices.micros.iter_mut().zip(fields) {
                if !(0.0..=USD_MAX).contains(&usd) {
                    return Err(format!("{model}: {field} {usd} is not from 0 to {USD_MAX} US dollars"));
                }
                column.push((usd * 1e6).round() as i64);
            }
            prices.models.push(model);
            prices.from.push(day.to_string());
        }
        Ok(prices)
    }

    /// The number of prices.
    #[must_use]
    pub fn count(&self) -> usize {
        self.models.len()
    }
}

/// Replaces all prices of a database by these.
///
/// # Errors
/// [`OpenError`] when the database cannot be used: the earlier prices stay.
pub async fn set_prices(options: PgConnectOptions, prices: &ModelPrices) -> Result<(), OpenError> {
    let (mut conn, _) = connect::first(options.options([("search_path", SCHEMA)])).await?;
    let mut tx = conn.begin().await?;
    sqlx::query("delete from model_price").execute(&mut *tx).await?;
    let insert = sqlx::query(
        "insert into model_price
         select * from unnest($1::text[], $2::date[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])",
    );
    let ModelPrices { models, from, micros } = prices;
    let insert = micros.iter().fold(insert.bind(models).bind(from), |insert, column| insert.bind(column));
    insert.execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_to_the_millionth_and_a_mistake_is_named() {
        let text = "prices:\n  - {model: m, valid_from: 2026-01-01, input: 3, output: 15.5, cache_read: 0.3}\n";
        let prices = ModelPrices::parse(text).expect("a good file");
        assert_eq!(prices.micros, [[3_000_000], [15_500_000], [300_000], [3_000_000]].map(Vec::from));
        for (text, problem) in [
            ("prices: [{model: m, valid_from: soon, input: 1, output: 1}]", "m: valid_from \"soon\" is no day"),
            ("prices: [{model: m, valid_from: 2026-01-01, input: -1, output: 1}]", "m: input -1 is not from 0"),
            ("prices: [{model: m, valid_from: 2026-01-01, input: 1, output: .nan}]", "m: output NaN is not"),
            ("prices: [{model: '', valid_from: 2026-01-01, input: 1, output: 1}]", "model \"\""),
            (&format!("{text}{}", &text[8..]), "m: there are two prices from 2026-01-01 on"),
            ("prices: [{model: m, valid_from: 2026-01-01, input: 1, output: 1, per: call}]", "per"),
        ] {
            let error = ModelPrices::parse(text).expect_err(problem);
            assert!(error.contains(problem), "{error}");
        }
    }
}
