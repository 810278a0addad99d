//! Repeated string instructions. The engine executes these instructions itself, in pieces, so that it knows their
//! accesses.

use core::arch::asm;

use iced_x86::{Instruction, Mnemonic, Register};

use crate::state::{ALIGNMENT, FLAGS, State};

/// The accesses of a repeated instruction to each element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    pub(crate) mnemonic: Mnemonic,
    /// The size of an element in bytes.
    pub(crate) size: u64,
    is_until_equal: bool,
}

impl Kind {
    /// The kind of `instruction`, if the engine supports it.
    pub(crate) fn of(instruction: &Instruction) -> Option<Kind> {
        use Mnemonic::*;
        let mnemonic = instruction.mnemonic();
        let size = match mnemonic {
            Movsb | Stosb | Lodsb | Cmpsb | Scasb => 1,
            Movsw | Stosw | Lodsw | Cmpsw | Scasw => 2,
            Movsd | Stosd | Lodsd | Cmpsd | Scasd => 4,
            Movsq | Stosq | Lodsq | Cmpsq | Scasq => 8,
            _ => return None,
        };
        let is_plain = instruction.segment_prefix() == Register::None
            && (0..instruction.op_count()).all(|at| {
                let kind = instruction.op_kind(at);
                use iced_x86::OpKind::*;
                matches!(kind, Register | MemorySegRSI | MemoryESRDI)
            });
        let is_until_equal = instruction.has_repne_prefix();
        is_plain.then_some(Kind { mnemonic, size, is_until_equal })
    }

    /// Whether a comparison of elements can end the instruction.
    pub(crate) fn compares(self) -> bool {
        use Mnemonic::*;
        matches!(self.mnemonic, Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq)
    }

    /// Whether the instruction ends at equal elements, rather than at different ones.
    pub(crate) fn until_equal(self) -> bool {
        self.is_until_equal
    }

    /// Whether the instruction reads at rsi, reads at rdi, and writes at rdi.
    pub(crate) fn accesses(self) -> (bool, bool, bool) {
        use Mnemonic::*;
        match self.mnemonic {
            Movsb | Movsw | Movsd | Movsq => (true, false, true),
            Stosb | Stosw | Stosd | Stosq => (false, false, true),
            Lodsb | Lodsw | Lodsd | Lodsq => (true, false, false),
            Scasb | Scasw | Scasd | Scasq => (false, true, false),
            _ => (true, true, false),
        }
    }

    /// The number of accesses for each element.
    pub(crate) fn count(self) -> u64 {
        let (from, of, to) = self.accesses();
        u64::from(from) + u64::from(of) + u64::from(to)
    }

    /// Executes the instruction for at most `count` elements, with the registers of the state.
    /// Returns how many of them were not executed.
    ///
    /// # Safety
    ///
    /// The program must be about to make the same accesses.
    pub(crate) unsafe fn execute(self, state: State, count: u64) -> u64 {
        use Mnemonic::*;
        let mut rcx = count;
        let (mut rsi, mut rdi) = (state.register(6), state.register(7));
        let (mut rax, before) = (state.register(0), state.get(FLAGS));
        let mut flags = before & !ALIGNMENT;
        macro_rules! run {
            ($text:literal) => {
                // SAFETY: the caller guarantees the operands. The flags and the direction are
                // restored.
                unsafe {
                    asm!(
                        "push {0}",
                        "popfq",
                        $text,
                        "pushfq",
                        "pop {0}",
                        "cld",
                        inout(reg) flags,
                        inout("rcx") rcx,
                        inout("rsi") rsi,
                        inout("rdi") rdi,
                        inout("rax") rax,
                    )
                }
            };
        }
        match (self.mnemonic, self.is_until_equal) {
            (Movsb, _) => run!("rep movsb"),
            (Movsw, _) => run!("rep movsw"),
            (Movsd, _) => run!("rep movsd"),
            (Movsq, _) => run!("rep movsq"),
            (Stosb, _) => run!("rep stosb"),
            (Stosw, _) => run!("rep stosw"),
            (Stosd, _) => run!("rep stosd"),
            (Stosq, _) => run!("rep stosq"),
            (Lodsb, _) => run!("rep lodsb"),
            (Lodsw, _) => run!("rep lodsw"),
            (Lodsd, _) => run!("rep lodsd"),
            (Lodsq, _) => run!("rep lodsq"),
            (Cmpsb, false) => run!("repe cmpsb"),
            (Cmpsw, false) => run!("repe cmpsw"),
            (Cmpsd, false) => run!("repe cmpsd"),
            (Cmpsq, false) => run!("repe cmpsq"),
            (Scasb, false) => run!("repe scasb"),
            (Scasw, false) => run!("repe scasw"),
            (Scasd, false) => run!("repe scasd"),
            (Scasq, false) => run!("repe scasq"),
            (Cmpsb, true) => run!("repne cmpsb"),
            (Cmpsw, true) => run!("repne cmpsw"),
            (Cmpsd, true) => run!("repne cmpsd"),
            (Cmpsq, true) => run!("repne cmpsq"),
            (Scasb, true) => run!("repne scasb"),
            (Scasw, true) => run!("repne scasw"),
            (Scasd, true) => run!("repne scasd"),
            (Scasq, true) => run!("repne scasq"),
            _ => {}
        }
        state.set_register(6, rsi);
        state.set_register(7, rdi);
        state.set_register(0, rax);
        state.set(FLAGS, flags | before & ALIGNMENT);
        rcx
    }
}
