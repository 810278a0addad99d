//! Text tables: a line of column names, then one line per access.
//!
//! ```text
//!   addr,size,kind,thread       names in any order; only addr is needed
//!   0x7f10,8,load,1             numbers in decimal or, after 0x, hexadecimal
//!   32528,4,2,1                 kinds by name or number
//! ```
//!
//! Commas, semicolons or tabs separate; the first line tells which. A field may stand in double
//! quotes. Columns of other names are left out, or taken by `--column addr=vaddr`.

use super::columns::{COLUMNS, KIND, Row, RowImporter};
use super::digits::{decimal, hexadecimal};
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
    table: RowImporter,
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
        Ok((Csv { separator, columns, table: RowImporter::default(), line: 1 }, used))
    }

    /// Whether the table says which accesses are fetches.
    pub(crate) fn has_kinds(&self) -> bool {
        self.columns.contains(&KIND)
    }

    /// The row of one line; `Err` says what is wrong and at which byte.
    #[inline]
    fn row(&self, line: &[u8]) -> Result<Row, Fault> {
        let mut values = [None; COLUMNS.len()];
        let mut start = 0;
        let mut columns = self.columns.iter();
        loop {
            // Fields are short: a loop finds their end sooner than a search does.
            let rest = &line[start..];
            let end = rest.iter().position(|&byte| byte == self.separator);
            let field = &rest[..end.unwrap_or(rest.len())];
            let Some(&column) = columns.next() else {
                return Err(self.wrong(start, "more fields than columns"));
            };
            if let Some(value) = values.get_mut(column) {
                *value = Some(
                    value_of(column, field).ok_or_else(|| self.no_value(column, field, start))?,
                );
            }
            match end {
                Some(end) => start += end + 1,
                None => break,
            }
        }
        if columns.next().is_some() {
            return Err(self.wrong(0, "fewer fields than columns"));
        }
        let [addr, size, kind, thread, paddr, instrs] = values;
        // The first line has been checked to name the addresses, and every column has a field.
        let addr = addr.unwrap_or_default();
        Ok(Row { addr, size, kind, thread, paddr, instrs })
    }

    #[cold]
    fn wrong(&self, at: usize, what: &str) -> Fault {
        Fault::new(at, format!("line {}: {what}", self.line + 1))
    }

    #[cold]
    fn no_value(&self, column: usize, field: &[u8], at: usize) -> Fault {
        let why = if column == KIND {
            "is none of fetch, load, store, 0, 1, 2"
        } else {
            "is no number: write it in decimal, or in hexadecimal after 0x"
        };
        self.wrong(at, &format!("`{}` {why} (column {})", shown(field), COLUMNS[column]))
    }
}

/// What `field` says in `column`.
#[inline]
fn value_of(column: usize, field: &[u8]) -> Option<u64> {
    let field = unquoted(field.trim_ascii());
    if column == KIND {
        match field {
            b"fetch" => return Some(0),
            b"load" => return Some(1),
            b"store" => return Some(2),
            _ => {}
        }
    }
    number(field)
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
    match field {
        [b'0', b'x' | b'X', digits @ ..] => {
            let (value, rest) = hexadecimal(digits)?;
            rest.is_empty().then_some(value)
        }
        digits => decimal(digits),
    }
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
