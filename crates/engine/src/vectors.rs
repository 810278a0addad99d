//! Gathers and scatters: the addresses in vector registers.
//!
//! ```text
//!   xsave area   xmm0-15: at 160 | upper halves of ymm: component 2 | k0-7: 5 | upper halves of zmm0-15: 6 | zmm16-31: 7
//!   address      base + index[i] * scale + displacement, for each element i whose mask bit is set, from the lowest on
//! ```
//!
//! The registers are read from the area that `xsave` writes, whose layout CPUID reports (leaf 0xd). A
//! component whose bit in the header is 0 is in its initial state: zeros.

use alloc::vec::Vec;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// The offset of the lower halves of ymm0 to ymm15.
const XMM_AT: usize = 160;
/// The offset of the bits that say which components were written.
const HEADER_AT: usize = 512;
const SSE: u32 = 1;
const AVX: u32 = 2;
const MASKS: u32 = 5;
const UPPER: u32 = 6;
const HIGH_16: u32 = 7;

/// The area that `xsave` has written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vectors {
    area: *const u8,
}

impl Vectors {
    /// The area at `area`.
    pub(crate) fn new(area: *const u8) -> Vectors {
        Vectors { area }
    }

    /// Eight bytes of a component.
    fn word(self, component: u32, offset: usize) -> u64 {
        let start = match component {
            SSE => XMM_AT,
            _ => core::arch::x86_64::__cpuid_count(0xd, component).ebx as usize,
        };
        // SAFETY: the area has all components that the system lets programs use.
        unsafe {
            let written = self.area.add(HEADER_AT).cast::<u64>().read();
            if written >> component & 1 == 0 {
                return 0;
            }
            self.area.add(start + offset).cast::<u64>().read_unaligned()
        }
    }

    /// Bytes `8 * at` to `8 * at + 7` of a vector register.
    fn part(self, register: usize, at: usize) -> u64 {
        match (register, at) {
            (0..16, 0..2) => self.word(SSE, 16 * register + 8 * at),
            (0..16, 2..4) => self.word(AVX, 16 * register + 8 * (at - 2)),
            (0..16, _) => self.word(UPPER, 32 * register + 8 * (at - 4)),
            (_, _) => self.word(HIGH_16, 64 * (register - 16) + 8 * at),
        }
    }

    /// An element of a vector register.
    fn element(self, register: usize, index: usize, bytes: usize) -> u64 {
        let at = index * bytes;
        let shifted = self.part(register, at / 8) >> (8 * (at % 8));
        if bytes == 8 { shifted } else { shifted & 0xffff_ffff }
    }

    /// The addresses that a gather or scatter accesses, if its base register has the value `base`.
    /// `None` for other instructions.
    pub(crate) fn elements(self, instruction: &Instruction, base: u64) -> Option<Vec<u64>> {
        use Mnemonic::*;
        let index_bytes = match instruction.mnemonic() {
            Vpgatherdd | Vpgatherdq | Vgatherdps | Vgatherdpd => 4,
            Vpscatterdd | Vpscatterdq | Vscatterdps | Vscatterdpd => 4,
            Vpgatherqd | Vpgatherqq | Vgatherqps | Vgatherqpd => 8,
            Vpscatterqd | Vpscatterqq | Vscatterqps | Vscatterqpd => 8,
            _ => return None,
        };
        let is_gather = instruction.op0_kind() == OpKind::Register;
        let data = if is_gather { instruction.op0_register() } else { instruction.op1_register() };
        let index = instruction.memory_index();
        let bytes = instruction.memory_size().size();
        let count = (data.size() / bytes).min(index.size() / index_bytes);
        let is_masked = |element: usize| match instruction.op_mask() {
            // The mask bits are the signs of the elements of the third operand.
            Register::None => {
                let mask = self.element(instruction.op2_register().number(), element, bytes);
                mask >> (8 * bytes - 1) & 1 != 0
            }
            mask => self.word(MASKS, 8 * mask.number()) >> element & 1 != 0,
        };
        let displacement = instruction.memory_displacement64();
        let scale = u64::from(instruction.memory_index_scale());
        let address = |element: usize| {
            let index = self.element(index.number(), element, index_bytes);
            let index = if index_bytes == 4 { i64::from(index as i32) as u64 } else { index };
            base.wrapping_add(index.wrapping_mul(scale)).wrapping_add(displacement)
        };
        Some((0..count).filter(|&element| is_masked(element)).map(address).collect())
    }
}
