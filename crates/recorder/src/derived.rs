//! Fixed blocks that do not record all addresses: the number of accesses that such a block made
//! before a fault.
//!
//! ```text
//!   the block     load a | load a + 8 | store b | load pc + 64 |
//!   its records   a                     b
//!
//!   a fault       b was not recorded: was the second load made?      SIGSEGV, at the address x
//!                 if a read of x in the second load: it was not      --> left after 1 access
//!                 otherwise it was, but the store was not            --> left after 2 accesses
//! ```
//!
//! If a block records every address, its records show how many accesses it made. For other blocks,
//! this is found from the fault itself. A fixed block can end early only by a fault on the host,
//! since it calls no function that could end it. The exception are accesses whose address must be
//! aligned; their addresses are always recorded. So QEMU reports each fault to the recorder, which
//! finds the record of the block and writes into it how many accesses were made. A block that
//! writes to the page with its own code ends early in the same way.
//!
//! The faulting access is the first access of its kind (load or store) to the address that faults.
//! This is certain unless another thread unmaps the page meanwhile. If a thread is killed, it is
//! unknown how many accesses its last block made. Accesses whose addresses can be derived from
//! recorded addresses then count as made.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use ring::{Control, Derived, Record, Tag};

use crate::trail::trail;
use crate::vcpu::{cursor, next};
use crate::{qemu, skip, sure};

/// A block with a fixed sequence of accesses. It does not record all of their addresses, or its
/// guaranteed hits are counted.
pub(crate) struct Block {
    pub(crate) number: u32,
    /// The address of the block's first instruction.
    pub(crate) pc: u64,
    pub(crate) bytes: u32,
    pub(crate) instructions: u32,
    /// Whether the block's guaranteed hits are counted.
    pub(crate) is_counted: bool,
    /// The number of addresses that an execution of the block records.
    pub(crate) recorded: u8,
    /// The tag of each access, and how its address is derived if it is not recorded.
    pub(crate) accesses: Box<[(u16, Option<Derived>)]>,
    /// For the fetch and each access: one more than the number of the block that consists of the fetch
    /// and this access only; 0 if there is none yet.
    pub(crate) parts: Box<[AtomicU32]>,
}

impl Block {
    /// The address of the block's last byte.
    pub(crate) fn last(&self) -> u64 {
        self.pc + u64::from(self.bytes).saturating_sub(1)
    }

    /// The number of accesses that the block is known to have made if it has recorded these
    /// `addresses`.
    pub(crate) fn made(&self, addresses: &[u64]) -> usize {
        let recorded = recorded(addresses);
        let is_recorded = |(_, derived): &&(u16, Option<Derived>)| derived.is_none();
        let mut kept = self.accesses.iter().enumerate().filter(|(_, access)| is_recorded(access));
        kept.nth(recorded).map_or(self.accesses.len(), |(index, _)| index)
    }
}

/// The blocks by their numbers, in pages that are allocated when needed. A child inherits its
/// parent's blocks at a fork. Nothing is freed, since QEMU may keep a block's code for as long as
/// it likes.
static BLOCKS: [AtomicPtr<Page>; PAGES] = [const { AtomicPtr::new(ptr::null_mut()) }; PAGES];
type Page = [AtomicPtr<Block>; PAGE_BLOCKS];
const PAGES: usize = 1 << 16;
const PAGE_BLOCKS: usize = 1 << 12;

/// The data of block `number`, if [`keep`] has stored them.
pub(crate) fn block(number: u32) -> Option<&'static Block> {
    let page = BLOCKS.get(number as usize / PAGE_BLOCKS)?.load(Ordering::Acquire);
    // SAFETY: pages and blocks are never freed.
    unsafe {
        let block = page.as_ref()?[number as usize % PAGE_BLOCKS].load(Ordering::Acquire);
        block.as_ref()
    }
}

/// Stores the data of block `number`. QEMU translates on one thread at a time.
pub(crate) fn keep(number: u32, block: Block) {
    let Some(place) = BLOCKS.get(number as usize / PAGE_BLOCKS) else { return };
    let mut page = place.load(Ordering::Acquire);
    if page.is_null() {
        page = Box::into_raw(Box::new([const { AtomicPtr::new(ptr::null_mut()) }; PAGE_BLOCKS]));
        place.store(page, Ordering::Release);
    }
    let block = Box::into_raw(Box::new(block));
    // SAFETY: as above.
    unsafe { (&(*page))[number as usize % PAGE_BLOCKS].store(block, Ordering::Release) };
}

/// The number of accesses made by the fixed block whose record is `record` and whose addresses
/// follow.
pub(crate) fn accesses(record: Record, addresses: &[u64]) -> usize {
    if let Some(made) = record.made() {
        return made;
    }
    let block = block(record.fixed_parts().0);
    block.map_or_else(|| recorded(addresses), |block| block.made(addresses))
}

/// The number of a block's `addresses` that were recorded before it was left.
fn recorded(addresses: &[u64]) -> usize {
    addresses.iter().take_while(|&&address| address != Record::NONE).count()
}

/// The access for which a program gets a signal.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    /// The faulting address that the system reports. The system does not report it if no program
    /// can use that address.
    pub(crate) address: u64,
    pub(crate) is_write: bool,
}

impl Fault {
    /// Whether the fault may have been caused by an access to the guest's `address`. On the host
    /// this is `address + guest_base`.
    ///
    /// QEMU may split an unaligned access into aligned accesses of up to 16 bytes. The fault then
    /// has the address of one of these aligned accesses.
    fn is_of(self, address: u64, tag: Tag, guest_base: u64) -> bool {
        const ALIGNED_MASK: u64 = 15;
        let end = address.wrapping_add(u64::from(tag.size()) - 1);
        let is_kind = if self.is_write { tag.stores() } else { tag.loads() };
        let is_none = [address, end].iter().any(|at| at.wrapping_add(guest_base) >> 47 != 0);
        let (first, last) = (address & !ALIGNED_MASK, end | ALIGNED_MASK);
        is_none || is_kind && self.address.wrapping_sub(first) <= last.wrapping_sub(first)
    }
}

/// If the fault is in a block that does not record all addresses: writes the number of accesses
/// that the block made into its record or its trail. Returns the address of the word that was
/// changed, and the earlier value of this word.
pub(crate) unsafe fn mark(fault: Fault, vcpu: u32) -> Option<(*mut u64, u64)> {
    // SAFETY: the thread is that of the virtual CPU, and its records lie in one span.
    unsafe {
        let base = qemu::guest_base() as u64;
        if sure::counts() {
            let trail = trail();
            let block = block((*trail).block as u32)?;
            let addresses = &(&(*trail).addresses)[..block.recorded.into()];
            let made = made(block, addresses, fault, base)?;
            (*trail).made = 1 + made as u64;
            return Some((&raw mut (*trail).made, 0));
        }
        let from = (*cursor(vcpu)).uncounted;
        let length = usize::try_from((*next(vcpu)).offset_from(from)).ok()?;
        let records = core::slice::from_raw_parts(from, length);
        let last = skip::last_block(records);
        let (&word, addresses) = records.get(last.clone())?.split_first()?;
        let record = Record(word);
        if record.as_control() != Some(Control::Fixed) {
            return None;
        }
        let block = block(record.fixed_parts().0)?;
        let made = made(block, addresses, fault, base)?;
        let place = from.add(last.start);
        place.write(record.left_after(made as u8).0);
        Some((place, word))
    }
}

/// The number of accesses that a block made before this fault, if it recorded these `addresses`.
/// `None` if it made all of its accesses.
fn made(block: &Block, addresses: &[u64], fault: Fault, guest_base: u64) -> Option<usize> {
    // The block has made all accesses up to the one whose address it recorded last.
    let mut left = recorded(addresses);
    for (index, &(tag, derived)) in block.accesses.iter().enumerate() {
        match derived {
            None if left == 0 => return Some(index),
            None => left -= 1,
            Some(Derived { from, distance }) if left == 0 => {
                let from = match from {
                    0 => block.pc,
                    address => *addresses.get(usize::from(address) - 1)?,
                };
                if fault.is_of(from.wrapping_add(distance), Tag(tag), guest_base) {
                    return Some(index);
                }
            }
            Some(_) => {}
        }
    }
    None
}
