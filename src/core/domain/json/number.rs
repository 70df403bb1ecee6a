//! Canonical form of numbers that keeps all digits: the RFC 8785 (ECMAScript) form for doubles, an analogous form for
//! others.

/// Maximum digits of an integer that is expanded from exponent notation; a larger one is a magnitude, not a count.
const DIGITS_MAX: i64 = 400;
/// Exponent limit: a fraction with more leading zeros is written with an exponent.
const LEADING_ZEROS_MIN: i64 = -5;

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
    let point = scale.saturating_add(significant.len() as i64);
    match point {
        _ if scale >= 0 => format!("{sign}{significant}e{scale}"),
        1.. => {
            let (whole, fraction) = significant.split_at(point as usize);
            format!("{sign}{whole}.{fraction}")
        }
        LEADING_ZEROS_MIN..=0 => format!("{sign}0.{}{significant}", "0".repeat(point.unsigned_abs() as usize)),
        _ => {
            let (first, rest) = significant.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            format!("{sign}{first}{dot}{rest}e{}", point.saturating_sub(1))
        }
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
    fn fractions_take_one_form_and_keep_their_digits() {
        for (text, form) in [
            ("0.000001", "0.000001"),
            ("0.00000123", "0.00000123"),
            ("0.0000001", "1e-7"),
            ("12300e-12", "1.23e-8"),
            ("-12.50", "-12.5"),
            ("333333333.33333329", "333333333.33333329"),
            ("123456789012345678.5", "123456789012345678.5"),
            ("0.123456789012345678", "0.123456789012345678"),
            ("1.234567890123456789e-320", "1.234567890123456789e-320"),
        ] {
            assert_eq!(canonical(text), form);
            assert_eq!(canonical(form), form);
        }
        assert_eq!(canonical("10000000000000000000000000001e-1"), "1000000000000000000000000000.1");
    }

    #[test]
    fn double_is_written_as_in_ecmascript() {
        for value in [0.1, 0.30000000000000004, 1.5e-7, 5e-324, 1.7976931348623157e308, 123456.789, 1e-6, 4.35] {
            let text = format!("{value:?}");
            assert_eq!(canonical(&text).parse::<f64>(), Ok(value), "{text}");
        }
    }
}
