//! Recording without callbacks: the records are written by the translated code itself.
//!
//! ```text
//!   QEMU's list for a block                   what is put there
//!   +------------------------------+
//!   | callback at the start, empty |   if the span is nearly full: callback on_room
//!   |                              |   cursor = [NEXT]; [cursor] = block; [NEXT] = cursor + 8
//!   | load                         |
//!   | callback, empty              |   [cursor + 8] = address << 16 | tag; [NEXT] = cursor + 16
//!   | helper                       |
//!   | callbacks, empty             |   on_access, as the plugin interface has it
//!   +------------------------------+
//! ```
//!
//! A callback costs some 3 ns: QEMU has to save the guest's registers for each. The code that is
//! put here in its place is five instructions of the host for an access. An instruction that QEMU
//! runs with the help of its own C code may access memory there, and keeps its callbacks.
//!
//! A block begins with [`SPAN_ROOM`] records to spare in its span, and so does what follows a
//! callback; so no access has to look. `NEXT` is moved with each record: the block may be left
//! at any access that faults.

use ring::{NEXT_BYTES, Record, SPAN_ROOM, VCPUS_MAX};

use crate::tcg::{Op, Ops, Tcg, Temp};
use crate::vcpu::{self, RECORD_BYTES};

/// `enum plugin_gen_from` and `enum plugin_gen_cb` of `accel/tcg/plugin-gen.c`.
const FROM_TB: usize = 0;
const FROM_MEM: usize = 2;
const CB_UDATA: usize = 0;
const CB_MEM: usize = 2;

/// Temporaries and constants that a block's code needs, and those that each access needs.
const BLOCK_TEMPS: usize = 32;
const ACCESS_TEMPS: usize = 2;
/// Instructions that a block of QEMU's can have.
const INSTRUCTIONS_MAX: usize = 512;

/// Which instructions keep their callbacks.
pub(crate) struct Kept([bool; INSTRUCTIONS_MAX]);

impl Kept {
    /// Whether that instruction does.
    pub(crate) fn has(&self, instruction: usize) -> bool {
        self.0.get(instruction).is_none_or(|&kept| kept)
    }
}

/// The empty callback before a block's first instruction, with what can be used of it.
#[derive(Clone, Copy)]
struct Start {
    /// Its first operation, and the one that follows its last.
    begin: *mut Op,
    after: *mut Op,
    /// A temporary that QEMU uses nowhere else at this place.
    scratch: usize,
    /// Where the number of the virtual CPU is: `environment + index_offset`.
    environment: usize,
    index_offset: usize,
}

/// The empty callback behind an access.
struct Access {
    begin: *mut Op,
    /// The temporary that holds the address, and whether it is one of 32 bits.
    address: usize,
    narrow: bool,
    /// What QEMU tells of size and kind.
    info: u32,
    /// Temporaries that QEMU uses nowhere else at this place.
    scratch: [usize; 2],
}

/// Puts code for block and accesses into the block that is being translated, whose record is
/// `record`. The callback `on_room` must be registered for its start, and the others for the
/// instructions that keep them. `None` if it has something unknown: nothing was put there.
///
/// # Safety
///
/// In QEMU's callback for a translated block, before callbacks are registered.
pub(crate) unsafe fn instrument(tcg: &Tcg, record: u64) -> Option<Kept> {
    // SAFETY: the operations are those of the block that is being translated.
    unsafe {
        let (start, kept, accesses) = survey(tcg)?;
        // One record is the block's own, and one a callback's.
        let has_room = accesses + 2 <= SPAN_ROOM
            && tcg.has_temps(start.environment, BLOCK_TEMPS + ACCESS_TEMPS * accesses);
        if !has_room || loops(tcg) {
            return None;
        }
        let (cursor, next) = (tcg.fresh_temp(), Next::new(tcg));
        begin(tcg, &start, &next, cursor, record);
        write_accesses(tcg, &start, &next, cursor, &kept);
        Some(kept)
    }
}

/// Looks at the whole block: its start, which instructions call helpers, and how many accesses
/// there are.
unsafe fn survey(tcg: &Tcg) -> Option<(Start, Kept, usize)> {
    let codes = &tcg.opcodes;
    let mut kept = Kept([false; INSTRUCTIONS_MAX]);
    let (mut start, mut instruction, mut accesses) = (None, None, 0);
    // SAFETY: as for `instrument`.
    unsafe {
        let mut ops = tcg.ops();
        while let Some(op) = ops.next() {
            let code = (*op).opcode();
            if code == codes.insn_start {
                instruction = Some(instruction.map_or(0, |index| index + 1));
            } else if code == codes.plugin_cb_start {
                match ((*op).args[0], (*op).args[1]) {
                    (FROM_TB, CB_UDATA) => start = Some(Start::read(tcg, op)?),
                    (FROM_MEM, CB_MEM) => {
                        Access::read(tcg, op)?;
                        accesses += 1;
                    }
                    _ => {}
                }
                ops.find(|&op| (*op).opcode() == codes.plugin_cb_end)?;
            } else if code == codes.call && Tcg::may_access(op) {
                *kept.0.get_mut(instruction.unwrap_or(INSTRUCTIONS_MAX))? = true;
            }
        }
    }
    Some((start?, kept, accesses))
}

/// Whether the block branches back inside: an access in it may then run more than once.
fn loops(tcg: &Tcg) -> bool {
    // SAFETY: as for `instrument`.
    unsafe {
        tcg.ops().enumerate().any(|(index, op)| {
            (*op).opcode() == tcg.opcodes.set_label
                && tcg.ops().skip(index).any(|later| {
                    tcg.branch_target(later).is_some_and(|target| target == (*op).args[0])
                })
        })
    }
}

/// The address of the cursor.
enum Next {
    /// A constant, while the process has one thread: see [`vcpu::expect_threads`].
    Constant(usize),
    /// A temporary, one of 32 bits to compute it, and the table that the virtual CPU's offset is
    /// added to.
    Computed(usize, usize, u64),
}

impl Next {
    unsafe fn new(tcg: &Tcg) -> Next {
        let table = vcpu::next(0) as u64;
        // SAFETY: as for `instrument`.
        unsafe {
            if vcpu::is_alone() {
                Next::Constant(tcg.constant(table))
            } else {
                Next::Computed(tcg.fresh_temp(), tcg.fresh_narrow_temp(), table)
            }
        }
    }

    /// The argument that stands for it, where it was computed in the same basic block.
    fn argument(&self) -> usize {
        match *self {
            Next::Constant(argument) | Next::Computed(argument, ..) => argument,
        }
    }

    /// Computes it before `op`.
    unsafe fn compute(&self, tcg: &Tcg, start: &Start, op: *mut Op) {
        if let Next::Computed(temp, index, table) = *self {
            const ENTRY_SHIFT: u32 = (NEXT_BYTES / VCPUS_MAX).trailing_zeros();
            let write = tcg.before(op);
            // SAFETY: as for `instrument`.
            unsafe {
                write.load_32(index, start.environment, start.index_offset);
                write.extend(temp, index);
                write.shift_left(temp, temp, ENTRY_SHIFT.into());
                write.add(temp, temp, table);
            }
        }
    }
}

/// Makes room and records the block.
unsafe fn begin(tcg: &Tcg, start: &Start, next: &Next, cursor: usize, record: u64) {
    let scratch = start.scratch;
    // SAFETY: as for `instrument`.
    unsafe {
        let has_room = tcg.new_label();
        next.compute(tcg, start, start.begin);
        let write = tcg.before(start.begin);
        write.load(scratch, next.argument());
        write.add(scratch, scratch, (RECORD_BYTES as u64).wrapping_neg());
        write.and(scratch, scratch, vcpu::SPAN_MASK as u64);
        write.branch_if_at_most(scratch, vcpu::ROOMY_BYTES as u64, has_room);
        // Between the two is QEMU's callback.
        let write = tcg.before(start.after);
        write.label(has_room);
        next.compute(tcg, start, start.after);
        write.load(cursor, next.argument());
        write.store(tcg.constant(record), cursor, 0);
        write.add(scratch, cursor, RECORD_BYTES as u64);
        write.store(scratch, next.argument(), 0);
    }
}

/// Records the accesses of instructions that do not keep their callbacks.
unsafe fn write_accesses(tcg: &Tcg, start: &Start, next: &Next, cursor: usize, kept: &Kept) {
    let codes = &tcg.opcodes;
    // Bytes from `cursor` to the next record, where that is known.
    let mut offset = Some(RECORD_BYTES);
    let mut instruction = None;
    // SAFETY: as for `instrument`.
    unsafe {
        for op in tcg.ops().skip_while(|&op| op != start.after) {
            let code = (*op).opcode();
            if code == codes.insn_start {
                if instruction.is_some_and(|index| kept.has(index)) {
                    offset = None;
                }
                instruction = Some(instruction.map_or(0, |index| index + 1));
            } else if tcg.ends_basic_block(op) {
                offset = None;
            } else if code == codes.plugin_cb_start
                && (FROM_MEM, CB_MEM) == ((*op).args[0], (*op).args[1])
                && let Some(index) = instruction
                && !kept.has(index)
                && let Some(access) = Access::read(tcg, op)
            {
                let at = offset.unwrap_or_else(|| {
                    next.compute(tcg, start, op);
                    tcg.before(op).load(cursor, next.argument());
                    0
                });
                access.record(tcg, next, cursor, at, index);
                offset = Some(at + RECORD_BYTES);
            }
        }
    }
}

impl Start {
    /// Of the empty callback that begins with `begin`, if it is as QEMU 7.2 makes it.
    unsafe fn read(tcg: &Tcg, begin: *mut Op) -> Option<Start> {
        let codes = &tcg.opcodes;
        // SAFETY: as for `instrument`.
        unsafe {
            let mut ops = Ops::from(begin).skip(1);
            let userdata = take(&mut ops, codes.mov_i64)?;
            let index = take(&mut ops, codes.ld_i32)?;
            take(&mut ops, codes.call)?;
            take(&mut ops, codes.plugin_cb_end)?;
            Some(Start {
                begin,
                after: ops.next()?,
                scratch: (*userdata).args[0],
                environment: (*index).args[1],
                index_offset: (*index).args[2],
            })
        }
    }
}

impl Access {
    /// Of the empty callback that begins with `begin`, if it is as QEMU 7.2 makes it.
    unsafe fn read(tcg: &Tcg, begin: *mut Op) -> Option<Access> {
        let codes = &tcg.opcodes;
        // SAFETY: as for `instrument`; what is moved there is a constant.
        unsafe {
            let mut ops = Ops::from(begin).skip(1);
            let info = take(&mut ops, codes.mov_i32)?;
            let userdata = take(&mut ops, codes.mov_i64)?;
            take(&mut ops, codes.ld_i32)?;
            let address = ops.next()?;
            let narrow = (*address).opcode() == codes.extu_i32_i64;
            if !narrow && (*address).opcode() != codes.mov_i64 {
                return None;
            }
            take(&mut ops, codes.call)?;
            take(&mut ops, codes.plugin_cb_end)?;
            Some(Access {
                begin,
                address: (*address).args[1],
                narrow,
                info: (*((*info).args[1] as *const Temp)).value as u32,
                scratch: [(*address).args[0], (*userdata).args[0]],
            })
        }
    }

    /// Puts its record at `offset` from the cursor.
    unsafe fn record(&self, tcg: &Tcg, next: &Next, cursor: usize, offset: usize, index: usize) {
        let [value, end] = self.scratch;
        let write = tcg.before(self.begin);
        // An address has no more than 48 bits: the host reaches it, and it was not at fault.
        // SAFETY: as for `instrument`.
        unsafe {
            let address = if self.narrow {
                write.extend(value, self.address);
                value
            } else {
                self.address
            };
            write.shift_left(value, address, Record::VALUE_SHIFT.into());
            write.or(value, value, vcpu::tag::<{ vcpu::SIZE_SHIFT }>(self.info, index as u64));
            write.store(value, cursor, offset);
            write.add(end, cursor, (offset + RECORD_BYTES) as u64);
            write.store(end, next.argument(), 0);
        }
    }
}

/// The next of `ops`, if that is its opcode.
unsafe fn take(ops: &mut impl Iterator<Item = *mut Op>, opcode: u8) -> Option<*mut Op> {
    // SAFETY: as for `instrument`.
    ops.next().filter(|&op| unsafe { (*op).opcode() } == opcode)
}
