//! The code of a block whose accesses are counted where they surely hit: see [`crate::sure`].
//!
//! ```text
//!   again:  if not [state] < 0: to told             < 0 is: has its highest bit
//!           [block] = its number; [state] = 0
//!   load    [addresses] = its address
//!           word = [its page's]; [old] = word; held &= word
//!           [its page's] = word's count + clock + accesses so far
//!   ...
//!   last    clock += accesses and instructions; [clock] = clock
//!           [state] = held & clock, without its highest bit if a page was crossed
//!
//!   told:   on_told(); go to again
//! ```
//!
//! The names in brackets are those of [`Trail`]. All that a block loads here was stored by the block before, so that each
//! of these ways adds up: what they have to wait for is the clock alone.
//!
//! There is no branch between the first access and the last: QEMU forgets at labels what the block itself
//! has in temporaries.

use core::mem::offset_of;

use ring::{Derived, HitsOf, Record, Tag};

use crate::derived::Block;
use crate::inline::Start;
use crate::sure;
use crate::tcg::{Tcg, Writer};
use crate::trail::{Trail, trail};
use crate::vcpu::RECORD_BYTES;
use crate::words::{COUNT, INSTRUCTION, OFFSET_MASK, OFFSET_SHIFT, PAGE_SHIFT, STEP};

const STATE: usize = offset_of!(Trail, state);
const CLOCK: usize = offset_of!(Trail, clock);
const BLOCK: usize = offset_of!(Trail, block);
const FETCHED: usize = offset_of!(Trail, fetched);
const OLD: usize = offset_of!(Trail, old);
const ADDRESSES: usize = offset_of!(Trail, addresses);

/// A block that is counted, or else told each time, as far as its code is written.
pub(crate) struct Counted<'a> {
    tcg: &'a Tcg,
    block: &'static Block,
    /// Whether ways meet before its first access.
    is_behind: bool,
    /// The address of [`Trail`].
    trail: usize,
    clock: usize,
    /// Has its highest bit as long as all pages are held.
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
    /// How many addresses were recorded.
    recorded: usize,
    /// How many words were kept as they were.
    kept: usize,
}

impl<'a> Counted<'a> {
    /// The block begins.
    ///
    /// # Safety
    ///
    /// As for [`crate::inline::Plan::write`], as for all of these.
    pub(crate) unsafe fn begin(
        tcg: &'a Tcg,
        start: &Start,
        block: &'static Block,
        is_behind: bool,
    ) -> Counted<'a> {
        // SAFETY: as the caller promises.
        unsafe {
            let trail = tcg.constant(trail() as u64);
            let [clock, held, crossed] = [(); 3].map(|()| tcg.fresh_extended_temp());
            let [place, word] = [(); 2].map(|()| tcg.fresh_temp());
            let (again, told) = (tcg.new_label(), tcg.new_label());
            let write = tcg.before(start.begin);
            write.label(again);
            write.load_at(word, trail, STATE);
            write.branch_unless_negative(word, told);
            write.store(tcg.constant(block.number.into()), trail, BLOCK);
            write.store(tcg.constant(Trail::UNTOLD), trail, STATE);
            if !block.is_counted {
                // The addresses of blocks before are there.
                let none = tcg.constant(Record::NONE);
                let places =
                    (0..usize::from(block.recorded)).map(|at| ADDRESSES + at * RECORD_BYTES);
                places.for_each(|place| write.store(none, trail, place));
            }
            tcg.append(|write| {
                write.label(told);
                start.call(tcg, write, sure::on_told as *const (), 0);
                write.branch(again);
            });
            Counted {
                tcg,
                block,
                is_behind,
                trail,
                clock,
                held,
                crossed,
                may_cross: false,
                place,
                word,
                found: None,
                recorded: 0,
                kept: 0,
            }
        }
    }

    /// The fetch of the block.
    pub(crate) unsafe fn fetch(&mut self, write: &Writer) {
        if !self.block.is_counted {
            return;
        }
        // SAFETY: as for `begin`.
        unsafe {
            let place = self.words_of(self.block.pc);
            write.load_at(self.clock, self.trail, CLOCK);
            write.load_at(self.word, place, at(HitsOf::Fetch));
            if self.is_behind {
                write.store(self.word, self.trail, FETCHED);
            }
            self.is_held(write);
            self.count(write, place, HitsOf::Fetch);
        }
    }

    /// Takes up again what was left behind where ways meet.
    pub(crate) unsafe fn resume(&mut self, write: &Writer) {
        if !self.block.is_counted {
            return;
        }
        // SAFETY: as for `begin`.
        unsafe {
            write.load_at(self.clock, self.trail, CLOCK);
            write.load_at(self.word, self.trail, FETCHED);
            self.is_held(write);
        }
    }

    /// Whether the pages of the fetch are held, whose word was loaded: not if there are two.
    unsafe fn is_held(&self, write: &Writer) {
        let is_one = self.block.pc >> PAGE_SHIFT == self.block.last() >> PAGE_SHIFT;
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
            let derived = derived.unwrap_or_else(|| {
                write.store(address, self.trail, ADDRESSES + self.recorded * RECORD_BYTES);
                self.recorded += 1;
                Derived::new(self.recorded as u16 - 1, 0)
            });
            if !self.block.is_counted {
                return;
            }
            let place = match derived {
                Derived { from: 0, distance } => {
                    let first = self.block.pc.wrapping_add(distance);
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
            write.store(self.word, self.trail, OLD + self.kept * size_of::<u64>());
            write.and(self.word, self.word, COUNT);
            write.sum(self.word, self.word, self.clock);
            if self.kept > 0 {
                write.add(self.word, self.word, self.kept as u64 * STEP);
            }
            write.store(self.word, place, at(of));
            self.kept += 1;
        }
    }

    /// All accesses were made.
    pub(crate) unsafe fn end(self, write: &Writer) {
        if !self.block.is_counted {
            return;
        }
        let Counted { trail, clock, held, crossed, word, .. } = self;
        let passed = self.kept as u64 * STEP + u64::from(self.block.instructions) * INSTRUCTION;
        // SAFETY: as for `begin`.
        unsafe {
            write.add(clock, clock, passed);
            write.store(clock, trail, CLOCK);
            write.both(held, held, clock);
            if self.may_cross {
                // Negative if it is within a page.
                write.add(word, crossed, (-(1i64 << PAGE_SHIFT)) as u64);
                write.both(held, held, word);
            }
            write.store(held, trail, STATE);
        }
    }
}

/// The offset of the word for such accesses among those of a page.
fn at(of: HitsOf) -> usize {
    of as usize * size_of::<u64>()
}
