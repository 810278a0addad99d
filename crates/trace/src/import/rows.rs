//! Instructions and accesses to rows: what the importers of instruction traces share.
//!
//! ```text
//!   instruction 0x1000 4B | load A | instruction 0x1004 3B | store B | instruction 0x2000 ...
//!            \______________________________ block ___________________/        next block
//!
//!   rows     fetch 0x1000 7B +1   load A +0   store B +1   fetch 0x2000 ...
//! ```
//!
//! Instructions that follow each other in memory become one fetch row, whose size grows while
//! they come; a branch, a jump, another thread or the end of the batch ends the block.
//!
//! A row has room for 16383 bytes. A larger access becomes several rows, each of which ends at a
//! multiple of 8 KiB, so that base pages and lines of caches are touched as often as by the access.

use addr::Kind;
use serde::Deserialize;

use crate::carry::Carry;
use crate::count::counted;
use crate::{Batch, Event, Meta};

/// How an importer gives the instructions of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fetches {
    /// One row for instructions that follow each other, as recorded traces have them.
    #[default]
    Blocks,
    /// One row for each instruction, as simulators that look up every fetch count them.
    Instructions,
    /// No row; instructions are counted all the same.
    None,
}

/// The most threads of a trace: what is kept for each must stay small in all.
pub(crate) const THREADS_MAX: usize = 1 << 20;

/// That a trace has more than [`THREADS_MAX`] threads.
#[cold]
pub(crate) fn too_many_threads() -> String {
    format!("more than {THREADS_MAX} threads: the column does not have numbers of threads")
}

/// The most bytes of one access that is read; it becomes at most 129 rows.
pub(crate) const ACCESS_BYTES_MAX: u32 = 1 << 20;
/// Where an access is cut that is too large for a row.
const PIECE_BYTES: u32 = 1 << 13;

/// Accesses after which a batch is handed over.
pub(crate) const BATCH_ROWS: usize = 1 << 16;
/// The most instructions, accesses and bytes of one block. A shape of the trace format holds
/// more; longer blocks would only make the dictionary larger.
const BLOCK_INSTRUCTIONS_MAX: u32 = 512;
const BLOCK_ACCESSES_MAX: usize = 1024;
const BLOCK_BYTES_MAX: u32 = 4096;

/// Appends rows to batches and keeps the open block and the instructions not yet counted.
#[derive(Debug)]
pub(crate) struct Rows {
    fetches: Fetches,
    carry: Carry,
    block: Option<Block>,
    /// Accesses that became several rows.
    split: u64,
}

/// What is to be said of `accesses` that became several rows.
pub(crate) fn split_warning(accesses: u64) -> Option<String> {
    (accesses > 0).then(|| {
        let what = format!(
            "larger than {} bytes: counted as several, cut at multiples of 8 KiB",
            Meta::SIZE_MAX
        );
        counted(accesses, "access is", "accesses are", &what)
    })
}

/// The block whose fetch row still grows.
#[derive(Debug)]
struct Block {
    row: usize,
    next: u64,
    bytes: u32,
    instructions: u32,
}

impl Rows {
    /// Rows of a stream that has not begun.
    pub(crate) fn new(fetches: Fetches) -> Rows {
        Rows { fetches, carry: Carry::default(), block: None, split: 0 }
    }

    /// Whether instructions become rows.
    pub(crate) fn fetches(&self) -> bool {
        self.fetches != Fetches::None
    }

    /// What follows is done by `thread`.
    #[inline]
    pub(crate) fn thread(&mut self, thread: u32) {
        if self.carry.switch(thread) {
            self.block = None;
        }
    }

    /// Ends the open block: the batch is handed over, or somebody else writes into it.
    #[inline]
    pub(crate) fn cut(&mut self) {
        self.block = None;
    }

    /// The instruction of `bytes` at `pc` was fetched and begins; `ends` if control may leave
    /// after it.
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

    /// An instruction whose length the trace does not tell begins at `pc`. It belongs to the
    /// block if it lies at most `gap_max` bytes after the one before.
    #[inline]
    pub(crate) fn instruction_unsized(
        &mut self,
        batch: &mut Batch,
        pc: u64,
        gap_max: u64,
        ends: bool,
    ) {
        // The end of the block is kept as one byte after the start of its last instruction.
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

    /// So many instructions ran that are no rows.
    #[inline]
    pub(crate) fn executed(&mut self, instructions: u64) {
        self.carry.now = self.carry.now.saturating_add(instructions);
    }

    /// An access of the last instruction, of at most [`ACCESS_BYTES_MAX`].
    #[inline]
    pub(crate) fn access(&mut self, batch: &mut Batch, kind: Kind, addr: u64, size: u32) {
        if size <= Meta::SIZE_MAX {
            self.push(batch, kind, addr, size);
        } else {
            self.split(batch, kind, addr, size);
        }
    }

    /// An access that is too large for one row.
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

    /// Accesses that became several rows, since they were too large for one.
    pub(crate) fn split_accesses(&self) -> u64 {
        self.split
    }

    /// Something happened to the present thread.
    pub(crate) fn event(&mut self, batch: &mut Batch, event: Event) {
        self.block = None;
        batch.push_event(self.carry.thread(), event);
    }

    /// Instructions that no row has counted become gaps: the stream ends.
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
