//! Every page table against an obvious one, an ordered map.

pub(crate) mod model;
pub(crate) mod physical;
pub(crate) mod stream;
pub(crate) mod world;

pub(crate) use stream::{Stream, small_worlds};
pub(crate) use world::{Op, World};

use addr::{PageSize, PhysAddr, Rights, VirtAddr};
use pagetable::Translation;

/// Rights of all sorts that x86-64 can express.
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
    Translation { page, frame: PhysAddr::new(frame), rights, global: false }
}
