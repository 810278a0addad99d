//! Numbers as bytes: varints, zigzag, and checked reading.

use std::fmt;

/// An error in encoded bytes; the reader of the file adds the file and the position.
#[derive(Debug)]
pub(crate) struct Damage(pub(crate) String);

impl Damage {
    pub(crate) fn new(what: impl fmt::Display) -> Damage {
        Damage(what.to_string())
    }
}

/// Appends `value` as a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps small distances of either sign to small numbers.
#[inline]
pub(crate) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Bytes that are read from the front; reading beyond the end is an error.
#[derive(Clone, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        match self.0.split_at_checked(count) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(Damage::new("it ends too early")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next u32.
    pub(crate) fn u32(&mut self) -> Result<u32, Damage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next u64.
    pub(crate) fn u64(&mut self) -> Result<u64, Damage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next varint.
    pub(crate) fn varint(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.array::<1>()?[0];
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damage::new("one of its numbers has more than 64 bits"))
    }

    /// The next varint, which must be at most `max`; errors call it `name`.
    pub(crate) fn varint_up_to(&mut self, max: u64, name: &str) -> Result<u64, Damage> {
        let value = self.varint()?;
        if value > max {
            Err(Damage(format!("its {name} is {value}, but can be at most {max}")))
        } else {
            Ok(value)
        }
    }

    /// Checks that no bytes are left.
    pub(crate) fn end(&self, name: &str) -> Result<(), Damage> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Damage(format!("its {name} has bytes left over")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for shift in 0..64 {
            for near in [-1i64, 0, 1] {
                let value = (1u64 << shift).wrapping_add(near as u64);
                let mut out = Vec::new();
                put_varint(&mut out, value);
                let mut bytes = Bytes(&out);
                assert_eq!(bytes.varint().unwrap(), value);
                assert!(bytes.end("varint").is_ok());
                assert!(Bytes(&out[..out.len() - 1]).varint().is_err());
                assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
                assert!(zigzag(near) <= 2);
            }
        }
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_refused() {
        let mut bytes = [0xff; 10];
        for last in 0..=255 {
            bytes[9] = last;
            assert_eq!(Bytes(&bytes).varint().is_ok(), last <= 1, "last byte {last}");
        }
        assert!(Bytes(&[0xff; 11]).varint().is_err());
    }
}
