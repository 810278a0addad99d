//! The encoding of an operation's address: four bits, and one residual byte per mispredicted byte
//! of the address.
//!
//! ```text
//!   slot   last 0x7f10   distance 0x40        the same operation's address before, and its step
//!
//!   address 0x7f50: the same step            code 0
//!   address 0x8010: a step of 0x100          code 3, residual 00 02   (zigzag 0x200, low first)
//! ```
//!
//! Decoding has no branches, because a processor could not predict whether an address was predicted
//! correctly. A writer may leave zeros at the end of a residual. Pagewalk's writer writes the
//! fewest bytes that suffice, but at least one. It computes this number from the highest set bit,
//! which is cheaper than letting zstd compress zeros.

use super::Damage;
use super::wire::{unzigzag, zigzag};

/// The number of codes that can be read at a time; buffers of unpacked codes have this many extra
/// elements.
pub(super) const WORD: usize = 8;

/// The predictor of one operation's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Slot {
    /// The address of the operation's last execution.
    pub(super) last: u64,
    /// The difference between the last address and the address before it.
    pub(super) distance: u64,
}

impl Slot {
    /// Encodes `addr`: sets the code, writes 8 bytes to `residual`, and returns how many of them
    /// are part of the encoding.
    #[inline]
    pub(super) fn encode(&mut self, addr: u64, code: &mut u8, residual: &mut [u8]) -> u32 {
        let distance = addr.wrapping_sub(self.last);
        let bits = zigzag(distance as i64);
        let bytes = (bits | 1).ilog2() / 8 + 1;
        let mispredicted = u32::from(distance != self.distance);
        let bytes = bytes & mispredicted.wrapping_neg();
        *code = (bytes + mispredicted) as u8;
        residual[..8].copy_from_slice(&bits.to_le_bytes());
        *self = Slot { last: addr, distance };
        bytes
    }

    /// The state of the slot after an operation with `code`. `word` has the next bytes of the
    /// residual. Also returns how many bytes of the residual the operation used.
    #[inline]
    pub(super) fn decode(self, code: u8, word: u64) -> (Slot, usize) {
        let code = &CODES[usize::from(code & 15)];
        let distance = unzigzag(word & code.residual) as u64;
        let distance = distance.wrapping_add(self.distance & code.again);
        (Slot { last: self.last.wrapping_add(distance), distance }, code.bytes)
    }
}

/// The meaning of a code.
#[derive(Clone, Copy)]
struct Code {
    /// A mask of the bytes used among the next eight bytes of the residual.
    residual: u64,
    /// All ones if the distance is repeated, otherwise zero.
    again: u64,
    /// The number of residual bytes used.
    bytes: usize,
}

/// The largest valid code.
const CODE_MAX: u8 = 9;

const CODES: [Code; 16] = {
    let mut codes = [Code { residual: 0, again: 0, bytes: 0 }; 16];
    codes[0].again = u64::MAX;
    let mut bytes = 1;
    while bytes <= 8 {
        codes[1 + bytes] = Code { residual: u64::MAX >> (64 - 8 * bytes), again: 0, bytes };
        bytes += 1;
    }
    codes
};

/// The first eight bytes of `bytes` as a number, or 0 if there are fewer than eight.
#[inline]
pub(super) fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<WORD>().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Appends `codes` to `out`, two per byte.
pub(super) fn pack(codes: &[u8], out: &mut Vec<u8>) {
    let (pairs, rest) = codes.as_chunks::<2>();
    // Packing through one number lets the compiler process many pairs at a time.
    let packed =
        |pair: &[u8; 2]| (u16::from_le_bytes(*pair) | u16::from_le_bytes(*pair) >> 4) as u8;
    out.extend(pairs.iter().map(packed));
    out.extend_from_slice(rest);
}

/// Unpacks the codes of `ops` operations to one code per byte, followed by extra zeros. Checks that
/// all codes are valid, and that together they use `residual_bytes` bytes of the residual.
pub(super) fn unpack(
    pairs: &[u8],
    ops: usize,
    residual_bytes: usize,
    codes: &mut Vec<u8>,
) -> Result<(), Damage> {
    codes.clear();
    codes.extend(pairs.iter().flat_map(|&pair| [pair & 15, pair >> 4]));
    if pairs.len() != ops.div_ceil(2) || codes[ops..].iter().any(|&code| code != 0) {
        return Err(Damage::new("it does not have one address code per memory operation"));
    }
    codes.resize(ops.next_multiple_of(16) + WORD, 0);
    // Sixteen codes at a time, so that their sum fits into a byte and the compiler can hold them in
    // one register.
    let (mut last, mut needed) = (0, 0);
    for codes in codes.as_chunks::<16>().0 {
        last = codes.iter().fold(last, |last, &code| code.max(last));
        needed += usize::from(codes.iter().map(|code| code.saturating_sub(1)).sum::<u8>());
    }
    if last > CODE_MAX {
        return Err(Damage::new("it has an address code that is not defined"));
    }
    if needed != residual_bytes {
        return Err(Damage(format!(
            "its address codes need {needed} bytes of residual, and it has {residual_bytes}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length of the distance, at its limits and in both directions.
    #[test]
    fn addresses_come_back_from_few_bytes() {
        for shift in 0..64 {
            for near in [-1i64, 0, 1] {
                let size = (1i64.wrapping_shl(shift)).wrapping_add(near);
                for distance in [size as u64, size.wrapping_neg() as u64] {
                    for before in [0, 64, distance] {
                        let start = Slot { last: 0x7fff_1234_5678, distance: before };
                        let (mut slot, mut code, mut residual) = (start, 15, [0xaa; 8]);
                        let addr = start.last.wrapping_add(distance);
                        let bytes = slot.encode(addr, &mut code, &mut residual);
                        let needed =
                            (1..8).find(|bytes| zigzag(distance as i64) >> (8 * bytes) == 0);
                        let expected = if distance == before { 0 } else { needed.unwrap_or(8) };
                        assert_eq!(bytes, expected, "a distance of {distance:#x}");
                        residual[bytes as usize..].fill(0x55);
                        let word = u64::from_le_bytes(residual);
                        assert_eq!(start.decode(code, word), (slot, bytes as usize));
                        assert_eq!(slot, Slot { last: addr, distance });
                    }
                }
            }
        }
    }

    #[test]
    fn codes_are_unpacked_or_refused() {
        for count in 0..70usize {
            let codes: Vec<u8> = (0..count).map(|index| (index * 7 % 10) as u8).collect();
            let bytes = codes.iter().map(|&code| usize::from(code.saturating_sub(1))).sum();
            let (mut packed, mut unpacked) = (Vec::new(), vec![3; 5]);
            pack(&codes, &mut packed);
            unpack(&packed, count, bytes, &mut unpacked).unwrap();
            assert_eq!(unpacked[..count], codes);
            assert!(unpacked.len() >= count + WORD && unpacked[count..].iter().all(|&c| c == 0));
            assert!(unpack(&packed, count, bytes + 1, &mut unpacked).is_err());
            assert!(unpack(&packed, count + 2, bytes, &mut unpacked).is_err());
            for wrong in 10..16 {
                let mut packed = packed.clone();
                let Some(first) = packed.first_mut() else { continue };
                *first = *first & 0xf0 | wrong;
                assert!(unpack(&packed, count, bytes, &mut unpacked).is_err());
            }
        }
        assert!(unpack(&[0x10], 1, 0, &mut Vec::new()).is_err(), "an unused half that is not 0");
    }
}
