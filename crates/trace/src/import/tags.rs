//! Address bits that translation ignores, by instruction set.
//!
//! ```text
//!   AArch64   63      56 55 54                                0
//!            +----------+--+-----------------------------------+
//!            |   tag    |  |      what is translated           |     bit 55 stands for the tag
//!            +----------+--+-----------------------------------+
//! ```
//!
//! Linux configures AArch64 processors to ignore the top byte of user addresses (TBI), and programs
//! keep tags there: for pointers, or for memory (MTE). Two addresses that differ only in their tags
//! refer to the same memory, so tags are removed when a trace is read. An address without a tag has
//! eight copies of its bit 55 in the top byte. Processors save program counters in this form too.
//! The other instruction sets translate all bits, or fault on such addresses, unless a program
//! requests another mode.
//!
//! Sources: Linux, `Documentation/arch/arm64/tagged-pointers.rst`; Arm Architecture Reference
//! Manual for A-profile (DDI 0487), section D8.8.1 "Address tagging".

use crate::{Arch, Event};

/// The address bits that are ignored in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tags {
    /// How many of the highest bits are ignored.
    bits: u32,
}

impl Tags {
    /// The tags that programs for `arch` can have.
    pub(crate) fn of(arch: Arch) -> Tags {
        let bits = match arch {
            Arch::Aarch64 => 8,
            Arch::X86_64 | Arch::I386 | Arch::Arm | Arch::Riscv64 | Arch::Unknown => 0,
        };
        Tags { bits }
    }

    /// `addr` without its tag.
    #[inline]
    pub(crate) fn strip(self, addr: u64) -> u64 {
        ((addr << self.bits) as i64 >> self.bits) as u64
    }

    /// Removes the tags from `addrs`.
    pub(crate) fn strip_all(self, addrs: &mut [u64]) {
        if self.bits > 0 {
            addrs.iter_mut().for_each(|addr| *addr = self.strip(*addr));
        }
    }

    /// The system call `event` without tags in its addresses. `mprotect` and `madvise` accept
    /// tagged addresses; older systems accepted them in the other calls that importers report too.
    pub(crate) fn strip_event(self, mut event: Event) -> Event {
        match &mut event {
            Event::Mmap { addr, .. }
            | Event::Munmap { addr, .. }
            | Event::Mprotect { addr, .. }
            | Event::Brk { addr, .. }
            | Event::Madvise { addr, .. } => *addr = self.strip(*addr),
            Event::Mremap { addr, new_addr, .. } => {
                (*addr, *new_addr) = (self.strip(*addr), self.strip(*new_addr));
            }
            // Events that importers do not emit, or that have no address with a tag.
            Event::Mapping { .. }
            | Event::ProcessMadvise { .. }
            | Event::Mlock { .. }
            | Event::Munlock { .. }
            | Event::Mlockall { .. }
            | Event::Munlockall { .. }
            | Event::Msync { .. }
            | Event::Shmat { .. }
            | Event::Shmdt { .. }
            | Event::Mbind { .. }
            | Event::HugePages { .. }
            | Event::PageSize { .. }
            | Event::Call(_)
            | crate::events!(program)
            | crate::events!(lives)
            | crate::events!(stream)
            | crate::events!(translation) => {}
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_leave_and_bit_55_takes_their_place() {
        let tags = Tags::of(Arch::Aarch64);
        for (addr, expected) in [
            (0, 0),
            (0x0000_ffff_1234_5678, 0x0000_ffff_1234_5678),
            (0xb400_ffff_1234_5678, 0x0000_ffff_1234_5678),
            (0xf4ff_8000_0000_1000, 0xffff_8000_0000_1000),
            (0x00ff_8000_0000_1000, 0xffff_8000_0000_1000),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(tags.strip(addr), expected, "{addr:#x}");
            for arch in [Arch::X86_64, Arch::I386, Arch::Arm, Arch::Riscv64, Arch::Unknown] {
                assert_eq!(Tags::of(arch).strip(addr), addr, "{arch:?} {addr:#x}");
            }
        }
    }
}
