//! Which status flags matter at a place in a block, so that code which changes flags can be inserted there.
//!
//! ```text
//!   test rax, rax          flags do not matter before it: it writes all of them
//!   mov [rdi], rdx         they do here: the branch reads them
//!   je ..
//! ```

use alloc::vec::Vec;

use iced_x86::{Instruction, Mnemonic, OpKind, RflagsBits};

use crate::insn::{Flow, Insn};

/// All status flags.
pub(crate) const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// The status flags that an instruction reads.
fn read(insn: &Insn) -> u32 {
    match insn.flow {
        // The kernel or a signal handler sees the flags.
        Flow::Syscall | Flow::Raises | Flow::Repeated | Flow::Assisted | Flow::Refused(_) => STATUS,
        Flow::Next
        | Flow::Jump(_)
        | Flow::Branch(..)
        | Flow::Loop(_)
        | Flow::Call(_)
        | Flow::Indirect { .. }
        | Flow::Return(_) => insn.instruction.rflags_read() & STATUS,
    }
}

/// The status flags whose values before an instruction do not matter after it.
fn replaced(instruction: &Instruction) -> u32 {
    use Mnemonic::*;
    let is_shift = matches!(
        instruction.mnemonic(),
        Shl | Shr | Sar | Sal | Rol | Ror | Rcl | Rcr | Shld | Shrd
    );
    if is_shift {
        // A shift by 0 leaves the flags unchanged.
        let last = instruction.op_count() - 1;
        let is_fixed = instruction.op_kind(last) == OpKind::Immediate8;
        if !is_fixed || instruction.immediate8() & 31 == 0 {
            return 0;
        }
    }
    instruction.rflags_modified() & STATUS
}

/// For each of `insns`: the status flags that matter before it, if those in `after` matter after the last one.
pub(crate) fn needed(insns: &[Insn], after: u32) -> Vec<u32> {
    let mut needed = alloc::vec![0; insns.len()];
    let mut now = after;
    for (at, insn) in insns.iter().enumerate().rev() {
        now = now & !replaced(&insn.instruction) | read(insn);
        needed[at] = now;
    }
    needed
}
