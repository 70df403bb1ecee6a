//! Parsers of amounts on the command line.

use std::time::Duration;

/// `500ms`, `8s`, `10m`, `1h`; a bare number is seconds.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(format!("{unit:?} is no unit of time; it has to be a number with ms, s, m or h: 8s")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is no time; it has to be like 500ms, 8s or 10m"))?;
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("{text:?} is no time"))?;
    if time.is_zero() { Err("it has to be longer than nothing".to_owned()) } else { Ok(time) }
}

/// `20%` or `0.2`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let (number, by) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is no share; it has to be like 20% or 0.2"))?;
    let share = number / by;
    (0.0..=1.0).contains(&share).then_some(share).ok_or_else(|| format!("{text} is no share: 0% to 100%"))
}

/// `10000`, `10k`, `10m`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let by = match unit {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        _ => return Err(format!("{unit:?} is no unit; it has to be a whole number, with k or m: 10k")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no whole number"))?;
    number.checked_mul(by).filter(|count| *count > 0).ok_or_else(|| format!("{text:?} is no number that can be used"))
}

/// Intended rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum OfferedRate {
    /// Pairs per second.
    Pairs(f64),
    /// Share of a preceding closed loop's peak.
    OfPeak(f64),
}

/// `900` or `70%`.
pub(super) fn rate(text: &str) -> Result<OfferedRate, String> {
    let wrong = || format!("{text:?} is no rate; it has to be pairs a second, or a share of the peak: 900 or 70%");
    let (number, of_peak) = text.strip_suffix('%').map_or((text, false), |number| (number, true));
    let number: f64 = number.parse().map_err(|_| wrong())?;
    if !(number > 0.0 && number.is_finite()) {
        return Err(wrong());
    }
    Ok(if of_peak { OfferedRate::OfPeak(number / 100.0) } else { OfferedRate::Pairs(number) })
}

/// Connections and calls in flight per connection: `8x64`.
pub(super) fn crowd(text: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("{text:?} is not CONNECTIONSxIN_FLIGHT, as in 8x64");
    let (connections, in_flight) = text.split_once('x').ok_or_else(wrong)?;
    let (connections, in_flight) = (connections.parse().map_err(|_| wrong())?, in_flight.parse().map_err(|_| wrong())?);
    let fits = (1..=1_000).contains(&connections) && (1..=10_000).contains(&in_flight);
    fits.then_some((connections, in_flight)).ok_or_else(|| format!("{text}: 1 to 1000 connections, 1 to 10000 calls"))
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_with_their_units() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("8"), Ok(Duration::from_secs(8)));
        assert_eq!((share("20%"), share("0.2"), share("100%")), (Ok(0.2), Ok(0.2), Ok(1.0)));
        assert_eq!((count("10k"), count("10m"), count("7")), (Ok(10_000), Ok(10_000_000), Ok(7)));
        assert_eq!((rate("900"), rate("70%")), (Ok(OfferedRate::Pairs(900.0)), Ok(OfferedRate::OfPeak(0.7))));
        assert_eq!(crowd("8x64"), Ok((8, 64)));
    }

    #[test]
    fn invalid_amount_is_reported_with_an_example() {
        for (error, part) in [
            (time("8 days").unwrap_err(), "8s"),
            (time("0s").unwrap_err(), "longer"),
            (time("s").unwrap_err(), "500ms"),
            (share("120%").unwrap_err(), "0% to 100%"),
            (share("x").unwrap_err(), "20%"),
            (count("10g").unwrap_err(), "10k"),
            (count("0").unwrap_err(), "no number"),
            (rate("-1").unwrap_err(), "70%"),
            (crowd("8").unwrap_err(), "8x64"),
            (crowd("0x1").unwrap_err(), "1 to 1000"),
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
