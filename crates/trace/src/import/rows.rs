//! Conversion of instructions and accesses to rows: the common part of importers of instruction
//! traces.
//!
//! ```text
//!   instruction 0x1000 4B | load A | instruction 0x1004 3B | store B | instruction 0x2000 ...
//!            \______________________________ block ___________________/        next block
//!
//!   rows     fetch 0x1000 7B +1   load A +0   store B +1   fetch 0x2000 ...
//! ```
//!
//! Instructions that follow each other in memory become one fetch row, whose size grows with each
//! of them. A branch, a jump, another thread or the end of the batch ends the block.
//!
//! The size of a row is at most 16383 bytes. A larger access becomes several rows, each of which
//! ends at a multiple of 8 KiB, so that base pages and cache lines are touched as often as by the
//! access.

use addr::Kind;
use serde::Deserialize;

use crate::carry::Carry;
use crate::count::counted;
use crate::{Batch, Event, Meta};

/// How an importer represents the instructions of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fetches {
    /// One row for instructions that follow each other, as in recorded traces.
    #[default]
    Blocks,
    /// One row per instruction, as in simulators that look up every fetch.
    Instructions,
    /// No rows; instructions are still counted.
    None,
}

/// The largest number of threads of a trace, which limits the memory for per-thread data.
pub(crate) const THREADS_MAX: usize = 1 << 20;

/// The error for a trace with more than [`THREADS_MAX`] threads.
#[cold]
pub(crate) fn too_many_threads() -> String {
    format!(
        "more than {THREADS_MAX} different threads: the column or field is probably not a thread \
         number"
    )
}

/// The largest size of an access, in bytes; it becomes at most 129 rows.
pub(crate) const ACCESS_BYTES_MAX: u32 = 1 << 20;
/// An access that is too large for a row is split at multiples of this number of bytes.
const PIECE_BYTES: u32 = 1 << 13;

/// The number of accesses after which a batch is returned.
pub(crate) const BATCH_ROWS: usize = 1 << 16;
/// The limits of a block: instructions, accesses and bytes. The trace format allows larger shapes,
/// but longer blocks would only make the dictionary larger.
const BLOCK_INSTRUCTIONS_MAX: u32 = 512;
const BLOCK_ACCESSES_MAX: usize = 1024;
const BLOCK_BYTES_MAX: u32 = 4096;

/// Appends rows to batches; keeps the open block, and the instructions not yet counted.
#[derive(Debug)]
pub(crate) struct Rows {
    fetches: Fetches,
    carry: Carry,
    block: Option<Block>,
    /// The number of accesses that became several rows.
    split: u64,
}

/// The warning for `accesses` accesses that became several rows.
pub(crate) fn split_warning(accesses: u64) -> Option<String> {
    (accesses > 0).then(|| {
        let what = format!(
            "larger than {} bytes: counted as several, cut at multiples of 8 KiB",
            Meta::SIZE_MAX
        );
        counted(accesses, "access is", "accesses are", &what)
    })
}

/// The block whose fetch row is still growing.
#[derive(Debug)]
struct Block {
    row: usize,
    next: u64,
    bytes: u32,
    instructions: u32,
}

impl Rows {
    /// The state at the beginning of a stream.
    pub(crate) fn new(fetches: Fetches) -> Rows {
        Rows { fetches, carry: Carry::default(), block: None, split: 0 }
    }

    /// Whether instructions become rows.
    pub(crate) fn fetches(&self) -> bool {
        self.fetches != Fetches::None
    }

    /// Makes `thread` the thread of the following rows and events.
    #[inline]
    pub(crate) fn thread(&mut self, thread: u32) {
        if self.carry.switch(thread) {
            self.block = None;
        }
    }

    /// Ends the open block, because the batch is returned or another source writes to the batch.
    #[inline]
    pub(crate) fn cut(&mut self) {
        self.block = None;
    }

    /// Adds an instruction of `bytes` bytes at `pc`; `ends` says whether the block ends after it,
    /// because it may jump.
    #[inline]
    pub(crate) fn instruction(&mut self, batch: &mut Batch, pc: u64, bytes: u32, ends: bool) {
        match (&mut self.block, self.fetches) {
            (Some(block), Fetches::Blocks)
                if block.next == pc
                    && block.instructions < BLOCK_INSTRUCTIONS_MAX
                    && block.bytes + bytes <= BLOCK_BYTES_MAX
                    && batch.len() - block.row <= BLOCK_ACCESSES_MAX =>
            {
                block.next = pc.wrapping_add(u64::from(bytes));
                block.bytes += bytes;
                block.instructions += 1;
                let meta = &mut batch.meta[block.row];
                *meta = Meta::new(Kind::Fetch, block.bytes, meta.instructions());
                self.carry.now += 1;
            }
            (_, Fetches::None) => self.carry.now += 1,
            _ => {
                let row = batch.len();
                self.carry.now += 1;
                self.access(batch, Kind::Fetch, pc, bytes);
                let next = pc.wrapping_add(u64::from(bytes));
                self.block = Some(Block { row, next, bytes, instructions: 1 });
            }
        }
        if ends {
            self.block = None;
        }
    }

    /// Adds an instruction at `pc` whose length the trace does not have. The instruction continues
    /// the open block if it is at most `gap_max` bytes after the instruction before.
    #[inline]
    pub(crate) fn instruction_unsized(
        &mut self,
        batch: &mut Batch,
        pc: u64,
        gap_max: u64,
        ends: bool,
    ) {
        // The length of the last instruction is unknown, so the block ends one byte after its
        // start.
        if self.fetches == Fetches::Blocks
            && let Some(block) = &mut self.block
        {
            let gap = pc.wrapping_sub(block.next.wrapping_sub(1));
            if gap >= 1 && gap <= gap_max && block.bytes + (gap as u32) <= BLOCK_BYTES_MAX {
                let grown = gap as u32 - 1;
                block.next = pc;
                block.bytes += grown;
            }
        }
        self.instruction(batch, pc, 1, ends);
    }

    /// Counts instructions that have no row.
    #[inline]
    pub(crate) fn executed(&mut self, instructions: u64) {
        self.carry.now = self.carry.now.saturating_add(instructions);
    }

    /// Adds an access of the last instruction, of at most [`ACCESS_BYTES_MAX`] bytes.
    #[inline]
    pub(crate) fn access(&mut self, batch: &mut Batch, kind: Kind, addr: u64, size: u32) {
        if size <= Meta::SIZE_MAX {
            self.push(batch, kind, addr, size);
        } else {
            self.split(batch, kind, addr, size);
        }
    }

    /// Adds an access that is too large for one row.
    #[cold]
    fn split(&mut self, batch: &mut Batch, kind: Kind, mut addr: u64, mut size: u32) {
        self.split += 1;
        while size > 0 {
            let piece = (PIECE_BYTES - (addr % u64::from(PIECE_BYTES)) as u32).min(size);
            self.push(batch, kind, addr, piece);
            addr = addr.wrapping_add(u64::from(piece));
            size -= piece;
        }
    }

    /// The number of accesses that became several rows because they were too large for one.
    pub(crate) fn split_accesses(&self) -> u64 {
        self.split
    }

    /// Adds an event of the current thread.
    pub(crate) fn event(&mut self, batch: &mut Batch, event: Event) {
        self.block = None;
        batch.push_event(self.carry.thread(), event);
    }

    /// Converts instructions that no row has counted to gaps, at the end of the stream.
    pub(crate) fn finish(&mut self, batch: &mut Batch) {
        self.block = None;
        for (thread, instructions) in self.carry.drain() {
            batch.push_event(thread, Event::Gap { accesses: 0, instructions });
        }
    }

    #[inline]
    fn push(&mut self, batch: &mut Batch, kind: Kind, addr: u64, size: u32) {
        if self.carry.exceeds(0) {
            let instructions = std::mem::take(&mut self.carry.now);
            batch.push_event(self.carry.thread(), Event::Gap { accesses: 0, instructions });
        }
        batch.push(self.carry.thread(), addr, Meta::new(kind, size, self.carry.now as u32));
        self.carry.now = 0;
    }
}
