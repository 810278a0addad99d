//! Text tables: one line of column names, and then one line for each access.
//!
//! ```text
//!   addr,size,kind,thread       names in any order; only addr is needed
//!   0x7f10,8,load,1             numbers in decimal or, after 0x, hexadecimal
//!   32528,4,2,1                 kinds by name or number
//! ```
//!
//! Fields are separated by commas, semicolons or tabs; the first line shows which. A field may be
//! in double quotes. An empty physical address is unknown. Columns with other names are ignored, unless an option such as `--column
//! addr=vaddr` renames them.
//!
//! A table whose first line is an access has no column names. Options then name its columns by
//! their numbers, from 1, as in `--column addr=2`. If only one column has numbers, it is used as
//! the addresses; if only one column has words, it is used as the kinds.

use super::columns::{COLUMNS, KIND, Row, RowImporter};
use super::kinds;
use super::lines::{LINE_BYTES_MAX, Lines, number, shown};
use super::rows::Rows;
use super::stream::{Decode, Fault};
use crate::Batch;

/// The index of the address in [`COLUMNS`].
const ADDR: usize = 0;
/// The index of the physical address.
const PADDR: usize = 4;
/// The largest number of columns of a table, used or not.
const TABLE_COLUMNS_MAX: usize = 1024;

/// Decodes the lines of accesses.
#[derive(Debug)]
pub(crate) struct Csv {
    layout: Layout,
    table: RowImporter,
    lines: Lines,
}

/// The meaning of the fields of a line.
#[derive(Debug)]
struct Layout {
    separator: u8,
    /// For each column of the table, its index in [`COLUMNS`], or the number of columns if it is
    /// ignored.
    columns: Vec<usize>,
}

impl Csv {
    /// Reads the first line of `bytes`. Returns the decoder, and the number of bytes before the
    /// first access. `named` has the names of columns in the file, each with our name.
    pub(crate) fn new(bytes: &[u8], named: &[(String, String)]) -> Result<(Csv, usize), Fault> {
        let bom = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
        if end > LINE_BYTES_MAX {
            return Err(Fault::new(0, "the first line is too long for a header line"));
        }
        let line = bytes[bom..end].trim_ascii();
        let separator = *b",;\t".iter().find(|&&byte| line.contains(&byte)).unwrap_or(&b',');
        let fields: Vec<&[u8]> = line
            .split(|&byte| byte == separator)
            .map(|field| unquoted(field.trim_ascii()))
            .collect();
        let is_value = |field: &&[u8]| number(field).is_some() || kinds::kind(field).is_some();
        let is_headless = fields.iter().all(is_value) && fields.iter().any(|f| number(f).is_some());
        let names: Vec<String> = match is_headless {
            true => (1..=fields.len()).map(|column| column.to_string()).collect(),
            false => fields.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        };
        let mut columns = Vec::new();
        for name in &names {
            let ours = COLUMNS.iter().position(|ours| {
                let theirs =
                    named.iter().find(|(from, _)| from == ours).map_or(*ours, |(_, to)| to);
                theirs == name.as_str()
            });
            if let Some(ours) = ours
                && columns.contains(&ours)
            {
                return Err(Fault::new(
                    0,
                    format!(
                        "two columns are called `{name}`: rename one of them in the header line"
                    ),
                ));
            }
            columns.push(ours.unwrap_or(COLUMNS.len()));
        }
        if is_headless {
            find_columns(&fields, named, &mut columns);
        }
        if columns.len() > TABLE_COLUMNS_MAX {
            return Err(Fault::new(0, format!("more than {TABLE_COLUMNS_MAX} columns")));
        }
        if !columns.contains(&ADDR) {
            let first = shown(line);
            return Err(Fault::new(
                0,
                match is_headless {
                    true => format!(
                        "the first line, `{first}`, is not a header line: give the numbers of the \
                         columns, as in --column addr=1 --column size=2"
                    ),
                    false => format!(
                        "no column is called `addr`; the first line names {}. Name the one with \
                         the addresses, as in --column addr=NAME",
                        shown(names[..names.len().min(8)].join(", ").as_bytes())
                    ),
                },
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
        let (used, lines) = match is_headless {
            true => (bom, Lines::default()),
            false => ((end + 1).min(bytes.len()), Lines::after(1)),
        };
        let layout = Layout { separator, columns };
        Ok((Csv { layout, table: RowImporter::default(), lines }, used))
    }

    /// Whether the table has kinds, so that fetches are known.
    pub(crate) fn has_kinds(&self) -> bool {
        self.layout.columns.contains(&KIND)
    }
}

impl Layout {
    /// The row that a line has. The error says what is wrong and at which byte.
    #[inline]
    fn row(&self, line: &[u8]) -> Result<Row, Fault> {
        let mut values = [None; COLUMNS.len()];
        let mut start = 0;
        let mut columns = self.columns.iter();
        loop {
            // Fields are short, so a loop finds their end faster than a search function.
            let rest = &line[start..];
            let end = rest.iter().position(|&byte| byte == self.separator);
            let field = &rest[..end.unwrap_or(rest.len())];
            let Some(&column) = columns.next() else {
                return Err(Fault::new(start, "more fields than columns"));
            };
            if let Some(value) = values.get_mut(column) {
                *value =
                    Some(value_of(column, field).ok_or_else(|| no_value(column, field, start))?);
            }
            match end {
                Some(end) => start += end + 1,
                None => break,
            }
        }
        if columns.next().is_some() {
            return Err(Fault::new(0, "fewer fields than columns"));
        }
        let [addr, size, kind, thread, paddr, instrs] = values;
        // It was checked that the first line names a column of addresses, and every line has a
        // field for every column.
        let addr = addr.unwrap_or_default();
        Ok(Row { addr, size, kind, thread, paddr, instrs })
    }
}

/// If there is only one column of numbers, makes it the addresses; if there is only one column of
/// words, makes it the kinds. Columns in `named` are left as they are.
fn find_columns(fields: &[&[u8]], named: &[(String, String)], columns: &mut [usize]) {
    for (ours, is_number) in [(ADDR, true), (KIND, false)] {
        let mut found = (0..fields.len()).filter(|&at| {
            columns[at] == COLUMNS.len() && number(fields[at]).is_some() == is_number
        });
        if named.iter().all(|(name, _)| name != COLUMNS[ours])
            && let (Some(only), None) = (found.next(), found.next())
        {
            columns[only] = ours;
        }
    }
}

#[cold]
fn no_value(column: usize, field: &[u8], at: usize) -> Fault {
    let why = if column == KIND {
        "is unknown: it must be fetch, load, store, R, W, 0, 1 or 2"
    } else {
        "is not a number: write it in decimal, or in hexadecimal after 0x"
    };
    Fault::new(at, format!("`{}` {why} (column {})", shown(field), COLUMNS[column]))
}

/// The value of `field`, which belongs to `column`.
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
        return number(field).or_else(|| kinds::kind(field).map(|kind| kind as u64));
    }
    number(field).or_else(|| (column == PADDR && field.is_empty()).then_some(0))
}

impl Decode for Csv {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        _rows: &mut Rows,
        batch: &mut Batch,
    ) -> Result<usize, Fault> {
        let Csv { layout, table, lines } = self;
        lines.decode(bytes, last, batch, |line, batch| {
            if line.is_empty() {
                return Ok(());
            }
            let row = layout.row(line)?;
            table.push(batch, row).map_err(|what| Fault::new(0, what))
        })
    }

    fn record_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }
}

fn unquoted(field: &[u8]) -> &[u8] {
    match field {
        [b'"', inner @ .., b'"'] => inner,
        _ => field,
    }
}
