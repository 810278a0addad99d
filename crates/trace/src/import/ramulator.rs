//! Traces for Ramulator and Ramulator 2: one memory request per line.
//!
//! ```text
//!   0x12345680 R             of Ramulator's DRAM mode: the address in hexadecimal
//!   3 20734016 20734528      of its CPU mode and of Ramulator 2's SimpleO3: other instructions before
//!                            it, the address of a read and, if any, the one that is written back
//!   3 20734016 W             of its CPU mode without caches: a read or a write
//!   LD 0x12345680            of Ramulator 2's LoadStoreTrace, or ST
//! ```
//!
//! Addresses are decimal unless they begin with 0x, except in the first form. A write-back is not an
//! instruction. Ramulator 2's ReadWriteTrace has positions in DRAM, `R 0,0,3,1,2,9`, from which no
//! address can be derived; it is not supported. An access counts as one byte, since there is no
//! size.
//!
//! Sources: Ramulator, `README.md` and `src/Processor.cpp`, `Trace`; Ramulator 2,
//! `src/frontend/impl/memory_trace/loadstore_trace.cpp` and `readwrite_trace.cpp`, and
//! `src/frontend/impl/processor/simpleO3/trace.cpp`.

use addr::Kind;

use super::digits::decimal;
use super::kinds::read_or_write;
use super::lines::{LINE_BYTES_MAX, Line, Lines, all_are, fields, foreign, hex, number};
use super::rows::Rows;
use super::stream::{Decode, Fault};
use crate::Batch;

/// A note for readers of results.
pub(crate) const NOTE: &str = "requests to memory: accesses that hit in caches are missing, the \
                               addresses may be physical ones, and each request counts one byte";

/// The request in a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Request {
    /// The number of instructions up to and including the access, if the format has it.
    instructions: u64,
    access: Option<(Kind, u64)>,
    written_back: Option<u64>,
}

/// Decodes the lines.
#[derive(Debug, Default)]
pub(crate) struct Ramulator {
    lines: Lines,
}

impl Ramulator {
    /// Whether `bytes` begin like a trace for Ramulator. Lines with tabs are refused, as they are
    /// rather a table.
    pub(crate) fn is(bytes: &[u8]) -> bool {
        all_are(bytes, |line| match request(line) {
            Some(_) if !line.contains(&b'\t') => Line::Record,
            Some(_) => Line::Foreign,
            None if line.is_empty() => Line::Empty,
            None => Line::Foreign,
        })
    }

    /// Whether `bytes` are Ramulator 2's positions in DRAM.
    pub(crate) fn has_places(bytes: &[u8]) -> bool {
        let is_place = |field: &[u8]| {
            field.contains(&b',') && field.split(|&byte| byte == b',').all(|n| number(n).is_some())
        };
        all_are(bytes, |line| {
            let mut fields = fields(line);
            match (fields.next(), fields.next(), fields.next()) {
                (Some(letter), Some(place), None)
                    if read_or_write(letter).is_some() && is_place(place) =>
                {
                    Line::Record
                }
                (None, ..) => Line::Empty,
                _ => Line::Foreign,
            }
        })
    }
}

impl Decode for Ramulator {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
        batch: &mut Batch,
    ) -> Result<usize, Fault> {
        self.lines.decode(bytes, last, batch, |line, batch| {
            match request(line) {
                Some(Request { instructions, access, written_back }) => {
                    rows.executed(instructions);
                    if let Some((kind, addr)) = access {
                        rows.access(batch, kind, addr, 1);
                    }
                    if let Some(addr) = written_back {
                        rows.access(batch, Kind::Store, addr, 1);
                    }
                }
                None if line.trim_ascii().is_empty() => {}
                None => return Err(foreign(line, "a trace for Ramulator, as in `0x12345680 R`")),
            }
            Ok(())
        })
    }

    fn record_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }
}

#[inline]
fn request(line: &[u8]) -> Option<Request> {
    let mut fields = fields(line);
    let (first, second) = (fields.next()?, fields.next()?);
    let third = fields.next();
    if fields.next().is_some() {
        return None;
    }
    let of = |kind, addr| Request { access: Some((kind, addr)), ..Request::default() };
    if let Some(kind) = read_or_write(second) {
        return third.is_none().then(|| Some(of(kind, hex(first)?))).flatten();
    }
    let addr = number(second)?;
    let kind = match first {
        b"LD" => Some(Kind::Load),
        b"ST" => Some(Kind::Store),
        _ => None,
    };
    if let Some(kind) = kind {
        return third.is_none().then(|| of(kind, addr));
    }
    let instructions = decimal(first).filter(|&before| before <= u64::from(u32::MAX))? + 1;
    match third.map(|third| (read_or_write(third), third)) {
        None => Some(Request { instructions, ..of(Kind::Load, addr) }),
        Some((Some(kind), _)) => Some(Request { instructions, ..of(kind, addr) }),
        Some((None, written_back)) => {
            let written_back = Some(number(written_back)?);
            Some(Request { instructions, written_back, ..of(Kind::Load, addr) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_or_refused() {
        let of = |instructions, kind, addr, written_back| {
            Some(Request { instructions, access: Some((kind, addr)), written_back })
        };
        for (line, expected) in [
            ("0x12345680 R", of(0, Kind::Load, 0x1234_5680, None)),
            ("12345680 W", of(0, Kind::Store, 0x1234_5680, None)),
            ("3 20734016", of(4, Kind::Load, 20_734_016, None)),
            ("3 20734016 20734528", of(4, Kind::Load, 20_734_016, Some(20_734_528))),
            ("3 0x40 W", of(4, Kind::Store, 0x40, None)),
            ("LD 0x40", of(0, Kind::Load, 0x40, None)),
            ("ST 64", of(0, Kind::Store, 64, None)),
            ("LD 64 3", None),
            ("R 0,0,1,2", None),
            ("0x40 R 3", None),
            ("3 4 5 6", None),
            ("3 4f", None),
            ("3", None),
            ("", None),
        ] {
            assert_eq!(request(line.as_bytes()), expected, "{line:?}");
        }
    }

    #[test]
    fn places_in_dram_are_told_from_addresses() {
        for (text, expected) in [
            ("R 0,0,3,1,2,9\nW 1,0,3,1,2,9\n", true),
            ("R 139717970992448,139717970992448\n", true),
            ("R 139717970992448\n", false),
            ("0x1 R\n", false),
            ("", false),
        ] {
            assert_eq!(Ramulator::has_places(text.as_bytes()), expected, "{text:?}");
        }
    }
}
