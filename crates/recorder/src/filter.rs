//! The filter `page16`: dropping accesses to a page that was accessed just before.
//!
//! ```text
//!   page number  ...b3b2b1b0 --> entry b3..b0 of 16:  | page | stored to |
//! ```
//!
//! One direct-mapped table of 4K pages for fetches, one for data. An access to the page that
//! its entry holds is dropped, but for the first store to it. What is left is exact for every
//! set-associative LRU TLB of 16 sets or more that is indexed by the low page-number bits:
//! a dropped access would hit what is already most recently used in its set.

use core::ffi::{c_uint, c_void};

use ring::{Control, Record, Tag};

use crate::ffi::MemInfo;
use crate::span;
use crate::vcpu::{cursor, tag};

const ENTRIES: usize = 16;
const PAGE_SHIFT: u32 = 12;
/// No page: page numbers have fewer bits.
const NOTHING: u64 = u64::MAX;

/// A thread's two tables, and what it has not told of the blocks that it runs.
pub(crate) struct Filter {
    fetch: [u64; ENTRIES],
    /// Page number and, in the lowest bit, whether a store was let through.
    data: [u64; ENTRIES],
    /// The block that runs.
    block: *const Watched,
    /// Whether it has been told to the host.
    told: bool,
    /// Instructions of blocks that were not told.
    advance: u64,
    /// Accesses dropped.
    pub(crate) dropped: u64,
}

impl Filter {
    /// Holds no page.
    pub(crate) const EMPTY: Filter = Filter {
        fetch: [NOTHING; ENTRIES],
        data: [NOTHING; ENTRIES],
        block: core::ptr::null(),
        told: true,
        advance: 0,
        dropped: 0,
    };
}

/// What the filter needs of a block. In memory of the process, so that a fork's child has it.
#[derive(Clone, Copy)]
pub(crate) struct Watched {
    pub(crate) number: u64,
    pub(crate) instructions: u64,
    pub(crate) first_page: u64,
    pub(crate) last_page: u64,
}

impl Watched {
    /// The block of that number, address, length and instruction count.
    pub(crate) fn new(number: u64, block: ring::Block) -> Watched {
        let last = block.pc.wrapping_add(u64::from(block.bytes).saturating_sub(1));
        Watched {
            number,
            instructions: block.instructions.into(),
            first_page: block.pc >> PAGE_SHIFT,
            last_page: last >> PAGE_SHIFT,
        }
    }
}

/// A block begins.
pub(crate) unsafe extern "C" fn on_block(vcpu: c_uint, block: *mut c_void) {
    let block = block.cast_const().cast::<Watched>();
    // SAFETY: QEMU calls this on the thread of `vcpu`, and the block is never freed.
    unsafe {
        let filter = &mut (*cursor(vcpu)).filter;
        if !filter.told {
            filter.advance += (*filter.block).instructions;
        }
        filter.block = block;
        filter.told = false;
        let (first, last) = ((*block).first_page, (*block).last_page);
        let held = filter.fetch[first as usize % ENTRIES] == first
            && filter.fetch[last as usize % ENTRIES] == last;
        if held {
            filter.dropped += 1;
        } else {
            filter.fetch[first as usize % ENTRIES] = first;
            filter.fetch[last as usize % ENTRIES] = last;
            tell(vcpu, Control::Block);
        }
    }
}

/// An access of the instruction whose index is `instruction`.
pub(crate) unsafe extern "C" fn on_access<const SIZE_SHIFT: u32>(
    vcpu: c_uint,
    info: MemInfo,
    address: u64,
    instruction: *mut c_void,
) {
    let tag = tag::<SIZE_SHIFT>(info, instruction as u64);
    let size = u64::from(Tag(tag as u16).size());
    let stores = tag & u64::from(Tag::STORE) != 0;
    let first = address >> PAGE_SHIFT;
    let last = address.wrapping_add(size - 1) >> PAGE_SHIFT;
    // SAFETY: as for `on_block`.
    let filter = unsafe { &mut (*cursor(vcpu)).filter };
    if holds(&filter.data, first, stores) && (last == first || holds(&filter.data, last, stores)) {
        filter.dropped += 1;
        return;
    }
    keep(&mut filter.data, first, stores);
    if last != first {
        keep(&mut filter.data, last, stores);
    }
    if !filter.told {
        tell(vcpu, Control::Context);
    }
    span::access(vcpu, address, tag);
}

#[inline(always)]
fn holds(data: &[u64; ENTRIES], page: u64, stores: bool) -> bool {
    let entry = data[page as usize % ENTRIES];
    entry >> 1 == page && (!stores || entry & 1 != 0)
}

fn keep(data: &mut [u64; ENTRIES], page: u64, stores: bool) {
    let entry = &mut data[page as usize % ENTRIES];
    let stored = *entry >> 1 == page && *entry & 1 != 0;
    *entry = page << 1 | u64::from(stores || stored);
}

/// A system call begins, so the block has run: tells the host all instructions so far.
pub(crate) fn settle(vcpu: u32) {
    // SAFETY: only this thread uses the cursor; a block that is not told was set.
    let advance = unsafe {
        let filter = &mut (*cursor(vcpu)).filter;
        if !filter.told {
            filter.advance += (*filter.block).instructions;
            filter.told = true;
        }
        core::mem::take(&mut filter.advance)
    };
    if advance != 0 {
        span::put(vcpu, Record::control(Control::Advance, advance & Record::VALUE_MAX).0);
    }
}

/// Tells the host which block runs, and how many instructions have run since the last one.
fn tell(vcpu: u32, control: Control) {
    // SAFETY: only this thread uses the cursor; `on_block` has set the block.
    let (advance, number) = unsafe {
        let filter = &mut (*cursor(vcpu)).filter;
        filter.told = true;
        (core::mem::take(&mut filter.advance), (*filter.block).number)
    };
    if advance != 0 {
        span::put(vcpu, Record::control(Control::Advance, advance & Record::VALUE_MAX).0);
    }
    span::put(vcpu, Record::control(control, number).0);
}
