//! money_minor_units: money that is not an integer of minor units.
//!
//! Reports an argument that is an amount of money by its name, and is a number with a fraction, a string, or an integer
//! whose unit neither its name nor its description tells. A bare `amount` counts as money only when the tool or the
//! description speaks of money, or a currency stands beside it.
//!
//! Why: 19.99 has no exact binary form, `"19,99"` has many readings, and a bare 1999 has two: a hundredfold charge.
//!
//! Known problems: prices per unit with more than two decimals (fuel, tokens) need micro-units; say so in the name
//! (`price_micros`). Integers of whole points or miles are not money: name them so.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{LintReport, ListFacts, ToolFacts, prose};
use crate::tool_list::{SchemaNode, is_bound, is_only, name_words};

const REASON: &str = "fractions round and strings have many readings; cents taken for dollars are a hundredfold charge";

static SPEAKS_OF_MONEY: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r"(?i)[$€£¥]|\b(money|monetary|currency|price|pay|pays|paid|payments?|charged?",
        r"|refund|invoice|voucher|certificate|usd|eur|dollars?|euros?)\b",
    ))
});

static MINOR: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(
        r"(?i)\b(cents?|pence|minor|micros?|smallest|millis|satoshis?|wei|lamports?|basis points)\b|integer units",
    )
});

/// One report an argument.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in &facts.tools {
        for (node, field) in tool.properties() {
            let said = tool.said_of(node.schema);
            if !is_money(tool, node, field) || is_bound(node.schema, &["enum", "const"]) {
                continue;
            }
            let told_unit = MINOR.is_match(&name_words::split_name(field).join(" ")) || MINOR.is_match(said);
            let Some(problem) = problem(node.schema, told_unit) else { continue };
            let better = format!(
                "`\"{}\": {{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 1000000, \"description\": \
                 \"In minor units of the currency: 1999 is 19.99\"}}`, with the maximum that you allow",
                in_cents(field)
            );
            reports.push(tool.report(&node.pointer, format!("`{field}` is money and {problem}"), REASON, better));
        }
    }
    reports
}

fn problem(schema: &Value, told_unit: bool) -> Option<&'static str> {
    match () {
        () if is_only(schema, "number") => Some("a number with a fraction"),
        () if is_only(schema, "string") => Some("a string"),
        () if is_only(schema, "integer") && !told_unit => {
            Some("an integer of which nobody says whether it counts cents")
        }
        () => None,
    }
}

fn is_money(tool: &ToolFacts<'_>, node: &SchemaNode<'_>, field: &str) -> bool {
    const MONEY: &[&str] =
        &["price", "cost", "fee", "salary", "fare", "payment", "budget", "deposit", "cents", "usd", "eur"];
    const MAYBE: &[&str] = &["amount", "total", "subtotal", "balance", "refund", "charge", "tip", "discount", "tax"];
    let words = name_words::split_name(field);
    let units = ["cents", "minor", "micros", "usd", "eur", "gbp"];
    let Some(last) = words.iter().rev().find(|word| !units.contains(&word.as_str())).or(words.last()) else {
        return false;
    };
    let names_a_currency =
        words.last().is_some_and(|word| matches!(word.as_str(), "usd" | "eur" | "gbp" | "dollars" | "euros"));
    let beside = || {
        let speaks = |text: &str| SPEAKS_OF_MONEY.is_match(text);
        let fields =
            || tool.properties().any(|(_, other)| name_words::split_name(other).contains(&"currency".to_owned()));
        let around = name_words::split_name(&node.pointer).join(" ");
        speaks(tool.said_of(node.schema))
            || speaks(&around)
            || speaks(&tool.task())
            || speaks(&tool.doc.description)
            || fields()
    };
    names_a_currency || MONEY.contains(&last.as_str()) || (MAYBE.contains(&last.as_str()) && beside())
}

/// The field's name with its unit.
fn in_cents(field: &str) -> String {
    if field.to_ascii_lowercase().contains("cents") {
        return field.to_owned();
    }
    let is_camel = field.chars().any(char::is_uppercase) && !field.contains('_');
    format!("{field}{}", if is_camel { "Cents" } else { "_cents" })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    fn better(field: &str) -> String {
        format!(
            "better: `\"{field}\": {{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 1000000, \"description\": \
             \"In minor units of the currency: 1999 is 19.99\"}}`, with the maximum that you allow"
        )
    }

    #[test]
    fn fractions_strings_and_integers_without_a_unit_are_reported() {
        let expected = format!(
            "error pay /input_schema/properties/amount: `amount` is money and a number with a fraction\n{}
             error pay /input_schema/properties/feeTotal: \
             `feeTotal` is money and an integer of which nobody says whether it counts cents\n{}
             error pay /input_schema/properties/payments/items/properties/amount: \
             `amount` is money and a number with a fraction\n{}
             error pay /input_schema/properties/price: `price` is money and a string\n{}",
            better("amount_cents"),
            better("feeTotalCents"),
            better("amount_cents"),
            better("price_cents")
        );
        reports(
            "money_minor_units",
            "
            - name: pay
              description: Pays an invoice in USD.
              input_schema:
                properties:
                  amount: {anyOf: [{type: number}, {type: 'null'}]}
                  feeTotal: {type: integer}
                  price: {type: string}
                  payments: {type: array, items: {properties: {amount: {type: number}}}}
            ",
            &expected,
        );
    }

    #[test]
    fn minor_units_and_amounts_of_other_things_are_left_alone() {
        silent(
            "money_minor_units",
            "
            - name: pay
              input_schema:
                properties:
                  amount_cents: {type: integer}
                  amount: {type: integer, description: 'In minor units, 1050 is 10.50'}
                  price_tier: {type: string}
            - name: add_ingredient
              description: Adds an ingredient to a recipe.
              input_schema: {properties: {amount: {type: number, description: In grams}, total: {type: number}}}
            ",
        );
    }
}
