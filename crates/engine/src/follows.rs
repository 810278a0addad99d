//! Which addresses a block writes into its record, and how the other addresses are derived from
//! these.
//!
//! ```text
//!   mov [rbx + 8], rax        written            word 0
//!   add rbx, 16
//!   mov [rbx], rcx            word 0 + 8         rbx is what it was then, and 16
//!   mov rdx, [rip + table]    block + distance
//! ```
//!
//! Within a block, each register is described as the sum of an unknown value and a known constant.
//! Two addresses with the same unknown values differ by a constant, which [`ring::Derived`] passes
//! to the host.

use alloc::vec::Vec;

use iced_x86::{Mnemonic, OpKind, Register};
use ring::{Derived, Tag};

use crate::emit::{NONE, Place};
use crate::insn::{Access, Insn, RSP, Rewritten, Segment, number, pieces};

/// An access of a block, and how its address is determined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// The tag of the access.
    pub(crate) tag: u16,
    /// How the address is derived; `None` if it is written into the record.
    pub(crate) derived: Option<Derived>,
}

/// Where an access of a block is: its operand, the distance of the access from the operand's address, and
/// the index of the instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) place: Place,
    pub(crate) segment: Segment,
    pub(crate) constant: Option<u64>,
    pub(crate) more: u64,
    pub(crate) instruction: usize,
}

/// The contents of a block's record.
pub(crate) struct Follows {
    /// All accesses of the block, in order.
    pub(crate) told: Vec<Told>,
    /// The operands of these accesses.
    pub(crate) operands: Vec<Operand>,
    /// The addresses that the block writes: the index of the instruction, and the operand.
    pub(crate) words: Vec<(usize, Place, Segment)>,
}

impl Follows {
    /// For the block at `start` with the instructions `insns`.
    pub(crate) fn of(start: u64, insns: &[Insn]) -> Follows {
        let mut follows = Follows { told: Vec::new(), operands: Vec::new(), words: Vec::new() };
        // What the addresses that are written are made of, and the index of each among the words.
        let mut sums: Vec<(Sum, u64, u16)> = Vec::new();
        let mut values = Values::new();
        for (at, insn) in insns.iter().enumerate() {
            if let Rewritten::WritesGs(..) = insn.rewritten {
                // Forgets the known addresses that depend on gs.
                sums.retain(|known| known.0.segment != Segment::Gs);
            }
            for access in &insn.accesses {
                let (sum, rest) = values.sum(access.place, access.segment);
                let derived = match access.constant {
                    Some(address) => Some(Derived::from_pc(address.wrapping_sub(start))),
                    None => sums
                        .iter()
                        .find(|known| known.0 == sum)
                        .map(|known| Derived::new(known.2, rest.wrapping_sub(known.1))),
                };
                let index = follows.words.len() as u16;
                if derived.is_none() {
                    sums.push((sum, rest, index));
                    follows.words.push((at, access.place, access.segment));
                }
                follows.tell(at, access, derived, index);
            }
            values.after(insn);
        }
        follows
    }

    /// Adds an operand of the instruction `at`. Its address is the word `index` of the record, unless it is
    /// `derived`. A load and a store are two accesses; an operand whose size is not a power of two is
    /// several.
    fn tell(&mut self, at: usize, access: &Access, derived: Option<Derived>, index: u16) {
        let tag = |size: u32, bits: u16| {
            at as u16 | (size.trailing_zeros() as u16) << Tag::SIZE_SHIFT | bits
        };
        let kinds: &[u16] = match (access.loads, access.stores) {
            (true, true) if access.is_atomic => &[Tag::LOAD | Tag::STORE],
            (true, true) => &[Tag::LOAD, Tag::STORE],
            (true, false) => &[Tag::LOAD],
            (false, _) => &[Tag::STORE],
        };
        for &bits in kinds {
            let mut more = 0u64;
            for size in pieces(access.bytes) {
                let derived = match derived {
                    Some(known) => {
                        Some(Derived { distance: known.distance.wrapping_add(more), ..known })
                    }
                    None if more == 0 && bits == kinds[0] => None,
                    None => Some(Derived::new(index, more)),
                };
                self.told.push(Told { tag: tag(size, bits), derived });
                let Access { place, segment, constant, .. } = *access;
                self.operands.push(Operand { place, segment, constant, more, instruction: at });
                more += u64::from(size);
            }
        }
    }
}

/// An unknown value, by its number, and the constant added to it.
type Value = (u32, u64);

/// The known values of registers at a place in a block.
struct Values {
    registers: [Value; 16],
    fresh: u32,
}

/// The unknown values of which an address consists.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sum {
    base: Option<u32>,
    index: Option<(u32, u8)>,
    segment: Segment,
}

impl Values {
    fn new() -> Values {
        let mut registers = [(0, 0); 16];
        for (at, value) in registers.iter_mut().enumerate() {
            value.0 = at as u32;
        }
        Values { registers, fresh: 16 }
    }

    fn sum(&self, place: Place, segment: Segment) -> (Sum, u64) {
        let mut rest = i64::from(place.disp) as u64;
        let base = (place.base != NONE).then(|| {
            let (root, more) = self.registers[usize::from(place.base)];
            rest = rest.wrapping_add(more);
            root
        });
        let index = (place.index != NONE).then(|| {
            let (root, more) = self.registers[usize::from(place.index)];
            rest = rest.wrapping_add(more.wrapping_mul(place.scale.into()));
            (root, place.scale)
        });
        (Sum { base, index, segment }, rest)
    }

    /// Updates the registers after an instruction.
    fn after(&mut self, insn: &Insn) {
        let i = &insn.instruction;
        let is_64 =
            i.op_count() > 0 && i.op0_kind() == OpKind::Register && i.op0_register().is_gpr64();
        let to = if is_64 { usize::from(number(i.op0_register())) } else { 0 };
        let constant = || match i.op1_kind() {
            OpKind::Immediate8to64 => Some(i.immediate8to64() as u64),
            OpKind::Immediate32to64 => Some(i.immediate32to64() as u64),
            _ => None,
        };
        let plus = |value: Value, more: u64| (value.0, value.1.wrapping_add(more));
        let known: Option<Value> = match i.mnemonic() {
            Mnemonic::Add if is_64 => constant().map(|more| plus(self.registers[to], more)),
            Mnemonic::Sub if is_64 => {
                constant().map(|less| plus(self.registers[to], less.wrapping_neg()))
            }
            Mnemonic::Inc if is_64 => Some(plus(self.registers[to], 1)),
            Mnemonic::Dec if is_64 => Some(plus(self.registers[to], u64::MAX)),
            Mnemonic::Mov if is_64 && i.op1_kind() == OpKind::Register => {
                Some(self.registers[usize::from(number(i.op1_register()))])
            }
            Mnemonic::Lea
                if is_64
                    && i.memory_base().is_gpr64()
                    && i.memory_index() == Register::None
                    && i.segment_prefix() == Register::None =>
            {
                let from = self.registers[usize::from(number(i.memory_base()))];
                Some(plus(from, i.memory_displacement64()))
            }
            _ => None,
        };
        let step = i.stack_pointer_increment();
        let rsp = self.registers[usize::from(RSP)];
        for register in 0..16 {
            if insn.written >> register & 1 != 0 {
                self.registers[register] = (self.fresh, 0);
                self.fresh += 1;
            }
        }
        if let Some(known) = known {
            self.registers[to] = known;
        }
        let moves = matches!(
            i.mnemonic(),
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Call | Mnemonic::Pushfq | Mnemonic::Popfq
        );
        let is_popped = i.mnemonic() == Mnemonic::Pop && is_64 && to == usize::from(RSP);
        if moves && !is_popped {
            self.registers[usize::from(RSP)] = plus(rsp, i64::from(step) as u64);
        }
    }
}
