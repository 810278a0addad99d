//! Blocks that did what they did last time.
//!
//! ```text
//!   records   block 17 | load a | store b | block 18 | load c | block 17 | ...
//!   control       1        0         0         1         0         1           64 at a time
//!             |------- a run of 17 --------|---- of 18 -----|
//!   known             its tags, two compared at a time          its tags
//! ```
//!
//! Where blocks begin is found by their records' control bits, many at a time: it would take
//! longer to find one after the other by how long each is known to be.

use ring::{Control, Tag};
use trace::{Run, ShapeId};

/// What is known of a block from its last run.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Known {
    shape: ShapeId,
    /// The tags of its first [`LANES`] operations.
    first_tags: u32,
    /// Those bits of them that it has.
    first_mask: u32,
    /// Its operations; [`UNKNOWN`] if it has not run.
    ops: u32,
    /// Index of its first tag among all.
    tags: u32,
}

/// Operations whose tags are compared whether the block has them or not. Nearly all blocks have
/// no more.
const LANES: usize = 2;
/// No block has as many operations.
const UNKNOWN: u32 = u32::MAX;
/// The low half of the record of a block.
const BLOCK: u16 = Tag::CONTROL | Control::Block as u16;
/// The low half of the record that fills a span.
const PAD: u16 = Tag::CONTROL | Control::Pad as u16;
/// Records to fetch ahead: they lie in the cache of the core that wrote them.
const AHEAD: usize = 128;

impl Known {
    /// A block that ran as `shape`, with `tags`, which begin at `index` among all.
    pub(super) fn new(shape: ShapeId, index: u32, tags: &[u16]) -> Known {
        let first = tags.iter().take(LANES).rev();
        let (first_tags, first_mask) = first
            .fold((0, 0), |(tags, mask), &tag| (tags << 16 | u32::from(tag), mask << 16 | 0xffff));
        Known { shape, first_tags, first_mask, ops: tags.len() as u32, tags: index }
    }

    /// A block that has not run. Its shape is never asked for.
    pub(super) fn nothing(shape: ShapeId) -> Known {
        Known { shape, first_tags: 0, first_mask: 0, ops: UNKNOWN, tags: 0 }
    }

    /// Its tags among `all` that are not in `first_tags`.
    fn rest(self, all: &[u16]) -> &[u16] {
        self.tags(all).and_then(|tags| tags.get(LANES..)).unwrap_or_default()
    }

    /// Its tags among `all`, if it has run.
    pub(super) fn tags(self, all: &[u16]) -> Option<&[u16]> {
        (self.ops != UNKNOWN).then(|| &all[self.tags as usize..][..self.ops as usize])
    }
}

/// Lists in `runs` the blocks from the first record on that did what is `known` of them, with
/// tags among `tags`, up to one that may go on behind the last record; says how many records
/// they have.
pub(super) fn usual(records: &[u64], known: &[Known], tags: &[u16], runs: &mut Vec<Run>) -> usize {
    runs.clear();
    // So that the words of `LANES` operations can be read behind the record before each.
    let records = &records[..records.len().saturating_sub(LANES - 1)];
    let mut controls = Controls::new(records);
    if controls.next() != Some(0) {
        return 0;
    }
    runs.reserve(records.len());
    let room = runs.spare_capacity_mut();
    let (mut at, mut last, mut count) = (0, 0, 0);
    for (next, to) in controls.zip(room) {
        let ops = (next - at - 1) as u32;
        // SAFETY: `at` and `next` are indices of records, `at` the lower, and behind `next`
        // there are `LANES - 1` more.
        let [record, first, second] = unsafe { records.as_ptr().add(at).cast::<[u64; 3]>().read() };
        let Some(known) = known.get((record >> 16) as usize) else { break };
        let first_tags = u32::from(first as u16) | (second as u32) << 16;
        let mut different = (first_tags ^ known.first_tags) & known.first_mask;
        different |= u32::from(record as u16 ^ BLOCK) | known.ops ^ ops;
        if ops > LANES as u32 {
            let rest = known.rest(tags);
            let words = &records[at + 1 + LANES..next];
            if rest.len() != words.len() {
                break;
            }
            for (word, tag) in words.iter().zip(rest) {
                different |= u32::from(*word as u16 ^ tag);
            }
        }
        if different != 0 {
            break;
        }
        to.write(Run { shape: known.shape, ops });
        count += 1;
        (last, at) = (at, next);
    }
    // What follows a span's end may be the block's too.
    if count > 0 && records[at] as u16 == PAD {
        (at, count) = (last, count - 1);
    }
    // SAFETY: so many have been written.
    unsafe { runs.set_len(count) };
    at
}

/// The indices of control records, in order.
struct Controls<'a> {
    records: &'a [u64],
    /// Index of the first record that `bits` stands for, and the control records among 64 that
    /// are still to come.
    base: usize,
    bits: u64,
}

impl<'a> Controls<'a> {
    fn new(records: &'a [u64]) -> Controls<'a> {
        Controls { records, base: 0, bits: control_bits(records) }
    }
}

impl Iterator for Controls<'_> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        while self.bits == 0 {
            self.base += 64;
            let later = self.records.get(self.base..)?;
            prefetch(later);
            self.bits = control_bits(later);
        }
        let index = self.base + self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some(index)
    }
}

/// The control records among the first 64: bit 0 is the first.
#[inline]
fn control_bits(records: &[u64]) -> u64 {
    let is_control = |record: u64| record >> 15 & 1;
    let mut bits = 0;
    if let Some(records) = records.first_chunk::<64>() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 has SSE2; both loads of a turn are inside the 64 records.
        unsafe {
            use std::arch::x86_64::*;
            for group in 0..16 {
                let at = records.as_ptr().add(4 * group).cast::<f32>();
                // The low halves of four records, their bit 15 made the sign.
                let low = _mm_loadu_ps(at);
                let high = _mm_loadu_ps(at.add(4));
                let halves = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(low, high));
                let signs = _mm_castsi128_ps(_mm_slli_epi32::<16>(halves));
                bits |= (_mm_movemask_ps(signs) as u64) << (4 * group);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        for (index, &record) in records.iter().enumerate() {
            bits |= is_control(record) << index;
        }
    } else {
        for (index, &record) in records.iter().enumerate() {
            bits |= is_control(record) << index;
        }
    }
    bits
}

/// Begins to fetch the records [`AHEAD`], which another core has written.
#[inline(always)]
fn prefetch(records: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..8 {
        // SAFETY: a hint; nothing is read, and no address is wrong.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(records.as_ptr().wrapping_add(AHEAD + 8 * line).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = records;
}
