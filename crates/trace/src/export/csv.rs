//! A text table, which [`crate::import`] and every other tool can read.
//!
//! ```text
//!   addr,size,kind,thread,instrs            and paddr, if the first batch has it;
//!                                           process, if the trace has several
//!   0x401000,23,fetch,0,1
//!   0x7ffe0010,8,load,0,1
//! ```
//!
//! A physical address that is unknown is an empty field. A table cannot contain events. Instructions that an event reports as missing are added to the
//! thread's next row, so that the column's sum is the number of instructions of the trace.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::output::Output;
use super::{Options, Summary, each, left_out};
use crate::{Batch, Error, Event, Source};

const FLUSH_BYTES: usize = 1 << 16;

/// Writes all of `source` to `path`, or to standard output for `-`.
///
/// `progress` is called from time to time with the number of accesses so far. If it returns false,
/// the export stops, and there is no file and no summary.
pub fn csv(
    source: &mut dyn Source,
    path: &Path,
    options: &Options,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Summary>, Error> {
    let mut output = Output::create(path, options.overwrite)?;
    let mut table = CsvText { process: source.processes().len() > 1, ..CsvText::default() };
    if !each(source, progress, |batch| table.batch(batch, options, &mut output))? {
        return Ok(None);
    }
    table.title(false);
    output.write(&table.text)?;
    let warnings = left_out(&[
        (table.events, "event has", "events have", "no place in a table"),
        (
            table.physical,
            "physical address",
            "physical addresses",
            "came after the header line, \
                                                                    which has no column for them",
        ),
    ]);
    Ok(Some(Summary { records: table.rows, bytes: output.finish()?, warnings }))
}

/// The text that has not been written to the file yet, and the state of the table.
#[derive(Default)]
struct CsvText {
    text: Vec<u8>,
    titled: bool,
    paddr: bool,
    /// Whether the trace has several processes.
    process: bool,
    /// The process that makes the next access.
    number: u32,
    rows: u64,
    events: u64,
    physical: u64,
    /// The instructions that each thread's next row counts in addition.
    waiting: FxHashMap<u32, u64>,
}

impl CsvText {
    fn title(&mut self, paddr: bool) {
        if !std::mem::replace(&mut self.titled, true) {
            self.paddr = paddr;
            self.text.extend(b"addr,size,kind,thread,instrs");
            self.text.extend_from_slice(if paddr { b",paddr" } else { b"" });
            self.text.extend_from_slice(if self.process { b",process" } else { b"" });
            self.text.push(b'\n');
        }
    }

    fn batch(
        &mut self,
        batch: &Batch,
        options: &Options,
        output: &mut Output,
    ) -> Result<(), Error> {
        if !batch.is_empty() {
            self.title(!batch.paddr.is_empty());
        }
        let mut events = batch.events.iter().peekable();
        let mut segments = batch.segments.iter().peekable();
        let mut thread = 0;
        for at in 0..batch.len() {
            while let Some(placed) = events.next_if(|placed| placed.at as usize <= at) {
                self.event(placed.thread, &placed.event);
            }
            while let Some(segment) = segments.next_if(|segment| segment.start as usize <= at) {
                thread = segment.thread;
            }
            if options.thread.is_none_or(|only| only == thread) {
                self.row(batch, at, thread);
            }
            if self.text.len() >= FLUSH_BYTES {
                output.write(&self.text)?;
                self.text.clear();
            }
        }
        events.for_each(|placed| self.event(placed.thread, &placed.event));
        Ok(())
    }

    fn event(&mut self, thread: u32, event: &Event) {
        match event {
            Event::Gap { accesses: 0, instructions } => {
                let waiting = self.waiting.entry(thread).or_default();
                *waiting = waiting.saturating_add(*instructions);
            }
            Event::Process { number } if self.process => self.number = *number,
            Event::Run { .. } if self.process => {}
            Event::Call(_)
            | crate::events!(memory)
            | crate::events!(program)
            | crate::events!(lives)
            | crate::events!(stream)
            | crate::events!(translation) => self.events += 1,
        }
    }

    fn row(&mut self, batch: &Batch, at: usize, thread: u32) {
        let meta = batch.meta[at];
        let mut instructions = u64::from(meta.instructions());
        if !self.waiting.is_empty()
            && let Some(waiting) = self.waiting.remove(&thread)
        {
            instructions = instructions.saturating_add(waiting);
        }
        let text = &mut self.text;
        hexadecimal(text, batch.addr[at]);
        text.push(b',');
        decimal(text, u64::from(meta.size()));
        text.push(b',');
        text.extend(meta.kind().name().as_bytes());
        text.push(b',');
        decimal(text, u64::from(thread));
        text.push(b',');
        decimal(text, instructions);
        let paddr = batch.paddr.get(at).copied().unwrap_or(0);
        if self.paddr {
            text.push(b',');
            if paddr != 0 {
                hexadecimal(text, paddr);
            }
        } else if paddr != 0 {
            self.physical += 1;
        }
        if self.process {
            text.push(b',');
            decimal(text, u64::from(self.number));
        }
        text.push(b'\n');
        self.rows += 1;
    }
}

fn hexadecimal(text: &mut Vec<u8>, value: u64) {
    text.extend(b"0x");
    let digits = (64 - (value | 1).leading_zeros()).div_ceil(4);
    text.extend(
        (0..digits).rev().map(|digit| b"0123456789abcdef"[(value >> (4 * digit) & 15) as usize]),
    );
}

fn decimal(text: &mut Vec<u8>, mut value: u64) {
    let start = text.len();
    loop {
        text.push(b'0' + (value % 10) as u8);
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text[start..].reverse();
}
