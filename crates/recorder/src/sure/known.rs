//! Which pages TLBs hold that replace by FIFO or at random.
//!
//! ```text
//!   told   block | block | .. | Ask      waits      | what is not sure            | munmap | block | ..
//!                                  <-- contents --  | hits are counted            |
//!   known  nothing                                  | which pages the TLBs hold   | nothing
//! ```
//!
//! Hits change nothing there. So once it is known what the TLBs hold ([`ring::Contents`]), it stays known: who makes
//! room for a page that comes in follows from the policy ([`crate::held`]). But nobody here knows which entries go when
//! mappings change, or other processes run. So the host is asked, and it is asked again after a system call that may
//! lead to that. In between all is told.
//!
//! To ask means to wait until the machine has run all that was told. So it is done when so many blocks were told that
//! waiting for longer would cost more, and later if what was known last was of no use for long.
//!
//! A block whose accesses are told as ever changes what the TLBs hold too. Before it all that was counted is told, and
//! behind it the records that it has left are looked at.

use core::sync::atomic::{AtomicU64, Ordering};

use ring::{Control, HitsOf, RING_RECORDS, Record, STRAYS_MIN, Tag};

use super::block::last_byte;
use super::{PAGE_BYTES, STATE, State, is_attached, is_on, is_only_process};
use crate::vcpu::cursor;
use crate::words::{ADDRESS_BITS, PAGE_SHIFT};
use crate::{derived, span};

/// Before it is asked what the TLBs hold, up to so many times as many blocks are told as the session says.
const PATIENCE_TIMES: u32 = 1 << 6;
/// What is known pays if so many instructions have run since.
const WORTH: u64 = 100_000;

/// Whether it is known what the TLBs hold, and when to ask.
pub(super) struct Known {
    is_known: bool,
    /// Blocks that were told since it was known last, while no other process ran.
    told: u32,
    /// After how many it is asked, at least, and now.
    patience_min: u32,
    patience: u32,
    /// Instructions that have run since it is known.
    instructions: u64,
}

impl Known {
    pub(super) fn new(patience: u32) -> Known {
        Known { is_known: false, told: 0, patience_min: patience, patience, instructions: 0 }
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }
}

/// One more than the position of the record where a block begins whose accesses are told as ever, if these are still
/// to be looked at.
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// A block comes whose accesses are told as ever. All that was counted has been told.
pub(super) fn watch(vcpu: u32) {
    // SAFETY: as for `settle`.
    let known = unsafe { &(*STATE.0.get()).known };
    if known.as_ref().is_some_and(Known::is_known) && is_attached(vcpu) {
        WATCHED.store(1 + span::position(vcpu), Ordering::Relaxed);
    }
}

/// Whether there was such a block.
pub(super) fn is_watching() -> bool {
    WATCHED.load(Ordering::Relaxed) != 0
}

impl State {
    /// Looks at what such a block has done, if there was one.
    pub(super) fn look(&mut self, vcpu: u32) {
        let Some(from) = WATCHED.load(Ordering::Relaxed).checked_sub(1) else { return };
        WATCHED.store(0, Ordering::Relaxed);
        if !is_attached(vcpu) || self.follow(vcpu, from, span::position(vcpu)).is_none() {
            self.forget();
        }
    }

    /// Asks what the TLBs hold if it is not known and pays to be.
    pub(super) fn ask_if_due(&mut self, vcpu: u32) {
        let Some(known) = self.known.as_mut().filter(|known| !known.is_known) else { return };
        known.told = if is_only_process() { known.told + 1 } else { 0 };
        if known.told < known.patience || !is_on() || !is_attached(vcpu) {
            return;
        }
        known.told = 0;
        known.patience = (2 * known.patience).min(PATIENCE_TIMES * known.patience_min);
        self.settle(vcpu);
        let Some(contents) = span::ask(vcpu) else { return };
        for index in self.in_use() {
            self.lists[index].take_over(contents, index);
            for page in self.lists[index].pages() {
                self.kinds(index).iter().for_each(|&of| self.words.hold_only(page, of));
            }
        }
        if let Some(known) = &mut self.known {
            (known.is_known, known.instructions) = (true, 0);
        }
    }

    /// All that was counted has been told.
    pub(super) fn note_run(&mut self) {
        let instructions = self.instructions_now();
        if let Some(known) = &mut self.known {
            known.instructions += instructions;
        }
    }

    /// From here on it is not known what the TLBs hold.
    pub(super) fn forget(&mut self) {
        let Some(known) = &mut self.known else { return };
        if known.is_known && known.instructions >= WORTH {
            known.patience = known.patience_min;
        }
        (known.is_known, known.told) = (false, 0);
        for index in 0..self.lists.len() {
            for page in self.lists[index].pages() {
                self.kinds(index).iter().for_each(|&of| self.words.set(page, of, 0));
            }
            self.lists[index].clear();
        }
    }

    /// Follows the records from position `from` on, which are those of one block that has told its accesses; `None` if
    /// it is not sure what they are to the machine.
    fn follow(&mut self, vcpu: u32, from: u64, to: u64) -> Option<()> {
        // SAFETY: only this thread uses the cursor.
        let records = unsafe { (*cursor(vcpu)).records };
        let (mut at, mut accesses, mut last, mut instructions) = (from, 0, 0, 0);
        while at < to {
            // SAFETY: the ring has so many records; the host only reads them.
            let record = unsafe { Record(*records.add((at % RING_RECORDS as u64) as usize)) };
            at += 1;
            match record.as_control() {
                Some(Control::Pad) => at += record.value(),
                Some(Control::Block) if instructions == 0 => {
                    let block = derived::block(record.value() as u32)?;
                    instructions = block.instructions;
                    self.pass(block.pc, block.last(), HitsOf::Fetch)?;
                }
                None if !record.is_control() => {
                    let Tag(tag) = record.tag();
                    let instruction = Tag(tag).instruction();
                    accesses += 1;
                    let is_in_place = (last..instructions as u16).contains(&instruction);
                    if !is_in_place || accesses == STRAYS_MIN {
                        return None;
                    }
                    last = instruction;
                    let address = record.value();
                    self.pass(address, last_byte(address, Tag(tag)), HitsOf::Load)?;
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// An access was told: its pages are held.
    fn pass(&mut self, first: u64, last: u64, of: HitsOf) -> Option<()> {
        let index = self.index(of);
        for address in [first, last] {
            let page = address & !(PAGE_BYTES - 1);
            if page >> ADDRESS_BITS != 0 {
                return None;
            }
            if !self.has(page, index)
                && let Some(gone) = self.admit(page, index)
            {
                // Nothing is counted of it.
                self.kinds(index).iter().for_each(|&of| self.words.set(gone, of, 0));
            }
            if first >> PAGE_SHIFT == last >> PAGE_SHIFT {
                break;
            }
        }
        Some(())
    }
}
