//! The lengths of instructions. They are needed to find an instruction of a basic block by its
//! number.

use iced_x86::{Decoder, DecoderOptions};
use object::Architecture;

/// The bytes of the first `count` instructions of `code`; `None` if `code` does not hold all of
/// them.
pub(crate) fn length(architecture: Architecture, code: &[u8], count: u32) -> Option<u64> {
    let count = count as usize;
    let length = match architecture {
        Architecture::X86_64 => x86(64, code, count)?,
        Architecture::I386 => x86(32, code, count)?,
        Architecture::Aarch64 => 4 * count,
        Architecture::Riscv64 => riscv(code, count)?,
        _ if count == 0 => 0,
        _ => return None,
    };
    (length < code.len()).then_some(length as u64)
}

fn x86(bits: u32, code: &[u8], count: usize) -> Option<usize> {
    let mut decoder = Decoder::new(bits, code, DecoderOptions::NONE);
    for _ in 0..count {
        if decoder.decode().is_invalid() {
            return None;
        }
    }
    Some(decoder.position())
}

/// An instruction has four bytes if its lowest two bits are both set, and two otherwise (RISC-V
/// unprivileged specification, section 1.5).
fn riscv(code: &[u8], count: usize) -> Option<usize> {
    let mut at = 0;
    for _ in 0..count {
        at += if code.get(at)? & 3 == 3 { 4 } else { 2 };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_manuals() {
        // push rbp; mov rbp, rsp; mov eax, [rip + 0x11223344]; lock xadd [rdi], rax; ret
        let x86 = [
            0x55, 0x48, 0x89, 0xe5, 0x8b, 0x05, 0x44, 0x33, 0x22, 0x11, 0xf0, 0x48, 0x0f, 0xc1,
            0x07, 0xc3,
        ];
        // c.nop; lw a0, 0(a0); c.nop; ret
        let riscv = [0x01, 0x00, 0x03, 0x25, 0x05, 0x00, 0x01, 0x00, 0x67, 0x80, 0x00, 0x00];
        for (architecture, code, lengths) in [
            (Architecture::X86_64, &x86[..], &[0, 1, 4, 10, 15][..]),
            (Architecture::Riscv64, &riscv[..], &[0, 2, 6, 8]),
            (Architecture::Aarch64, &[0; 16], &[0, 4, 8, 12]),
        ] {
            for (count, &expected) in (0..).zip(lengths) {
                assert_eq!(length(architecture, code, count), Some(expected), "{architecture:?}");
            }
            assert_eq!(length(architecture, code, lengths.len() as u32), None);
        }
        // In 32 bits 0x48 is an instruction of its own: dec eax.
        assert_eq!(length(Architecture::I386, &x86, 2), Some(2));
        assert_eq!(length(Architecture::Mips, &x86, 1), None);
    }
}
