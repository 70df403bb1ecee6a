//! Phone numbers in E.164.

use phonenumber::{Mode, country};

/// Maximum number of digits, including the country code (ITU-T E.164).
const DIGITS_MAX: usize = 15;
/// Maximum length of a parsed text, in bytes.
const TEXT_MAX: usize = 64;

/// The number as `+` and its digits, read in the region without a country code.
///
/// The library parses by a country's trunk and international prefixes; its digits are used even if the number is not
/// assigned: `555-0199` is `+15550199` in the US. None for a text with letters or an extension, which would be lost,
/// with more digits than E.164 has, or whose form is not stable when parsed again. A carrier's prefix is no part of the
/// number.
pub(super) fn e164(text: &str, region: Option<country::Id>) -> Option<String> {
    let once = read(text, region)?;
    (read(&once, region).as_ref() == Some(&once)).then_some(once)
}

fn read(text: &str, region: Option<country::Id>) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix("tel:").unwrap_or(text);
    let is_phone = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | '(' | ')' | '/' | ' ' | '\u{a0}');
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    if text.len() > TEXT_MAX
        || digits == 0
        || !text.chars().all(is_phone)
        || text.rfind('+') > text.find(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    // Only digits and the plus: its own reading of signs between them stops at some.
    let bare: String = text.chars().filter(|c| c.is_ascii_digit() || *c == '+').collect();
    let number = phonenumber::parse(region, &bare).ok()?;
    if number.extension().is_some() || number.code().value() == 0 {
        return None;
    }
    let written = number.format().mode(Mode::E164).to_string();
    (written.len() <= DIGITS_MAX + 1).then_some(written)
}
