//! The common part of text formats with one access per line.
//!
//! ```text
//!   window  |0x4005d0: R 0x7f12a0079d40\n0x4005d1: W 0x7f12|      the last line is not whole yet
//!            \_____________ line 1 ____/ \_____ waits _____/
//! ```

use super::digits::{decimal, hexadecimal};
use super::rows::BATCH_ROWS;
use super::stream::Fault;
use crate::Batch;

/// The length of the longest line, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 16;

/// Counts the lines of a file, for messages.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    done: u64,
}

impl Lines {
    /// A counter that starts after `done` lines.
    pub(crate) fn after(done: u64) -> Lines {
        Lines { done }
    }

    /// Calls `take` for each complete line at the front of `bytes`, without its line end, until
    /// `batch` is full. Returns the number of bytes of these lines. The position in an error of
    /// `take` is relative to the line.
    #[inline]
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        batch: &mut Batch,
        mut take: impl FnMut(&[u8], &mut Batch) -> Result<(), Fault>,
    ) -> Result<usize, Fault> {
        let mut at = 0;
        while batch.len() < BATCH_ROWS {
            let rest = &bytes[at..];
            let (line, used) = match memchr::memchr(b'\n', rest) {
                Some(end) => (&rest[..end], end + 1),
                None if last && !rest.is_empty() => (rest, rest.len()),
                None => break,
            };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            take(line, batch).map_err(|fault| self.at(at, fault))?;
            self.done += 1;
            at += used;
        }
        Ok(at)
    }

    #[cold]
    fn at(&self, start: usize, fault: Fault) -> Fault {
        Fault::new(start + fault.at, format!("line {}: {}", self.done + 1, fault.what))
    }
}

/// The kinds of lines in a text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// A record of the format.
    Record,
    /// A line without content: a comment, an empty line.
    Empty,
    /// Not a line of the format.
    Foreign,
}

/// Whether `judge` accepts all lines of `bytes`, and at least one of them is a record. The last
/// line may be incomplete.
pub(crate) fn all_are(bytes: &[u8], judge: impl Fn(&[u8]) -> Line) -> bool {
    let mut found = false;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        if found && !line.ends_with(b"\n") {
            break;
        }
        match judge(line.trim_ascii_end()) {
            Line::Record => found = true,
            Line::Empty => {}
            Line::Foreign => return false,
        }
    }
    found
}

/// The fields of `line`, separated by blanks.
#[inline]
pub(crate) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty())
}

/// The whole of `text` as a hexadecimal number, with or without 0x.
#[inline]
pub(crate) fn hex(text: &[u8]) -> Option<u64> {
    match prefixed(text).unwrap_or_else(|| hexadecimal(text)) {
        Some((value, [])) => Some(value),
        _ => None,
    }
}

/// The whole of `text` as a number: hexadecimal after 0x, otherwise decimal.
#[inline]
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    match prefixed(text) {
        Some(Some((value, []))) => Some(value),
        Some(_) => None,
        None => decimal(text),
    }
}

/// The digits after 0x, if `text` begins with it.
#[inline]
fn prefixed(text: &[u8]) -> Option<Option<(u64, &[u8])>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => Some(hexadecimal(digits)),
        _ => None,
    }
}

/// The error that `line` does not belong to `format`.
#[cold]
pub(crate) fn foreign(line: &[u8], format: &str) -> Fault {
    Fault::new(0, format!("`{}` is not a line of {format}", shown(line)))
}

/// The beginning of `bytes` in printable form.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_or_refused() {
        for (text, expected) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0XaB", Some(0xab)),
            ("0x1ffffffffffffffff", None),
            ("0x", None),
            ("0x1g", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("7f", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text:?}");
        }
        for (text, expected) in [
            ("7f12A", Some(0x7f12a)),
            ("0x7f12a", Some(0x7f12a)),
            ("10", Some(16)),
            ("", None),
            ("0x", None),
            ("7f,", None),
        ] {
            assert_eq!(hex(text.as_bytes()), expected, "{text:?}");
        }
    }
}
