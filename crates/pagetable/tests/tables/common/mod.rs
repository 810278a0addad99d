//! Compares every page table with a model, which is an ordered map.

pub(crate) mod model;
pub(crate) mod physical;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod world;

pub(crate) use stream::{Stream, small_worlds};
pub(crate) use table::{Table, TreeTable};
pub(crate) use world::{Op, World};

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::Translation;

/// Various sets of rights that x86-64 can express.
pub(crate) const RIGHTS: [Rights; 5] = [
    Rights::ALL,
    Rights::READ,
    Rights::from_bits(Rights::READ.bits() | Rights::WRITE.bits()),
    Rights::from_bits(Rights::READ.bits() | Rights::EXECUTE.bits() | Rights::USER.bits()),
    Rights::NONE,
];

/// The page of `size` that holds `addr`, in `frame`.
pub(crate) fn page(addr: u64, size: PageSize, frame: u64, rights: Rights) -> Translation {
    let page = VirtAddr::new(addr).page(size);
    Translation::new(page, PhysAddr::new(frame), rights)
}

/// Operations around the first boundary between two tables, each of which covers the memory of one
/// page of size `large`.
pub(crate) fn around_seam(large: PageSize) -> [Op; 9] {
    let (base, seam) = (PageSize::SIZE_4K, large.bytes());
    let map = |addr, size, frame, count| Op::Map {
        space: 0,
        first: page(addr, size, frame, Rights::ALL),
        count,
    };
    let range = |start, bytes| VirtRange::new(VirtAddr::new(start), bytes).unwrap();
    let unmap = |range| Op::Unmap { space: 0, range };
    [
        map(seam - 0x1000, base, 0x1000, 1),
        map(seam, base, 0x2000, 1),
        map(seam - 0x1000, base, 0x5000, 2),
        map(seam, large, seam, 1),
        unmap(range(seam - 0x1000, 0x1000)),
        unmap(range(seam, 0x1000)),
        unmap(range(seam - 0x1000, 0x2000)),
        unmap(VirtRange::ALL),
        Op::Protect { space: 0, range: range(seam, seam), rights: Rights::NONE },
    ]
}
