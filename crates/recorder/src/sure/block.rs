//! Which accesses of a block are recorded.
//!
//! ```text
//!   its accesses    fetch | load a | store b | load c         the page of b was not held
//!   recorded        fetch |        | store b |                the loads stay counted
//! ```
//!
//! When accesses of a block must be recorded, the block has already run. Its code has changed the
//! words of pages, and has kept their earlier values ([`Trail`]). These values are restored, and
//! the block's accesses are processed again, one by one. Nearly always exactly one access is not a
//! guaranteed hit. It is then recorded together with the block's fetch, as a separate block that
//! consists only of these two ([`translate::part`]). The host attributes it to the same instruction
//! as in the whole block. Otherwise the whole block is recorded.

use ring::{Control, Derived, HitsOf, Record, SPAN_ROOM, Tag};

use super::room::Room;
use super::{PAGE_BYTES, State, is_attached, put_control, put_words};
use crate::derived::{self, Block};
use crate::trail::{Trail, trail};
use crate::translate;
use crate::words::{self, PAGE_SHIFT, Stamp};

/// A block that has run, completely or in part.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) block: &'a Block,
    /// The addresses that the block has recorded.
    pub(super) addresses: &'a [u64],
    /// The number of accesses that the block has made, not counting its fetch.
    pub(super) made: usize,
    /// The time when the block began.
    begun: Stamp,
    /// Whether the block has run to its end, and its code has counted its accesses and
    /// instructions.
    is_whole: bool,
}

impl<'a> Run<'a> {
    /// The accesses of the block whose addresses are recorded or can be derived from recorded
    /// addresses, in order.
    pub(super) fn accesses(self) -> impl Iterator<Item = (u64, Tag)> + use<'a> {
        let Run { block, addresses, .. } = self;
        let mut said = addresses.iter();
        block.accesses.iter().map_while(move |&(tag, derived)| {
            let address = match derived {
                None => said.next().copied()?,
                Some(Derived { from: 0, distance }) => block.pc.wrapping_add(distance),
                Some(Derived { from, distance }) => {
                    addresses.get(usize::from(from) - 1)?.wrapping_add(distance)
                }
            };
            Some((address, Tag(tag)))
        })
    }
}

/// A set with all accesses of a block. Bit 0 is the fetch, and the next bits are the accesses in
/// order.
const ALL: u128 = u128::MAX;
const _: () = assert!(SPAN_ROOM <= u128::BITS as usize);

impl State {
    /// Records those accesses of the last block that must be recorded. The block's pages are held
    /// from now on.
    pub(super) fn tell_block(&mut self, vcpu: u32) {
        // SAFETY: the trail is this thread's.
        let trail = unsafe { &mut *trail() };
        if trail.state & Trail::TOLD != 0 || !is_attached(vcpu) {
            return;
        }
        trail.state = Trail::TOLD;
        let made = core::mem::take(&mut trail.made).checked_sub(1);
        let Some(block) = derived::block(trail.block as u32) else { return };
        let addresses = &trail.addresses[..block.recorded.into()];
        let now = Stamp::of(trail.clock);
        let begun = match block.is_counted {
            true => self.words.stamp(block.pc, HitsOf::Fetch),
            false => now,
        };
        let mut run = Run { block, addresses, made: 0, begun, is_whole: begun != now };
        run.made = match (block.is_counted, made) {
            (true, _) => self.take_back(run, &trail.old),
            (false, Some(made)) => made as usize,
            (false, None) => block.made(addresses),
        };
        let room = self.room(run);
        if matches!(room, Room::Anew | Room::Never) {
            self.tell_all(vcpu);
        }
        let extra = self.extra;
        let told = match room {
            Room::Never | Room::Unknown => ALL,
            Room::Left | Room::Anew => self.go_through(vcpu, run),
        };
        self.put_block(vcpu, run, told, words::steps(run.begun.clock()) - extra);
        let steps = self.extra - extra;
        trail.clock = match run.is_whole {
            true => Stamp::of(trail.clock).after(steps).clock(),
            false => run.begun.after(1 + run.made as u64 + steps).clock(),
        };
    }

    /// Appends those accesses of a block that are in the set `told`. The block began after `before`
    /// accesses of this interval.
    fn put_block(&mut self, vcpu: u32, run: Run, told: u128, before: u64) {
        let Run { block, addresses, made, is_whole, .. } = run;
        if told == 0 {
            return;
        }
        self.blocks += 1;
        if is_whole {
            self.instructions += u64::from(block.instructions);
        }
        let index = told.trailing_zeros() as usize;
        let part = match is_whole && told.count_ones() == 1 {
            true => translate::part(block, index),
            false => None,
        };
        let Some(part) = part else {
            if is_whole {
                self.count_none(run, told);
            }
            put_control(vcpu, Control::Passed, before - self.accesses);
            let record = Record::fixed(block.number, block.recorded);
            let is_left = made < block.accesses.len();
            put_words(vcpu, &[if is_left { record.left_after(made as u8) } else { record }.0]);
            put_words(vcpu, addresses);
            self.accesses = before + 1 + made as u64;
            return;
        };
        // The fetch is reported with the access; the accesses in between are reported as passed.
        let access = index.checked_sub(1);
        if access.is_some() {
            self.words.count_less(block.pc, HitsOf::Fetch);
        }
        let between = access.unwrap_or(0) as u64;
        let address = access.and_then(|access| run.accesses().nth(access)).map(|(at, _)| at);
        put_control(vcpu, Control::Passed, before + between - self.accesses);
        put_words(vcpu, &[Record::fixed(part, access.iter().len() as u8).0]);
        put_words(vcpu, address.as_slice());
        self.accesses = before + 1 + index as u64;
    }

    /// Called if all accesses of a block are recorded. The accesses that are not in the set `told`
    /// were counted too; this function subtracts them from the counts.
    fn count_none(&mut self, run: Run, told: u128) {
        if told & 1 == 0 {
            self.words.count_less(run.block.pc, HitsOf::Fetch);
        }
        for (index, (address, tag)) in run.accesses().enumerate() {
            if told >> (1 + index) & 1 == 0 {
                self.words.count_less(address, of(tag));
            }
        }
    }

    /// Restores the words to their values before the block, which are in `old`. Returns the number
    /// of accesses that the block has made. If the block did not run to its end, these are the
    /// first accesses whose words were written since the block began.
    fn take_back(&self, run: Run, old: &[u64]) -> usize {
        let is_made = |&(index, (address, tag)): &(usize, (u64, Tag))| {
            self.words.stamp(address, of(tag)) >= run.begun.after(1 + index as u64)
        };
        let all = run.accesses();
        let made = match run.is_whole {
            true => run.block.accesses.len(),
            false => all.enumerate().take_while(is_made).count(),
        };
        let fetch = (run.block.pc, HitsOf::Fetch);
        let data = run.accesses().take(made);
        let written = core::iter::once(fetch).chain(data.map(|(address, tag)| (address, of(tag))));
        for ((address, of), &old) in written.zip(old) {
            // If a block accesses a word several times, the value that was kept at the first access
            // is the word's value before the block. Later values for this word are skipped here.
            if self.words.stamp(address, of) >= run.begun {
                self.words.set(address, of, old);
            }
        }
        made
    }

    /// Processes the accesses that a block has made. Their pages are held from now on. Returns the
    /// set of accesses that must be recorded. If the block has run to its end, the other accesses
    /// are counted.
    fn go_through(&mut self, vcpu: u32, run: Run) -> u128 {
        let mut told = 0;
        let before = self.extra;
        let mut access = |first: u64, last: u64, of: HitsOf, index: usize| {
            let now = run.begun.after(index as u64 + self.extra - before);
            let is_one = first >> PAGE_SHIFT == last >> PAGE_SHIFT;
            if run.is_whole && is_one && self.words.holds(first, of) {
                self.words.hold(first, of, now, 1);
                return;
            }
            told |= 1 << index;
            self.touch(vcpu, run, &mut told, first, of, now);
            if !is_one {
                self.extra += 1;
                self.touch(vcpu, run, &mut told, last, of, now.after(1));
            }
        };
        access(run.block.pc, run.block.last(), HitsOf::Fetch, 0);
        for (index, (address, tag)) in run.accesses().take(run.made).enumerate() {
            let last = last_byte(address, tag);
            if tag.loads() {
                access(address, last, HitsOf::Load, 1 + index);
            }
            if tag.stores() {
                access(address, last, HitsOf::Store, 1 + index);
            }
        }
        told
    }

    /// Processes one use of the page at `address`, at the time `now`, by a block that has run. The
    /// page is held from now on.
    fn touch(
        &mut self,
        vcpu: u32,
        run: Run,
        told: &mut u128,
        address: u64,
        of: HitsOf,
        now: Stamp,
    ) {
        let (page, index) = (address & !(PAGE_BYTES - 1), self.index(of));
        if !self.words.holds(address, of)
            && !self.has(page, index)
            && let Some(gone) = self.admit(page, index)
        {
            if self.known.is_some() && self.words.last_use(gone, self.kinds(index)) >= run.begun {
                self.tell_uses(run, told, gone, index);
            }
            self.tell_gone(vcpu, gone, index);
        }
        self.words.hold(address, of, now, 0);
    }

    /// Called if the evicted page `gone` was used earlier in the same block. The block's accesses
    /// to this page are recorded instead of counted. With LRU no page of the block itself is
    /// evicted: see [`Room`].
    fn tell_uses(&self, run: Run, told: &mut u128, gone: u64, index: usize) {
        let fetch = core::iter::once((run.block.pc, HitsOf::Fetch));
        let data = run.accesses().take(run.made).map(|(address, tag)| (address, of(tag)));
        // The last recorded access is the one for which the page was evicted.
        let before = told.ilog2() as usize;
        for (number, (address, of)) in fetch.chain(data).take(before).enumerate() {
            let is_told = *told >> number & 1 != 0;
            if !is_told && address & !(PAGE_BYTES - 1) == gone && self.index(of) == index {
                self.words.count_less(address, of);
                *told |= 1 << number;
            }
        }
    }
}

/// The last byte of an access.
pub(super) fn last_byte(address: u64, tag: Tag) -> u64 {
    address.wrapping_add(u64::from(tag.size()) - 1)
}

/// Whether an access is a load or a store. Here no access is both.
pub(super) fn of(tag: Tag) -> HitsOf {
    if tag.stores() { HitsOf::Store } else { HitsOf::Load }
}
