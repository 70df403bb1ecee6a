//! Phone numbers in E.164.

use phonenumber::{Mode, country};

/// Most digits of a number, with the country's (ITU-T E.164).
const DIGITS_MAX: usize = 15;
/// Longest text that is read, in bytes.
const TEXT_MAX: usize = 64;

/// The number as `+` and its digits, read in the region where it names no country.
///
/// The library parses by a country's rules (its prefixes for trunks and for abroad) and this takes its digits whether
/// or not it holds the number for assigned: `555-0199` is too short to be, and is `+15550199` in the US all the same.
/// None for what has letters or an extension (they would be lost), more digits than E.164 has, or no form that stays
/// when it is read again. A carrier's prefix is a way to dial and no part of the number.
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
