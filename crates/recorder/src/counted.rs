//! The code of a block whose accesses are counted where they surely hit: see [`crate::sure`].
//!
//! ```text
//!   again:  if [pending] is not 0, or clock = [clock] not below [limit]: to told
//!           cursor = [home]; [pending] = 1; [cursor] = block
//!   load    [cursor + 8] = its address
//!           word = [its page's]; [old] = word; held &= word
//!           [its page's] = word's count + 1 + clock + accesses so far
//!   ...
//!   last    [pending] = 0 if all are held and no page was crossed
//!           [clock] = clock; [instructions] += the block's
//!
//!   told:   on_told(); go to again
//! ```
//!
//! All that a block loads here was stored by the block before, so that each of these ways adds up: what they
//! have to wait for is the clock alone.
//!
//! There is no branch between the first access and the last: QEMU forgets at labels what the block itself
//! has in temporaries.

use core::mem::offset_of;

use ring::{Derived, HitsOf, Next, Record, Tag};

use crate::inline::Start;
use crate::sure::{self, UNIT};
use crate::tcg::{Tcg, Writer};
use crate::vcpu::{self, RECORD_BYTES};
use crate::words::{LOW, OFFSET_MASK, OFFSET_SHIFT, PAGE_SHIFT};

const HOME: usize = offset_of!(Next, home);
const PENDING: usize = offset_of!(Next, pending);
const CLOCK: usize = offset_of!(Next, clock);
const INSTRUCTIONS: usize = offset_of!(Next, instructions);
const LIMIT: usize = offset_of!(Next, limit);

/// Such a block, as far as its code is written.
pub(crate) struct Counted<'a> {
    tcg: &'a Tcg,
    pc: u64,
    bytes: u32,
    is_counted: bool,
    /// The address of [`Next`].
    next: usize,
    cursor: usize,
    clock: usize,
    /// Has its lowest bit as long as all pages are held.
    held: usize,
    /// Has bits above an offset's once an access has crossed into another page.
    crossed: usize,
    /// Whether that has a value.
    may_cross: bool,
    /// Of the access that is being written.
    place: usize,
    word: usize,
    /// Which address `place` was computed of last, and of how many bytes.
    found: Option<(Derived, u32)>,
    /// Bytes from `cursor` to the next address.
    offset: usize,
    /// Where the words are kept as they were, and how many are.
    old: usize,
    kept: usize,
}

impl<'a> Counted<'a> {
    /// The block begins, of so many bytes at `pc`; `record` is its own. It is counted, or told each time.
    ///
    /// # Safety
    ///
    /// As for [`crate::inline::Plan::write`], as for all of these.
    pub(crate) unsafe fn begin(
        tcg: &'a Tcg,
        start: &Start,
        record: Record,
        (pc, bytes): (u64, u32),
        is_counted: bool,
    ) -> Counted<'a> {
        // SAFETY: as the caller promises.
        unsafe {
            let next = tcg.constant(vcpu::next(0) as u64);
            let [cursor, clock, held, crossed] = [(); 4].map(|()| tcg.fresh_extended_temp());
            let [place, word] = [(); 2].map(|()| tcg.fresh_temp());
            let (again, told) = (tcg.new_label(), tcg.new_label());
            let write = tcg.before(start.begin);
            write.label(again);
            write.load_at(word, next, PENDING);
            write.branch_unless_equal(word, tcg.constant(0), told);
            write.load_at(clock, next, CLOCK);
            write.load_at(word, next, LIMIT);
            write.branch_unless_below(clock, word, told);
            write.load_at(cursor, next, HOME);
            write.store(tcg.constant(1), next, PENDING);
            write.store(tcg.constant(record.0), cursor, 0);
            let (offset, count) = (RECORD_BYTES, record.fixed_parts().1);
            if !is_counted {
                // The addresses of blocks that left no trace may be there.
                let none = tcg.constant(Record::NONE);
                (0..count).for_each(|at| write.store(none, cursor, offset + at * RECORD_BYTES));
                // Where it is found if it faults.
                write.add(word, cursor, (offset + count * RECORD_BYTES) as u64);
                write.store(word, next, 0);
            }
            tcg.append(|write| {
                write.label(told);
                start.call(tcg, write, sure::on_told as *const (), 0);
                write.branch(again);
            });
            let (may_cross, old, kept) = (false, tcg.constant(sure::old()), 0);
            Counted {
                tcg,
                pc,
                bytes,
                is_counted,
                next,
                cursor,
                clock,
                held,
                crossed,
                may_cross,
                place,
                word,
                found: None,
                offset,
                old,
                kept,
            }
        }
    }

    /// The fetch of the block.
    pub(crate) unsafe fn fetch(&mut self, write: &Writer) {
        if !self.is_counted {
            return;
        }
        // SAFETY: as for `begin`.
        unsafe {
            let place = self.words_of(self.pc);
            write.load_at(self.word, place, at(HitsOf::Fetch));
            self.is_held(write);
            self.count(write, place, HitsOf::Fetch);
        }
    }

    /// Takes up again what was left behind where ways meet.
    pub(crate) unsafe fn resume(&mut self, write: &Writer) {
        // SAFETY: as for `begin`.
        unsafe {
            write.load_at(self.cursor, self.next, HOME);
            write.load_at(self.clock, self.next, CLOCK);
            write.load_at(self.word, self.words_of(self.pc), at(HitsOf::Fetch));
            self.is_held(write);
        }
    }

    /// Whether the pages of the fetch are held, whose word was loaded: not if there are two.
    unsafe fn is_held(&self, write: &Writer) {
        let last = self.pc + u64::from(self.bytes).saturating_sub(1);
        let is_one = self.pc >> PAGE_SHIFT == last >> PAGE_SHIFT;
        // SAFETY: as for `begin`.
        unsafe { write.copy(self.held, if is_one { self.word } else { self.tcg.constant(0) }) };
    }

    /// Where the words of the page at that address are.
    unsafe fn words_of(&self, address: u64) -> usize {
        let place = sure::words() + (address >> OFFSET_SHIFT & OFFSET_MASK);
        // SAFETY: as for `begin`.
        unsafe { self.tcg.constant(place) }
    }

    /// An access with that `tag` to what `address` holds, which is recorded or else follows from others.
    pub(crate) unsafe fn access(
        &mut self,
        write: &Writer,
        address: usize,
        tag: Tag,
        derived: Option<Derived>,
    ) {
        let of = if tag.stores() { HitsOf::Store } else { HitsOf::Load };
        // SAFETY: as for `begin`.
        unsafe {
            if derived.is_none() {
                write.store(address, self.cursor, self.offset);
                self.offset += RECORD_BYTES;
            }
            if !self.is_counted {
                return;
            }
            let recorded = (self.offset / RECORD_BYTES - 2) as u16;
            let derived = derived.unwrap_or(Derived::new(recorded, 0));
            let place = match derived {
                Derived { from: 0, distance } => {
                    let first = self.pc.wrapping_add(distance);
                    let last = first.wrapping_add(u64::from(tag.size()) - 1);
                    if first >> PAGE_SHIFT != last >> PAGE_SHIFT {
                        write.copy(self.held, self.tcg.constant(0));
                    }
                    self.words_of(first)
                }
                _ => {
                    // An addition to memory has both accesses at one address.
                    if self.found != Some((derived, tag.size())) {
                        self.find(write, address, tag.size());
                    }
                    self.found = Some((derived, tag.size()));
                    self.place
                }
            };
            write.load_at(self.word, place, at(of));
            write.both(self.held, self.held, self.word);
            self.count(write, place, of);
        }
    }

    /// Computes where the words of the page are, and whether so many bytes there cross into another.
    unsafe fn find(&mut self, write: &Writer, address: usize, bytes: u32) {
        let (place, word) = (self.place, self.word);
        // SAFETY: as for `begin`.
        unsafe {
            write.shift_right(place, address, OFFSET_SHIFT.into());
            write.and(place, place, OFFSET_MASK);
            write.sum(place, place, self.tcg.constant(sure::words()));
            if bytes == 1 {
                return;
            }
            write.add(word, address, u64::from(bytes) - 1);
            if self.may_cross {
                write.differing(word, word, address);
                write.either(self.crossed, self.crossed, word);
            } else {
                write.differing(self.crossed, word, address);
                self.may_cross = true;
            }
        }
    }

    /// Counts an access in the word that was loaded from `place`.
    unsafe fn count(&mut self, write: &Writer, place: usize, of: HitsOf) {
        // SAFETY: as for `begin`. No block has more accesses than there is room for.
        unsafe {
            write.store(self.word, self.old, self.kept * size_of::<u64>());
            write.and(self.word, self.word, LOW);
            write.sum(self.word, self.word, self.clock);
            if self.kept > 0 {
                write.add(self.word, self.word, self.kept as u64 * UNIT);
            }
            write.store(self.word, place, at(of));
            self.kept += 1;
        }
    }

    /// All accesses were made.
    pub(crate) unsafe fn end(self, write: &Writer, instructions: u32) {
        if !self.is_counted {
            return;
        }
        let Counted { next, clock, held, crossed, place, word, kept, .. } = self;
        // SAFETY: as for `begin`.
        unsafe {
            write.and(word, held, 1);
            write.differing(word, word, self.tcg.constant(1));
            if self.may_cross {
                write.shift_right(place, crossed, PAGE_SHIFT.into());
                write.either(word, word, place);
            }
            write.store(word, next, PENDING);
            write.add(place, clock, kept as u64 * UNIT);
            write.store(place, next, CLOCK);
            write.load_at(word, next, INSTRUCTIONS);
            write.add(word, word, instructions.into());
            write.store(word, next, INSTRUCTIONS);
        }
    }
}

/// The offset of the word for such accesses among those of a page.
fn at(of: HitsOf) -> usize {
    of as usize * size_of::<u64>()
}
