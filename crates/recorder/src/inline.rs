//! Recording without callbacks: the records are written by the translated code itself.
//!
//! ```text
//!   QEMU's list for a block            what is put there, if the block is fixed
//!   +------------------------------+
//!   | callback at the start, empty |   begin: cursor = [NEXT]
//!   |                              |   if the span is nearly full: go to room
//!   |                              |   [cursor] = block; [NEXT] = cursor + 8 * (1 + accesses)
//!   | load                         |
//!   | callback, empty              |   [cursor + 8] = address
//!   | store                        |
//!   | callback, empty              |   [cursor + 16] = address
//!   | the end                      |   room: on_room(); go to begin
//!   +------------------------------+
//! ```
//!
//! A callback costs some 3 ns: QEMU has to save the guest's registers for each. The code that is
//! put here in its place is one instruction of the host for an access: of what a *fixed* block
//! does, only the addresses are not known when it is translated. The rest is in the block's
//! descriptor. Where an access faults, the block is left, and what is behind stays
//! [`Record::NONE`], as all of a span is at first.
//!
//! Some addresses follow from an earlier one of the block, or from where the block is
//! ([`crate::values`]). These are not written at all: how they follow is in the block's descriptor.
//! [`crate::derived`] finds out how far such a block came that faults.
//!
//! An instruction that QEMU runs with the help of its own C code may access memory there, and keeps
//! its callbacks; and of a block with branches inside nobody knows which accesses it makes. These
//! blocks are not fixed: each access has a record with its [`ring::Tag`], and moves `NEXT` on.
//!
//! A block begins with [`SPAN_ROOM`] records to spare in its span, and so does what follows a
//! callback; so no access has to look.

use ring::{Control, Derived, NEXT_BYTES, Record, SPAN_ROOM, Tag, VCPUS_MAX};

use crate::counted::Counted;
use crate::tcg::{Op, Ops, Tcg, Temp, Writer};
use crate::values::Values;
use crate::vcpu::{self, RECORD_BYTES};
use crate::{derived, faults, sure};

/// `enum plugin_gen_from` and `enum plugin_gen_cb` of `accel/tcg/plugin-gen.c`.
const FROM_TB: usize = 0;
const FROM_MEM: usize = 2;
const CB_UDATA: usize = 0;
const CB_MEM: usize = 2;

/// Where QEMU tells the alignment that an access must have (`MO_AMASK`), or else its block is left
/// without a fault that is seen.
const ALIGNMENT: u32 = 7 << 9;

/// Temporaries and constants that a block's code needs, and those that each access needs.
const BLOCK_TEMPS: usize = 48;
const ACCESS_TEMPS: usize = 3;
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
pub(crate) struct Start {
    /// Its first operation, its call, and what follows its last operation.
    pub(crate) begin: *mut Op,
    call: *mut Op,
    after: *mut Op,
    /// A temporary that QEMU uses nowhere else at this place.
    scratch: usize,
    /// Where the number of the virtual CPU is: `environment + index_offset`.
    environment: usize,
    index_offset: usize,
}

/// The empty callback behind an access.
struct Access {
    /// The temporary that holds the address, and whether it is one of 32 bits.
    address: usize,
    narrow: bool,
    /// What QEMU tells of size and kind.
    info: u32,
    /// Temporaries that QEMU uses nowhere else at this place.
    scratch: [usize; 2],
}

/// What is to be put into the block that is being translated.
pub(crate) struct Plan {
    start: Start,
    kept: Kept,
    /// The tags of its accesses.
    tags: [u16; SPAN_ROOM],
    /// How those follow that are not recorded.
    derived: [Option<Derived>; SPAN_ROOM],
    accesses: usize,
    instructions: u32,
    /// Whether it makes all of them, unless it is left: by a fault, and where they are counted by a
    /// branch too.
    is_fixed: bool,
    /// Whether ways meet before its first access.
    is_behind: bool,
    /// Where it begins, and its length.
    pc: u64,
    bytes: u32,
}

impl Plan {
    /// For the block that is being translated, so many bytes and instructions from `pc` on; `None` if it has something
    /// unknown.
    ///
    /// # Safety
    ///
    /// In QEMU's callback for a translated block, before callbacks are registered.
    pub(crate) unsafe fn make(tcg: &Tcg, pc: u64, bytes: u32, instructions: u32) -> Option<Plan> {
        // SAFETY: the operations are those of the block that is being translated.
        unsafe {
            let plan = survey(tcg, pc, bytes, instructions)?;
            let temps = BLOCK_TEMPS + ACCESS_TEMPS * plan.accesses;
            (tcg.has_temps(plan.start.environment, temps) && !loops(tcg)).then_some(plan)
        }
    }

    /// The instructions for which callbacks must be registered.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// The tags of the accesses of a fixed block.
    pub(crate) fn fixed_tags(&self) -> &[u16] {
        if self.is_fixed { &self.tags[..self.accesses] } else { &[] }
    }

    /// How the addresses of a fixed block's accesses follow from others, for those that are not
    /// recorded.
    pub(crate) fn derived(&self) -> &[Option<Derived>] {
        &self.derived[..self.fixed_tags().len()]
    }

    /// Whether its accesses are counted, where they surely hit.
    pub(crate) fn is_counted(&self) -> bool {
        self.is_followed() && sure::can_count(self.fixed_tags(), self.instructions)
    }

    /// Whether it is known from what it records which pages it uses, while others are counted.
    fn is_followed(&self) -> bool {
        self.is_fixed && sure::can_follow(self.pc, self.bytes)
    }

    /// Puts code for block and accesses into the block, whose number is `number`.
    ///
    /// # Safety
    ///
    /// As for [`Plan::make`], and for the same block.
    pub(crate) unsafe fn write(&self, tcg: &Tcg, number: u32) {
        // SAFETY: as for `make`, which has looked whether there is room.
        unsafe {
            if self.is_followed()
                && let Some(block) = derived::block(number)
            {
                return self.write_followed(tcg, block);
            }
            if sure::is_on() {
                self.start.call(tcg, &tcg.before(self.start.begin), sure::on_plain as *const (), 0);
            }
            let (cursor, next) = (tcg.fresh_extended_temp(), Next::new(tcg));
            self.begin(tcg, &next, cursor, number);
            self.write_accesses(tcg, &next, cursor);
        }
    }

    /// The same for a block that is followed while others are counted, or is counted itself.
    unsafe fn write_followed(&self, tcg: &Tcg, block: &'static derived::Block) {
        // SAFETY: as for `write`. The accesses are those that `survey` has found, in that order.
        unsafe {
            let after = tcg.ops().skip_while(|&op| op != self.start.after);
            let found: Vec<(*mut Op, Access)> = after
                .filter(|&op| is_access(tcg, op))
                .filter_map(|op| Some((op, Access::read(tcg, op)?)))
                .collect();
            let at_start = tcg.before(self.start.begin);
            let mut counted = Counted::begin(tcg, &self.start, block, self.is_behind);
            counted.fetch(&at_start);
            if let Some((op, _)) = found.first().filter(|_| self.is_behind) {
                counted.resume(&tcg.before(*op));
            }
            for ((op, access), derived) in found.iter().zip(self.derived()) {
                let write = tcg.before(*op);
                let address = access.address(&write);
                counted.access(&write, address, Tag(access.tag(0)), *derived);
            }
            let last = found.last().map_or(self.start.begin, |&(op, _)| op);
            counted.end(&tcg.before(last));
        }
    }

    /// Makes room and records the block.
    unsafe fn begin(&self, tcg: &Tcg, next: &Next, cursor: usize, number: u32) {
        let start = &self.start;
        let (record, records) = if self.is_fixed {
            let recorded = self.derived().iter().filter(|derived| derived.is_none()).count();
            (Record::fixed(number, recorded as u8), 1 + recorded)
        } else {
            (Record::control(Control::Block, number.into()), 1)
        };
        // SAFETY: as for `write`.
        unsafe {
            let (again, tight) = (tcg.new_label(), tcg.new_label());
            tcg.before(start.begin).label(again);
            next.load(tcg, start, start.begin, cursor);
            let write = tcg.before(start.begin);
            write.and(start.scratch, cursor, vcpu::SPAN_MASK as u64);
            write.branch_if_above(start.scratch, vcpu::ROOMY_BYTES as u64, tight);
            write.store(tcg.constant(record.0), cursor, 0);
            next.compute(tcg, start, start.begin);
            next.advance(&write, cursor, records, start.scratch);

            tcg.append(|write| {
                write.label(tight);
                start.call(tcg, write, vcpu::on_room as *const (), 0);
                write.branch(again);
            });
        }
    }

    /// Records the accesses of instructions that do not keep their callbacks.
    unsafe fn write_accesses(&self, tcg: &Tcg, next: &Next, cursor: usize) {
        let codes = &tcg.opcodes;
        // Bytes from `cursor` to the next record, where that is known.
        let mut offset = Some(RECORD_BYTES);
        let mut instruction = None;
        let mut derived = self.derived().iter();
        // SAFETY: as for `write`.
        unsafe {
            for op in tcg.ops().skip_while(|&op| op != self.start.after) {
                let code = (*op).opcode();
                if code == codes.insn_start {
                    if instruction.is_some_and(|index| self.kept.has(index)) {
                        offset = None;
                    }
                    instruction = Some(instruction.map_or(0, |index| index + 1));
                } else if tcg.ends_basic_block(op) {
                    offset = None;
                } else if is_access(tcg, op)
                    && let Some(index) = instruction
                    && !self.kept.has(index)
                    && let Some(access) = Access::read(tcg, op)
                {
                    // Of a fixed block, whose accesses all come by here.
                    if derived.next().is_some_and(Option::is_some) {
                        continue;
                    }
                    let at = offset.unwrap_or_else(|| {
                        next.load(tcg, &self.start, op, cursor);
                        0
                    });
                    let write = tcg.before(op);
                    if self.is_fixed {
                        write.store(access.address(&write), cursor, at);
                    } else {
                        access.record(&write, cursor, at, index);
                        next.advance(&write, cursor, at / RECORD_BYTES + 1, access.scratch[1]);
                    }
                    offset = Some(at + RECORD_BYTES);
                }
            }
        }
    }
}

/// Looks at the whole block: its start, which instructions call helpers, and what accesses there
/// are. `None` if they are more than a span has room for.
unsafe fn survey(tcg: &Tcg, pc: u64, bytes: u32, instructions: u32) -> Option<Plan> {
    let codes = &tcg.opcodes;
    let mut kept = Kept([false; INSTRUCTIONS_MAX]);
    let (mut start, mut instruction) = (None, None);
    let (mut tags, mut accesses) = ([0; SPAN_ROOM], 0);
    let mut derived = [None; SPAN_ROOM];
    let (mut values, mut recorded) = (None, 0);
    let (mut has_branched, mut is_fixed, mut divides) = (false, true, false);
    // How often ways have met since the block began, and when the first access came.
    let (mut joined, mut together, mut is_straight) = (0, None, true);
    // SAFETY: as for `Plan::make`.
    unsafe {
        let mut ops = tcg.ops();
        while let Some(op) = ops.next() {
            let code = (*op).opcode();
            if code == codes.insn_start {
                instruction = Some(instruction.map_or(0, |index| index + 1));
                continue;
            }
            if code == codes.plugin_cb_start {
                match ((*op).args[0], (*op).args[1]) {
                    (FROM_TB, CB_UDATA) => {
                        let found = Start::read(tcg, op)?;
                        values = Some(Values::new(found.environment));
                        start = Some(found);
                    }
                    (FROM_MEM, CB_MEM) => {
                        // One record is the block's own, and one a callback's.
                        let tag = tags[..SPAN_ROOM - 2].get_mut(accesses)?;
                        let access = Access::read(tcg, op)?;
                        *tag = access.tag(instruction?);
                        if let Some(values) = values.as_mut().filter(|_| !access.narrow) {
                            let from = values.derive(access.address, recorded, pc);
                            derived[accesses] = from.filter(|_| !access.is_aligned());
                        }
                        recorded += u16::from(derived[accesses].is_none());
                        accesses += 1;
                        is_fixed &= !has_branched;
                        is_straight &= *together.get_or_insert(joined) == joined;
                    }
                    _ => {}
                }
                ops.find(|&op| (*op).opcode() == codes.plugin_cb_end)?;
                continue;
            }
            if let Some(values) = &mut values {
                values.pass(tcg, op);
            }
            divides |= code == codes.call && Tcg::divides(op);
            if code == codes.call && Tcg::may_access(op) {
                *kept.0.get_mut(instruction.unwrap_or(INSTRUCTIONS_MAX))? = true;
                (is_fixed, is_straight) = (false, false);
            } else {
                has_branched |= start.is_some() && tcg.ends_basic_block(op);
                joined += usize::from(
                    start.is_some() && tcg.ends_basic_block(op) && !tcg.is_conditional(op),
                );
            }
        }
    }
    let start = start?;
    // Where accesses are counted, words tell of a block that was left before its last access by a branch.
    let is_straight =
        is_straight && sure::is_on() && sure::can_count(&tags[..accesses], instructions);
    // Nobody sees a block that is left by a division.
    if !is_fixed || divides || !faults::sees_faults(start.index_offset) {
        derived = [None; SPAN_ROOM];
    }
    let is_behind = !is_fixed && together.is_some_and(|joined| joined > 0);
    let is_fixed = is_fixed || is_straight;
    Some(Plan {
        start,
        kept,
        tags,
        derived,
        accesses,
        instructions,
        is_fixed,
        is_behind,
        pc,
        bytes,
    })
}

/// Whether `op` begins the empty callback behind an access.
unsafe fn is_access(tcg: &Tcg, op: *const Op) -> bool {
    // SAFETY: as for `Plan::make`.
    unsafe {
        (*op).opcode() == tcg.opcodes.plugin_cb_start
            && (FROM_MEM, CB_MEM) == ((*op).args[0], (*op).args[1])
    }
}

/// Whether the block branches back inside: an access in it may then run more than once.
fn loops(tcg: &Tcg) -> bool {
    // SAFETY: as for `Plan::make`.
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
        // SAFETY: as for `Plan::make`.
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

    /// Loads the cursor before `op`.
    unsafe fn load(&self, tcg: &Tcg, start: &Start, op: *mut Op, cursor: usize) {
        // SAFETY: as for `Plan::make`.
        unsafe {
            self.compute(tcg, start, op);
            tcg.before(op).load(cursor, self.argument());
        }
    }

    /// Moves the cursor in memory on to that many `records` behind `cursor`. The address must have
    /// been computed in the same basic block.
    unsafe fn advance(&self, write: &Writer, cursor: usize, records: usize, scratch: usize) {
        // SAFETY: as for `Plan::make`.
        unsafe {
            write.add(scratch, cursor, (records * RECORD_BYTES) as u64);
            write.store(scratch, self.argument(), 0);
        }
    }

    /// Computes it before `op`.
    unsafe fn compute(&self, tcg: &Tcg, start: &Start, op: *mut Op) {
        if let Next::Computed(temp, index, table) = *self {
            const ENTRY_SHIFT: u32 = (NEXT_BYTES / VCPUS_MAX).trailing_zeros();
            let write = tcg.before(op);
            // SAFETY: as for `Plan::make`.
            unsafe {
                write.load_32(index, start.environment, start.index_offset);
                write.extend(temp, index);
                write.shift_left(temp, temp, ENTRY_SHIFT.into());
                write.add(temp, temp, table);
            }
        }
    }
}

impl Start {
    /// Calls `function`, of a callback's type, with the virtual CPU's number and `argument`.
    pub(crate) unsafe fn call(
        &self,
        tcg: &Tcg,
        write: &Writer,
        function: *const (),
        argument: usize,
    ) {
        // SAFETY: as for `Plan::make`.
        unsafe {
            let index = tcg.fresh_narrow_temp();
            write.load_32(index, self.environment, self.index_offset);
            write.call(self.call, function, [index, tcg.constant(argument as u64)]);
        }
    }

    /// Of the empty callback that begins with `begin`, if it is as QEMU 7.2 makes it.
    unsafe fn read(tcg: &Tcg, begin: *mut Op) -> Option<Start> {
        let codes = &tcg.opcodes;
        // SAFETY: as for `Plan::make`.
        unsafe {
            let mut ops = Ops::from(begin).skip(1);
            let userdata = take(&mut ops, codes.mov_i64)?;
            let index = take(&mut ops, codes.ld_i32)?;
            let call = take(&mut ops, codes.call)?;
            take(&mut ops, codes.plugin_cb_end)?;
            Some(Start {
                begin,
                call,
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
        // SAFETY: as for `Plan::make`; what is moved there is a constant.
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
                address: (*address).args[1],
                narrow,
                info: (*((*info).args[1] as *const Temp)).value as u32,
                scratch: [(*address).args[0], (*userdata).args[0]],
            })
        }
    }

    /// What is known of it: it belongs to the instruction of that index.
    fn tag(&self, instruction: usize) -> u16 {
        vcpu::tag::<{ vcpu::SIZE_SHIFT }>(self.info, instruction as u64) as u16
    }

    /// Whether only some addresses are allowed.
    fn is_aligned(&self) -> bool {
        self.info & ALIGNMENT != 0
    }

    /// Its address in 64 bits.
    unsafe fn address(&self, write: &Writer) -> usize {
        if !self.narrow {
            return self.address;
        }
        // SAFETY: as for `Plan::make`.
        unsafe { write.extend(self.scratch[0], self.address) };
        self.scratch[0]
    }

    /// Puts its record at `offset` from the cursor.
    unsafe fn record(&self, write: &Writer, cursor: usize, offset: usize, instruction: usize) {
        let value = self.scratch[0];
        // An address has no more than 48 bits: the host reaches it, and it was not at fault.
        // SAFETY: as for `Plan::make`.
        unsafe {
            write.shift_left(value, self.address(write), Record::VALUE_SHIFT.into());
            write.or(value, value, self.tag(instruction).into());
            write.store(value, cursor, offset);
        }
    }
}

/// The next of `ops`, if that is its opcode.
unsafe fn take(ops: &mut impl Iterator<Item = *mut Op>, opcode: u8) -> Option<*mut Op> {
    // SAFETY: as for `Plan::make`.
    ops.next().filter(|&op| unsafe { (*op).opcode() } == opcode)
}
