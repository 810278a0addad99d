//! Instruction sets of guests.

/// The guest's instruction set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guest {
    /// AMD64.
    X86_64,
    /// 32-bit x86.
    I386,
    /// 32-bit Arm, with the system calls of its EABI.
    Arm,
    /// 64-bit Arm or RISC-V: both use Linux's generic system call numbers.
    Generic64,
}

impl Guest {
    /// ELF's number of AMD64.
    pub(crate) const MACHINE_X86_64: u32 = 62;

    /// The guest instruction set for the QEMU target with this `name`, and its ELF machine number.
    pub(crate) fn from_target(name: &[u8]) -> Option<(Guest, u32)> {
        match name {
            b"x86_64" => Some((Guest::X86_64, Guest::MACHINE_X86_64)),
            b"i386" => Some((Guest::I386, 3)),
            b"arm" => Some((Guest::Arm, 40)),
            b"aarch64" => Some((Guest::Generic64, 183)),
            b"riscv64" => Some((Guest::Generic64, 243)),
            _ => None,
        }
    }

    /// A mask of the bits of the guest's addresses.
    pub(crate) fn address_mask(self) -> u64 {
        if self.pointer_bytes() == 4 { u32::MAX.into() } else { u64::MAX }
    }

    /// The size of the guest's pointers in bytes.
    pub(crate) fn pointer_bytes(self) -> usize {
        match self {
            Guest::I386 | Guest::Arm => 4,
            Guest::X86_64 | Guest::Generic64 => 8,
        }
    }
}
