//! Conversion of columns of numbers to rows: the common part of all tables, whatever file they are
//! read from.
//!
//! ```text
//!   addr   | a0 | a1 | a2 |     needed
//!   size   | 8  | 8  | 4  |     1 where absent
//!   kind   | 1  | 1  | 2  |     load where absent
//!   thread | 70 | 70 | 71 |     any number; the trace counts threads from 0 as they appear
//!   instrs | 3  | 1  | 9  |     instructions since the row before; fetches count 1 where absent
//!   paddr  | p0 | p1 | p2 |     0 stands for "not known"
//! ```

use super::rows::BATCH_ROWS;
use super::tags::Tags;
use super::threads::Threads;
use crate::{Arch, Batch, Error, Event, Filter, Header, Meta, Source};
use addr::Kind;

/// The names of the columns, in the order of [`Row`].
pub const COLUMNS: [&str; 6] = ["addr", "size", "kind", "thread", "paddr", "instrs"];

/// The index of the kind in [`COLUMNS`].
pub(crate) const KIND: usize = 2;

/// Consecutive rows of a table. Every column except `addr` may be absent, as an empty vector.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Columns {
    /// Virtual addresses.
    pub addr: Vec<u64>,
    /// Bytes accessed, 1 to [`Meta::SIZE_MAX`].
    pub size: Vec<u64>,
    /// 0 fetch, 1 load, 2 store.
    pub kind: Vec<u64>,
    /// The thread that made the access.
    pub thread: Vec<u64>,
    /// Physical addresses.
    pub paddr: Vec<u64>,
    /// Instructions since the row before.
    pub instrs: Vec<u64>,
}

/// One row of a table, with defaults for absent columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) addr: u64,
    pub(crate) size: Option<u64>,
    pub(crate) kind: Option<u64>,
    pub(crate) thread: Option<u64>,
    pub(crate) paddr: Option<u64>,
    pub(crate) instrs: Option<u64>,
}

/// Converts rows of a table to rows of a trace.
#[derive(Debug, Default)]
pub(crate) struct RowImporter {
    threads: Threads,
}

impl RowImporter {
    /// Appends `row`. The error says what is wrong with it.
    #[inline]
    pub(crate) fn push(&mut self, batch: &mut Batch, row: Row) -> Result<(), String> {
        let kind = match row.kind {
            Some(0) => Kind::Fetch,
            None | Some(1) => Kind::Load,
            Some(2) => Kind::Store,
            Some(kind) => {
                return Err(format!(
                    "kind {kind} is unknown: it must be 0 (fetch), 1 (load) or 2 (store)"
                ));
            }
        };
        let size = row.size.unwrap_or(1);
        if size == 0 || size > u64::from(Meta::SIZE_MAX) {
            return Err(format!("size {size} is not from 1 to {} bytes", Meta::SIZE_MAX));
        }
        let thread = match row.thread {
            None => 0,
            Some(tid) => self.threads.number(tid, batch)?,
        };
        let mut instructions = row.instrs.unwrap_or(u64::from(kind == Kind::Fetch));
        if instructions > u64::from(Meta::INSTRUCTIONS_MAX) {
            let rest = instructions - u64::from(Meta::INSTRUCTIONS_MAX);
            batch.push_event(thread, Event::Gap { accesses: 0, instructions: rest });
            instructions -= rest;
        }
        batch.push(thread, row.addr, Meta::new(kind, size as u32, instructions as u32));
        if let Some(paddr) = row.paddr {
            batch.paddr.push(paddr);
        }
        Ok(())
    }
}

/// The header of a trace in a file without metadata, such as a table or another text.
pub(crate) fn header(format: &str, fetches: bool) -> Header {
    Header {
        producer: format!("pagewalk import {format} {}", env!("CARGO_PKG_VERSION")),
        command: Vec::new(),
        arch: Arch::Unknown,
        fetches,
        filter: Filter::None,
        page_bytes: 4096,
        notes: Vec::new(),
        kernel_from: None,
    }
}

/// A source over columns that the caller reads. Python reads Parquet and Arrow files in this way.
pub struct ColumnSource<F> {
    header: Header,
    pull: F,
    table: RowImporter,
    columns: Columns,
    at: usize,
    rows: u64,
    total: Option<u64>,
    keep_going: bool,
    done: bool,
    warnings: Vec<String>,
}

impl<F> ColumnSource<F>
where
    F: FnMut() -> Result<Option<Columns>, Error> + Send,
{
    /// A source that calls `pull` for columns until it returns none. `format` is the file's format;
    /// without a column `kind`, `fetches` is false.
    pub fn new(format: &str, fetches: bool, pull: F) -> ColumnSource<F> {
        ColumnSource {
            header: header(format, fetches),
            pull,
            table: RowImporter::default(),
            columns: Columns::default(),
            at: 0,
            rows: 0,
            total: None,
            keep_going: false,
            done: false,
            warnings: Vec::new(),
        }
    }

    /// Sets the number of rows of the table.
    #[must_use]
    pub fn with_total(self, rows: u64) -> ColumnSource<F> {
        ColumnSource { total: Some(rows), ..self }
    }

    /// Sets whether damage ends the trace with a warning instead of an error.
    #[must_use]
    pub fn keep_going(self, keep_going: bool) -> ColumnSource<F> {
        ColumnSource { keep_going, ..self }
    }

    /// Sets the instruction set of the program. The rules of the instruction set, such as tags in
    /// addresses, then apply.
    #[must_use]
    pub fn with_arch(self, arch: Option<Arch>) -> ColumnSource<F> {
        let header = Header { arch: arch.unwrap_or(self.header.arch), ..self.header };
        ColumnSource { header, ..self }
    }

    /// Fills `batch` with the next rows.
    fn fill(&mut self, batch: &mut Batch) -> Result<(), Error> {
        while batch.len() < BATCH_ROWS && !self.done {
            if self.at == self.columns.addr.len() {
                match (self.pull)()? {
                    None => self.done = true,
                    Some(columns) => {
                        check_lengths(&columns)?;
                        (self.columns, self.at) = (columns, 0);
                    }
                }
                continue;
            }
            // Either all rows of a batch have physical addresses or none has.
            if !batch.is_empty() && batch.paddr.is_empty() != self.columns.paddr.is_empty() {
                break;
            }
            let row = self.row(self.at);
            self.table.push(batch, row).map_err(|what| {
                Error::Parameters(format!(
                    "row {} of the table: {what}",
                    self.rows + batch.len() as u64
                ))
            })?;
            self.at += 1;
        }
        Ok(())
    }

    fn row(&self, at: usize) -> Row {
        let columns = &self.columns;
        Row {
            addr: columns.addr[at],
            size: columns.size.get(at).copied(),
            kind: columns.kind.get(at).copied(),
            thread: columns.thread.get(at).copied(),
            paddr: columns.paddr.get(at).copied(),
            instrs: columns.instrs.get(at).copied(),
        }
    }
}

impl<F> Source for ColumnSource<F>
where
    F: FnMut() -> Result<Option<Columns>, Error> + Send,
{
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.first = self.rows;
        let filled = self.fill(batch);
        Tags::of(self.header.arch).strip_all(&mut batch.addr);
        if let Err(error) = filled {
            self.done = true;
            if !self.keep_going || matches!(error, Error::Interrupted) {
                return Err(error);
            }
            self.warnings.push(format!("{error}; the part before it is kept"));
        }
        self.rows += batch.len() as u64;
        Ok(!batch.is_empty())
    }

    fn total(&self) -> Option<u64> {
        self.total
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

fn check_lengths(columns: &Columns) -> Result<(), Error> {
    let rows = columns.addr.len();
    let others = [&columns.size, &columns.kind, &columns.thread, &columns.paddr, &columns.instrs];
    for (name, column) in ["size", "kind", "thread", "paddr", "instrs"].iter().zip(others) {
        if !column.is_empty() && column.len() != rows {
            return Err(Error::Parameters(format!(
                "column `{name}` has {} rows and `addr` has {rows}",
                column.len()
            )));
        }
    }
    Ok(())
}
