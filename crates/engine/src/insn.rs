//! Properties of an instruction that its translation needs.

use alloc::vec::Vec;

use iced_x86::{
    Decoder, DecoderOptions, Encoder, FlowControl, Instruction, InstructionInfo,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use crate::emit::{NONE, Place};
use crate::state::{FS_BASE, GS_BASE, SCRATCH};

/// The most bytes of an instruction.
pub(crate) const BYTES_MAX: usize = 15;
/// The reason why an instruction that uses gs is refused.
pub(crate) const ODD_GS: &str = "it uses the segment register gs in an unsupported instruction";
/// The processor's number of rsp.
pub(crate) const RSP: u8 = 4;

/// Which instruction may follow an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// The next instruction in memory.
    Next,
    /// The instruction at this address.
    Jump(u64),
    /// The instruction at this address if a condition of the flags, given by the processor's
    /// number, holds; otherwise the next one.
    Branch(u8, u64),
    /// The instruction at this address or the next one, depending on rcx.
    Loop(u64),
    /// A call of this address.
    Call(u64),
    /// A jump or call to an address in a register or in memory.
    Indirect {
        /// Whether the instruction is a call.
        call: bool,
    },
    /// A return, which then frees this number of bytes of the stack.
    Return(u16),
    /// A system call.
    Syscall,
    /// A signal is raised.
    Raises,
    /// A string instruction that is repeated rcx times: the engine executes it and reports its
    /// accesses.
    Repeated,
    /// The next instruction; the engine reports the accesses of this instruction before the
    /// instruction is executed.
    Assisted,
    /// The engine cannot execute the instruction, for this reason.
    Refused(&'static str),
}

/// The segment whose base is added to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Segment {
    /// None.
    Flat,
    /// `fs`, whose base is in the processor.
    Fs,
    /// `gs`, whose base is in a slot, as the processor's own base of gs is the engine's.
    Gs,
}

impl Segment {
    /// The slot that has the base.
    pub(crate) fn slot(self) -> Option<i32> {
        match self {
            Segment::Flat => None,
            Segment::Fs => Some(FS_BASE),
            Segment::Gs => Some(GS_BASE),
        }
    }
}

/// The code that replaces an instruction in translated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rewritten {
    /// The instruction itself.
    Not,
    /// The instruction with its memory operand at the address in the scratch register.
    Gs,
    /// A load of the base of `gs` into this register, with 4 or 8 bytes.
    ReadsGs(u8, u8),
    /// A store of this register to the base of `gs`.
    WritesGs(u8, u8),
}

/// A memory operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    pub(crate) place: Place,
    pub(crate) segment: Segment,
    /// The operand's address, if constant.
    pub(crate) constant: Option<u64>,
    pub(crate) bytes: u32,
    pub(crate) loads: bool,
    pub(crate) stores: bool,
    /// Whether load and store are one atomic access.
    pub(crate) is_atomic: bool,
}

/// An instruction.
pub(crate) struct Insn {
    pub(crate) instruction: Instruction,
    pub(crate) bytes: [u8; BYTES_MAX],
    /// The offset of the displacement within the instruction's bytes.
    pub(crate) displacement_at: usize,
    pub(crate) flow: Flow,
    pub(crate) rewritten: Rewritten,
    pub(crate) accesses: Vec<Access>,
    /// The registers that the instruction reads or writes, one bit each; the next field has those
    /// that it writes.
    pub(crate) used: u16,
    pub(crate) written: u16,
}

/// The register's number, if it is a general register.
pub(crate) fn number(register: Register) -> u8 {
    let full = register.full_register();
    if full.is_gpr64() { full.number() as u8 } else { NONE }
}

/// A decoder of instructions.
pub(crate) struct Reader {
    factory: InstructionInfoFactory,
}

impl Reader {
    pub(crate) fn new() -> Reader {
        Reader { factory: InstructionInfoFactory::new() }
    }

    /// The instruction at the beginning of `code`, which is at address `pc`; `None` if there is no
    /// valid instruction.
    pub(crate) fn read(&mut self, pc: u64, code: &[u8]) -> Option<Insn> {
        let code = &code[..code.len().min(BYTES_MAX)];
        let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let displacement_at = decoder.get_constant_offsets(&instruction).displacement_offset();
        let mut bytes = [0; BYTES_MAX];
        bytes[..instruction.len()].copy_from_slice(&code[..instruction.len()]);
        let info = self.factory.info(&instruction);
        let registers = Registers::of(info);
        let mut flow = flow(&instruction);
        if registers.loads_segment {
            flow = Flow::Refused("it loads the segment register fs or gs");
        }
        let wide = |register: Register| if register.is_gpr32() { 4 } else { 8 };
        let mut rewritten = match instruction.mnemonic() {
            Mnemonic::Rdgsbase => {
                let to = instruction.op0_register();
                Rewritten::ReadsGs(number(to), wide(to))
            }
            Mnemonic::Wrgsbase => {
                let from = instruction.op0_register();
                Rewritten::WritesGs(number(from), wide(from))
            }
            _ => Rewritten::Not,
        };
        let mut accesses = Vec::new();
        for memory in info.used_memory() {
            let (loads, stores) = match memory.access() {
                OpAccess::None | OpAccess::NoMemAccess => continue,
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            };
            let (access, is_plain) = operand(&instruction, memory, loads, stores);
            // The stack pointer of `pop` is read after it has moved.
            let is_odd_gs = !is_plain
                || flow != Flow::Next
                || instruction.is_string_instruction()
                || instruction.mnemonic() == Mnemonic::Pop && access.place.base == RSP;
            if access.segment == Segment::Gs && is_odd_gs {
                flow = Flow::Refused(ODD_GS);
            } else if access.segment == Segment::Gs {
                rewritten = Rewritten::Gs;
            } else if !is_plain && flow == Flow::Next {
                flow = Flow::Assisted;
            } else if !is_plain
                && !matches!(flow, Flow::Assisted | Flow::Repeated | Flow::Refused(_))
            {
                flow = Flow::Refused("it runs a branch with an unsupported operand");
            }
            accesses.push(access);
        }
        if rewritten == Rewritten::Gs && with_operand_at(&instruction, SCRATCH).is_none() {
            flow = Flow::Refused(ODD_GS);
        }
        // Loads come before stores: the value that is pushed or moved is read first.
        accesses.sort_by_key(|access| access.stores && !access.loads);
        if matches!(instruction.mnemonic(), Mnemonic::Cmpsb | Mnemonic::Cmpsw | Mnemonic::Cmpsq)
            || instruction.mnemonic() == Mnemonic::Cmpsd && instruction.is_string_instruction()
        {
            // The order is that of QEMU, so that both record the same accesses.
            accesses.reverse();
        }
        let Registers { used, written, .. } = registers;
        Some(Insn { instruction, bytes, displacement_at, flow, rewritten, accesses, used, written })
    }
}

/// The general registers that an instruction uses, one bit each.
struct Registers {
    /// The registers that the instruction reads or writes.
    used: u16,
    /// The registers that the instruction writes.
    written: u16,
    /// Whether the instruction loads `fs` or `gs`.
    loads_segment: bool,
}

impl Registers {
    fn of(info: &InstructionInfo) -> Registers {
        let mut registers = Registers { used: 0, written: 0, loads_segment: false };
        for register in info.used_registers() {
            let is_written = match register.access() {
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess => {
                    false
                }
                OpAccess::Write
                | OpAccess::CondWrite
                | OpAccess::ReadWrite
                | OpAccess::ReadCondWrite => true,
            };
            let register = register.register();
            if !register.is_gpr() {
                registers.loads_segment |=
                    is_written && matches!(register, Register::FS | Register::GS);
                continue;
            }
            let bit = 1 << number(register);
            registers.used |= bit;
            if is_written {
                registers.written |= bit;
            }
        }
        registers
    }
}

/// A memory operand, and whether translated code can compute its address.
fn operand(
    instruction: &Instruction,
    memory: &UsedMemory,
    loads: bool,
    stores: bool,
) -> (Access, bool) {
    let (base, index) = (memory.base(), memory.index());
    let segment = match memory.segment() {
        Register::FS => Segment::Fs,
        Register::GS => Segment::Gs,
        _ => Segment::Flat,
    };
    let is_odd = |register: Register| {
        register != Register::None && register != Register::RIP && !register.is_gpr64()
    };
    let ip_relative = instruction.is_ip_rel_memory_operand() && base == Register::RIP;
    let (disp, base, index) = if ip_relative {
        (instruction.ip_rel_memory_address(), NONE, NONE)
    } else {
        (memory.displacement(), number(base), number(index))
    };
    let bytes = memory.memory_size().size() as u32;
    let is_constant = base == NONE && index == NONE;
    let is_near = disp as i64 == i64::from(disp as i32);
    let is_plain = !is_odd(memory.base())
        && !is_odd(memory.index())
        && (is_constant || is_near)
        && (segment == Segment::Flat || is_near)
        && bytes != 0;
    let access = Access {
        place: Place { base, index, scale: memory.scale() as u8, disp: disp as i32 },
        segment,
        constant: (is_constant && segment == Segment::Flat).then_some(disp),
        bytes,
        loads,
        stores,
        is_atomic: loads && stores && is_atomic(instruction),
    };
    (access, is_plain)
}

/// The 64-bit registers, by the processor's numbers.
const NAMES: [Register; 16] = {
    use Register::*;
    [RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15]
};

/// The code of an instruction with its memory operand at the address in `register`; `None` if that cannot be
/// encoded, as with a register `ah`.
pub(crate) fn with_operand_at(instruction: &Instruction, register: u8) -> Option<Vec<u8>> {
    let mut instruction = *instruction;
    instruction.set_segment_prefix(Register::None);
    instruction.set_memory_base(NAMES[usize::from(register)]);
    instruction.set_memory_index(Register::None);
    instruction.set_memory_index_scale(1);
    instruction.set_memory_displacement64(0);
    instruction.set_memory_displ_size(0);
    let mut encoder = Encoder::new(64);
    // The address does not matter, since the instruction contains no distance.
    encoder.encode(&instruction, 0).ok()?;
    Some(encoder.take_buffer())
}

fn is_atomic(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg
}

fn flow(instruction: &Instruction) -> Flow {
    let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if instruction.is_string_instruction() && is_repeated {
        return match instruction.mnemonic() {
            Mnemonic::Insb | Mnemonic::Insw | Mnemonic::Insd => Flow::Raises,
            Mnemonic::Outsb | Mnemonic::Outsw | Mnemonic::Outsd => Flow::Raises,
            _ => Flow::Repeated,
        };
    }
    match instruction.mnemonic() {
        Mnemonic::Syscall => return Flow::Syscall,
        Mnemonic::Wrfsbase | Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => {
            let is_bit_of_memory = instruction.op0_kind() == OpKind::Memory
                && instruction.op1_kind() == OpKind::Register;
            if is_bit_of_memory || instruction.mnemonic() == Mnemonic::Wrfsbase {
                return Flow::Assisted;
            }
        }
        Mnemonic::Xbegin | Mnemonic::Xend | Mnemonic::Xabort => {
            return Flow::Refused("it begins a transaction of memory (TSX)");
        }
        Mnemonic::Int if instruction.immediate8() == 0x80 => {
            return Flow::Refused("it makes a system call of 32-bit programs");
        }
        Mnemonic::Sysenter => return Flow::Refused("it makes a system call of 32-bit programs"),
        _ => {}
    }
    let target = || instruction.near_branch_target();
    match instruction.flow_control() {
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
            Flow::Jump(target())
        }
        FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
            Flow::Branch(instruction.condition_code() as u8 - 1, target())
        }
        FlowControl::ConditionalBranch
            if instruction.is_jcx_short() || instruction.is_loop() || instruction.is_loopcc() =>
        {
            Flow::Loop(target())
        }
        FlowControl::Call if instruction.is_call_near() => Flow::Call(target()),
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => {
            Flow::Indirect { call: false }
        }
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => {
            Flow::Indirect { call: true }
        }
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => {
            Flow::Return(if instruction.op_count() > 0 { instruction.immediate16() } else { 0 })
        }
        FlowControl::Exception | FlowControl::Interrupt => Flow::Raises,
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::ConditionalBranch
        | FlowControl::Return
        | FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::XbeginXabortXend => Flow::Refused("it branches to another segment"),
    }
}

/// The sizes of the accesses that represent one access of `bytes` bytes in the trace, in the order of their
/// addresses. Each is a power of two.
pub(crate) fn pieces(bytes: u32) -> impl Iterator<Item = u32> {
    let (unit, count, rest) = match bytes {
        // A number of 10 bytes is recorded as 8 bytes and the 2 bytes of its sign and exponent.
        10 => (8, 1, 2),
        _ if bytes.is_power_of_two() && bytes <= 64 => (bytes, 1, 0),
        _ if bytes.is_multiple_of(8) => (8, bytes / 8, 0),
        _ if bytes.is_multiple_of(4) => (4, bytes / 4, 0),
        _ if bytes.is_multiple_of(2) => (2, bytes / 2, 0),
        _ => (1, bytes, 0),
    };
    (0..count).map(move |_| unit).chain((rest != 0).then_some(rest))
}
