//! Which addresses of a block follow from others.
//!
//! ```text
//!   the block               QEMU's list              value          where the address comes from
//!   mov rax, [rbp - 8]      A0 = rbp + -8            rbp - 8        it is recorded
//!   add rbp, 64             rbp = rbp + 64
//!   mov rcx, [rbp - 64]     A0 = rbp + -64           rbp + 0        8 behind the first
//!   mov rdx, [rip + 100]    A0 = 0x401064            0x401064       100 behind the block's start
//! ```
//!
//! A block's list is gone through once, and each temporary has a [`Value`]: a root, and how far
//! from it. Moves and additions of constants keep the root, and one pure operation on the same
//! values has one root. Whatever else writes a temporary gives it a new one. So two addresses with
//! one root are as far from each other whenever the block runs.

use ring::{Derived, SPAN_ROOM};

use crate::tcg::{Op, TEMPS_MAX, Tcg, Temp};

/// What a temporary holds: something that is the same throughout a block's run, and a distance.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Value {
    root: u32,
    distance: u64,
}

/// The root of what is known when the block is translated.
const CONSTANT: u32 = 0;
/// Pure operations that are remembered: equal ones are seldom far apart.
const REMEMBERED: usize = 64;

/// A pure operation: opcode, inputs, constant arguments, and the root of what it gives.
#[derive(Clone, Copy)]
struct Pure {
    opcode: u8,
    inputs: [Option<Value>; 3],
    constants: [usize; 2],
    root: u32,
}

/// The values of temporaries, as far as a block's list has been gone through.
pub(crate) struct Values {
    /// The first of all temporaries.
    environment: usize,
    temps: [Option<Value>; TEMPS_MAX],
    roots: u32,
    pure: [Option<Pure>; REMEMBERED],
    pure_count: usize,
    /// For each root of an address that is recorded, which one it is, and the value.
    recorded: [(u16, Value); SPAN_ROOM],
    recorded_count: usize,
}

impl Values {
    /// Nothing is known; `environment` is the first of all temporaries.
    pub(crate) fn new(environment: usize) -> Values {
        Values {
            environment,
            temps: [None; TEMPS_MAX],
            roots: CONSTANT,
            pure: [None; REMEMBERED],
            pure_count: 0,
            recorded: [(0, Value { root: CONSTANT, distance: 0 }); SPAN_ROOM],
            recorded_count: 0,
        }
    }

    /// Goes on behind `op`.
    ///
    /// # Safety
    ///
    /// It is the next of the block that is being translated.
    pub(crate) unsafe fn pass(&mut self, tcg: &Tcg, op: *const Op) {
        // SAFETY: as the caller promises; arguments are what the opcode's definition says.
        unsafe {
            let args = &(*op).args;
            if (*op).opcode() == tcg.opcodes.call {
                if Tcg::may_write_registers(op) {
                    self.temps = [None; TEMPS_MAX];
                }
                Tcg::results(op).iter().for_each(|&temp| self.write(temp, None));
                return;
            }
            if tcg.ends_basic_block(op) {
                self.temps = [None; TEMPS_MAX];
                return;
            }
            let [outputs, inputs, constants] = tcg.counts(op);
            let is_known = tcg.pure(op) && outputs == 1 && inputs <= 3 && constants <= 2;
            let value = is_known.then(|| {
                let mut of = [None; 3];
                for (value, &temp) in of.iter_mut().zip(&args[1..1 + inputs]) {
                    *value = Some(self.read(temp));
                }
                let mut known = [0; 2];
                known[..constants].copy_from_slice(&args[1 + inputs..][..constants]);
                self.compute(tcg, (*op).opcode(), of, known)
            });
            args[..outputs].iter().for_each(|&temp| self.write(temp, value));
        }
    }

    /// How the address that `temp` holds comes from those that are recorded, of which the next would
    /// be that of index `next`, or from the block's start, `pc`. If it does not, it is recorded.
    pub(crate) unsafe fn derive(&mut self, temp: usize, next: u16, pc: u64) -> Option<Derived> {
        // SAFETY: the caller gives an operation's argument.
        let value = unsafe { self.read(temp) };
        if value.root == CONSTANT {
            return Some(Derived::from_pc(value.distance.wrapping_sub(pc)));
        }
        let recorded = &self.recorded[..self.recorded_count];
        if let Some((index, first)) = recorded.iter().find(|(_, first)| first.root == value.root) {
            return Some(Derived::new(*index, value.distance.wrapping_sub(first.distance)));
        }
        if let Some(recorded) = self.recorded.get_mut(self.recorded_count) {
            *recorded = (next, value);
            self.recorded_count += 1;
        }
        None
    }

    /// What a pure operation gives.
    fn compute(
        &mut self,
        tcg: &Tcg,
        opcode: u8,
        inputs: [Option<Value>; 3],
        constants: [usize; 2],
    ) -> Value {
        let codes = &tcg.opcodes;
        match inputs {
            [Some(from), None, _] if opcode == codes.mov_i64 || opcode == codes.mov_i32 => {
                return from;
            }
            [Some(from), Some(Value { root: CONSTANT, distance }), _]
            | [Some(Value { root: CONSTANT, distance }), Some(from), _]
                if opcode == codes.add_i64 =>
            {
                return Value { distance: from.distance.wrapping_add(distance), ..from };
            }
            [Some(from), Some(Value { root: CONSTANT, distance }), _]
                if opcode == codes.sub_i64 =>
            {
                return Value { distance: from.distance.wrapping_sub(distance), ..from };
            }
            _ => {}
        }
        // The sum of two values is as far from the sum of their roots as both together.
        let mut inputs = inputs;
        let mut distance = 0u64;
        if opcode == codes.add_i64 {
            for value in inputs.iter_mut().flatten() {
                distance = distance.wrapping_add(std::mem::take(&mut value.distance));
            }
        }
        let same = |pure: &&Pure| {
            pure.opcode == opcode && pure.inputs == inputs && pure.constants == constants
        };
        let root = match self.pure.iter().flatten().find(same) {
            Some(pure) => pure.root,
            None => {
                let root = self.new_root();
                let pure = Pure { opcode, inputs, constants, root };
                self.pure[self.pure_count % REMEMBERED] = Some(pure);
                self.pure_count += 1;
                root
            }
        };
        Value { root, distance }
    }

    unsafe fn read(&mut self, temp: usize) -> Value {
        // SAFETY: the caller gives an operation's argument.
        unsafe {
            if Temp::is_constant(temp) {
                let distance = (*(temp as *const Temp)).value as u64;
                return Value { root: CONSTANT, distance };
            }
        }
        if let Some(&Some(value)) = self.temps.get(self.index(temp)) {
            return value;
        }
        let value = Value { root: self.new_root(), distance: 0 };
        self.write(temp, Some(value));
        value
    }

    fn write(&mut self, temp: usize, value: Option<Value>) {
        let index = self.index(temp);
        if let Some(now) = self.temps.get_mut(index) {
            *now = value;
        }
    }

    fn index(&self, temp: usize) -> usize {
        temp.wrapping_sub(self.environment) / size_of::<Temp>()
    }

    fn new_root(&mut self) -> u32 {
        self.roots += 1;
        self.roots
    }
}
