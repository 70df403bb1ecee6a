//! One form for every number: integers keep all their digits, whatever way they were written; only true fractions take
//! the form of RFC 8785 (ECMAScript's shortest double).

/// Integers written with an exponent are spelled out up to this many digits; past it a number is a magnitude, not a
/// count.
const DIGITS_MAX: i64 = 400;

/// The canonical form of a number that follows the JSON grammar.
pub(super) fn canonical(text: &str) -> String {
    // Most are plain integers, which have no other form but for a zero's sign and, past this length, an exponent.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= DIGITS_MAX as usize;
    if is_plain {
        return text.to_owned();
    }
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (
            mantissa,
            exponent.parse::<i64>().unwrap_or(if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 }),
        ),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    // The value is `significant` times ten to the `scale`.
    let trailing = (digits.len() - digits.trim_end_matches('0').len()) as i64;
    let scale = exponent.saturating_sub(fraction.len() as i64).saturating_add(trailing);
    if scale >= 0 && scale.saturating_add(significant.len() as i64) <= DIGITS_MAX {
        return format!("{sign}{significant}{}", "0".repeat(scale as usize));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value != 0.0 => {
            let shortest = ryu_js::Buffer::new().format_finite(value).to_owned();
            // A fraction too small for a double leaves an integer, which is written as one.
            if value.fract() == 0.0 { canonical(&shortest) } else { shortest }
        }
        // Out of a double's range: the digits are all there is to tell two of them apart.
        _ => format!("{sign}{significant}e{scale}"),
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn numbers_out_of_a_doubles_range_stay_apart() {
        assert_eq!(canonical("1e999"), "1e999");
        assert_eq!(canonical("10e998"), "1e999");
        assert_ne!(canonical("1e999"), canonical("1e998"));
        assert_eq!(canonical("1e-999"), "1e-999");
        assert_eq!(canonical("1e99999999999999999999"), canonical("1e99999999999999999999"));
    }

    #[test]
    fn fractions_take_the_shortest_form() {
        assert_eq!(canonical("0.000001"), "0.000001");
        assert_eq!(canonical("-12.50"), "-12.5");
        assert_eq!(canonical("333333333.33333329"), "333333333.3333333");
        assert_eq!(canonical("10000000000000000000000000001e-1"), format!("1{}", "0".repeat(27)));
    }
}
