//! USIMM's traces, as in the Memory Scheduling Championship: one memory request per line.
//!
//! ```text
//!   12 R 0x7f12a0079d40 0x4005d0      other instructions before it, read, address, instruction
//!   0 W 0x7f12a00bd680                a write, whose instruction is not known
//! ```
//!
//! Addresses are hexadecimal, with or without 0x. The trace has only requests that missed in the
//! last cache. So its instruction addresses are not a complete list of fetches, and are ignored. An
//! access counts as one byte, since there is no size.
//!
//! Source: USIMM 1.3, `src/main.c`, which reads a line as `%d %c %Lx %Lx`; its manual (Chatterjee
//! et al., UUCS-12-002), section 3.

use addr::Kind;

use super::digits::decimal;
use super::kinds::read_or_write;
use super::lines::{LINE_BYTES_MAX, Line, Lines, all_are, fields, foreign, hex};
use super::rows::Rows;
use super::stream::{Decode, Fault};
use crate::Batch;

/// Decodes the lines.
#[derive(Debug, Default)]
pub(crate) struct Usimm {
    lines: Lines,
}

impl Usimm {
    /// Whether `bytes` start like a trace for USIMM.
    pub(crate) fn is(bytes: &[u8]) -> bool {
        all_are(bytes, |line| match request(line) {
            Some(_) => Line::Record,
            None if line.is_empty() => Line::Empty,
            None => Line::Foreign,
        })
    }
}

impl Decode for Usimm {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
        batch: &mut Batch,
    ) -> Result<usize, Fault> {
        self.lines.decode(bytes, last, batch, |line, batch| {
            match request(line) {
                Some((instructions, kind, addr)) => {
                    rows.executed(instructions);
                    rows.access(batch, kind, addr, 1);
                }
                None if line.trim_ascii().is_empty() => {}
                None => {
                    return Err(foreign(
                        line,
                        "a trace for USIMM, as in `12 R 0x7f12a0079d40 0x4005d0`",
                    ));
                }
            }
            Ok(())
        })
    }

    fn record_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }
}

/// The number of instructions up to and including the access, its kind and its address.
#[inline]
fn request(line: &[u8]) -> Option<(u64, Kind, u64)> {
    let mut fields = fields(line);
    let before = decimal(fields.next()?).filter(|&before| before <= u64::from(u32::MAX))?;
    let kind = read_or_write(fields.next()?)?;
    let addr = hex(fields.next()?)?;
    // The instruction, if the line has one.
    if let Some(pc) = fields.next() {
        hex(pc)?;
    }
    fields.next().is_none().then_some((before + 1, kind, addr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_or_refused() {
        for (line, expected) in [
            ("12 R 0x7f12 0x4005d0", Some((13, Kind::Load, 0x7f12))),
            ("0 W 10", Some((1, Kind::Store, 16))),
            ("0 R 7f12 4005d0", Some((1, Kind::Load, 0x7f12))),
            ("R 0x7f12 0x4005d0", None),
            ("0x1 R 0x7f12", None),
            ("1 R 0x7f12 0x40 0x40", None),
            ("1 R", None),
            ("", None),
        ] {
            assert_eq!(request(line.as_bytes()), expected, "{line:?}");
        }
    }
}
