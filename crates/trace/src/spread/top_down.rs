//! Chooses addresses as Linux does on x86-64 (`mm/mmap.c`, `mm/huge_memory.c`,
//! `arch/x86/mm/mmap.c`, `fs/binfmt_elf.c` of Linux 6.18).
//!
//! ```text
//!   0x555555554000  the program, if it can lie anywhere
//!                   heap, upwards
//!   ...
//!                   the last mapping          new ones: the highest hole that is long enough
//!                   the first mapping
//!   mmap base       128M and more below the stack's end: its limit, a guard, and what is random
//!                   stack
//!   0x7ffffffff000
//! ```
//!
//! Memory whose length is a multiple of 2M, and files that contain an aligned range of 2M, are
//! aligned for pages of 2M; the hole must be longer by 2M (`__thp_get_unmapped_area`). Before Linux
//! 6.7 only files were placed in this way; from 6.7 until 6.12, all memory of 2M and more was.

use std::collections::BTreeMap;

use super::room::{Kind, LOWEST, Span, Want};

const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;
/// The end of a program's addresses (`TASK_SIZE_MAX`), which is where the stack ends.
const STACK_TOP: u64 = (1 << 47) - PAGE;
/// The usual limit of the stack (`RLIMIT_STACK`). The next constant is the guard below the stack
/// (`stack_guard_gap`).
pub(super) const STACK_BYTES: u64 = 8 << 20;
const STACK_GUARD: u64 = 256 * PAGE;
/// The least distance of the first mapping from the stack's end (`SIZE_128M`).
const GAP_MIN: u64 = 128 << 20;
/// The address of a program that can be loaded at any address (`ELF_ET_DYN_BASE`).
const PROGRAM: u64 = STACK_TOP / 3 * 2 / PAGE * PAGE;
/// The largest random offsets: of the mmap base and of the program, in pages (`mmap_rnd_bits`, 28);
/// of the stack, in pages (`__STACK_RND_MASK`); of the heap, in bytes (`arch_randomize_brk`).
const RANDOM_PAGES: u64 = 1 << 28;
const RANDOM_STACK: u64 = (0x3f_ffff + 1) * PAGE;
const RANDOM_HEAP: u64 = 0x200_0000;

/// How a kernel places mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelLayout {
    /// The seed of random addresses; `None`: addresses are not random, as with `setarch -R` or
    /// `randomize_va_space=0`.
    pub seed: Option<u64>,
    /// Which memory is aligned for pages of 2M.
    pub aligned: Aligned,
}

/// Which private memory is aligned for pages of 2M.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aligned {
    /// No memory (before Linux 6.7).
    Nothing,
    /// All mappings of at least 2M (until Linux 6.12).
    Long,
    /// Mappings whose length is a multiple of 2M.
    Multiples,
}

/// The occupied addresses, and where new mappings begin.
#[derive(Clone, Debug)]
pub(super) struct TopDown {
    aligned: Aligned,
    /// The address below which mappings are placed.
    pub(super) base: u64,
    /// The address at which the stack ends. The next fields are the address at which the program
    /// begins, and the distance of the heap from the program.
    pub(super) stack_end: u64,
    pub(super) program: u64,
    pub(super) heap_gap: u64,
    /// The first and last address of each occupied range.
    taken: BTreeMap<u64, u64>,
}

impl TopDown {
    /// An empty space. Its random addresses depend on `number`.
    pub(super) fn new(how: KernelLayout, number: u64) -> TopDown {
        let mut state = how.seed.map(|seed| {
            seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(2) | 1
        });
        let mut below = |bound: u64| {
            let Some(state) = &mut state else { return 0 };
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            (*state >> 11) % bound
        };
        let mut gap = STACK_BYTES + STACK_GUARD;
        if how.seed.is_some() {
            gap += RANDOM_STACK;
        }
        let base = STACK_TOP - gap.max(GAP_MIN) - below(RANDOM_PAGES) * PAGE;
        TopDown {
            aligned: how.aligned,
            base,
            stack_end: STACK_TOP - below(RANDOM_STACK / PAGE) * PAGE,
            program: PROGRAM + below(RANDOM_PAGES) * PAGE,
            heap_gap: below(RANDOM_HEAP / PAGE) * PAGE,
            taken: BTreeMap::new(),
        }
    }

    pub(super) fn take(&mut self, span: Span) {
        debug_assert!(self.is_free(span));
        self.taken.insert(span.0, span.1);
    }

    pub(super) fn release(&mut self, span: Span, left: &[Span]) {
        self.taken.remove(&span.0);
        left.iter().for_each(|&span| self.take(span));
    }

    pub(super) fn is_free(&self, (first, last): Span) -> bool {
        self.taken.range(..=last).next_back().is_none_or(|(_, &end)| end < first)
    }

    pub(super) fn free_in(&self, (mut first, last): Span) -> Vec<Span> {
        let mut free = Vec::new();
        let before = self.taken.range(..first).next_back();
        for (&start, &end) in before.into_iter().chain(self.taken.range(first..=last)) {
            if end < first {
                continue;
            }
            if start > first {
                free.push((first, start - 1));
            }
            match end.checked_add(1) {
                Some(next) => first = next,
                None => return free,
            }
        }
        if first <= last {
            free.push((first, last));
        }
        free
    }

    /// The address for a new mapping, as `__get_unmapped_area` finds it.
    pub(super) fn find(&self, want: Want) -> Option<u64> {
        let bytes = want.bytes.checked_next_multiple_of(PAGE)?;
        let offset = match want.kind {
            // Memory without a file is aligned as if its offset were 0.
            Kind::Memory => self.aligns(bytes).then_some(0),
            // The mapping must contain a complete aligned range of 2M of the file.
            Kind::File => {
                let first = want.offset.checked_next_multiple_of(LARGE)?;
                let end = want.offset.checked_add(bytes)?;
                end.checked_sub(first).filter(|whole| *whole >= LARGE).map(|_| want.offset)
            }
            Kind::Other => None,
        };
        let aligned = offset.and_then(|offset| {
            let found = self.highest(bytes.checked_add(LARGE)?)?;
            let more = offset.wrapping_sub(found) & (LARGE - 1);
            Some(found + if more == 0 { LARGE } else { more })
        });
        aligned.or_else(|| self.highest(bytes))
    }

    fn aligns(&self, bytes: u64) -> bool {
        match self.aligned {
            Aligned::Nothing => false,
            Aligned::Long => bytes >= LARGE,
            Aligned::Multiples => bytes.is_multiple_of(LARGE),
        }
    }

    /// The last `bytes` bytes of the highest hole that is long enough (`vm_unmapped_area_topdown`).
    fn highest(&self, bytes: u64) -> Option<u64> {
        let mut end = self.base;
        for (&first, &last) in self.taken.range(..self.base).rev() {
            let start = last.checked_add(1)?;
            if start <= end && end - start >= bytes {
                return Some(end - bytes);
            }
            end = end.min(first);
        }
        end.checked_sub(bytes).filter(|&start| start >= LOWEST)
    }
}
