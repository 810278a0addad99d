//! Dinero's traces, `.din`: a label and an address per line.
//!
//! ```text
//!   0 7f12a0079d40         a read         r 7f12a0079d40 8      the same in the extended form:
//!   1 7f12a0079d48         a write        w 7f12a0079d48 8      access, address, bytes
//!   2 4005d0               a fetch        i 4005d0 4
//! ```
//!
//! All numbers are hexadecimal, with or without 0x; text after them is a comment. In the
//! traditional form, Dinero IV assumes words of four bytes and drops the two lowest bits of an
//! address; this importer does so too. In this form, an instruction counts as four bytes. Dinero's
//! other labels are 3 and m, for an access of unknown kind, which is treated as a read; and 4 and c
//! (copy back), 5 and v (invalidation), for operations on Dinero's caches, which are ignored.
//!
//! Source: Dinero IV, `cmdd4/dinfmt.c` and `cmdd4/xdinfmt.c`; labels in `d4.h`.

use addr::Kind;

use super::lines::{LINE_BYTES_MAX, Line, Lines, all_are, fields, foreign, hex};
use super::rows::{ACCESS_BYTES_MAX, Rows};
use super::stream::{Decode, Fault};
use crate::Batch;

/// A note for readers of results.
pub(crate) const NOTE: &str = "a trace for Dinero: numbers without 0x are read as hexadecimal, \
                               all threads are one, and it has no system calls";

/// The bytes of an access in the traditional form.
const WORD_BYTES: u32 = 4;

/// The meaning of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Record {
    Access(Kind, u64, u32),
    /// An operation of Dinero's caches.
    Cache,
}

/// Decodes the lines.
#[derive(Debug, Default)]
pub(crate) struct Dinero {
    lines: Lines,
}

impl Dinero {
    /// Whether `bytes` begin like a trace for Dinero, and not like a trace of another tool with two
    /// numbers per line: labels are 0 to 2, or an address has a digit that is not decimal.
    pub(crate) fn is(bytes: &[u8]) -> bool {
        Dinero::could_be(bytes) && (seems_hexadecimal(bytes) || is_plain(bytes))
    }

    /// Whether `bytes` can be read as a trace for Dinero.
    pub(crate) fn could_be(bytes: &[u8]) -> bool {
        all_are(bytes, |line| match record(line) {
            Some(_) => Line::Record,
            None if line.is_empty() => Line::Empty,
            None => Line::Foreign,
        })
    }
}

impl Decode for Dinero {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
        batch: &mut Batch,
    ) -> Result<usize, Fault> {
        self.lines.decode(bytes, last, batch, |line, batch| {
            match record(line) {
                Some(Record::Access(Kind::Fetch, pc, bytes)) => {
                    rows.instruction(batch, pc, bytes, false);
                }
                Some(Record::Access(kind, addr, bytes)) => rows.access(batch, kind, addr, bytes),
                Some(Record::Cache) => {}
                None if line.trim_ascii().is_empty() => {}
                None => return Err(foreign(line, "a trace for Dinero, as in `0 7f12a0079d40`")),
            }
            Ok(())
        })
    }

    fn record_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }
}

#[inline]
fn record(line: &[u8]) -> Option<Record> {
    let mut fields = fields(line);
    let label = fields.next()?;
    let addr = hex(fields.next()?)?;
    let word = |kind| Some(Record::Access(kind, addr & !3, WORD_BYTES));
    let mut sized = |kind| {
        let bytes = hex(fields.next()?)?;
        let fits = (1..=u64::from(ACCESS_BYTES_MAX)).contains(&bytes);
        fits.then_some(Record::Access(kind, addr, bytes as u32))
    };
    match label {
        b"0" | b"3" => word(Kind::Load),
        b"1" => word(Kind::Store),
        b"2" => word(Kind::Fetch),
        b"4" | b"5" => Some(Record::Cache),
        b"r" | b"R" | b"m" | b"M" => sized(Kind::Load),
        b"w" | b"W" => sized(Kind::Store),
        b"i" | b"I" => sized(Kind::Fetch),
        b"c" | b"C" | b"v" | b"V" => Some(Record::Cache),
        _ => None,
    }
}

/// Whether a label is a letter, or an address is hexadecimal without a prefix.
fn seems_hexadecimal(bytes: &[u8]) -> bool {
    bytes.split(|&byte| byte == b'\n').any(|line| {
        let mut fields = fields(line);
        let is_letter = fields.next().is_some_and(|label| label[0].is_ascii_alphabetic());
        let has_letter =
            |addr: &[u8]| !addr.starts_with(b"0x") && addr.iter().any(u8::is_ascii_alphabetic);
        is_letter || fields.next().is_some_and(has_letter)
    })
}

/// Whether all lines have an address and one of the labels of Dinero III.
fn is_plain(bytes: &[u8]) -> bool {
    all_are(bytes, |line| {
        let mut fields = fields(line);
        match (fields.next(), fields.nth(1)) {
            (Some(b"0" | b"1" | b"2"), None) => Line::Record,
            (None, None) => Line::Empty,
            _ => Line::Foreign,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_or_refused() {
        let access = |kind, addr, bytes| Some(Record::Access(kind, addr, bytes));
        for (line, expected) in [
            ("0 7f12a0079d43", access(Kind::Load, 0x7f12_a007_9d40, 4)),
            ("1 0x70f60888 a comment", access(Kind::Store, 0x70f6_0888, 4)),
            ("  2\t0", access(Kind::Fetch, 0, 4)),
            ("3 10", access(Kind::Load, 0x10, 4)),
            ("4 0", Some(Record::Cache)),
            ("r 1001 10", access(Kind::Load, 0x1001, 16)),
            ("W 1000 0x8 x", access(Kind::Store, 0x1000, 8)),
            ("i 1000 4", access(Kind::Fetch, 0x1000, 4)),
            ("v 1000 40", Some(Record::Cache)),
            ("r 1000", None),
            ("r 1000 0", None),
            ("6 1000", None),
            ("0 7f12,", None),
            ("0", None),
            ("", None),
        ] {
            assert_eq!(record(line.as_bytes()), expected, "{line:?}");
        }
    }

    #[test]
    fn dinero_is_told_from_other_numbers() {
        for (text, is, could_be) in [
            ("2 0\n0 1000\n1 2000\n", true, true),
            ("4 7f00a0\n0 1000\n", true, true),
            ("r 1000 8\nw 1000 8\n", true, true),
            // Words between accesses, of Ramulator.
            ("3 1000\n0 1000\n", false, true),
            ("2 1000 2000\n", false, true),
            ("17 1000\n", false, false),
        ] {
            assert_eq!(Dinero::is(text.as_bytes()), is, "{text:?}");
            assert_eq!(Dinero::could_be(text.as_bytes()), could_be, "{text:?}");
        }
    }
}
