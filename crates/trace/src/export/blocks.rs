//! The instructions of one thread of a trace, for formats with a record per instruction.
//!
//! ```text
//!   fetch 0x1000 12B   load A +1   store B +1   fetch 0x2000   the block has 3 instructions
//!
//!   0x1000               0x1004 loads A         0x1008 stores B, jumps
//! ```
//!
//! For each basic block, a trace has the number of its instructions but not their addresses. The
//! addresses of the instructions are spread evenly over the block's bytes. The last instruction jumps if the next
//! block does not follow directly, unless an interrupt came between them. A block is complete when the next
//! one begins. Events within a block are therefore passed on after its last instruction.

use addr::Kind;

use crate::located::Locator;
use crate::{Batch, Error, Event, Meta};

/// What follows an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The next instruction of the block, or it is unknown what follows.
    Same,
    /// Another block, which begins where the instruction ends.
    Below,
    /// A block elsewhere.
    Elsewhere,
}

/// A load or a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Access {
    /// The number of its instruction in the block, from 0.
    index: u64,
    pub(super) kind: Kind,
    pub(super) addr: u64,
    pub(super) bytes: u32,
    /// The physical address of its first byte, and that of the first byte of the next page if the access
    /// crosses into it; 0 if it is unknown.
    pub(super) paddr: u64,
    pub(super) beyond: u64,
}

/// An instruction and its accesses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction<'a> {
    pub(super) ip: u64,
    /// The length; 0 if the block has more instructions than bytes, and the one before is at this address too.
    pub(super) bytes: u64,
    /// The physical address of its first byte; 0 if it is unknown.
    pub(super) paddr: u64,
    pub(super) accesses: &'a [Access],
    pub(super) next: Next,
}

/// A change between two blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// The thread runs for the first time, or after another thread has run. `accesses` is the number of accesses of
    /// the trace so far.
    Turn { accesses: u64, thread: u32 },
    /// The process continues that has this number.
    Process(u32),
    /// The thread has, or continues with, this thread id.
    Thread(u64),
    /// An interrupt or an exception, before the instruction at this address.
    Interrupt(u64),
}

/// What the instructions are written to.
pub(super) trait Records {
    /// The name of the format.
    const NAME: &'static str;

    /// Writes an instruction.
    fn instruction(&mut self, instruction: &Instruction<'_>) -> Result<(), Error>;

    /// Writes a change, if the format can hold it.
    fn change(&mut self, change: Change) -> Result<(), Error>;
}

/// log2 of the smallest page.
const PAGE_SHIFT: u32 = 12;

/// The block that is being collected.
pub(super) struct Blocks<R> {
    pub(super) records: R,
    /// The thread that is exported; if none was requested, the thread of the first access.
    thread: Option<u32>,
    named: bool,
    /// Whether other threads have run since the thread's last row.
    away: bool,
    /// The process that runs, and the process of the thread's last row.
    process: u32,
    last: Option<u32>,
    locator: Locator,
    open: bool,
    block: Block,
    changes: Vec<Change>,
    /// The number of accesses before the thread's first fetch.
    pub(super) unfetched: u64,
}

/// A block and its accesses.
#[derive(Default)]
struct Block {
    pc: u64,
    bytes: u64,
    /// The physical address of its first byte, and that of the next page's first byte; 0 if unknown.
    paddr: u64,
    beyond: u64,
    /// The number of its instructions known so far.
    begun: u64,
    accesses: Vec<Access>,
}

impl<R: Records> Blocks<R> {
    /// The blocks of `thread`, for `records`.
    pub(super) fn new(records: R, thread: Option<u32>) -> Blocks<R> {
        Blocks {
            records,
            thread,
            named: thread.is_some(),
            away: true,
            process: 0,
            last: None,
            locator: Locator::new(),
            open: false,
            block: Block::default(),
            changes: Vec::new(),
            unfetched: 0,
        }
    }

    /// Collects the rows of `batch`.
    pub(super) fn batch(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut events = batch.events.iter().peekable();
        let mut segments = batch.segments.iter().peekable();
        let mut wanted = true;
        for at in 0..=batch.len() {
            while let Some(placed) = events.next_if(|placed| placed.at as usize <= at) {
                self.event(placed.thread, &placed.event);
            }
            while let Some(segment) = segments.next_if(|segment| segment.start as usize <= at) {
                wanted = self.wants(segment.thread)?;
            }
            if at == batch.len() {
                break;
            }
            if !wanted {
                self.away = true;
                continue;
            }
            if self.last != Some(self.process) {
                self.last = Some(self.process);
                self.changes.push(Change::Process(self.process));
            }
            if std::mem::take(&mut self.away) {
                let accesses = batch.first + at as u64;
                self.changes.push(Change::Turn { accesses, thread: self.thread.unwrap_or(0) });
            }
            let paddr = batch.paddr.get(at).copied().unwrap_or(0);
            self.row(batch.addr[at], batch.meta[at], paddr)?;
        }
        Ok(())
    }

    fn event(&mut self, thread: u32, event: &Event) {
        self.locator.event(event);
        let is_own = self.thread == Some(thread);
        match *event {
            Event::Process { number } => self.process = number,
            Event::Gap { accesses: 0, instructions } if is_own => {
                self.block.begun = self.block.begun.saturating_add(instructions);
            }
            Event::Task { pid, .. } if is_own => {
                self.changes.push(Change::Thread(u64::from(pid)));
            }
            // A thread begins before its first access, which may choose the thread that is exported.
            Event::ThreadStart { tid } if is_own || self.thread.is_none() => {
                self.changes.push(Change::Thread(tid as u64));
            }
            Event::Interrupt { pc, .. } if is_own => self.changes.push(Change::Interrupt(pc)),
            Event::Call(_)
            | crate::events!(memory)
            | crate::events!(program)
            | crate::events!(lives)
            | Event::Run { .. }
            | Event::ContextSwitch { .. }
            | Event::WarmupEnd
            | Event::Gap { .. }
            | crate::events!(translation) => {}
        }
    }

    /// Whether `thread` is exported. Returns an error if the trace has a second thread and the user
    /// has requested no thread.
    fn wants(&mut self, thread: u32) -> Result<bool, Error> {
        let only = *self.thread.get_or_insert(thread);
        if only != thread && !self.named {
            return Err(Error::Parameters(format!(
                "the trace has several threads, and a file of format {} has only one: export one of them with \
                 --thread N",
                R::NAME
            )));
        }
        Ok(only == thread)
    }

    fn row(&mut self, addr: u64, meta: Meta, paddr: u64) -> Result<(), Error> {
        let instructions = u64::from(meta.instructions());
        let bytes = meta.size();
        match meta.kind() {
            Kind::Fetch => {
                // Instructions that began since the last access belong to the block that ends.
                self.block.begun = self.block.begun.saturating_add(instructions.saturating_sub(1));
                self.close(Some(addr))?;
                self.open = true;
                self.block.beyond = self.beyond(addr, bytes);
                let block = &mut self.block;
                (block.pc, block.bytes, block.paddr, block.begun) =
                    (addr, u64::from(bytes), paddr, 1);
            }
            _ if !self.open => self.unfetched += 1,
            kind => {
                self.block.begun += instructions;
                let index = self.block.begun.saturating_sub(1);
                let beyond = self.beyond(addr, bytes);
                self.block.accesses.push(Access { index, kind, addr, bytes, paddr, beyond });
            }
        }
        Ok(())
    }

    /// The physical address of the page behind that of `addr`, if `bytes` bytes cross into it; 0 if it is
    /// unknown, or if they do not.
    fn beyond(&mut self, addr: u64, bytes: u32) -> u64 {
        let last = addr.saturating_add(u64::from(bytes).saturating_sub(1));
        if last >> PAGE_SHIFT == addr >> PAGE_SHIFT {
            return 0;
        }
        self.locator.at(((addr >> PAGE_SHIFT) + 1) << PAGE_SHIFT)
    }

    /// Writes the block and the changes after it; `next` is the address of the block after it.
    pub(super) fn close(&mut self, next: Option<u64>) -> Result<(), Error> {
        if std::mem::replace(&mut self.open, false) {
            self.write(next)?;
        }
        self.changes.drain(..).try_for_each(|change| self.records.change(change))
    }

    fn write(&mut self, next: Option<u64>) -> Result<(), Error> {
        let is_interrupted =
            self.changes.iter().any(|change| matches!(change, Change::Interrupt(_)));
        let block = &mut self.block;
        let (pc, bytes) = (block.pc, block.bytes.max(1));
        // An instruction has at least one byte, so a block cannot have more instructions than
        // bytes. Further instructions were skipped by the program, unless accesses show that they
        // ran.
        let needed = block.accesses.last().map_or(1, |access| access.index + 1);
        let count = block.begun.clamp(needed, bytes.max(needed));
        let next = match next {
            Some(_) if is_interrupted => Next::Same,
            Some(next) if next == pc.wrapping_add(bytes) => Next::Below,
            Some(_) => Next::Elsewhere,
            None => Next::Same,
        };
        let spread =
            |index: u64| (u128::from(bytes) * u128::from(index) / u128::from(count)) as u64;
        let mut rest = block.accesses.as_slice();
        for index in 0..count {
            let of_it = rest.iter().take_while(|access| access.index == index).count();
            let (accesses, others) = rest.split_at(of_it);
            rest = others;
            let offset = spread(index);
            let ip = pc.wrapping_add(offset);
            let paddr = match ip >> PAGE_SHIFT == pc >> PAGE_SHIFT {
                true if block.paddr == 0 => 0,
                true => block.paddr + offset,
                false if block.beyond == 0 => 0,
                false => block.beyond + (ip & ((1 << PAGE_SHIFT) - 1)),
            };
            let next = if index + 1 == count { next } else { Next::Same };
            let is_again = index > 0 && spread(index - 1) == offset;
            let bytes = if is_again { 0 } else { (spread(index + 1) - offset).max(1) };
            self.records.instruction(&Instruction { ip, bytes, paddr, accesses, next })?;
        }
        block.accesses.clear();
        Ok(())
    }
}
