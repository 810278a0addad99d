//! Executions that are given as a recorder's words.
//!
//! ```text
//!   block 17 | load a | store b | ...
//!      17 --> its own: local shape, slots, counts      good for one chunk and one context
//!               a and b where their slots expect them:  the codes are 0 already
//!               otherwise:                              codes and residual
//! ```
//!
//! A branch tests whether all addresses of a block are as expected, which is true for 54 % of the
//! executed blocks of recorded gzip and 80 % of those of sqlite3. Processors predict this branch
//! well: in 88 % and 98 % of the cases, the result equals that of the block's last execution.

use super::{Encoder, Local, Totals};
use crate::format::codes::Slot;
use crate::shape::Rows;
use crate::words::{Take, address};
use crate::{Error, ShapeId};

/// The data of a local shape that is needed for each execution of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Own {
    totals: Totals,
    /// The index of the first slot of its operations.
    slot: u32,
    number: u16,
    /// The instructions after the last row: at most [`Rows::PLAIN_INSTRUCTIONS_MAX`].
    trailing: u16,
}

/// Pointers to the places at which the next executions of a chunk are written. The pointers stay in
/// registers. At the start there is room for one number, one code and eight bytes of residual per
/// word that is processed.
struct Streams<'a> {
    slots: &'a mut [Slot],
    sequence: *mut [u8; 2],
    codes: *mut u8,
    residual: *mut [u8; 8],
    totals: i64,
}

impl Take<Own> for Streams<'_> {
    #[inline(always)]
    fn take<const SHIFT: u32>(&mut self, own: &Own, words: &[u64]) {
        self.totals += own.totals.0;
        // SAFETY: each block has at least as many words as numbers, and as many as codes.
        let codes = unsafe {
            self.sequence.write(own.number.to_le_bytes());
            self.sequence = self.sequence.add(1);
            let codes = std::slice::from_raw_parts_mut(self.codes, words.len());
            self.codes = self.codes.add(words.len());
            codes
        };
        let slots = &mut self.slots[own.slot as usize..][..words.len()];
        for ((slot, code), &word) in slots.iter_mut().zip(&mut *codes).zip(words) {
            let addr = address::<SHIFT>(word);
            if addr.wrapping_sub(slot.last) == slot.distance {
                slot.last = addr;
            } else {
                // SAFETY: each operation before this one has written at most eight bytes.
                unsafe {
                    let bytes = slot.encode(addr, code, &mut *self.residual);
                    self.residual = self.residual.byte_add(bytes as usize);
                }
            }
        }
    }
}

impl Encoder {
    /// Declares that the block `number` of a recorder's words usually executes as `shape`.
    pub(crate) fn usual(&mut self, number: usize, shape: ShapeId, tags: &[u16]) {
        let rows = self.shapes.get(shape.0 as usize).map_or(0, |rows| rows.metas.len());
        self.usual.set(number, shape, tags, rows);
        self.contexts.iter_mut().for_each(|context| context.ready.forget(number));
        self.present.ready.forget(number);
    }

    /// Encodes the blocks at the beginning of `words`, up to the first block that was not executed
    /// with its usual shape or whose data are not ready in this chunk. Returns the number of words
    /// processed.
    pub(crate) fn execute_words(&mut self, words: &[u64]) -> usize {
        let carry_max = u64::from(Rows::PLAIN_INSTRUCTIONS_MAX);
        if self.physical.is_some() || self.carry.now > carry_max || self.segment.is_none() {
            return 0;
        }
        let words_max = self.usual.words_of(self.room.max(0) as usize);
        let words = &words[..words.len().min(words_max)];
        let sequence = &mut self.sequence[self.head.executions as usize..][..words.len()];
        let codes = &mut self.codes[self.head.ops as usize..][..words.len()];
        let residual = &mut self.residual[self.residual_bytes as usize..][..8 * words.len()];
        let mut streams = Streams {
            slots: &mut self.slots,
            sequence: sequence.as_mut_ptr(),
            codes: codes.as_mut_ptr(),
            residual: residual.as_mut_ptr().cast(),
            totals: Totals::new(self.room, self.carry.now).0,
        };
        let followed = self.usual.follow(words, &self.present.ready, &mut streams);
        let taken = followed.words;
        let Some((last, addr)) = self.present.ready.last(words, followed) else { return 0 };
        let carry = u64::from(last.trailing);
        self.addr = addr.unwrap_or(self.addr);
        let executions = (streams.sequence.addr() - sequence.as_ptr().addr()) / size_of::<u16>();
        let residual_bytes = streams.residual.addr() - residual.as_ptr().addr();
        let totals = Totals(streams.totals);
        self.residual_bytes += residual_bytes as u32;
        self.head.executions += executions as u32;
        self.head.ops += (taken - executions) as u32;
        self.head.accesses += (self.room - totals.rows_left()) as u32;
        self.head.instructions += totals.instructions() - carry;
        (self.carry.now, self.room) = (carry, totals.rows_left());
        taken
    }

    /// Encodes the block at the beginning of `words` if it was executed with its usual shape, and
    /// makes its data ready. Returns the number of its words.
    #[cold]
    pub(crate) fn execute_first(&mut self, words: &[u64]) -> Result<usize, Error> {
        let Some((known, addrs)) = self.usual.first(words) else { return Ok(0) };
        self.execute(known.shape, &addrs)?;
        let Local { totals, slot, number, trailing, .. } =
            self.present.known[known.shape.0 as usize];
        if self.shapes[known.shape.0 as usize].is_plain() {
            let own = Own { totals, slot, number, trailing: trailing as u16 };
            self.present.ready.set(words[0], &self.usual, known, own);
        }
        Ok(1 + addrs.len())
    }
}
