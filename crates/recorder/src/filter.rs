//! The filter `page16`, which drops accesses to a page that was accessed just before.
//!
//! ```text
//!   page number  ...b3b2b1b0 --> entry b3..b0 of 16:  | page | stored to |
//! ```
//!
//! There is one direct-mapped table of 4 KiB pages for fetches and one for data. An access to the
//! page in its entry is dropped, except for the first store to the page. The remaining accesses
//! give exact results for every set-associative LRU TLB that has at least 16 sets and is indexed by
//! the low bits of the page number: a dropped access would hit the entry that is already most
//! recently used in its set.

use core::ffi::{c_uint, c_void};

use ring::{Control, Record, Tag};

use crate::ffi::MemInfo;
use crate::span;
use crate::vcpu::{cursor, tag};

const ENTRIES: usize = 16;
const PAGE_SHIFT: u32 = 12;
/// The value of an empty entry. No page has this number, since page numbers have fewer bits.
const NOTHING: u64 = u64::MAX;

/// The two tables of a thread, and what it has not reported about its blocks.
pub(crate) struct Filter {
    fetch: [u64; ENTRIES],
    /// For each entry: the page number, and in the lowest bit whether a store to the page was kept.
    data: [u64; ENTRIES],
    /// The block that the thread is executing.
    block: *const Watched,
    /// Whether that block has been reported to the host.
    told: bool,
    /// The number of instructions of blocks that were not reported.
    advance: u64,
    /// The number of dropped accesses.
    pub(crate) dropped: u64,
}

impl Filter {
    /// Empty tables.
    pub(crate) const EMPTY: Filter = Filter {
        fetch: [NOTHING; ENTRIES],
        data: [NOTHING; ENTRIES],
        block: core::ptr::null(),
        told: true,
        advance: 0,
        dropped: 0,
    };
}

/// The data about a block that the filter needs. They are in the process's own memory, so that a
/// child of a fork has them too.
#[derive(Clone, Copy)]
pub(crate) struct Watched {
    pub(crate) number: u64,
    pub(crate) instructions: u64,
    pub(crate) first_page: u64,
    pub(crate) last_page: u64,
}

impl Watched {
    /// The data of the block with this number. `block` has its address, length and number of
    /// instructions.
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

/// Called when a block begins.
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

/// Called for an access of the instruction with the index `instruction`.
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

/// Called when a system call begins, which ends the block. Reports all instructions so far to the
/// host.
pub(crate) fn settle(vcpu: u32) {
    // SAFETY: only this thread uses the cursor; a block that was not reported has been set.
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

/// Reports the running block to the host, and the number of instructions since the last report.
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
