//! The entries for `page_table_multiarch`'s table. For the host's architecture they are the crate's
//! own. For other architectures they are defined here, because the crate's entries are compiled
//! only for their own architecture.

use std::{hint::black_box, marker::PhantomData};

use memory_addr::{PhysAddr, VirtAddr};
use page_table_entry::x86_64::X64PTE;
use page_table_multiarch::{GenericPTE, MappingFlags, PagingMetaData, x86_64::X64PagingMetaData};

/// A type of entries, with the shape of its table and the bits that walkers set.
pub(crate) trait Entry: GenericPTE + 'static {
    type Shape: PagingMetaData<VirtAddr = VirtAddr>;
    const MARKS: u64;
}

impl Entry for X64PTE {
    type Shape = X64PagingMetaData;
    /// The accessed and dirty bits.
    const MARKS: u64 = 1 << 5 | 1 << 6;
}

impl Entry for Coded<Rv64> {
    type Shape = Levels<3, 39, 56>;
    const MARKS: u64 = Rv64::ACCESSED | Rv64::DIRTY;
}

impl Entry for Coded<A64> {
    type Shape = Levels<4, 48, 48>;
    const MARKS: u64 = A64::ACCESSED;
}

/// The number of levels, and the bits of virtual and physical addresses. Required flushes are
/// passed to a black box.
pub(crate) struct Levels<const LEVELS: usize, const VIRTUAL: usize, const PHYSICAL: usize>;

impl<const LEVELS: usize, const VIRTUAL: usize, const PHYSICAL: usize> PagingMetaData
    for Levels<LEVELS, VIRTUAL, PHYSICAL>
{
    const LEVELS: usize = LEVELS;
    const PA_MAX_BITS: usize = PHYSICAL;
    const VA_MAX_BITS: usize = VIRTUAL;
    type VirtAddr = VirtAddr;

    #[inline]
    fn flush_tlb(page: Option<VirtAddr>) {
        black_box(page);
    }
}

/// An architecture's encoding of entries.
pub(crate) trait Code: Copy + std::fmt::Debug + Send + Sync + 'static {
    const FRAME: u64;
    /// The number of bits by which a frame's address is shifted right in an entry.
    const FRAME_SHIFT: u32;
    const VALID: u64;
    const TABLE: u64;
    fn page(flags: MappingFlags, is_huge: bool) -> u64;
    fn flags(bits: u64) -> MappingFlags;
    fn is_huge(bits: u64) -> bool;
}

/// Entries of Sv39 (The RISC-V Instruction Set Manual, Volume II, "Sv39").
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rv64;

impl Rv64 {
    const READ: u64 = 1 << 1;
    const WRITE: u64 = 1 << 2;
    const EXECUTE: u64 = 1 << 3;
    const USER: u64 = 1 << 4;
    const ACCESSED: u64 = 1 << 6;
    const DIRTY: u64 = 1 << 7;
}

impl Code for Rv64 {
    const FRAME: u64 = ((1 << 44) - 1) << 10;
    const FRAME_SHIFT: u32 = 2;
    const VALID: u64 = 1;
    const TABLE: u64 = Rv64::VALID;

    #[inline]
    fn page(flags: MappingFlags, _is_huge: bool) -> u64 {
        let bit = |flag, bit| if flags.contains(flag) { bit } else { 0 };
        Rv64::VALID
            | Rv64::ACCESSED
            | Rv64::DIRTY
            | bit(MappingFlags::READ, Rv64::READ)
            | bit(MappingFlags::WRITE, Rv64::WRITE)
            | bit(MappingFlags::EXECUTE, Rv64::EXECUTE)
            | bit(MappingFlags::USER, Rv64::USER)
    }

    #[inline]
    fn flags(bits: u64) -> MappingFlags {
        let flag = |bit, flag| if bits & bit != 0 { flag } else { MappingFlags::empty() };
        flag(Rv64::READ, MappingFlags::READ)
            | flag(Rv64::WRITE, MappingFlags::WRITE)
            | flag(Rv64::EXECUTE, MappingFlags::EXECUTE)
            | flag(Rv64::USER, MappingFlags::USER)
    }

    #[inline]
    fn is_huge(bits: u64) -> bool {
        bits & (Rv64::READ | Rv64::EXECUTE) != 0
    }
}

/// Descriptors of AArch64's stage 1 with a granule of 4 KiB (Arm Architecture Reference Manual,
/// D8.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct A64;

impl A64 {
    /// Set for a page or a table, and clear for a block.
    const NO_BLOCK: u64 = 1 << 1;
    /// The index of the second attribute of MAIR: write-back.
    const NORMAL: u64 = 1 << 2;
    const USER: u64 = 1 << 6;
    const READ_ONLY: u64 = 1 << 7;
    const INNER_SHAREABLE: u64 = 3 << 8;
    const ACCESSED: u64 = 1 << 10;
    const NO_EXECUTE_KERNEL: u64 = 1 << 53;
    const NO_EXECUTE: u64 = 1 << 54;
}

impl Code for A64 {
    const FRAME: u64 = ((1 << 36) - 1) << 12;
    const FRAME_SHIFT: u32 = 0;
    const VALID: u64 = 1;
    const TABLE: u64 = A64::VALID | A64::NO_BLOCK;

    #[inline]
    fn page(flags: MappingFlags, is_huge: bool) -> u64 {
        let unless = |flag, bit| if flags.contains(flag) { 0 } else { bit };
        A64::VALID
            | A64::NORMAL
            | A64::INNER_SHAREABLE
            | A64::ACCESSED
            | if is_huge { 0 } else { A64::NO_BLOCK }
            | unless(MappingFlags::WRITE, A64::READ_ONLY)
            | if flags.contains(MappingFlags::USER) { A64::USER } else { 0 }
            | A64::NO_EXECUTE_KERNEL
            | unless(MappingFlags::EXECUTE, A64::NO_EXECUTE)
    }

    #[inline]
    fn flags(bits: u64) -> MappingFlags {
        let mut flags = MappingFlags::READ;
        flags.set(MappingFlags::WRITE, bits & A64::READ_ONLY == 0);
        flags.set(MappingFlags::EXECUTE, bits & A64::NO_EXECUTE == 0);
        flags.set(MappingFlags::USER, bits & A64::USER != 0);
        flags
    }

    #[inline]
    fn is_huge(bits: u64) -> bool {
        bits & A64::NO_BLOCK == 0
    }
}

/// An entry in this encoding.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Coded<C>(u64, PhantomData<C>);

impl<C: Code> Coded<C> {
    #[inline]
    fn new(frame: PhysAddr, bits: u64) -> Coded<C> {
        Coded((frame.as_usize() as u64 >> C::FRAME_SHIFT) & C::FRAME | bits, PhantomData)
    }
}

impl<C: Code> GenericPTE for Coded<C> {
    #[inline]
    fn new_page(frame: PhysAddr, flags: MappingFlags, is_huge: bool) -> Coded<C> {
        Coded::new(frame, C::page(flags, is_huge))
    }

    #[inline]
    fn new_table(frame: PhysAddr) -> Coded<C> {
        Coded::new(frame, C::TABLE)
    }

    #[inline]
    fn paddr(&self) -> PhysAddr {
        PhysAddr::from(((self.0 & C::FRAME) << C::FRAME_SHIFT) as usize)
    }

    #[inline]
    fn flags(&self) -> MappingFlags {
        C::flags(self.0)
    }

    #[inline]
    fn set_paddr(&mut self, frame: PhysAddr) {
        *self = Coded::new(frame, self.0 & !C::FRAME);
    }

    #[inline]
    fn set_flags(&mut self, flags: MappingFlags, is_huge: bool) {
        self.0 = self.0 & C::FRAME | C::page(flags, is_huge);
    }

    #[inline]
    fn bits(self) -> usize {
        self.0 as usize
    }

    #[inline]
    fn is_unused(&self) -> bool {
        self.0 == 0
    }

    #[inline]
    fn is_present(&self) -> bool {
        self.0 & C::VALID != 0
    }

    #[inline]
    fn is_huge(&self) -> bool {
        C::is_huge(self.0)
    }

    #[inline]
    fn clear(&mut self) {
        self.0 = 0;
    }
}
