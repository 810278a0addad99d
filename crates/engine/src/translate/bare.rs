//! Blocks that record nothing: they only count their accesses and instructions.
//!
//! ```text
//!   prologue   r10 = instructions << 32 | accesses ; r11 += r10
//!              movzx r10d, byte gs:[r11d + POLL]      faults at the end of what may be left out
//!   body       the program's instructions, as they are
//! ```
//!
//! A block has the same instructions as the recorded block at its address. Flags are not changed. The count in r11 is that
//! of [`crate::bare`].

use alloc::vec::Vec;

use ring::Tag;

use super::{Exit, FAR, Lent, Translated, Translator, changed, copy, load_target, rewrite, slot};
use crate::emit::{Code, NONE, Place};
use crate::follows::Follows;
use crate::insn::{Flow, Insn, Rewritten};
use crate::library;
use crate::state::{HELD, RECORD, SCRATCH};
use crate::table::POLL;

/// The position of the instructions in a count.
pub(crate) const INSTRUCTIONS_SHIFT: u32 = 32;

/// The number of accesses that stand for an access with this tag.
pub(crate) fn rows(tag: u16) -> u64 {
    let tag = Tag(tag);
    u64::from(tag.loads()) + u64::from(tag.stores())
}

/// The registers that a block lends.
struct Spare {
    /// The register with the count.
    count: u8,
    /// A scratch register, if the block needs one.
    scratch: Option<u8>,
    /// Whether the block uses r10 itself.
    uses_scratch: bool,
}

impl Spare {
    fn of(lent: &Lent, used: u16, needs_scratch: bool) -> Spare {
        let uses_scratch = used >> SCRATCH & 1 != 0;
        Spare { count: lent.record, scratch: needs_scratch.then_some(lent.scratch), uses_scratch }
    }

    /// The registers that are in their slots while the block's body runs, one bit each.
    fn slotted(&self) -> u16 {
        let scratch = match self.scratch {
            Some(scratch) => 1 << scratch,
            None if self.uses_scratch => 0,
            None => 1 << SCRATCH,
        };
        1 << self.count | scratch
    }

    fn take(&self, hot: &mut Code) {
        let count = self.count;
        if count != RECORD {
            hot.put_slot(count, slot(count));
            hot.copy(count, RECORD);
            hot.get_slot(RECORD, slot(RECORD));
        }
        match self.scratch {
            Some(scratch) if scratch != SCRATCH => {
                hot.put_slot(scratch, slot(scratch));
                hot.get_slot(SCRATCH, slot(SCRATCH));
            }
            None if self.uses_scratch => hot.get_slot(SCRATCH, slot(SCRATCH)),
            _ => {}
        }
    }

    fn give_back(&self, hot: &mut Code) {
        let count = self.count;
        if count != RECORD {
            hot.put_slot(RECORD, slot(RECORD));
            hot.copy(RECORD, count);
            hot.get_slot(count, slot(count));
        }
        match self.scratch {
            Some(scratch) if scratch != SCRATCH => {
                hot.put_slot(SCRATCH, slot(SCRATCH));
                hot.get_slot(scratch, slot(scratch));
            }
            None if self.uses_scratch => hot.put_slot(SCRATCH, slot(SCRATCH)),
            _ => {}
        }
    }
}

impl Translator {
    /// Sets the addresses before whose blocks this code is left.
    pub(crate) fn set_places(&mut self, places: &[u64]) {
        let old = core::mem::replace(&mut self.places, places.to_vec());
        for &place in old.iter().chain(places) {
            if old.contains(&place) != places.contains(&place) {
                self.retire(place, place + 1);
            }
        }
    }

    /// Writes the block of the instructions `insns`, from the first to the second of `(start, pc)`. Returns the address of
    /// the next block, if known.
    pub(super) fn write_bare(
        &mut self,
        region: usize,
        (start, pc): (u64, u64),
        insns: &[Insn],
        used: u16,
        end: Option<Exit>,
    ) -> Result<Option<u64>, &'static str> {
        if self.places.iter().any(|place| (start..pc).contains(place)) {
            let host = self.begin_block(region);
            self.map.insert(start, host);
            self.leave_by(region, Exit::Begins { pc: start });
            return Ok(None);
        }
        let is_silent = library::holds(start);
        let told = if is_silent { Vec::new() } else { Follows::of(start, insns).told };
        let accesses: u64 = told.iter().map(|told| rows(told.tag)).sum();
        let counts = match is_silent {
            true => 0,
            false => {
                (accesses + u64::from(self.fetches)) | (insns.len() as u64) << INSTRUCTIONS_SHIFT
            }
        };
        let last = insns.len() - 1;
        let needs_scratch = |insn: &Insn| {
            matches!(insn.rewritten, Rewritten::Gs | Rewritten::WritesGs(..))
                || matches!(insn.flow, Flow::Indirect { .. })
        };
        self.rotation += 1;
        let lent = Lent::choose(used, self.rotation);
        let spare = Spare::of(&lent, used, insns.iter().any(needs_scratch));
        let host = self.begin_block(region);
        self.map.insert(start, host);
        let is_checked = self.is_changing(start, pc);
        let mut is_near = !is_checked || self.compare(region, start, pc);
        let hash = changed::hash(start, pc.wrapping_sub(start));
        let hot = &mut self.regions[region].hot;
        if counts != 0 {
            hot.constant(SCRATCH, counts);
            hot.lea(RECORD, Place { base: RECORD, index: SCRATCH, scale: 1, disp: 0 });
        }
        hot.peek_byte(SCRATCH, RECORD, POLL);
        spare.take(hot);
        let scratch = spare.scratch.unwrap_or(NONE);
        let (offsets, first_told) = (self.offsets.len() as u32, self.told.len() as u32);
        self.told.extend_from_slice(&told);
        for (at, insn) in insns.iter().enumerate() {
            let pc = insn.instruction.ip();
            self.offsets.push(((hot.at - host) as u16, (pc - start) as u16));
            if at < last || insn.flow == Flow::Next {
                is_near &= rewrite(hot, insn, scratch)?;
            }
        }
        let insn = &insns[last];
        if let (Flow::Indirect { .. }, Some(scratch)) = (insn.flow, spare.scratch) {
            is_near &= load_target(hot, insn, scratch);
            if scratch != SCRATCH {
                hot.put_slot(scratch, HELD);
            }
        }
        let epilogue = hot.at;
        spare.give_back(hot);
        if insn.flow == Flow::Raises {
            is_near &= copy(hot, insn);
        }
        let mut next = self.end(region, pc, insn, &lent);
        let block_end = self.regions[region].hot.at;
        // The code after this block may be another block later.
        let is_whole = end.is_none();
        if let Some(exit) = end {
            self.leave_by(region, exit);
            next = None;
        }
        self.regions[region].blocks.push(Translated {
            host,
            epilogue,
            end: block_end,
            pc: start,
            bytes: if is_whole { pc.wrapping_sub(start) as u32 } else { 0 },
            hash,
            is_checked,
            words: 0,
            slotted: spare.slotted(),
            record: spare.count,
            scratch,
            offsets,
            instructions: insns.len() as u32,
            told: first_told,
            accesses: told.len() as u32,
            counts,
            counted: super::NOT_COUNTED,
        });
        if is_near { Ok(next) } else { Err(FAR) }
    }
}
