//! Numbers with a unit, as users write them.

/// Parses a number with one of `units`; each unit is `step` times the unit before. Decimals are
/// allowed (`134.3M`) if the value is a whole number.
pub(crate) fn with_unit(text: &str, units: &[&str], step: u64) -> Option<u64> {
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let power = units.iter().position(|unit| *unit == &text[digits.len()..])? as u32;
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    if ![whole, decimals].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    let scale = step.checked_pow(power)?;
    let tens = 10u64.checked_pow(decimals.len() as u32)?;
    let part = decimals.parse::<u64>().ok()?.checked_mul(scale)?;
    let rest = part.is_multiple_of(tens).then_some(part / tens)?;
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(rest)
}

/// `value` in the largest of `units` in which it is a whole number.
pub(crate) fn unit(value: u64, units: &[&str], step: u64) -> String {
    let (mut value, mut power) = (value, 0);
    while value != 0 && value.is_multiple_of(step) && power + 1 < units.len() {
        value /= step;
        power += 1;
    }
    format!("{value}{}", units[power])
}
