//! Text tables: a line of column names, then a line an access.
//!
//! ```text
//!   addr,size,kind,thread       names in any order; only addr is needed
//!   0x7f10,8,load,1             numbers in decimal or, after 0x, hexadecimal
//!   32528,4,2,1                 kinds by name or number
//! ```
//!
//! Commas, semicolons or tabs separate; the first line tells which. A field may stand in double
//! quotes. Columns of other names are left out, or taken by `--column addr=vaddr`.

use super::columns::{COLUMNS, Row, Table};
use super::rows::{BATCH_ROWS, Rows};
use super::stream::{Decode, Fault};
use crate::Batch;

/// The longest line in bytes.
const LINE_BYTES_MAX: usize = 1 << 16;
/// The most columns of a table, whether they are taken or not.
const TABLE_COLUMNS_MAX: usize = 1024;

/// Decodes the lines after the first.
#[derive(Debug)]
pub(crate) struct Csv {
    separator: u8,
    /// For each column of the table which of [`COLUMNS`] it is; one beyond for none.
    columns: Vec<usize>,
    table: Table,
    line: u64,
}

impl Csv {
    /// Reads the first line of `bytes`; gives the decoder and the line's length. `named` says
    /// what some of our columns are called in the file.
    pub(crate) fn new(bytes: &[u8], named: &[(String, String)]) -> Result<(Csv, usize), Fault> {
        let bom = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
        if end > LINE_BYTES_MAX {
            return Err(Fault::new(0, "the first line is too long to be names of columns"));
        }
        let line = bytes[bom..end].trim_ascii();
        let separator = *b",;\t".iter().find(|&&byte| line.contains(&byte)).unwrap_or(&b',');
        let mut columns = Vec::new();
        let mut names = Vec::new();
        for field in line.split(|&byte| byte == separator) {
            let name = unquoted(field.trim_ascii());
            let ours = COLUMNS.iter().position(|ours| {
                let theirs =
                    named.iter().find(|(from, _)| from == ours).map_or(*ours, |(_, to)| to);
                theirs.as_bytes() == name
            });
            if let Some(ours) = ours
                && columns.contains(&ours)
            {
                return Err(Fault::new(0, format!("two columns are `{}`", COLUMNS[ours])));
            }
            columns.push(ours.unwrap_or(COLUMNS.len()));
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        if columns.len() > TABLE_COLUMNS_MAX {
            return Err(Fault::new(0, format!("more than {TABLE_COLUMNS_MAX} columns")));
        }
        if !columns.contains(&0) {
            names.truncate(8);
            return Err(Fault::new(
                0,
                format!(
                    "no column is called `addr`; the first line names {}. Say which one holds the \
                     addresses with --column addr=NAME",
                    shown(names.join(", ").as_bytes())
                ),
            ));
        }
        if let Some((ours, theirs)) = named.iter().find(|(ours, _)| {
            !columns.iter().any(|&column| COLUMNS.get(column).is_some_and(|name| name == ours))
        }) {
            return Err(Fault::new(
                0,
                format!("--column {ours}={theirs}: no column has that name"),
            ));
        }
        let used = (end + 1).min(bytes.len());
        Ok((Csv { separator, columns, table: Table::default(), line: 1 }, used))
    }

    /// Whether the table says which accesses are fetches.
    pub(crate) fn has_kinds(&self) -> bool {
        self.columns.iter().any(|&column| COLUMNS.get(column) == Some(&"kind"))
    }

    /// The row of one line; `Err` says what is wrong and at which byte.
    #[inline]
    fn row(&self, line: &[u8]) -> Result<Row, Fault> {
        let mut values = [None; COLUMNS.len()];
        let mut start = 0;
        let mut columns = self.columns.iter();
        let mut ends = memchr::memchr_iter(self.separator, line);
        loop {
            let end = ends.next();
            let field = &line[start..end.unwrap_or(line.len())];
            let Some(&column) = columns.next() else {
                return Err(Fault::new(
                    start,
                    format!("line {}: more fields than columns", self.line + 1),
                ));
            };
            if let Some(value) = values.get_mut(column) {
                *value = Some(self.value(column, field, start)?);
            }
            match end {
                Some(end) => start = end + 1,
                None => break,
            }
        }
        if columns.next().is_some() {
            return Err(Fault::new(
                0,
                format!("line {}: fewer fields than columns", self.line + 1),
            ));
        }
        let [addr, size, kind, thread, paddr, instrs] = values;
        // The first line has been checked to name the addresses, and every column has a field.
        let addr = addr.unwrap_or_default();
        Ok(Row { addr, size, kind, thread, paddr, instrs })
    }

    #[inline]
    fn value(&self, column: usize, field: &[u8], at: usize) -> Result<u64, Fault> {
        let field = unquoted(field.trim_ascii());
        let value = match (COLUMNS[column], field) {
            ("kind", b"fetch") => Some(0),
            ("kind", b"load") => Some(1),
            ("kind", b"store") => Some(2),
            _ => number(field),
        };
        value.ok_or_else(|| {
            let what = if COLUMNS[column] == "kind" {
                "is none of fetch, load, store, 0, 1, 2"
            } else {
                "is no number: write it in decimal, or in hexadecimal after 0x"
            };
            Fault::new(
                at,
                format!(
                    "line {}: `{}` {what} (column {})",
                    self.line + 1,
                    shown(field),
                    COLUMNS[column]
                ),
            )
        })
    }
}

impl Decode for Csv {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        _rows: &mut Rows,
        batch: &mut Batch,
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
            if !line.is_empty() {
                let moved = |fault: Fault| Fault { at: at + fault.at, what: fault.what };
                let row = self.row(line).map_err(moved)?;
                self.table
                    .push(batch, row)
                    .map_err(|what| Fault::new(at, format!("line {}: {what}", self.line + 1)))?;
            }
            self.line += 1;
            at += used;
        }
        Ok(at)
    }

    fn record_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }
}

/// A number in decimal, or in hexadecimal after 0x.
#[inline]
fn number(field: &[u8]) -> Option<u64> {
    if let [b'0', b'x' | b'X', digits @ ..] = field {
        if digits.is_empty() || digits.len() > 16 {
            return None;
        }
        let mut value = 0;
        for &byte in digits {
            value = value << 4 | u64::from(char::from(byte).to_digit(16)?);
        }
        return Some(value);
    }
    if field.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

fn unquoted(field: &[u8]) -> &[u8] {
    match field {
        [b'"', inner @ .., b'"'] => inner,
        _ => field,
    }
}

fn shown(bytes: &[u8]) -> String {
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
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("7f", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text:?}");
        }
    }
}
