//! The page entry of formats that software defines: four or eight bytes.
//!
//! ```text
//!     31                              8  7   6   5   4   3   2   1   0
//!    +---------------------------------+---+---+---+---+---+---+---+---+
//!    |   frame / 4K: 24 bits           | D | A | G | U | X | W | R | P |   narrow
//!    +---------------------------------+---+---+---+---+---+---+---+---+
//!     63     52 51                  12  7                            0
//!    +---------+----------------------+----+---------------------------+
//!    |    0    |   frame              |  0 |  the same                 |   wide
//!    +---------+----------------------+----+---------------------------+
//! ```
//!
//! A narrow entry can hold the frame numbers that fit into the `EntryLo` register of the R4x00,
//! which address 64 GiB. P is set in the entry of every mapped page, even if the page allows no
//! access.

use addr::{Memory, Page, PhysAddr, Rights};

use crate::{Mapping, Translation, Usage};

const MAPPED: u64 = 1 << 0;
const RIGHTS_SHIFT: u32 = 1;
const RIGHTS: u64 = 0xf << RIGHTS_SHIFT;
const GLOBAL: u64 = 1 << 5;
const REFERENCED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
const FLAGS: u64 = 0xff;

const WIDE_FRAME: u64 = (1 << 52) - (1 << 12);
/// The number of bits by which a frame's address is shifted left from the frame field of a narrow
/// entry.
const NARROW_SHIFT: u32 = 4;

/// A page entry's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pte(u64);

/// The number of bytes of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    Narrow,
    Wide,
}

impl Width {
    pub(crate) const fn bytes(self) -> u8 {
        match self {
            Width::Narrow => 4,
            Width::Wide => 8,
        }
    }

    /// The first physical address that is too large for an entry.
    pub(crate) const fn physical_end(self) -> u64 {
        match self {
            Width::Narrow => 1 << 36,
            Width::Wide => 1 << 52,
        }
    }

    #[inline]
    pub(crate) fn read(self, at: PhysAddr, memory: &impl Memory) -> Pte {
        match self {
            Width::Narrow => Pte(u64::from(memory.read_u32(at))),
            Width::Wide => Pte(memory.read_u64(at)),
        }
    }

    #[inline]
    pub(crate) fn write(self, at: PhysAddr, pte: Pte, memory: &mut impl Memory) {
        match self {
            Width::Narrow => memory.write_u32(at, pte.0 as u32),
            Width::Wide => memory.write_u64(at, pte.0),
        }
    }

    /// Replaces the entry at `at` if it is equal to `current`; otherwise `Err` has the entry.
    #[inline]
    pub(crate) fn exchange(
        self,
        at: PhysAddr,
        current: Pte,
        new: Pte,
        memory: &mut impl Memory,
    ) -> Result<(), Pte> {
        match self {
            Width::Narrow => memory
                .compare_exchange_u32(at, current.0 as u32, new.0 as u32)
                .map_err(|found| Pte(u64::from(found))),
            Width::Wide => memory.compare_exchange_u64(at, current.0, new.0).map_err(Pte),
        }
    }

    /// Replaces the byte of flags at `at` if it is equal to the flags of `current`; otherwise `Err` has
    /// the flags. The frame is not part of that byte.
    pub(crate) fn exchange_flags(
        at: PhysAddr,
        current: Pte,
        new: Pte,
        memory: &mut impl Memory,
    ) -> Result<(), Pte> {
        let (word, shift) = (PhysAddr::new(at.get() & !3), at.get() % 4 * 8);
        loop {
            let all = memory.read_u32(word);
            let flags = u64::from(all >> shift) & FLAGS;
            if flags != current.0 & FLAGS {
                return Err(current.with_flags(flags as u8));
            }
            let others = all & !((FLAGS as u32) << shift);
            let new = others | ((new.0 & FLAGS) as u32) << shift;
            // The exchange fails if the flags of another page in this word have changed in the
            // meantime; then it is tried again.
            if memory.compare_exchange_u32(word, all, new).is_ok() {
                return Ok(());
            }
        }
    }

    /// The entry of a page; its usage bits are clear.
    #[inline]
    pub(crate) const fn pte(self, frame: PhysAddr, rights: Rights, global: bool) -> Pte {
        let frame = match self {
            Width::Narrow => frame.get() >> NARROW_SHIFT,
            Width::Wide => frame.get(),
        };
        let global = if global { GLOBAL } else { 0 };
        Pte(frame | (rights.bits() as u64) << RIGHTS_SHIFT | global | MAPPED)
    }

    #[inline]
    pub(crate) const fn frame(self, pte: Pte) -> PhysAddr {
        PhysAddr::new(match self {
            Width::Narrow => (pte.0 & !FLAGS) << NARROW_SHIFT,
            Width::Wide => pte.0 & WIDE_FRAME,
        })
    }

    #[inline]
    pub(crate) const fn translation(self, pte: Pte, page: Page) -> Translation {
        Translation {
            global: pte.global(),
            ..Translation::new(page, self.frame(pte), pte.rights())
        }
    }

    pub(crate) const fn mapping(self, pte: Pte, page: Page) -> Mapping {
        Mapping { translation: self.translation(pte, page), usage: pte.usage(), note: 0 }
    }
}

impl Pte {
    pub(crate) const EMPTY: Pte = Pte(0);

    /// The entry whose encoding is `bits`.
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Pte {
        Pte(bits)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The eight flags: all of the entry except the frame.
    #[inline]
    pub(crate) const fn flags(self) -> u8 {
        (self.0 & FLAGS) as u8
    }

    /// The entry with other flags and the same frame.
    #[inline]
    pub(crate) const fn with_flags(self, flags: u8) -> Pte {
        Pte(self.0 & !FLAGS | flags as u64)
    }

    #[inline]
    pub(crate) const fn is_mapped(self) -> bool {
        self.0 & MAPPED != 0
    }

    #[inline]
    pub(crate) const fn rights(self) -> Rights {
        Rights::from_bits((self.0 >> RIGHTS_SHIFT) as u8)
    }

    #[inline]
    pub(crate) const fn global(self) -> bool {
        self.0 & GLOBAL != 0
    }

    #[inline]
    pub(crate) const fn usage(self) -> Usage {
        Usage { referenced: self.0 & REFERENCED != 0, dirty: self.0 & DIRTY != 0, marked: false }
    }

    #[inline]
    pub(crate) const fn with_rights(self, rights: Rights) -> Pte {
        Pte(self.0 & !RIGHTS | (rights.bits() as u64) << RIGHTS_SHIFT)
    }

    #[inline]
    pub(crate) const fn with_usage(self, usage: Usage) -> Pte {
        Pte(self.0 | usage_bits(usage))
    }

    #[inline]
    pub(crate) const fn without_usage(self, usage: Usage) -> Pte {
        Pte(self.0 & !usage_bits(usage))
    }
}

/// A mask of the bits of an entry that encode rights, and the value of these bits for `rights`.
#[inline]
pub(crate) const fn rights_bits(rights: Rights) -> (u64, u64) {
    (RIGHTS, (rights.bits() as u64) << RIGHTS_SHIFT)
}

/// The bits of an entry that encode `usage`. There is no bit for marks.
#[inline]
pub(crate) const fn usage_bits(usage: Usage) -> u64 {
    let referenced = if usage.referenced { REFERENCED } else { 0 };
    let dirty = if usage.dirty { DIRTY } else { 0 };
    referenced | dirty
}
