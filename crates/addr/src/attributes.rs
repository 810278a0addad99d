//! How the memory of a page is accessed: the part of a page-table entry besides frame and rights.
//!
//! ```text
//!                  x86-64 (PAT, PCD, PWT)   RISC-V (Svpbmt)   AArch64 (MAIR)
//!   write-back       PA0 06                   0: PMA            ff: Normal, write-back
//!   write-combining  PA1 01                   1: NC             44: Normal, non-cacheable
//!   uncached         PA2 07 (UC-)             -                 00: Device-nGnRnE
//!   device           PA3 00 (UC)              2: IO             04: Device-nGnRE
//! ```
//!
//! The names are those of x86. A format whose entries cannot express a memory type refuses to map a
//! page with that type, and names the type.

use core::fmt;

/// The memory type of a page: how processors may cache, reorder and repeat accesses to it.
///
/// The names are those of x86. The table gives, for each type, the value of the page-table entry
/// and, on x86-64 and AArch64, the value of the register from which the entry selects a type:
///
/// | type | x86-64: field of IA32_PAT | RISC-V: PBMT | AArch64: attribute in MAIR_EL1 |
/// |---|---|---|---|
/// | write-back | 0: 06 | 0: PMA | ff: Normal, write-back |
/// | write-combining | 1: 01 | 1: NC | 44: Normal, non-cacheable |
/// | uncached | 2: 07 (UC-) | none | 00: Device-nGnRnE |
/// | device | 3: 00 (UC) | 2: IO | 04: Device-nGnRE |
///
/// A page-table format that cannot express a type refuses to map a page with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum MemoryType {
    /// Ordinary memory, cached.
    #[default]
    WriteBack = 0,
    /// Not cached. Stores may be combined and reordered, which suits a framebuffer.
    WriteCombining = 1,
    /// Not cached. Each access is performed on its own and in program order, unless a range register of
    /// the processor (an MTRR) overrides it.
    Uncached = 2,
    /// Registers of a device: not cached, not repeated, not speculated.
    Device = 3,
}

impl MemoryType {
    /// All memory types, in the order of their numbers.
    pub const ALL: [MemoryType; 4] = [
        MemoryType::WriteBack,
        MemoryType::WriteCombining,
        MemoryType::Uncached,
        MemoryType::Device,
    ];

    /// The memory type whose number is in the two lowest bits of `bits`; the other bits are
    /// ignored.
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

/// The part of a translation besides frame and rights.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attributes {
    /// How the memory of the page is accessed.
    pub memory: MemoryType,
    /// The protection key: a register of the processor can withdraw rights from all pages with this key. 0
    /// in a format without protection keys.
    pub key: u8,
}

impl Attributes {
    /// Ordinary cached memory, with protection key 0.
    pub const NORMAL: Attributes = Attributes { memory: MemoryType::WriteBack, key: 0 };

    /// Memory of type `memory`, with protection key 0.
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
