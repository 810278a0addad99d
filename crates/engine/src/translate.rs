//! Translates the program's blocks to code that does the same and records the accesses.
//!
//! ```text
//!   prologue   mov r10, record of the block ; mov [r11], r10
//!   body       lea r10, [rbx + 8] ; mov [r11 + 8], r10      an address that follows from no other
//!              add rax, [rbx + 8]                           the program's instruction, as it is
//!   epilogue   lea r11, [r11 + 16] ; mov gs:[NEXT], r11
//!   end        jcc, or a jump into the next block
//! ```
//!
//! An address is written before its instruction is executed. An address at a constant distance from another
//! address of the same block, or from the block itself, is not written: the host adds the distance
//! ([`ring::Derived`]). Flags are not changed.
//!
//! A block that uses r10 or r11 lends two other registers to the engine; their values are in their slots
//! meanwhile ([`crate::state`]). So the program's state is known at each instruction: all registers hold
//! their own values except those in slots, and the offsets of a block's instructions determine the
//! instruction at which a signal came.

pub(crate) mod bare;
mod changed;
mod copied;
pub(crate) mod counted;
mod shared;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use iced_x86::OpKind;
use ring::{Block, Derived, Record};

use crate::emit::{Code, NONE, Place};
use crate::follows::{Follows, Told};
use crate::insn::{
    BYTES_MAX, Flow, Insn, RSP, Reader, Rewritten, Segment, number, pieces, with_operand_at,
};
use crate::state::{
    BARE_TABLE, EXIT, EXIT_INDIRECT, GS_BASE, HELD, NEXT, RCX, RECORD, REGS, SCRATCH, State, TABLE,
    TABLE_ENTRIES,
};
use crate::{library, own, sys};
use changed::Changed;
pub(crate) use changed::is_shared;
use counted::{CountedBlock, Counting, Site};
pub(crate) use shared::holds;

/// The size of a region of translated code in bytes.
const REGION_BYTES: u64 = 64 << 20;
/// The maximum number of full regions in a process that has ever had a second thread.
const FULL_MAX: usize = 3;
/// The largest distance, in bytes, between a region and the code that is translated into it.
const NEAR_BYTES: u64 = 0x6000_0000;
/// The most bytes of the code of one block.
const ROOM_BYTES: u64 = 16 << 10;
/// The most instructions of a block.
const INSTRUCTIONS_MAX: usize = 64;
/// The most accesses of a block, and also of a single instruction.
const ACCESSES_MAX: usize = ring::SPAN_ROOM / 2;
/// The most blocks that are translated at one time, each after the one before it.
const CHAIN_MAX: usize = 16;
/// The most registers that a block may use, without rsp, and with r10 and r11.
const REGISTERS_MAX: u32 = 13;

/// The reason for an exit from translated code.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exit {
    /// A branch to `target`, which had no translated block; the branch's displacement is at `at`, in
    /// that region.
    Link { at: u64, region: usize, target: u64, inner: bool },
    /// A system call at `pc`.
    Syscall { pc: u64, next: u64 },
    /// A repeated instruction.
    Repeat { pc: u64 },
    /// An instruction whose accesses the engine records first; its code is at `body`.
    Assist { pc: u64, body: u64 },
    /// There is no executable memory at `pc`.
    Unmapped { pc: u64 },
    /// The block at `pc` cannot be counted.
    Uncounted { pc: u64 },
    /// The engine cannot execute the instruction.
    Refused { pc: u64, why: &'static str },
    /// The block at `pc` was retired; its translated code was at `host`, in region `region`.
    Gone { pc: u64, host: u64, region: usize },
    /// The code of the block at `pc` has changed.
    Changed { pc: u64, host: u64, region: usize },
    /// The block at `pc` begins the window.
    Begins { pc: u64 },
}

/// A translated block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Translated {
    /// The addresses of the block's code and of its epilogue.
    pub(crate) host: u64,
    pub(crate) epilogue: u64,
    /// The end of the block's code.
    pub(crate) end: u64,
    pub(crate) pc: u64,
    /// The number of bytes of the block's instructions, or 0 if the block is never used again;
    /// `hash` is the hash of these bytes.
    bytes: u32,
    hash: u64,
    /// Whether the translated code first compares the block's instructions with those that were
    /// translated.
    is_checked: bool,
    /// The number of words of the block's record that stay.
    pub(crate) words: u32,
    /// The registers that are in their slots while its body runs, one bit each.
    pub(crate) slotted: u16,
    /// The register that points to the block's record while its body runs, and the scratch register.
    pub(crate) record: u8,
    scratch: u8,
    offsets: u32,
    instructions: u32,
    told: u32,
    accesses: u32,
    /// The value that an execution of the block adds to the counter of bare code: see
    /// [`crate::bare`].
    pub(crate) counts: u64,
    /// The index of the block among those whose accesses are counted; [`NOT_COUNTED`] for others.
    counted: u32,
}

impl Translated {
    /// Whether the block is a single instruction whose accesses the engine records itself.
    pub(crate) fn is_assisted(&self) -> bool {
        self.record == NONE
    }

    /// Whether the block is not recorded. Its record is written nevertheless, and the next block
    /// overwrites it.
    pub(crate) fn is_silent(&self) -> bool {
        self.words == 0 && !self.is_assisted()
    }
}

/// See [`Translated`].
const NOT_COUNTED: u32 = u32::MAX;

/// The position in a block that an address of translated code belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) block: Translated,
    /// The index of the instruction, and its address.
    pub(crate) instruction: u32,
    pub(crate) pc: u64,
    /// Whether the record was not begun yet.
    pub(crate) before_record: bool,
    /// Whether the epilogue has run.
    pub(crate) after: bool,
}

impl Found {
    /// The scratch register at this position.
    pub(crate) fn scratch(&self) -> u8 {
        if self.after { SCRATCH } else { self.block.scratch }
    }
}

struct Region {
    start: u64,
    hot: Code,
    cold: Code,
    /// The address to which translated code jumps for an exit, after it has stored the exit's
    /// number in its slot.
    leave: u64,
    miss: u64,
    /// The address to jump to for a check that fails.
    missed: u64,
    blocks: Vec<Translated>,
    /// Whether the region is full, so that no more blocks are translated into it.
    is_full: bool,
}

/// A range of executable memory.
#[derive(Clone, Copy, Debug)]
struct Executable {
    start: u64,
    end: u64,
    is_writable: bool,
}

/// The log that assigns numbers to blocks.
pub(crate) trait Log {
    /// Appends a block. Returns its number; `None` if the log is full.
    fn append(&mut self, block: Block, tags: &[u16], derived: &[Option<Derived>]) -> Option<u32>;
}

/// All translated code.
pub(crate) struct Translator {
    state: State,
    /// Whether the translated code records nothing and only counts: see [`crate::bare`].
    pub(crate) is_bare: bool,
    /// The addresses of blocks before which bare code returns to the engine. `fetches` says whether
    /// fetches count.
    pub(crate) places: Vec<u64>,
    pub(crate) fetches: u32,
    /// The offset of the table of targets in the shared data.
    table: i32,
    /// The entry to the engine from translated code.
    enter: u64,
    regions: Vec<Region>,
    map: BTreeMap<u64, u64>,
    checks: BTreeMap<u64, u64>,
    executable: Vec<Executable>,
    pub(crate) exits: Vec<Exit>,
    /// How accesses are counted; `None` if they are recorded.
    counting: Option<Counting>,
    pub(crate) counted: Vec<CountedBlock>,
    /// By address of a counted block: its code behind the check of its fetch.
    inner: BTreeMap<u64, u64>,
    /// Whether the program passes flags from function to function, and whether code has been translated that does
    /// not keep them there.
    passes_flags: bool,
    is_stale: bool,
    /// The addresses of the first and the last byte of the counted block whose end is being emitted.
    here: Option<(u64, u64)>,
    pub(crate) sites: Vec<Site>,
    /// For each instruction: the offset of its code from the start of its block's code, and of its address
    /// from its block's address.
    offsets: Vec<(u16, u16)>,
    told: Vec<Told>,
    reader: Reader,
    rotation: usize,
    changed: Changed,
    /// Whether the process has had one thread only.
    is_alone: bool,
    /// How many times all translated code was dropped.
    pub(crate) forgotten: u32,
}

impl Translator {
    /// A translator for the state at `gs`; exits of translated code jump to `enter`.
    pub(crate) fn new(state: State, enter: u64, is_bare: bool) -> Translator {
        Translator {
            state,
            is_bare,
            places: Vec::new(),
            fetches: 1,
            table: if is_bare { BARE_TABLE } else { TABLE },
            enter,
            regions: Vec::new(),
            map: BTreeMap::new(),
            checks: BTreeMap::new(),
            executable: Vec::new(),
            exits: Vec::new(),
            counting: None,
            counted: Vec::new(),
            inner: BTreeMap::new(),
            passes_flags: false,
            is_stale: false,
            here: None,
            sites: Vec::new(),
            offsets: Vec::new(),
            told: Vec::new(),
            reader: Reader::new(),
            rotation: 0,
            changed: Changed::default(),
            is_alone: true,
            forgotten: 0,
        }
    }

    /// Sets the rights of a range of memory, whose blocks are retired.
    pub(crate) fn set_rights(&mut self, start: u64, bytes: u64, rights: u64) {
        let end = start.saturating_add(bytes).saturating_add(4095) & !4095;
        let overlaps = |part: &Executable| part.start < end && start < part.end;
        if self.executable.iter().any(overlaps) {
            let old = core::mem::take(&mut self.executable);
            for part in old {
                if !overlaps(&part) {
                    self.executable.push(part);
                    continue;
                }
                if part.start < start {
                    self.executable.push(Executable { end: start, ..part });
                }
                if end < part.end {
                    self.executable.push(Executable { start: end, ..part });
                }
            }
        }
        if rights & sys::PROT_EXEC != 0 && start < end {
            let is_writable = rights & sys::PROT_WRITE != 0;
            let mut whole = Executable { start, end, is_writable };
            self.executable.retain(|part| {
                let joins = part.is_writable == is_writable
                    && (part.end == whole.start || whole.end == part.start);
                if joins {
                    whole.start = whole.start.min(part.start);
                    whole.end = whole.end.max(part.end);
                }
                !joins
            });
            self.executable.push(whole);
        }
        self.retire(start, end);
    }

    /// Whether more regions are full than a process that has ever had a second thread may keep.
    pub(crate) fn is_too_large(&self) -> bool {
        self.regions.iter().filter(|region| region.is_full).count() >= FULL_MAX
    }

    /// Drops all translated code. No thread may be in it.
    pub(crate) fn forget(&mut self) {
        self.forgotten += 1;
        self.map.clear();
        self.checks.clear();
        self.exits.clear();
        self.counted.clear();
        self.inner.clear();
        self.here = None;
        self.sites.clear();
        self.offsets.clear();
        self.told.clear();
        self.changed.forget();
        for region in &mut self.regions {
            region.begin(self.enter, self.counting);
        }
        self.clear_table();
    }

    fn clear_table(&mut self) {
        let Some(region) = self.regions.first() else { return };
        for entry in 0..TABLE_ENTRIES as i32 {
            self.state.set(self.table + 8 * entry, region.miss);
        }
    }

    /// The position in the program that an address of translated code belongs to.
    pub(crate) fn find(&self, host: u64) -> Option<Found> {
        let mut regions = self.regions.iter();
        let region = regions.find(|region| host.wrapping_sub(region.start) < REGION_BYTES)?;
        let after = region.blocks.partition_point(|block| block.host <= host);
        let block = *region.blocks.get(after.checked_sub(1)?)?;
        if host >= block.end {
            return None;
        }
        let own = block.offsets as usize..(block.offsets + block.instructions) as usize;
        let offsets = &self.offsets[own];
        let offset = (host - block.host) as u16;
        let at = offsets.partition_point(|(start, _)| *start <= offset);
        let instruction = at.saturating_sub(1);
        let pc = block.pc + u64::from(offsets[instruction].1);
        Some(Found {
            block,
            instruction: instruction as u32,
            pc,
            before_record: at == 0,
            after: host >= block.epilogue,
        })
    }

    /// The number of a block's instructions.
    pub(crate) fn instructions(&self, block: &Translated) -> u32 {
        block.instructions
    }

    /// The accesses of a block.
    pub(crate) fn accesses(&self, block: &Translated) -> &[Told] {
        &self.told[block.told as usize..(block.told + block.accesses) as usize]
    }

    /// The address of the translated code of the block at `pc`. Translates the block if necessary.
    pub(crate) fn lookup(&mut self, pc: u64, log: &mut dyn Log) -> Result<u64, &'static str> {
        if let Some(&host) = self.map.get(&pc) {
            return Ok(host);
        }
        if let Some(host) = self.revive(pc) {
            return Ok(host);
        }
        self.translate(pc, log)?;
        if self.drop_stale() {
            self.translate(pc, log)?;
        }
        self.map.get(&pc).copied().ok_or("a block is missing after its translation")
    }

    /// As [`Translator::lookup`], and enters the block into the table of targets of indirect
    /// branches.
    pub(crate) fn target(&mut self, pc: u64, log: &mut dyn Log) -> Result<u64, &'static str> {
        if !self.checks.contains_key(&pc) {
            self.note_entry(pc);
            self.drop_stale();
        }
        let host = self.lookup(pc, log)?;
        if !self.checks.contains_key(&pc) {
            let region = self.region(pc)?;
            let slot = self.table + 8 * i32::from(pc as u16);
            let before = self.state.get(slot);
            let code = &mut self.regions[region].cold;
            let fail = code.at;
            code.jump_far(before);
            let check = code.at;
            code.check_target(pc, fail);
            match near(code.at + 5, host) {
                true => {
                    code.jump(host);
                }
                false => code.jump_far(host),
            }
            self.state.set(slot, check);
            self.checks.insert(pc, check);
        }
        Ok(host)
    }

    /// Links the branch whose exit was taken directly to `host`.
    pub(crate) fn link(&mut self, at: u64, region: usize, host: u64) {
        let Some(region) = self.regions.get_mut(region) else { return };
        let to = match near(at + 4, host) {
            true => host,
            false => {
                let far = region.cold.at;
                if region.cold.end - far < ROOM_BYTES {
                    return;
                }
                region.cold.jump_far(host);
                far
            }
        };
        region.hot.patch(at, to.wrapping_sub(at + 4) as i32);
    }

    /// The index of a region with free space for the code at `pc`.
    fn region(&mut self, pc: u64) -> Result<usize, &'static str> {
        let is_near = |region: &Region| {
            region.start.abs_diff(pc) < NEAR_BYTES
                && (region.start + REGION_BYTES).abs_diff(pc) < NEAR_BYTES
        };
        if let Some(at) = self.regions.iter().position(|region| !region.is_full && is_near(region))
        {
            return Ok(at);
        }
        // If there is no code at the address, translated code need not be near it.
        if self.code_at(pc).is_none()
            && let Some(at) = self.regions.iter().position(|region| !region.is_full)
        {
            return Ok(at);
        }
        let region = Region::near(pc)?;
        self.add(region)
    }

    fn code_at(&self, pc: u64) -> Option<(&'static [u8], bool)> {
        let holds = |part: &&Executable| part.start <= pc && pc < part.end;
        let part = self.executable.iter().find(holds)?;
        let mut end = part.end;
        // An instruction may extend into the next mapping.
        if end - pc < BYTES_MAX as u64
            && let Some(next) = self.executable.iter().find(|next| next.start == end)
        {
            end = next.end;
        }
        let length = (end - pc).min(BYTES_MAX as u64) as usize;
        // SAFETY: the memory is mapped as executable, so it can also be read.
        let code = unsafe { core::slice::from_raw_parts(pc as *const u8, length) };
        Some((code, self.is_changing(pc, pc + 1)))
    }

    fn translate(&mut self, start: u64, log: &mut dyn Log) -> Result<(), &'static str> {
        let mut region = self.region(start)?;
        let has_room = |code: &Code| code.end - code.at > ROOM_BYTES * (CHAIN_MAX as u64 + 1);
        if !has_room(&self.regions[region].hot) || !has_room(&self.regions[region].cold) {
            if self.is_alone {
                self.forget();
            } else {
                self.regions[region].is_full = true;
                region = self.region(start)?;
            }
        }
        let mut pc = start;
        for at in 0.. {
            if at > 0 && (at >= CHAIN_MAX || self.map.contains_key(&pc)) {
                self.branch(region, None, pc);
                break;
            }
            let is_outer = at > 0 && self.counting.is_some() && !self.is_inner(pc);
            let hot = &mut self.regions[region].hot;
            let jump = is_outer.then(|| hot.jump(hot.at));
            let (first, goes_on) = (pc, self.block(region, pc, log)?);
            if let (Some(jump), Some(&host)) = (jump, self.map.get(&first)) {
                self.regions[region].hot.patch(jump, host.wrapping_sub(jump + 4) as i32);
            }
            match goes_on {
                // The code may change before it runs.
                Some(next) if self.is_changing(next, next + 1) => {
                    self.branch(region, None, next);
                    break;
                }
                Some(next) => pc = next,
                None => break,
            }
        }
        Ok(())
    }

    fn exit(&mut self, region: usize, exit: Exit) -> u64 {
        let number = self.exits.len() as u32;
        self.exits.push(exit);
        let Region { cold, leave, .. } = &mut self.regions[region];
        let at = cold.at;
        cold.number_into_slot(number, EXIT);
        cold.jump(*leave);
        at
    }

    /// Emits a branch to `target`, on a condition if there is one.
    fn branch(&mut self, region: usize, condition: Option<u8>, target: u64) {
        let inner = self.is_inner(target);
        let known = self.entry(target, inner);
        let hot = &mut self.regions[region].hot;
        let to = known.filter(|&host| near(hot.at + 6, host));
        if to.is_none() {
            hot.align(if condition.is_some() { 2 } else { 1 }, 4);
        }
        let here = hot.at;
        let at = match condition {
            None => hot.jump(to.unwrap_or(here)),
            Some(condition) => hot.jump_if(condition, to.unwrap_or(here)),
        };
        if to.is_none() {
            let stub = self.regions[region].cold.at;
            self.exit(region, Exit::Link { at, region, target, inner });
            self.regions[region].hot.patch(at, stub.wrapping_sub(at + 4) as i32);
        }
    }

    /// Emits an exit. Returns the address of its code, in the same region.
    fn leave_by(&mut self, region: usize, exit: Exit) {
        if let Exit::Refused { pc, .. } = exit {
            self.note_refused(pc);
        }
        let stub = self.exit(region, exit);
        self.regions[region].hot.jump(stub);
    }

    /// Translates one block. Returns the address of the next block, if known.
    fn block(
        &mut self,
        region: usize,
        start: u64,
        log: &mut dyn Log,
    ) -> Result<Option<u64>, &'static str> {
        let mut insns: Vec<Insn> = Vec::new();
        let mut pc = start;
        let mut used = 0u16;
        let mut accesses = 0;
        let mut end = None;
        while insns.len() < INSTRUCTIONS_MAX {
            let Some((code, is_changing)) = self.code_at(pc) else {
                end = Some(Exit::Unmapped { pc });
                break;
            };
            let Some(insn) = self.reader.read(pc, code) else {
                if insns.is_empty() {
                    return Ok(self.unknown(region, pc, code));
                }
                break;
            };
            let all = used | insn.used | 1 << RECORD | 1 << SCRATCH;
            let count: usize = insn
                .accesses
                .iter()
                .map(|access| {
                    pieces(access.bytes).count() * if access.loads && access.stores { 2 } else { 1 }
                })
                .sum();
            let is_alone = matches!(insn.flow, Flow::Repeated | Flow::Assisted | Flow::Refused(_));
            let is_full =
                (all & !(1 << RSP)).count_ones() > REGISTERS_MAX || accesses + count > ACCESSES_MAX;
            if !insns.is_empty() && (is_full || is_alone) {
                break;
            }
            if is_alone {
                return Ok(self.alone(region, pc, &insn));
            }
            if (insn.used & !(1 << RSP)).count_ones() > REGISTERS_MAX {
                end = Some(Exit::Refused { pc, why: "it uses too many registers at once" });
                break;
            }
            used |= insn.used;
            accesses += count;
            pc = insn.instruction.next_ip();
            let flow = insn.flow;
            let stores = insn.accesses.iter().any(|access| access.stores);
            insns.push(insn);
            // The next instruction may be the one that it changes.
            if flow != Flow::Next || is_changing && stores {
                break;
            }
        }
        if insns.is_empty() {
            let host = self.begin_block(region);
            self.map.insert(start, host);
            if let Some(end) = end {
                self.leave_by(region, end);
            }
            return Ok(None);
        }
        self.write(region, start, pc, &insns, used, end, log)
    }

    /// The address of the code of a block that begins now.
    fn begin_block(&mut self, region: usize) -> u64 {
        const HEAD_BYTES: u64 = 8;
        let hot = &mut self.regions[region].hot;
        hot.align(0, HEAD_BYTES);
        hot.at
    }

    /// Handles an instruction that the engine executes, records, or refuses.
    fn alone(&mut self, region: usize, pc: u64, insn: &Insn) -> Option<u64> {
        self.here = Some((pc, insn.instruction.next_ip().wrapping_sub(1)));
        let host = self.begin_block(region);
        self.map.insert(pc, host);
        if self.places.iter().any(|place| (pc..insn.instruction.next_ip()).contains(place)) {
            self.leave_by(region, Exit::Begins { pc });
            return None;
        }
        match insn.flow {
            Flow::Repeated => {
                self.leave_by(region, Exit::Repeat { pc });
                None
            }
            Flow::Refused(why) => {
                self.leave_by(region, Exit::Refused { pc, why });
                None
            }
            _ => {
                // mov dword gs:[slot], number ; jmp leave
                let body = host + 12 + 5;
                let number = self.exits.len() as u32;
                self.exits.push(Exit::Assist { pc, body });
                let Region { hot, leave, .. } = &mut self.regions[region];
                hot.number_into_slot(number, EXIT);
                hot.jump(*leave);
                let (offsets, told) = (self.offsets.len() as u32, self.told.len() as u32);
                // While the instruction is executed, r10 and r11 hold the program's values.
                hot.put_slot(RECORD, HELD);
                hot.get_slot(RECORD, slot(RECORD));
                hot.get_slot(SCRATCH, slot(SCRATCH));
                self.offsets.push(((hot.at - host) as u16, 0));
                let is_near = copy(hot, insn);
                let epilogue = hot.at;
                hot.put_slot(RECORD, slot(RECORD));
                hot.put_slot(SCRATCH, slot(SCRATCH));
                hot.get_slot(RECORD, HELD);
                let end = hot.at;
                self.regions[region].blocks.push(Translated {
                    host,
                    epilogue,
                    end,
                    pc,
                    bytes: 0,
                    hash: 0,
                    is_checked: false,
                    words: 0,
                    slotted: 0,
                    record: NONE,
                    scratch: NONE,
                    offsets,
                    instructions: 1,
                    told,
                    accesses: 0,
                    counts: 0,
                    counted: NOT_COUNTED,
                });
                if !is_near {
                    self.leave_by(region, Exit::Refused { pc, why: FAR });
                    return None;
                }
                Some(insn.instruction.next_ip())
            }
        }
    }

    /// Handles bytes that are not a known instruction: the processor may raise a signal for them.
    fn unknown(&mut self, region: usize, pc: u64, code: &[u8]) -> Option<u64> {
        let host = self.begin_block(region);
        self.map.insert(pc, host);
        let is_short = code.len() < BYTES_MAX;
        let exit = match is_short {
            true => Exit::Unmapped { pc: pc + code.len() as u64 },
            false => Exit::Refused { pc, why: "it runs an unknown instruction" },
        };
        self.leave_by(region, exit);
        None
    }

    #[allow(clippy::too_many_arguments)]
    fn write(
        &mut self,
        region: usize,
        start: u64,
        pc: u64,
        insns: &[Insn],
        used: u16,
        end: Option<Exit>,
        log: &mut dyn Log,
    ) -> Result<Option<u64>, &'static str> {
        if self.counting.is_some() && self.is_changing(start, pc) {
            let host = self.begin_block(region);
            self.map.insert(start, host);
            self.leave_by(region, Exit::Uncounted { pc: start });
            return Ok(None);
        }
        if self.is_bare {
            return self.write_bare(region, (start, pc), insns, used, end);
        }
        if self.counting.is_some() {
            return self.write_counted(region, (start, pc), insns, used, end);
        }
        let is_silent = library::holds(start);
        let follows = Follows::of(start, insns);
        let (told, words) = match is_silent {
            true => (Vec::new(), Vec::new()),
            false => (follows.told, follows.words),
        };
        let tags: Vec<u16> = told.iter().map(|told| told.tag).collect();
        let derived: Vec<Option<Derived>> = told.iter().map(|told| told.derived).collect();
        let block = Block {
            pc: start,
            bytes: pc.wrapping_sub(start) as u32,
            instructions: insns.len() as u32,
            accesses: tags.len() as u32,
            recorded: words.len() as u32,
            tags: 0,
            pad: 0,
        };
        let number = if is_silent { Some(0) } else { log.append(block, &tags, &derived) };
        let number = number.ok_or("it has too many code blocks to record")?;
        let record_words = if is_silent { 0 } else { 1 + words.len() as u32 };

        self.rotation += 1;
        let lent = Lent::choose(used, self.rotation);
        let host = self.begin_block(region);
        self.map.insert(start, host);
        let is_checked = self.is_changing(start, pc);
        let mut is_near = !is_checked || self.compare(region, start, pc);
        let hash = changed::hash(start, pc.wrapping_sub(start));
        let hot = &mut self.regions[region].hot;
        lent.take(hot);
        let (record, scratch) = (lent.record, lent.scratch);
        hot.constant(scratch, Record::fixed(number, words.len() as u8).0);
        hot.store(scratch, Place::behind(record, 0));

        let (offsets, first_told) = (self.offsets.len() as u32, self.told.len() as u32);
        self.told.extend_from_slice(&told);
        let mut written = words.iter().enumerate().peekable();
        let last = insns.len() - 1;
        for (at, insn) in insns.iter().enumerate() {
            let pc = insn.instruction.ip();
            self.offsets.push(((hot.at - host) as u16, (pc - start) as u16));
            while let Some((index, (_, place, segment))) = written.next_if(|(_, word)| word.0 == at)
            {
                let to = Place::behind(record, 8 * (1 + index as i32));
                if let Some(slot) = segment.slot() {
                    address_of(hot, scratch, *place, slot);
                    hot.store(scratch, to);
                } else if place.index == NONE && place.disp == 0 {
                    hot.store(place.base, to);
                } else {
                    hot.lea(scratch, *place);
                    hot.store(scratch, to);
                }
            }
            if at < last || insn.flow == Flow::Next {
                is_near &= rewrite(hot, insn, scratch)?;
            }
        }
        let insn = &insns[last];
        if let Flow::Indirect { .. } = insn.flow {
            is_near &= load_target(hot, insn, scratch);
            if scratch != SCRATCH {
                hot.put_slot(scratch, HELD);
            }
        }
        let epilogue = hot.at;
        lent.give_back(hot, 8 * record_words as i32);
        if insn.flow == Flow::Raises {
            is_near &= copy(hot, insn);
        }
        let mut next = self.end(region, pc, insn, &lent);
        let block_end = self.regions[region].hot.at;
        // The code after this block may be another block later.
        let is_whole = end.is_none();
        if let Some(exit) = end {
            self.leave_by(region, exit);
            next = None;
        }
        self.regions[region].blocks.push(Translated {
            host,
            epilogue,
            end: block_end,
            pc: start,
            bytes: if is_whole { pc.wrapping_sub(start) as u32 } else { 0 },
            hash,
            is_checked,
            words: record_words,
            slotted: lent.slotted(),
            record,
            scratch,
            offsets,
            instructions: insns.len() as u32,
            told: first_told,
            accesses: told.len() as u32,
            counts: 0,
            counted: NOT_COUNTED,
        });
        if is_near { Ok(next) } else { Err(FAR) }
    }

    /// Emits the end of a block that ends before `pc` and whose last instruction is `insn`. Returns the
    /// address of the next block, if known.
    fn end(&mut self, region: usize, pc: u64, insn: &Insn, lent: &Lent) -> Option<u64> {
        let hot = &mut self.regions[region].hot;
        let next_ip = insn.instruction.next_ip();
        match insn.flow {
            Flow::Next => Some(pc),
            Flow::Jump(target) => Some(target),
            Flow::Call(target) => {
                self.push(region, next_ip);
                Some(target)
            }
            Flow::Indirect { call } => {
                if lent.scratch != SCRATCH {
                    hot.get_slot(SCRATCH, HELD);
                }
                if call {
                    self.push(region, next_ip);
                }
                let table = self.table;
                self.regions[region].hot.indirect(table);
                None
            }
            Flow::Return(more) => {
                hot.bytes(&[0x41, 0x5a]); // pop r10
                if more != 0 {
                    hot.lea(RSP, Place::behind(RSP, more.into()));
                }
                let table = self.table;
                self.regions[region].hot.indirect(table);
                None
            }
            Flow::Branch(condition, target) => {
                self.branch(region, Some(condition), target);
                Some(next_ip)
            }
            Flow::Loop(target) => {
                let length = insn.instruction.len();
                hot.bytes(&insn.bytes[..length - 1]);
                hot.bytes(&[2, 0xeb, 5]);
                self.branch(region, None, target);
                Some(next_ip)
            }
            Flow::Syscall => {
                let pc = insn.instruction.ip();
                self.leave_by(region, Exit::Syscall { pc, next: next_ip });
                None
            }
            // An instruction that raises no exception this time continues at the next one.
            Flow::Raises => Some(next_ip),
            Flow::Repeated | Flow::Assisted | Flow::Refused(_) => None,
        }
    }

    /// Emits a `push` of an address.
    fn push(&mut self, region: usize, value: u64) {
        let Region { hot, cold, .. } = &mut self.regions[region];
        if value as i64 == i64::from(value as i32) {
            hot.byte(0x68);
            hot.dword(value as i32);
        } else {
            cold.align_word();
            let at = cold.at;
            cold.qword(value);
            hot.bytes(&[0xff, 0x35]);
            hot.dword(at.wrapping_sub(hot.at + 4) as i32);
        }
    }
}

/// The registers that point to a block's record and in which addresses are computed. They are r11 and r10, or
/// others if the block itself uses those. The program's values of these registers are in their slots
/// meanwhile.
struct Lent {
    record: u8,
    scratch: u8,
}

impl Lent {
    /// The registers for a block that uses the registers `used`. `turn` varies the choice.
    fn choose(used: u16, turn: usize) -> Lent {
        let free = |taken: u16| {
            let free = (0..16u8).filter(move |&at| taken >> at & 1 == 0);
            let count = free.clone().count();
            free.cycle().nth(turn % count.max(1)).unwrap_or(NONE)
        };
        let uses = |register: u8| used >> register & 1 != 0;
        let mut taken = used | 1 << RSP | 1 << RECORD | 1 << SCRATCH;
        let mut record = RECORD;
        if uses(RECORD) {
            record = free(taken);
            taken |= 1 << record;
        }
        let scratch = if uses(SCRATCH) { free(taken) } else { SCRATCH };
        Lent { record, scratch }
    }

    /// The registers that are in their slots while the block's body runs, one bit each.
    fn slotted(&self) -> u16 {
        1 << self.record | 1 << self.scratch
    }

    /// Emits the start of a block: stores the program's values of the lent registers.
    fn take(&self, hot: &mut Code) {
        let &Lent { record, scratch } = self;
        if record != RECORD {
            hot.put_slot(record, slot(record));
            hot.copy(record, RECORD);
            hot.get_slot(RECORD, slot(RECORD));
        }
        if scratch != SCRATCH {
            hot.put_slot(scratch, slot(scratch));
            hot.get_slot(SCRATCH, slot(SCRATCH));
        }
    }

    /// Emits the end of a block whose record has `bytes` bytes: loads the program's values of the lent
    /// registers.
    fn give_back(&self, hot: &mut Code, bytes: i32) {
        let &Lent { record, scratch } = self;
        hot.lea(record, Place::behind(record, bytes));
        hot.put_slot(record, NEXT);
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

/// The slot of a register's value while the register is lent.
fn slot(register: u8) -> i32 {
    REGS + 8 * i32::from(register)
}

/// The reason why a block cannot be translated if its data is too far away.
const FAR: &str = "there is no room within 2 GiB of the translated code for its data";

fn near(from: u64, to: u64) -> bool {
    let distance = to.wrapping_sub(from) as i64;
    distance == i64::from(distance as i32)
}

/// Emits code that computes the address of a place, plus the segment base in a slot, in `to`.
fn address_of(code: &mut Code, to: u8, place: Place, slot: i32) {
    let Place { base, index, scale, disp } = place;
    code.get_slot(to, slot);
    if base != NONE {
        code.lea(to, Place { base, index: to, scale: 1, disp: 0 });
    }
    if index != NONE {
        code.lea(to, Place { base: to, index, scale, disp });
    } else if disp != 0 {
        code.lea(to, Place::behind(to, disp));
    }
}

/// Emits an instruction or its replacement. Returns false if an operand is too far away.
fn rewrite(code: &mut Code, insn: &Insn, scratch: u8) -> Result<bool, &'static str> {
    match insn.rewritten {
        Rewritten::Not => return Ok(copy(code, insn)),
        Rewritten::ReadsGs(to, bytes) => {
            code.get_slot(to, GS_BASE);
            if bytes == 4 {
                code.copy_low(to, to);
            }
        }
        Rewritten::WritesGs(from, 4) => {
            code.copy_low(scratch, from);
            code.put_slot(scratch, GS_BASE);
        }
        Rewritten::WritesGs(from, _) => code.put_slot(from, GS_BASE),
        Rewritten::Gs => {
            let gs = insn.accesses.iter().find(|access| access.segment == Segment::Gs);
            let Some(access) = gs else { return Ok(copy(code, insn)) };
            address_of(code, scratch, access.place, GS_BASE);
            let bytes = with_operand_at(&insn.instruction, scratch);
            code.bytes(&bytes.ok_or(crate::insn::ODD_GS)?);
        }
    }
    Ok(true)
}

/// Copies an instruction. Returns false if an operand relative to its address is too far away.
fn copy(code: &mut Code, insn: &Insn) -> bool {
    let length = insn.instruction.len();
    let at = code.at;
    code.bytes(&insn.bytes[..length]);
    if !insn.instruction.is_ip_rel_memory_operand() {
        return true;
    }
    let target = insn.instruction.ip_rel_memory_address();
    code.patch(at + insn.displacement_at as u64, target.wrapping_sub(code.at) as i32);
    near(code.at, target)
}

/// Emits code that loads the target of an indirect branch into `to`.
fn load_target(code: &mut Code, insn: &Insn, to: u8) -> bool {
    let instruction = &insn.instruction;
    if instruction.op0_kind() == OpKind::Register {
        code.copy(to, number(instruction.op0_register()));
        return true;
    }
    // FF /2 or /4 becomes 8B /r.
    let bytes = &insn.bytes[..instruction.len()];
    let mut rex = 0x48 | (to >> 3) << 2;
    let mut at = 0;
    loop {
        match bytes[at] {
            0x64 | 0x65 | 0x67 => code.byte(bytes[at]),
            byte if byte & 0xf0 == 0x40 => rex |= byte & 3,
            0xff => break,
            _ => {}
        }
        at += 1;
    }
    code.bytes(&[rex, 0x8b, bytes[at + 1] & 0xc7 | (to & 7) << 3]);
    let rest = &bytes[at + 2..];
    if instruction.is_ip_rel_memory_operand() {
        let target = instruction.ip_rel_memory_address();
        code.dword(target.wrapping_sub(code.at + 4) as i32);
        return near(code.at, target);
    }
    code.bytes(rest);
    true
}

/// New memory for the code of a region, as a descriptor.
fn memory() -> Result<i64, &'static str> {
    const MFD_CLOEXEC: u64 = 1;
    const MFD_EXEC: u64 = 16;
    let name = c"pagewalk-code".as_ptr() as u64;
    // SAFETY: the name ends with a zero byte. A kernel that does not know the call refuses it.
    let fd = unsafe {
        let fd = sys::call(sys::nr::MEMFD_CREATE, [name, MFD_CLOEXEC | MFD_EXEC, 0, 0, 0, 0]);
        match fd {
            0.. => fd,
            _ => sys::call(sys::nr::MEMFD_CREATE, [name, MFD_CLOEXEC, 0, 0, 0, 0]),
        }
    };
    if fd < 0 {
        return Err("the system gives no memory for translated code (memfd_create)");
    }
    // SAFETY: the engine owns the descriptor.
    let sized = unsafe { sys::call(sys::nr::FTRUNCATE, [fd as u64, REGION_BYTES, 0, 0, 0, 0]) };
    if sized != 0 {
        // SAFETY: as above.
        unsafe { sys::call(sys::nr::CLOSE, [fd as u64, 0, 0, 0, 0, 0]) };
        return Err("the system gives no memory for translated code (a limit of file sizes?)");
    }
    Ok(fd)
}

impl Region {
    /// Maps memory for translated code near `pc`: it is executed at one address and written at
    /// another.
    fn near(pc: u64) -> Result<Region, &'static str> {
        let fd = memory()?;
        let execute = sys::PROT_READ | sys::PROT_EXEC;
        let flags = sys::MAP_SHARED | sys::MAP_FIXED_NOREPLACE;
        let step = 16 << 20;
        let base = pc & !(step - 1);
        let below = (1..).map(|at| base.wrapping_sub(REGION_BYTES + at * step));
        // The farthest places come first, because the program's heap grows behind the program.
        let above = (0..).map(|at| base.wrapping_add(NEAR_BYTES - 2 * REGION_BYTES - at * step));
        let count = ((NEAR_BYTES - 2 * REGION_BYTES) / step) as usize;
        let is_fit = |at: &u64| *at >= step && *at < 0x7fff_f000_0000;
        let places = below.take(count).chain(above.take(count)).filter(is_fit);
        let mut start = None;
        for at in places {
            match sys::map(at, REGION_BYTES, execute, flags, fd, 0) {
                Some(found) if found == at => {
                    start = Some(at);
                    break;
                }
                Some(elsewhere) => {
                    // SAFETY: a kernel that does not know the flag has just mapped the memory
                    // elsewhere, and nothing uses it.
                    unsafe { sys::call(sys::nr::MUNMAP, [elsewhere, REGION_BYTES, 0, 0, 0, 0]) };
                }
                None => {}
            }
        }
        let write = sys::PROT_READ | sys::PROT_WRITE;
        let written = own::private(REGION_BYTES).and_then(|at| {
            sys::map(at, REGION_BYTES, write, sys::MAP_SHARED | sys::MAP_FIXED, fd, 0)
        });
        // SAFETY: the engine owns the descriptor.
        unsafe { sys::call(sys::nr::CLOSE, [fd as u64, 0, 0, 0, 0, 0]) };
        let (Some(start), Some(written)) = (start, written) else { return Err(FAR) };
        let shift = written.wrapping_sub(start);
        let middle = start + REGION_BYTES / 2;
        let hot = Code { at: start, end: middle, shift };
        let cold = Code { at: middle, end: start + REGION_BYTES, shift };
        Ok(Region {
            start,
            hot,
            cold,
            leave: 0,
            miss: 0,
            missed: 0,
            blocks: Vec::new(),
            is_full: false,
        })
    }

    /// The first addresses of its hot and of its cold code. They differ from region to region in the bits by which
    /// processors find the targets of branches: with code at equal offsets in all regions, programs took up to three times
    /// as long.
    fn beginnings(&self) -> [u64; 2] {
        const STEP_BYTES: u64 = 4096 + 64 * 5;
        [self.start, self.start + REGION_BYTES / 2].map(|from| {
            let mixed = (from >> 24).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            from + (mixed >> 56) * STEP_BYTES
        })
    }

    /// Removes all blocks from the region.
    fn begin(&mut self, enter: u64, counting: Option<Counting>) {
        self.blocks.clear();
        self.is_full = false;
        [self.hot.at, self.cold.at] = self.beginnings();
        self.leave = self.cold.at;
        self.cold.jump_far(enter);
        if let Some(counting) = counting {
            self.missed = self.cold.at;
            self.cold.jump_far(counting.missed);
        }
        self.miss = self.cold.at;
        self.cold.get_slot(1, RCX);
        self.cold.number_into_slot(EXIT_INDIRECT, EXIT);
        self.cold.jump(self.leave);
    }
}
