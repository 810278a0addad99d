//! How the memory behind a page is accessed: what an entry says beside frame and rights.
//!
//! ```text
//!                  x86-64 (PAT, PCD, PWT)   RISC-V (Svpbmt)   AArch64 (MAIR)
//!   write-back       PA0 06                   0: PMA            ff: Normal, write-back
//!   write-combining  PA1 01                   1: NC             44: Normal, non-cacheable
//!   uncached         PA2 07 (UC-)             -                 00: Device-nGnRnE
//!   device           PA3 00 (UC)              2: IO             04: Device-nGnRE
//! ```
//!
//! The names are those of x86. A format whose entries do not tell a type from another refuses it by
//! name.

use core::fmt;

/// What processors may do with accesses to a page's memory.
///
/// The names are those of x86. What an entry and, on x86-64 and AArch64, a register of the processor say for
/// each type:
///
/// | type | x86-64: field of IA32_PAT | RISC-V: PBMT | AArch64: attribute in MAIR_EL1 |
/// |---|---|---|---|
/// | write-back | 0: 06 | 0: PMA | ff: Normal, write-back |
/// | write-combining | 1: 01 | 1: NC | 44: Normal, non-cacheable |
/// | uncached | 2: 07 (UC-) | none | 00: Device-nGnRnE |
/// | device | 3: 00 (UC) | 2: IO | 04: Device-nGnRE |
///
/// A page table's format that has no such type refuses the page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum MemoryType {
    /// Ordinary memory, cached.
    #[default]
    WriteBack = 0,
    /// Not cached; stores may be gathered and reordered, as a framebuffer wants.
    WriteCombining = 1,
    /// Not cached, each access for itself and in order, as far as no range register of the processor says
    /// otherwise.
    Uncached = 2,
    /// Registers of a device: not cached, not repeated, not speculated.
    Device = 3,
}

impl MemoryType {
    /// All of them, each in the place of its number.
    pub const ALL: [MemoryType; 4] = [
        MemoryType::WriteBack,
        MemoryType::WriteCombining,
        MemoryType::Uncached,
        MemoryType::Device,
    ];

    /// The type whose number is in the two lowest bits; the other bits are ignored.
    #[inline]
    pub const fn from_bits(bits: u8) -> MemoryType {
        MemoryType::ALL[(bits & 3) as usize]
    }
}

impl fmt::Display for MemoryType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryType::WriteBack => "write-back",
            MemoryType::WriteCombining => "write-combining",
            MemoryType::Uncached => "uncached",
            MemoryType::Device => "device",
        })
    }
}

/// What a translation says of its page beside frame and rights.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attributes {
    /// How its memory is accessed.
    pub memory: MemoryType,
    /// The protection key, by which a register of the processor takes rights away: 0 where there are none.
    pub key: u8,
}

impl Attributes {
    /// Cached memory without a protection key of its own.
    pub const NORMAL: Attributes = Attributes { memory: MemoryType::WriteBack, key: 0 };

    /// Memory of this type, without a protection key of its own.
    pub const fn of(memory: MemoryType) -> Attributes {
        Attributes { memory, key: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_number() {
        for (number, memory) in (0..).zip(MemoryType::ALL) {
            assert_eq!(memory as u8, number);
            assert_eq!(MemoryType::from_bits(number | 4), memory);
        }
    }
}
