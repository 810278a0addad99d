//! All page tables, with and without usage bits that walks set.

use alloc::boxed::Box;

use addr::PageSize;
use pagetable::{
    Aarch64, CacheShape, Cached, ElasticCuckoo, Guarded, Hashed, HashedShape, Irix, Mount, Mounted,
    Mpt, SparcReference, SparseMemory, Split, Sv39, X86_32, X86_64,
};
use vm::Reference;

const MEMORY: u64 = 1 << 34;

/// A page table, and how uses of pages are detected with it.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) reference: Reference,
    /// The number of events in a stream. It is smaller for tables that are so large that checking
    /// them takes long.
    pub(crate) events: u32,
    pub(crate) make: fn() -> Box<dyn Mounted>,
}

macro_rules! table {
    ($name:literal, $reference:ident, $mount:ident, $table:expr) => {
        table!($name, $reference, 300, $mount, $table)
    };
    ($name:literal, $reference:ident, $events:literal, $mount:ident, $table:expr) => {
        Table {
            name: $name,
            reference: Reference::$reference,
            events: $events,
            make: || Box::new(Mount::$mount($table, SparseMemory::new(MEMORY))),
        }
    };
}

fn hashed(shape: HashedShape) -> Hashed {
    Hashed::new(shape.with_large_pages()).unwrap()
}

pub(crate) const TABLES: [Table; 22] = [
    table!("x86-64", Hardware, tree, X86_64::<4>::new()),
    table!("x86-64, 5 levels", Hardware, tree, X86_64::<5>::new()),
    table!("x86-64, no bits", ValidBit, tree, X86_64::<4, false>::new()),
    table!("x86-32", Hardware, tree, X86_32::<false>::new()),
    table!("x86-pae", Hardware, tree, X86_32::<true>::new()),
    table!("sparc-reference", Hardware, tree, SparcReference::<true>::new()),
    table!("sv39", Hardware, tree, Sv39::<true>::new()),
    table!("aarch64", Hardware, tree, Aarch64::<12>::new()),
    table!("flattened", Hardware, 60, tree, Split::flattened().unwrap().with_usage()),
    table!("mpt", ValidBit, tree, Mpt::new()),
    table!("mpt, bits", Hardware, tree, Mpt::with_usage()),
    table!("irix", ValidBit, tree, Irix::new(PageSize::SIZE_4K).unwrap()),
    table!("linear", ValidBit, tree, Split::linear().unwrap()),
    table!("guarded", ValidBit, tree, Guarded::new(16).unwrap()),
    table!("guarded, bits", Hardware, tree, Guarded::new(16).unwrap().with_usage()),
    table!("guarded-adaptive", ValidBit, tree, Guarded::adaptive()),
    table!("hashed", ValidBit, new, hashed(HashedShape { shared: true, ..HashedShape::H8K })),
    table!("clustered", ValidBit, new, hashed(HashedShape::C128K)),
    table!("inverted", ValidBit, new, hashed(HashedShape::inverted(1 << 22, 1))),
    table!("elastic-cuckoo", ValidBit, new, ElasticCuckoo::new(3, 16 << 10).unwrap()),
    table!("software TLB", ValidBit, new, Cached::new(CacheShape::S8K, Mpt::new()).unwrap()),
    table!(
        "tsb",
        ValidBit,
        new,
        Cached::new(CacheShape::TSB_1M, hashed(HashedShape::behind_tsb(1 << 22))).unwrap()
    ),
];
