//! Shows which bits plain stores lose. A walker may set the accessed and dirty bits of a page after
//! the operating system has read the page's entry and before it stores the new entry.
//!
//! ```text
//!   OS      reads the entry                    stores the frame with new rights
//!   walker                     sets A and D
//!   entry   clean              dirty           clean: what was written is never written back
//! ```
//!
//! The walker is this crate's walk with marks, on the peer's own table. One thread does these steps
//! in this order, so that every run has the same result. `x86_64` stores the flags that its caller
//! has read before; `page_table_multiarch` stores flags that have neither bit.

use addr::{Kind, Memory, PhysAddr, VirtAddr};
use page_table_entry::x86_64::X64PTE;
use pagetable::{PageTable, Space, X86_64};

use crate::{
    arena::DirectMap,
    ours::Ours,
    peers::{Exchanged, MARKS, Multiarch, Offset},
    work::Table,
};

const ARENA_BYTES: u64 = 4 << 20;
const PAGE: u64 = 0x10_0000_0000;
const FRAME: u64 = 1 << 32;

/// A table of x86-64's format on which a walker can run.
pub(crate) trait Walked: Table {
    fn memory(&self) -> DirectMap<true>;
    fn root(&self) -> PhysAddr;
}

/// Prints which tables keep the bits.
///
/// # Panics
/// Panics if a table with the exchange loses a bit, or if an unchanged peer loses none: in that
/// case the text of this file is out of date.
pub(crate) fn show() {
    println!("accessed and dirty bits that a walker sets just before the store of `protect`");
    line(
        "x86-64, with walkers",
        Ours::<_, true>::new(X86_64::<4, false>::new(), ARENA_BYTES),
        MARKS,
    );
    line("crate x86_64", Offset::<false>::new(ARENA_BYTES), 0);
    line("crate x86_64, with walkers", Offset::<true>::new(ARENA_BYTES), MARKS);
    line("crate page_table_multiarch", Multiarch::<X64PTE, false>::new(ARENA_BYTES), 0);
    let exchanged = Multiarch::<Exchanged<X64PTE>, true>::new(ARENA_BYTES);
    line("page_table_multiarch, with walkers", exchanged, MARKS);
    println!();
}

fn line(name: &str, mut table: impl Walked, expected: u64) {
    let kept = kept(&mut table);
    println!("{name:<34}  {}", if kept == 0 { "lost" } else { "kept" });
    assert_eq!(kept, expected, "{name}: bits of the entry after the store");
}

/// The accessed and dirty bits that an entry has after its page was stored to and then made
/// read-only.
fn kept(table: &mut impl Walked) -> u64 {
    table.create();
    table.map(PAGE, FRAME, 1);
    let (space, mut memory) = (Space::new(0, table.root()), table.memory());
    let mut entry = PhysAddr::new(0);
    let mut last = |reference: pagetable::Reference| entry = reference.addr;
    let walker = X86_64::<4>::new();
    let found = walker.walk(space, VirtAddr::new(PAGE), Kind::Store, &mut memory, &mut last);
    assert_eq!(found.expect("it is mapped").frame, PhysAddr::new(FRAME));
    assert_eq!(memory.read_u64(entry) & MARKS, MARKS, "the walker has set both");
    table.protect(PAGE, 1);
    let kept = memory.read_u64(entry) & MARKS;
    table.unmap(PAGE, 1);
    table.destroy();
    kept
}
