//! Numbers in text, a digit at a time.

/// The hexadecimal number at the start of `text`, and the text after it; `None` if there is no
/// digit or the number does not fit.
#[inline]
pub(crate) fn hexadecimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut digits = 0;
    for &byte in text {
        let digit = HEX[usize::from(byte)];
        if digit > 15 {
            break;
        }
        value = value << 4 | u64::from(digit);
        digits += 1;
    }
    (1..=16).contains(&digits).then_some((value, &text[digits..]))
}

/// The decimal number that is the whole of `text`; `None` if it is not a number or does not fit.
#[inline]
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// The value of a hexadecimal digit; 16 for any other byte.
const HEX: [u8; 256] = {
    let mut table = [16; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit as usize] as usize] = digit;
        table[b"0123456789ABCDEF"[digit as usize] as usize] = digit;
        digit += 1;
    }
    table
};
