//! The contents of TLBs that replace by FIFO or at random.
//!
//! ```text
//!   recorded  block | block | .. | Ask    waits     | accesses that may miss   | munmap | block ..
//!                                    <-- contents --| (hits are counted)       |
//!   known     nothing                               | the contents of the TLBs | nothing
//! ```
//!
//! With these policies hits do not change a TLB. So once its contents are known
//! ([`ring::Contents`]), they stay known: the policy determines which page a new page replaces
//! ([`held`]). But the recorder does not know which entries are flushed when mappings change, or
//! when other processes run. So it asks the host for the contents, and asks again after a system
//! call that may cause a flush. Until it has an answer, everything is recorded.
//!
//! Asking means waiting until the machine has simulated everything recorded so far. So the recorder
//! first records a number of blocks, and asks only when recording more blocks would cost more than
//! the wait. It asks later if the last answer was not useful for long.
//!
//! A block that is recorded in full also changes the contents of the TLBs. Before it, all counted accesses
//! are reported; after it, its records are examined.

use core::sync::atomic::{AtomicU64, Ordering};

use held::ADDRESS_BITS;
use ring::{Control, HitsOf, RING_RECORDS, Record, STRAYS_MIN, Tag};

use super::block::last_byte;
use super::{PAGE_BYTES, STATE, State, is_attached, is_on, is_only_process};
use crate::vcpu::cursor;
use crate::words::PAGE_SHIFT;
use crate::{derived, span};

/// The number of blocks that are recorded before the recorder asks is at most the session's number
/// ([`ring::Session::sure_patience`]) times this factor.
const PATIENCE_TIMES: u32 = 1 << 6;
/// An answer was useful if it was valid for at least this number of instructions.
const WORTH: u64 = 100_000;

/// Whether the contents of the TLBs are known, and when to ask for them.
pub(super) struct Known {
    is_known: bool,
    /// The number of blocks recorded since the contents were last known. It is set to 0 while other
    /// processes run.
    told: u32,
    /// The number of recorded blocks after which the recorder asks: its minimum, and its current
    /// value.
    patience_min: u32,
    patience: u32,
    /// The number of instructions executed since the contents have been known.
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

/// If a block that is recorded in full has not been examined yet: one more than the position of its
/// first record. Otherwise 0.
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// Called before a block that is recorded in full, after all counted accesses have been reported.
pub(super) fn watch(vcpu: u32) {
    // SAFETY: as for `settle`.
    let known = unsafe { &(*STATE.0.get()).known };
    if known.as_ref().is_some_and(Known::is_known) && is_attached(vcpu) {
        WATCHED.store(1 + span::position(vcpu), Ordering::Relaxed);
    }
}

/// Whether a block that is recorded in full has begun and has not been examined yet.
pub(super) fn is_watching() -> bool {
    WATCHED.load(Ordering::Relaxed) != 0
}

impl State {
    /// Examines the records of the last block that was recorded in full, if it has not been examined yet.
    pub(super) fn look(&mut self, vcpu: u32) {
        let Some(from) = WATCHED.load(Ordering::Relaxed).checked_sub(1) else { return };
        WATCHED.store(0, Ordering::Relaxed);
        if !is_attached(vcpu) || self.follow(vcpu, from, span::position(vcpu)).is_none() {
            self.forget();
        }
    }

    /// Asks for the contents of the TLBs if they are unknown and asking is worth the wait.
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

    /// Called when all counted accesses have been reported. Adds the instructions of this interval
    /// to those for which the last answer was valid.
    pub(super) fn note_run(&mut self) {
        let instructions = self.instructions_now();
        if let Some(known) = &mut self.known {
            known.instructions += instructions;
        }
    }

    /// From now on the contents of the TLBs are unknown.
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

    /// Updates the known contents by the records from position `from` up to `to`. These are the
    /// records of one block that is recorded in full. `None` if their effect on the machine's TLBs
    /// is uncertain.
    fn follow(&mut self, vcpu: u32, from: u64, to: u64) -> Option<()> {
        // SAFETY: only this thread uses the cursor.
        let records = unsafe { (*cursor(vcpu)).records };
        let (mut at, mut accesses, mut last, mut instructions) = (from, 0, 0, 0);
        while at < to {
            // SAFETY: the index is less than the number of records in the ring. The host only reads
            // records.
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

    /// Updates the known contents by a recorded access. Its pages are held from now on.
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
                // No accesses to this page are counted that would have to be reported.
                self.kinds(index).iter().for_each(|&of| self.words.set(gone, of, 0));
            }
            if first >> PAGE_SHIFT == last >> PAGE_SHIFT {
                break;
            }
        }
        Some(())
    }
}
