//! Determines a program's code and data accesses with the processor: `ptrace` executes one
//! instruction at a time, and the accesses of each instruction are computed from its operands and
//! the register values before it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use addr::Kind;
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use crate::alone::{Access, append};

/// The execution of a program: its code, its data accesses, and the number of its instructions.
#[derive(Default)]
pub(crate) struct Stepped {
    pub(crate) code: Vec<(u64, u64)>,
    pub(crate) data: Vec<Access>,
    pub(crate) instructions: u64,
}

impl Stepped {
    fn add(&mut self, operands: Vec<Operand>) {
        for (loads, stores, address, bytes) in operands {
            if loads {
                append(&mut self.data, Kind::Load, address, bytes);
            }
            if stores {
                append(&mut self.data, Kind::Store, address, bytes);
            }
        }
    }
}

fn value(registers: &libc::user_regs_struct, register: Register) -> Option<u64> {
    let full = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RBX => registers.rbx,
        Register::RSP => registers.rsp,
        Register::RBP => registers.rbp,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => return Some(registers.fs_base),
        Register::GS => return Some(registers.gs_base),
        Register::CS | Register::DS | Register::ES | Register::SS => return Some(0),
        _ => return None,
    };
    Some(match register.size() {
        1 => full & 0xff,
        2 => full & 0xffff,
        4 => full & 0xffff_ffff,
        _ => full,
    })
}

fn is_repeated(instruction: &Instruction) -> bool {
    let has_prefix = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    instruction.is_string_instruction() && has_prefix
}

/// An operand in memory: whether it is loaded, whether it is stored, its address, and its size in
/// bytes.
type Operand = (bool, bool, u64, u64);

/// The accesses of an instruction, computed from the register values before it.
fn accesses(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    registers: &libc::user_regs_struct,
) -> Vec<Operand> {
    let mut found = Vec::new();
    use Mnemonic::{Bt, Btc, Btr, Bts, Cmpsb, Cmpsd, Cmpsq, Cmpsw};
    for memory in factory.info(instruction).used_memory() {
        let (loads, stores) = match memory.access() {
            OpAccess::None | OpAccess::NoMemAccess => continue,
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::Write | OpAccess::CondWrite => (false, true),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        };
        let address = memory.virtual_address(0, |register, _, _| value(registers, register));
        let mut address = address.expect("an address of general registers");
        let is_bit = matches!(instruction.mnemonic(), Bt | Btc | Btr | Bts);
        if is_bit && instruction.op1_kind() == OpKind::Register {
            let register = instruction.op1_register();
            let (bit, width) = (value(registers, register).unwrap(), register.size() as i64);
            let bit = (bit as i64) << (64 - 8 * width) >> (64 - 8 * width);
            address = address.wrapping_add((bit.div_euclid(8 * width) * width) as u64);
        }
        // The decoder does not give the size of an element of a repeated instruction.
        let size = match memory.memory_size().size() {
            0 if is_repeated(instruction) => instruction.memory_size().size(),
            size => size,
        };
        found.push((loads, stores, address, size as u64));
    }
    // Loads come first. The operands of comparisons are in the order in which QEMU reads them.
    found.sort_by_key(|&(loads, stores, ..)| stores && !loads);
    if instruction.is_string_instruction()
        && matches!(instruction.mnemonic(), Cmpsb | Cmpsw | Cmpsd | Cmpsq)
    {
        found.reverse();
    }
    found
}

/// Executes `program` one instruction at a time.
pub(crate) fn step(program: &Path) -> Stepped {
    let mut command = Command::new(program);
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    #[allow(clippy::zombie_processes)] // It is waited for by its number, to its end.
    let child = command.spawn().expect("the program starts");
    let pid = child.id() as i32;
    let memory = File::open(format!("/proc/{pid}/mem")).expect("the memory of a child");
    let (mut stepped, mut factory) = (Stepped::default(), InstructionInfoFactory::new());
    // The repeated instruction of the last step, and the registers before this step.
    let mut before: Option<(Instruction, libc::user_regs_struct)> = None;
    loop {
        let mut status = 0;
        // SAFETY: plain system calls on a child that waits; the structure is ours.
        let registers = unsafe {
            assert_eq!(libc::waitpid(pid, &mut status, libc::__WALL), pid);
            if !libc::WIFSTOPPED(status) {
                return stepped;
            }
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers);
            registers
        };
        let rip = registers.rip;
        let repeated = before.take();
        if let Some((instruction, mut from)) = repeated {
            // The processor may do several elements in one step.
            let down = from.eflags >> 10 & 1 != 0;
            while from.rcx != registers.rcx {
                let found = accesses(&mut factory, &instruction, &from);
                let bytes = found[0].3;
                stepped.add(found);
                let step = if down { bytes.wrapping_neg() } else { bytes };
                (from.rsi, from.rdi) = (from.rsi.wrapping_add(step), from.rdi.wrapping_add(step));
                from.rcx -= 1;
            }
        }
        // The bytes are read again each time, because the program may have changed them.
        let mut bytes = [0; 15];
        let length = memory.read_at(&mut bytes, rip).expect("code can be read");
        let instruction =
            Decoder::with_ip(64, &bytes[..length], rip, DecoderOptions::NONE).decode();
        if repeated.is_none_or(|(instruction, _)| instruction.ip() != rip) {
            stepped.instructions += 1;
            match stepped.code.last_mut() {
                Some(last) if last.1 == rip => last.1 = instruction.next_ip(),
                _ => stepped.code.push((rip, instruction.next_ip())),
            }
        }
        if is_repeated(&instruction) {
            before = Some((instruction, registers));
        } else {
            stepped.add(accesses(&mut factory, &instruction, &registers));
        }
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
    }
}
