//! The accesses of instructions whose addresses translated code cannot compute. The engine computes
//! these addresses before the instruction is executed.
//!
//! These are operands with a 32-bit register or with a gather's vector of indices, bits outside the addressed
//! word (`bt [rdi], rax`), and areas whose size only the processor knows (`xsave`).

use alloc::vec::Vec;

use iced_x86::{Instruction, Mnemonic, OpAccess, Register, UsedMemory};
use ring::Tag;

use crate::area;
use crate::insn::{number, pieces};
use crate::state::{FS_BASE, State};
use crate::vectors::Vectors;

/// The maximum size of one access in bytes.
const BYTES_MAX: u32 = 64;

/// The addresses and tags of the accesses of `instruction` to its operands `used`. The error says
/// why the instruction is refused. `vectors` reads the vector registers, and `word` a word of the
/// program's memory.
pub(crate) fn accesses(
    instruction: &Instruction,
    used: &[UsedMemory],
    state: State,
    vectors: impl Fn() -> Vectors,
    word: impl Fn(u64) -> u64,
) -> Result<Vec<(u64, u16)>, &'static str> {
    let mut accesses: Vec<(u64, u16)> = Vec::new();
    for memory in used {
        let bits = match memory.access() {
            OpAccess::None | OpAccess::NoMemAccess => continue,
            OpAccess::Read | OpAccess::CondRead => Tag::LOAD,
            OpAccess::Write | OpAccess::CondWrite => Tag::STORE,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => Tag::LOAD | Tag::STORE,
        };
        let tag = |size: u32| (size.trailing_zeros() as u16) << Tag::SIZE_SHIFT | bits;
        if memory.index().is_vector_register() {
            let base = with_segment(value(state, memory.base()), memory, state);
            let addresses = vectors().elements(instruction, base);
            let addresses =
                addresses.ok_or("it runs an unsupported gather or scatter instruction")?;
            let tag = tag(memory.memory_size().size() as u32);
            accesses.extend(addresses.into_iter().map(|address| (address, tag)));
            continue;
        }
        let mut at = address_of(instruction, memory, state);
        let bytes = bytes_of(instruction, memory, state, || word(at.wrapping_add(area::FORM)))?;
        let mut tell = |size: u32| {
            accesses.push((at, tag(size)));
            at = at.wrapping_add(size.into());
        };
        if bytes > BYTES_MAX.into() {
            (0..bytes.div_ceil(BYTES_MAX.into())).for_each(|_| tell(BYTES_MAX));
        } else {
            pieces(bytes as u32).for_each(tell);
        }
    }
    Ok(accesses)
}

/// The value of a general register, limited to the width that its name stands for. 0 if there is no
/// register.
pub(crate) fn value(state: State, register: Register) -> u64 {
    match register {
        Register::None => 0,
        register if register.size() == 1 => state.register(number(register)) & 0xff,
        register if register.is_gpr32() => state.register(number(register)) & 0xffff_ffff,
        register => state.register(number(register)),
    }
}

/// The address with the base of `fs` added if the operand is relative to `fs`. Operands relative to `gs` are
/// not assisted.
fn with_segment(address: u64, memory: &UsedMemory, state: State) -> u64 {
    match memory.segment() {
        Register::FS => address.wrapping_add(state.get(FS_BASE)),
        _ => address,
    }
}

/// The address of an operand without a vector of indices.
fn address_of(instruction: &Instruction, memory: &UsedMemory, state: State) -> u64 {
    let (base, index) = (memory.base(), memory.index());
    let mut address = match base {
        Register::RIP => instruction.ip_rel_memory_address(),
        base => value(state, base)
            .wrapping_add(value(state, index).wrapping_mul(memory.scale() as u64))
            .wrapping_add(memory.displacement()),
    };
    if base.is_gpr32() || index.is_gpr32() {
        address &= 0xffff_ffff;
    }
    let address = with_segment(address, memory, state);
    match instruction.mnemonic() {
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => {
            address.wrapping_add(word_of_bit(state, instruction.op1_register()))
        }
        _ => address,
    }
}

/// The distance from the addressed word to the word that contains the bit whose number is in
/// `register`.
fn word_of_bit(state: State, register: Register) -> u64 {
    let raw = state.register(number(register));
    let bit = match register.size() {
        2 => i64::from(raw as i16),
        4 => i64::from(raw as i32),
        _ => raw as i64,
    };
    let width = register.size() as i64;
    ((bit >> (3 + width.trailing_zeros())) * width) as u64
}

/// The number of bytes of an operand. `form` reads the form of an area that `xrstor` reads.
fn bytes_of(
    instruction: &Instruction,
    memory: &UsedMemory,
    state: State,
    form: impl Fn() -> u64,
) -> Result<u64, &'static str> {
    use Mnemonic::*;
    let low = |register: u8| state.register(register) & 0xffff_ffff;
    let wanted = || low(2) << 32 | low(0);
    match (memory.memory_size().size() as u64, instruction.mnemonic()) {
        (0, Xsave | Xsave64 | Xsaveopt | Xsaveopt64) => Ok(area::bytes(wanted(), 0)),
        (0, Xsavec | Xsavec64) => Ok(area::bytes(wanted(), area::compact(wanted()))),
        (0, Xrstor | Xrstor64) => Ok(area::bytes(wanted(), form())),
        (0, _) => Err("it runs an instruction whose number of accessed bytes is not known"),
        (bytes, _) => Ok(bytes),
    }
}
