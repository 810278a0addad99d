//! Blocks whose accesses are counted where they are guaranteed to hit.
//!
//! ```text
//!   outer   r10 = the entry of its page of code
//!           if it is not held: to miss
//!           [fetched] = r11
//!   inner   mov r10d, gs:[r11d + POLL]            r11 is the clock; this faults at the end of an interval
//!           [fetches, instructions] += 1, the block's instructions
//!           r11 += 2
//!   group   lea r10, [rbx + 8]                    accesses in a row at constant distances
//!           do they cross into another page?
//!           r10 = their page's entry
//!           if it is not held for them: to miss
//!           [loads] += .. ; [stores] += .. ; [used] = r11
//!   back    r11 += 2 for each access
//!           the program's instructions
//!
//!           if they cross: the same for each access by itself
//!   miss    calls the engine, which counts or reports the accesses of the group one by one ; to back
//! ```
//!
//! A branch from a block in the same page of code goes to `inner`: the page is held, and no other page of code
//! was used in between. If code and data share a TLB, all branches go to `outer`.
//!
//! A check precedes the first instruction of its group. It changes flags. If flags matter, they are saved in
//! rax, or on the engine's stack in blocks that lend rax. Between functions they do not matter, because no compiler
//! passes values in flags from one function to another. Where a call would return to an instruction that reads flags,
//! or a function begins with one, all code is translated again and saves flags there, too. A block makes the same
//! accesses as one that is recorded and begins and ends at the same instructions.

use alloc::vec::Vec;

use ring::{Derived, Tag};

use super::{Exit, FAR, Lent, Translated, Translator, copy, load_target, rewrite, slot};
use crate::emit::{Code, NONE, Place};
use crate::flags::{self, STATUS};
use crate::follows::{Follows, Operand};
use crate::insn::{BYTES_MAX, Flow, Insn, RSP, Rewritten, Segment};
use crate::state::{ENGINE_RSP, EXIT, HELD, RECORD, SCRATCH};
use crate::table::{
    self, FETCHED, FETCHES, KEPT, KINDS, LOADS, MISS_AT, MISS_CLOCK, POLL, RUN, SLOTS, STORES, USED,
};

const PAGE_BYTES: u64 = 1 << 12;
/// The maximum distance in bytes from the first to the last access of a group.
const SPAN_MAX: i64 = 512;
/// The maximum number of accesses of a group, counted as rows of a trace. It must fit into an
/// operand of one byte.
const ROWS_MAX: u32 = 100;
/// The maximum number of instructions after a block that are examined to find out whether they use
/// flags.
const AHEAD_MAX: usize = 6;

const BELOW_OR_EQUAL_NOT: u8 = 7;
const EQUAL: u8 = 4;
const EQUAL_NOT: u8 = 5;

/// How accesses are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counting {
    /// Whether code and data share a TLB.
    pub(crate) together: bool,
    /// The address to which a failed check jumps.
    pub(crate) missed: u64,
}

/// A check in translated code.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Check {
    /// The first address of the check's code, and the address after this code.
    pub(crate) start: u64,
    pub(crate) back: u64,
    /// The address of the code for a miss, and the address after the engine's part of this code.
    pub(crate) stub: u64,
    pub(crate) tail: u64,
}

/// Consecutive accesses that are checked together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// The index of the first access in its block, and their number.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// The index of the instruction before which the accesses of the group are checked.
    pub(crate) instruction: usize,
    /// The number of rows in the block before the group, including the fetch; `rows` is the number
    /// of rows of the group.
    pub(crate) before: u32,
    pub(crate) rows: u32,
    /// The distances from the first access to the lowest byte, and to the end of the highest byte.
    low: i64,
    high: i64,
    pub(crate) check: Check,
}

/// An access of a counted block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) tag: Tag,
    /// The distance of this access from the lowest byte of its group.
    pub(crate) distance: i64,
    /// The number of rows in the block before this access, including the fetch.
    pub(crate) before: u32,
    /// The distance in bytes from the block's first instruction to the instruction of this access.
    pub(crate) offset: u16,
}

/// A block whose accesses are counted or recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Whole {
    pub(crate) pc: u64,
    pub(crate) bytes: u32,
    pub(crate) instructions: u32,
}

/// A counted block.
#[derive(Debug)]
pub(crate) struct CountedBlock {
    pub(crate) pc: u64,
    pub(crate) bytes: u32,
    pub(crate) instructions: u32,
    pub(crate) fetch: Check,
    pub(crate) groups: Vec<Group>,
    pub(crate) accesses: Vec<Counted>,
}

impl CountedBlock {
    /// The block in the form in which it is reported.
    pub(crate) fn whole(&self) -> Whole {
        Whole { pc: self.pc, bytes: self.bytes, instructions: self.instructions }
    }
}

/// The check that has failed: its block, and its group. `None` if it is the check of the fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) block: u32,
    pub(crate) group: Option<u32>,
}

/// The number of rows of an access: two if it is both a load and a store.
pub(crate) fn rows(tag: Tag) -> u32 {
    u32::from(tag.loads()) + u32::from(tag.stores())
}

/// The base from which an access's address is derived: the record's word with this index, or an
/// address that is known when the block is translated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Root {
    Word(u16),
    Known,
}

/// Groups the accesses of a block at `start`. Returns the groups, and the distance of each access
/// from the lowest byte of its group.
fn groups(start: u64, insns: &[Insn], follows: &Follows) -> (Vec<Group>, Vec<Counted>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut accesses: Vec<Counted> = Vec::new();
    let (mut words, mut before) = (0u16, 1);
    // The base and the first address of the current group.
    let (mut root, mut origin) = (None, 0u64);
    for (index, (told, operand)) in follows.told.iter().zip(&follows.operands).enumerate() {
        let (of, distance) = match told.derived {
            None => {
                words += 1;
                (Root::Word(words - 1), 0)
            }
            Some(Derived { from: 0, distance }) => (Root::Known, start.wrapping_add(distance)),
            Some(Derived { from, distance }) => (Root::Word(from - 1), distance),
        };
        let tag = Tag(told.tag);
        let size = i64::from(tag.size());
        let near = distance.wrapping_sub(origin) as i64;
        let joins = root == Some(of)
            && groups.last().is_some_and(|group| {
                let (low, high) = (group.low.min(near), group.high.max(near.saturating_add(size)));
                let from = group.instruction..operand.instruction;
                high.saturating_sub(low) <= SPAN_MAX
                    && near.unsigned_abs() <= SPAN_MAX as u64
                    && group.rows + rows(tag) <= ROWS_MAX
                    && insns[from].iter().all(|insn| insn.rewritten == Rewritten::Not)
                    && (of != Root::Known
                        || is_one_page(
                            origin.wrapping_add(low as u64),
                            origin.wrapping_add(high as u64 - 1),
                        ))
                    && first_place(&follows.operands[group.first], low).is_some()
            });
        let distance_here = if joins { near } else { 0 };
        if let Some(group) = groups.last_mut().filter(|_| joins) {
            (group.low, group.high) = (group.low.min(near), group.high.max(near + size));
            group.count += 1;
            group.rows += rows(tag);
        } else {
            (root, origin) = (Some(of), distance);
            groups.push(Group {
                first: index,
                count: 1,
                instruction: operand.instruction,
                before,
                rows: rows(tag),
                low: 0,
                high: size,
                check: Check::default(),
            });
        }
        let offset = insns[operand.instruction].instruction.ip().wrapping_sub(start) as u16;
        accesses.push(Counted { tag, distance: distance_here, before, offset });
        before += rows(tag);
    }
    for group in &groups {
        for access in &mut accesses[group.first..group.first + group.count] {
            access.distance -= group.low;
        }
    }
    (groups, accesses)
}

fn is_one_page(first: u64, last: u64) -> bool {
    first / PAGE_BYTES == last / PAGE_BYTES
}

/// The operand at this distance from an access. `None` if it cannot be encoded.
fn first_place(operand: &Operand, distance: i64) -> Option<Place> {
    let disp = i64::from(operand.place.disp) + operand.more as i64 + distance;
    i32::try_from(disp).ok().map(|disp| Place { disp, ..operand.place })
}

/// The registers and the place of a check that is being emitted.
struct Emit {
    /// The clock, and the scratch register.
    clock: u8,
    scratch: u8,
    /// Whether the flags must be saved, because the program may still read them.
    keeps: bool,
    at: At,
}

/// The first byte that is checked.
#[derive(Clone, Copy)]
enum At {
    Known(u64),
    Operand(Place, Segment),
}

impl Emit {
    /// Emits the address of the first byte into the scratch register.
    fn address(&self, code: &mut Code) {
        match self.at {
            At::Known(address) => code.constant(self.scratch, address),
            At::Operand(place, segment) => match segment.slot() {
                Some(slot) => super::address_of(code, self.scratch, place, slot),
                None if place.index == NONE && place.disp == 0 => {
                    code.copy(self.scratch, place.base);
                }
                None => code.lea(self.scratch, place),
            },
        }
    }

    /// As [`Emit::address`], but it was emitted once before, and the flags have been saved.
    fn address_again(&self, code: &mut Code) {
        match self.keeps {
            true => code.get_slot(self.scratch, MISS_AT),
            false => self.address(code),
        }
    }

    fn lends_rax(&self) -> bool {
        self.clock == 0 || self.scratch == 0
    }

    /// Emits code that saves the flags, if the program may still need them.
    fn keep(&self, code: &mut Code) {
        if !self.keeps {
        } else if self.lends_rax() {
            code.put_slot(RSP, KEPT);
            code.get_slot(RSP, ENGINE_RSP);
            code.byte(0x9c); // pushfq
        } else {
            code.put_slot(0, KEPT);
            code.bytes(&[0x9f, 0x0f, 0x90, 0xc0]); // lahf ; seto al
        }
    }

    /// Emits code that restores the flags.
    fn give_back(&self, code: &mut Code) {
        if !self.keeps {
        } else if self.lends_rax() {
            code.byte(0x9d); // popfq
            code.get_slot(RSP, KEPT);
        } else {
            code.bytes(&[0x04, 0x7f, 0x9e]); // add al, 127 ; sahf
            code.get_slot(0, KEPT);
        }
    }

    /// Emits the code for a miss of this site. Returns it and the code behind the engine's part.
    fn miss(&self, cold: &mut Code, site: u32, missed: u64, back: u64) -> (u64, u64) {
        let stub = cold.at;
        if !self.keeps {
            self.address(cold);
            cold.put_slot(self.scratch, MISS_AT);
        }
        cold.put_slot(self.clock, MISS_CLOCK);
        cold.number_into_slot(site, EXIT);
        cold.jump(missed);
        let tail = cold.at;
        self.go_back(cold, back);
        (stub, tail)
    }

    /// Emits a jump to `back`, with the inverted address of the first byte in the scratch register.
    fn go_back(&self, cold: &mut Code, back: u64) {
        cold.get_slot(self.scratch, MISS_AT);
        cold.invert(self.scratch);
        cold.jump(back);
    }

    /// Emits the code for a group that reaches into another page: each access by itself, with counts at `slot`, and
    /// none before the pages of all are known to be held. Returns the jumps to the code for a miss.
    fn apart(&self, cold: &mut Code, accesses: &[Counted], slot: i32, back: u64) -> Vec<u64> {
        let &Emit { clock, scratch, .. } = self;
        let mut jumps = Vec::new();
        if !self.keeps {
            self.address(cold);
            cold.put_slot(scratch, MISS_AT);
        }
        let entry = |cold: &mut Code, access: &Counted, jumps: Option<&mut Vec<u64>>| {
            let size = access.tag.size() as u8;
            cold.get_slot(scratch, MISS_AT);
            cold.lea(scratch, Place::behind(scratch, access.distance as i32));
            if let Some(jumps) = jumps.filter(|_| size > 1) {
                cold.test_low(scratch, size - 1);
                jumps.push(cold.jump_if(EQUAL_NOT, cold.at));
            }
            cold.shift_right(scratch, table::SHIFT);
            cold.mask(scratch, table::MASK);
        };
        for access in accesses {
            entry(cold, access, Some(&mut jumps));
            let needed = table::needed(access.tag.loads(), access.tag.stores());
            cold.test_gs(scratch, KINDS, needed);
            jumps.push(cold.jump_if(EQUAL, cold.at));
        }
        let mut all = 0;
        for access in accesses {
            entry(cold, access, None);
            if access.tag.loads() {
                cold.add_gs(scratch, LOADS + slot, 1);
            }
            if access.tag.stores() {
                cold.add_gs(scratch, STORES + slot, 1);
            }
            cold.store_gs(clock, scratch, USED);
            cold.lea(clock, Place::behind(clock, 2 * rows(access.tag) as i32));
            all += rows(access.tag) as i32;
        }
        cold.lea(clock, Place::behind(clock, -2 * all));
        self.go_back(cold, back);
        jumps
    }
}

impl Translator {
    /// Sets whether code that is translated from now on counts accesses or records them. Nothing
    /// may have been translated yet.
    pub(crate) fn count(&mut self, counting: Option<Counting>) {
        self.counting = counting;
    }

    /// The data of a counted block.
    pub(crate) fn counted_block(&self, block: &Translated) -> Option<&CountedBlock> {
        self.counted.get(block.counted as usize)
    }

    /// The status flags that matter after a block whose last instruction is `insn` and that ends
    /// before `pc`.
    fn flags_after(&mut self, insn: &Insn, pc: u64) -> u32 {
        match insn.flow {
            Flow::Next => self.flags_at(pc),
            Flow::Jump(target) | Flow::Call(target) => self.flags_at(target),
            Flow::Branch(_, target) | Flow::Loop(target) => {
                self.flags_at(target) | self.flags_at(pc)
            }
            Flow::Indirect { .. }
            | Flow::Return(_)
            | Flow::Syscall
            | Flow::Raises
            | Flow::Repeated
            | Flow::Assisted
            | Flow::Refused(_) => self.flags_behind(insn),
        }
    }

    /// The status flags that are needed after an instruction whose successor is elsewhere. Between functions
    /// there are none, unless the program is known to pass them there.
    fn flags_behind(&self, insn: &Insn) -> u32 {
        let is_between = match insn.flow {
            Flow::Return(_) | Flow::Indirect { call: true } => true,
            // The instruction jumps to a function through a table of functions.
            Flow::Indirect { call: false } => insn.instruction.is_ip_rel_memory_operand(),
            Flow::Next
            | Flow::Jump(_)
            | Flow::Branch(..)
            | Flow::Loop(_)
            | Flow::Call(_)
            | Flow::Syscall
            | Flow::Raises
            | Flow::Repeated
            | Flow::Assisted
            | Flow::Refused(_) => false,
        };
        if is_between && !self.passes_flags { 0 } else { STATUS }
    }

    /// The status flags that matter at `pc`, as far as its next instructions show it.
    fn flags_at(&mut self, pc: u64) -> u32 {
        let insns = self.ahead(pc);
        let after = insns.last().map_or(STATUS, |insn| self.flags_behind(insn));
        flags::needed(&insns, after).first().copied().unwrap_or(STATUS)
    }

    /// Whether the next instructions at `pc` read status flags before they write them.
    fn reads_flags(&mut self, pc: u64) -> bool {
        let mut insns = self.ahead(pc);
        // The flags that the kernel or a signal handler sees do not matter here.
        insns.retain(|insn| {
            !matches!(
                insn.flow,
                Flow::Syscall | Flow::Raises | Flow::Repeated | Flow::Assisted | Flow::Refused(_)
            )
        });
        flags::needed(&insns, 0).first().is_some_and(|&needed| needed != 0)
    }

    /// Called if the program goes to `pc` from another function. If flags matter there, the code
    /// that was translated so far must be dropped, since it may not save them.
    pub(super) fn note_entry(&mut self, pc: u64) {
        if self.counting.is_some() && !self.passes_flags && self.reads_flags(pc) {
            (self.passes_flags, self.is_stale) = (true, true);
        }
    }

    /// Drops all code if this is necessary: see [`Translator::note_entry`]. Returns whether it was
    /// dropped.
    pub(super) fn drop_stale(&mut self) -> bool {
        let is_stale = core::mem::take(&mut self.is_stale);
        if is_stale {
            self.forget();
        }
        is_stale
    }

    /// The next instructions at `pc`, up to the first one whose successor is unknown.
    fn ahead(&mut self, mut pc: u64) -> Vec<Insn> {
        let mut insns: Vec<Insn> = Vec::new();
        while insns.len() < AHEAD_MAX {
            let Some((code, false)) = self.code_at(pc) else { break };
            let Some(insn) = self.reader.read(pc, &code[..code.len().min(BYTES_MAX)]) else {
                break;
            };
            pc = insn.instruction.next_ip();
            let flow = insn.flow;
            insns.push(insn);
            match flow {
                Flow::Next => {}
                Flow::Jump(target) | Flow::Call(target) => pc = target,
                Flow::Branch(..)
                | Flow::Loop(_)
                | Flow::Indirect { .. }
                | Flow::Return(_)
                | Flow::Syscall
                | Flow::Raises
                | Flow::Repeated
                | Flow::Assisted
                | Flow::Refused(_) => break,
            }
        }
        insns
    }

    /// Emits a counted block at `start`, which ends before `pc`, as [`Translator::write`] emits one that is
    /// recorded.
    pub(super) fn write_counted(
        &mut self,
        region: usize,
        (start, pc): (u64, u64),
        insns: &[Insn],
        used: u16,
        end: Option<Exit>,
    ) -> Result<Option<u64>, &'static str> {
        let last = insns.len() - 1;
        let follows = Follows::of(start, insns);
        let (mut groups, accesses) = groups(start, insns, &follows);
        if let Flow::Call(_) | Flow::Indirect { call: true } = insns[last].flow {
            self.note_entry(pc);
        }
        let after = self.flags_after(&insns[last], pc);
        let needed = flags::needed(insns, after);
        self.rotation += 1;
        // rax is used as a scratch register only if no other register is free, since flags are
        // saved in it.
        let is_scarce = (used | 1 << RSP | 1 << RECORD | 1 << SCRATCH | 1).count_ones() > 14;
        let lent = Lent::choose(if is_scarce { used } else { used | 1 }, self.rotation);
        let (clock, scratch) = (lent.record, lent.scratch);
        let block = self.counted.len() as u32;
        let instructions = insns.len() as u32;
        let hot = &mut self.regions[region].hot;
        let bytes = pc.wrapping_sub(start) as u32;
        // The fetch of a block in two pages is always recorded: no jump bypasses its check.
        let is_plain = is_one_page(start, pc.wrapping_sub(1));
        let to_outer = (!is_plain).then(|| hot.jump(hot.at));
        let host = hot.at;
        let keeps = needed[0] != 0;
        let emit = Emit { clock: RECORD, scratch: SCRATCH, keeps, at: At::Known(start) };
        hot.peek(SCRATCH, RECORD, POLL);
        emit.keep(hot);
        hot.constant(SCRATCH, table::offset(start));
        let runs = FETCHES + 8 * (block as usize % SLOTS) as i32;
        hot.add_wide_gs(SCRATCH, runs, table::run(instructions) as i32);
        emit.give_back(hot);
        hot.lea(RECORD, Place::behind(RECORD, 2));
        lent.take(hot);
        let (outer, fetch) = self.fetch(region, &emit, bytes, host, Site { block, group: None });
        self.map.insert(start, outer);
        match to_outer {
            Some(jump) => {
                let displacement = outer.wrapping_sub(jump + 4) as i32;
                self.regions[region].hot.patch(jump, displacement);
            }
            None => {
                self.inner.insert(start, host);
            }
        }
        self.here = Some((start, pc.wrapping_sub(1)));
        let offsets = self.offsets.len() as u32;
        let mut is_near = true;
        let mut next_group = 0;
        for (at, insn) in insns.iter().enumerate() {
            let hot = &self.regions[region].hot;
            let address = insn.instruction.ip();
            self.offsets.push(((hot.at - host) as u16, (address - start) as u16));
            while groups.get(next_group).is_some_and(|group| group.instruction == at) {
                let group = &mut groups[next_group];
                let operand = &follows.operands[group.first];
                let emit = Emit {
                    clock,
                    scratch,
                    keeps: needed[at] != 0,
                    at: place_of(operand, group.low),
                };
                let site = Site { block, group: Some(next_group as u32) };
                let tags = accesses[group.first..group.first + group.count].iter();
                let kinds = tags.fold((0, 0), |(loads, stores), access| {
                    let (load, store) = (access.tag.loads(), access.tag.stores());
                    (loads + i8::from(load), stores + i8::from(store))
                });
                let own = &accesses[group.first..group.first + group.count];
                group.check = self.check(region, &emit, group, own, kinds, site);
                next_group += 1;
            }
            if at < last || insn.flow == Flow::Next {
                is_near &= rewrite(&mut self.regions[region].hot, insn, scratch)?;
            }
        }
        let insn = &insns[last];
        let hot = &mut self.regions[region].hot;
        if let Flow::Indirect { .. } = insn.flow {
            is_near &= load_target(hot, insn, scratch);
            if scratch != SCRATCH {
                hot.put_slot(scratch, HELD);
            }
        }
        let epilogue = hot.at;
        lent.give_registers_back(hot);
        if insn.flow == Flow::Raises {
            is_near &= copy(hot, insn);
        }
        let mut next = self.end(region, pc, insn, &lent);
        let block_end = self.regions[region].hot.at;
        if let Some(exit) = end {
            self.leave_by(region, exit);
            next = None;
        }
        self.regions[region].blocks.push(Translated {
            host,
            epilogue,
            end: block_end,
            pc: start,
            bytes: 0,
            hash: 0,
            is_checked: false,
            words: 0,
            slotted: lent.slotted(),
            record: clock,
            scratch,
            offsets,
            instructions,
            told: 0,
            accesses: 0,
            counts: 0,
            counted: block,
        });
        self.counted.push(CountedBlock { pc: start, bytes, instructions, fetch, groups, accesses });
        if is_near { Ok(next) } else { Err(FAR) }
    }

    /// Whether a branch to `target` at the end of the current block goes to the code behind the check of its
    /// fetch.
    pub(super) fn is_inner(&self, target: u64) -> bool {
        let is_apart = self.counting.is_some_and(|counting| !counting.together);
        is_apart
            && self
                .here
                .is_some_and(|(first, last)| is_one_page(first, last) && is_one_page(last, target))
    }

    /// The address at which a branch enters the block at `target`, if the block is translated.
    pub(crate) fn entry(&self, target: u64, inner: bool) -> Option<u64> {
        let inner = if inner { self.inner.get(&target) } else { None };
        inner.or_else(|| self.map.get(&target)).copied()
    }

    /// Emits the check of the fetch of a block of `bytes` bytes, before its code at `host`. Returns the address of
    /// the check.
    fn fetch(
        &mut self,
        region: usize,
        emit: &Emit,
        bytes: u32,
        host: u64,
        site: Site,
    ) -> (u64, Check) {
        let At::Known(pc) = emit.at else { return (host, Check::default()) };
        let last = pc.wrapping_add(u64::from(bytes)).wrapping_sub(1);
        let is_plain = is_one_page(pc, last) && last >> held::ADDRESS_BITS == 0;
        let missed = self.regions[region].missed;
        let number = self.sites.len() as u32;
        self.sites.push(site);
        let cold = &mut self.regions[region].cold;
        let outer = cold.at;
        if emit.keeps {
            emit.address(cold);
            cold.put_slot(emit.scratch, MISS_AT);
        }
        let start = cold.at;
        emit.keep(cold);
        let jump = if is_plain {
            cold.constant(emit.scratch, table::offset(pc));
            cold.test_gs(emit.scratch, KINDS, RUN);
            let jump = cold.jump_if(EQUAL, start);
            cold.store_gs(emit.clock, emit.scratch, FETCHED);
            jump
        } else {
            cold.jump(start)
        };
        let back = cold.at;
        emit.give_back(cold);
        cold.jump(host);
        let (stub, tail) = emit.miss(cold, number, missed, back);
        cold.patch(jump, stub.wrapping_sub(jump + 4) as i32);
        (outer, Check { start, back, stub, tail })
    }

    /// Emits the check of a group that makes this number of loads and stores.
    fn check(
        &mut self,
        region: usize,
        emit: &Emit,
        group: &Group,
        accesses: &[Counted],
        (loads, stores): (i8, i8),
        site: Site,
    ) -> Check {
        let number = self.sites.len() as u32;
        self.sites.push(site);
        let missed = self.regions[region].missed;
        let super::Region { hot, cold, .. } = &mut self.regions[region];
        let &Emit { clock, scratch, keeps, .. } = emit;
        let bytes = group.high - group.low;
        let (mut jumps, mut crosses_at) = (Vec::new(), None);
        let start;
        match emit.at {
            At::Known(address) => {
                if keeps {
                    emit.address(hot);
                    hot.put_slot(scratch, MISS_AT);
                }
                start = hot.at;
                emit.keep(hot);
                let last = address.wrapping_add(bytes as u64 - 1);
                if !is_one_page(address, last) || last >> held::ADDRESS_BITS != 0 {
                    jumps.push(hot.jump(start));
                }
                hot.constant(scratch, table::offset(address));
            }
            At::Operand(..) => {
                emit.address(hot);
                if keeps {
                    hot.put_slot(scratch, MISS_AT);
                }
                start = hot.at;
                emit.keep(hot);
                let crosses = (PAGE_BYTES as i64 - bytes) as i32;
                if bytes > 1 && group.count == 1 {
                    hot.test_low(scratch, bytes as u8 - 1);
                    hot.jump_if(EQUAL_NOT, cold.at);
                    // An access that is not aligned may still be in one page.
                    cold.mask_low(scratch, PAGE_BYTES as i32 - 1);
                    cold.compare_low(scratch, crosses);
                    let at = cold.jump_if(BELOW_OR_EQUAL_NOT, start);
                    emit.address_again(cold);
                    cold.jump(hot.at);
                    jumps.push(at);
                } else if bytes > 1 {
                    hot.mask_low(scratch, PAGE_BYTES as i32 - 1);
                    hot.compare_low(scratch, crosses);
                    crosses_at = Some(hot.jump_if(BELOW_OR_EQUAL_NOT, start));
                    emit.address_again(hot);
                }
                hot.shift_right(scratch, table::SHIFT);
                hot.mask(scratch, table::MASK);
            }
        }
        hot.test_gs(scratch, KINDS, table::needed(loads > 0, stores > 0));
        jumps.push(hot.jump_if(EQUAL, start));
        let slot = 4 * (number as usize % SLOTS) as i32;
        if loads > 0 {
            hot.add_gs(scratch, LOADS + slot, loads);
        }
        if stores > 0 {
            hot.add_gs(scratch, STORES + slot, stores);
        }
        hot.store_gs(clock, scratch, USED);
        let back = hot.at;
        emit.give_back(hot);
        hot.lea(clock, Place::behind(clock, 2 * group.rows as i32));
        if let Some(jump) = crosses_at {
            hot.patch(jump, cold.at.wrapping_sub(jump + 4) as i32);
            jumps.extend(emit.apart(cold, accesses, slot, back));
        }
        let (stub, tail) = emit.miss(cold, number, missed, back);
        for jump in jumps {
            hot.patch(jump, stub.wrapping_sub(jump + 4) as i32);
        }
        Check { start, back, stub, tail }
    }
}

/// The place of the byte at this distance from the access of an operand.
fn place_of(operand: &Operand, distance: i64) -> At {
    match operand.constant {
        Some(address) => {
            At::Known(address.wrapping_add(operand.more).wrapping_add(distance as u64))
        }
        None => {
            At::Operand(first_place(operand, distance).unwrap_or(operand.place), operand.segment)
        }
    }
}

impl Lent {
    /// Emits the end of a counted block: loads the program's values of the lent registers.
    fn give_registers_back(&self, hot: &mut Code) {
        let &Lent { record, scratch } = self;
        if record != RECORD {
            hot.put_slot(RECORD, slot(RECORD));
            hot.copy(RECORD, record);
            hot.get_slot(record, slot(record));
        }
        if scratch != SCRATCH {
            hot.put_slot(SCRATCH, slot(SCRATCH));
            hot.get_slot(scratch, slot(scratch));
        }
    }
}
