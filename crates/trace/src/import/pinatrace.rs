//! Pin's example tool `pinatrace`, and pintools derived from it: one access per line.
//!
//! ```text
//!   0x4005d0: R 0x7f12a0079d40             instruction, read or write, address
//!   0x4005d4: W 0x7f12a0079d48  8 0x2a     and bytes in decimal, and the value
//!   R 139717970992448                      without the instruction
//!   # ...                                  comments
//! ```
//!
//! Addresses are hexadecimal after 0x. Without 0x they are decimal, unless an address at the
//! beginning of the file has a digit from a to f or leading zeros, as Pin writes pointers on
//! Windows. The tool lists only instructions that access memory, so its instruction addresses are
//! not a complete list of fetches and are ignored. An access without a size counts as one byte.
//!
//! Source: Pin's kit, `source/tools/ManualExamples/pinatrace.cpp`, `RecordMemRead` and
//! `RecordMemWrite`, and `source/tools/SimpleExamples/pinatrace.cpp`, `RecordMem`.

use addr::Kind;

use super::kinds::read_or_write;
use super::lines::{LINE_BYTES_MAX, Line, Lines, all_are, fields, foreign, hex, number};
use super::rows::{ACCESS_BYTES_MAX, Rows};
use super::stream::{Decode, Fault};
use crate::Batch;

/// A note for readers of results.
pub(crate) const NOTE: &str = "recorded by a pintool like pinatrace: all threads are one, and \
                               there are no fetches, no counts of instructions and no system calls";

/// Decodes the lines.
#[derive(Debug)]
pub(crate) struct Pinatrace {
    /// Whether addresses without 0x are hexadecimal.
    is_hex: bool,
    lines: Lines,
}

impl Pinatrace {
    /// A decoder for a file that begins with `bytes`.
    pub(crate) fn new(bytes: &[u8]) -> Pinatrace {
        let is_hex = |field: &[u8]| {
            let padded = field.starts_with(b"0") && matches!(field.len(), 8 | 16);
            !field.starts_with(b"0x") && (padded || number(field).is_none())
        };
        let mut lines = bytes.split(|&byte| byte == b'\n');
        let is_hex = lines.any(|line| split(line).is_some_and(|(_, addr, _)| is_hex(addr)));
        Pinatrace { is_hex, lines: Lines::default() }
    }

    /// Whether `bytes` begin like the output of such a tool.
    pub(crate) fn is(bytes: &[u8]) -> bool {
        all_are(bytes, |line| match row(line, true) {
            Some(_) => Line::Record,
            None if is_empty(line) => Line::Empty,
            None => Line::Foreign,
        })
    }

    /// The error for a file that has only comments, one of which is `#eof`, the last line of the tool's
    /// files.
    pub(crate) fn empty(bytes: &[u8]) -> Option<&'static str> {
        let mut lines = bytes.split(|&byte| byte == b'\n');
        lines.any(|line| line.trim_ascii() == b"#eof").then_some(
            "a file of Pin's pinatrace that has only its last line, #eof: the pintool has \
             recorded no access. Run the program under the pintool again, and check that the \
             program starts",
        )
    }
}

impl Decode for Pinatrace {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
        batch: &mut Batch,
    ) -> Result<usize, Fault> {
        let is_hex = self.is_hex;
        self.lines.decode(bytes, last, batch, |line, batch| {
            match row(line, is_hex) {
                Some((kind, addr, bytes)) => rows.access(batch, kind, addr, bytes),
                None if is_empty(line) => {}
                None => return Err(foreign(line, "pinatrace, as in `0x4005d0: R 0x7f12a0`")),
            }
            Ok(())
        })
    }

    fn record_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }
}

/// The kind and the address of a line, and the fields after them.
#[inline]
fn split(line: &[u8]) -> Option<(Kind, &[u8], impl Iterator<Item = &[u8]>)> {
    let mut fields = fields(line);
    let mut first = fields.next()?;
    if let [ip @ .., b':'] = first {
        hex(ip)?;
        first = fields.next()?;
    } else if first.first().is_some_and(u8::is_ascii_lowercase) {
        // This is the extended form of Dinero, whose sizes are hexadecimal.
        return None;
    }
    Some((read_or_write(first)?, fields.next()?, fields))
}

/// The kind, address and bytes of a line; the value that was read or written may follow.
#[inline]
fn row(line: &[u8], is_hex: bool) -> Option<(Kind, u64, u32)> {
    let (kind, addr, mut rest) = split(line)?;
    let addr = if is_hex { hex(addr) } else { number(addr) }?;
    let Some(bytes) = rest.next() else { return Some((kind, addr, 1)) };
    let bytes = number(bytes)?;
    (1..=u64::from(ACCESS_BYTES_MAX)).contains(&bytes).then_some((kind, addr, bytes as u32))
}

fn is_empty(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line.starts_with(b"#")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_or_refused() {
        for (line, is_hex, expected) in [
            ("0x4005d0: R 0x7f12a0079d40", false, Some((Kind::Load, 0x7f12_a007_9d40, 1))),
            ("0x4005d0: W 0x7f12  8 0x2a", false, Some((Kind::Store, 0x7f12, 8))),
            ("00007FF6: W 00007ff7", true, Some((Kind::Store, 0x7ff7, 1))),
            ("R 139717970992448", false, Some((Kind::Load, 139_717_970_992_448, 1))),
            ("W 10", true, Some((Kind::Store, 16, 1))),
            ("w 10", true, None),
            ("R 7f", false, None),
            ("R 0x10,8", false, None),
            ("R 0x10 0", false, None),
            ("R 0x10 4294967296", false, None),
            ("4005d0 R 0x10", false, None),
            (": R 0x10", false, None),
            ("X 0x10", false, None),
            ("R", false, None),
            ("", false, None),
        ] {
            assert_eq!(row(line.as_bytes(), is_hex), expected, "{line:?}");
        }
    }
}
