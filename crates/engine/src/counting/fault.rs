//! Faults and signals in translated code that counts.
//!
//! ```text
//!   in the poll of a block    the interval ends, or a signal waits: nothing of the block has been done
//!   in a check                no program has such an address: the engine is called as for a miss
//!   in an instruction         the accesses that its group's check has counted, and that were not made, are
//!                             counted no more
//! ```

use alloc::vec::Vec;

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess};

use crate::count::{Access, PAGE_BYTES, is_low};
use crate::detour;
use crate::insn::{BYTES_MAX, Segment};
use crate::run::Engine;
use crate::signal::Context;
use crate::state::{HELD, RECORD, RING, SCRATCH};
use crate::table::{self, ENTRIES, Entry, GUARD_BYTES, POLL, POLL_BYTES};
use crate::translate::counted::{Check, rows};
use crate::translate::{Found, Translated};

/// Whether an access of the instruction at `pc` will not fault. The instruction also stores there if it
/// `stores`.
pub(super) fn can_access(pc: u64, access: Access, stores: bool) -> bool {
    let Access { address, tag, .. } = access;
    let size = u64::from(tag.size());
    let last = address.wrapping_add(size - 1);
    let is_there = is_low(last)
        && detour::can_access(address, stores)
        && (address / PAGE_BYTES == last / PAGE_BYTES || detour::can_access(last, stores));
    let is_odd = size >= 8 && address & (size.min(16) - 1) != 0;
    if is_there && !is_odd {
        return true;
    }
    let Some(instruction) = decode(pc) else { return is_there };
    if is_there {
        return !needs_alignment(&instruction, size);
    }
    is_masked(&instruction)
}

fn decode(pc: u64) -> Option<Instruction> {
    // SAFETY: the code has been translated, so the bytes of its instruction can be read.
    let code = unsafe { core::slice::from_raw_parts(pc as *const u8, BYTES_MAX) };
    let instruction = Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Whether an access of `size` bytes by this instruction faults if its address is not a multiple of
/// `size`.
fn needs_alignment(instruction: &Instruction, size: u64) -> bool {
    use Mnemonic::*;
    let mnemonic = instruction.mnemonic();
    if matches!(mnemonic, Fxsave | Fxsave64 | Fxrstor | Fxrstor64 | Cmpxchg16b) {
        return true;
    }
    let is_aligned = matches!(
        mnemonic,
        Vmovaps
            | Vmovapd
            | Vmovdqa
            | Vmovdqa32
            | Vmovdqa64
            | Vmovntdq
            | Vmovntdqa
            | Vmovntps
            | Vmovntpd
    );
    let is_free = matches!(mnemonic, Movups | Movupd | Movdqu | Lddqu);
    let is_old = instruction.encoding() == iced_x86::EncodingKind::Legacy;
    size >= 16 && (is_aligned || is_old && !is_free)
}

/// Whether a mask or condition may leave an access out.
fn is_masked(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_memory();
    used.iter().any(|memory| {
        matches!(
            memory.access(),
            OpAccess::CondRead | OpAccess::CondWrite | OpAccess::ReadCondWrite
        )
    })
}

impl Engine {
    /// Handles a fault at `at` in translated code, for an access to `address`, if the fault is not
    /// one of the program. Returns whether it was handled. In this case the code continues as
    /// `context` says.
    pub(crate) fn resolve_counted(&mut self, context: &mut Context, at: u64, address: u64) -> bool {
        resolve(self, context, at, address)
    }

    /// Stores the program's registers in their slots, as they are at the instruction that `found` says, and
    /// subtracts accesses that were counted and not made. The engine continues after the handler.
    pub(crate) fn settle_counted(
        &mut self,
        context: &mut Context,
        found: &Found,
        address: Option<u64>,
    ) {
        settle(self, context, found, address);
    }
}

fn resolve(engine: &mut Engine, context: &mut Context, at: u64, address: u64) -> bool {
    if !engine.counter.is_on() {
        return false;
    }
    let code = engine.code();
    let Some(found) = code.find(at) else { return false };
    let Some(block) = code.counted_block(&found.block) else { return false };
    let whole = block.whole();
    let groups = block.groups.iter().map(|group| group.check);
    let is_here = |check: &Check| (check.start..check.back).contains(&at);
    let check = core::iter::once(block.fetch).chain(groups).find(is_here);
    drop(code);
    let poll = engine.state.0 + POLL as u64;
    if found.before_record && address.wrapping_sub(poll) < POLL_BYTES + GUARD_BYTES {
        let is_hidden = engine.recorder.is_hidden;
        if is_hidden {
            engine.recorder.show();
        }
        if is_hidden && engine.signals.has_pending() {
            let clock = context.register(RECORD);
            engine.counter.run_not(whole, clock);
            settle(engine, context, &found, None);
        } else if !is_hidden {
            let clock = context.register(RECORD);
            context.set_register(RECORD, renew(engine, clock));
        }
        return true;
    }
    if let Some(check) = check {
        context.registers.rip = check.stub;
        return true;
    }
    false
}

/// Ends the current interval at the time `clock`, and begins another one. Returns the time at which
/// it begins.
fn renew(engine: &mut Engine, clock: u64) -> u64 {
    engine.state.set(RING, clock);
    engine.counter.leave();
    engine.counter.renew(&mut engine.recorder);
    // The host may need no more records.
    engine.recorder.mark();
    engine.counter.enter();
    engine.state.get(RING)
}

fn settle(engine: &mut Engine, context: &mut Context, found: &Found, address: Option<u64>) {
    let (state, block) = (engine.state, found.block);
    let is_counted = engine.code().counted_block(&block).is_some();
    let is_own = found.after || found.before_record && is_counted;
    let slotted = if is_own { 1 << RECORD | 1 << SCRATCH } else { block.slotted };
    for number in 0..16u8 {
        if slotted >> number & 1 == 0 {
            state.set_register(number, context.register(number));
        }
    }
    state.set(crate::state::FLAGS, context.registers.flags);
    let mut clock = match (is_counted, is_own) {
        (false, _) => state.get(HELD),
        (true, true) => context.register(RECORD),
        (true, false) => context.register(block.record),
    };
    if !is_counted {
        clock = engine.counter.take_back_assisted(clock, address);
    } else if !found.before_record {
        clock = take_back(engine, context, found, &block, clock, address);
    }
    state.set(RING, clock);
    engine.pc = found.pc;
    context.registers.rip = crate::ways::resume();
}

/// Takes back the accesses of a counted block that were counted and not made. Returns the clock without them.
fn take_back(
    engine: &Engine,
    context: &Context,
    found: &Found,
    translated: &Translated,
    clock: u64,
    fault: Option<u64>,
) -> u64 {
    let code = engine.code();
    let Some(block) = code.counted_block(translated) else { return clock };
    let here = found.instruction as usize;
    let checked = block.groups.iter().filter(|group| group.instruction <= here).count();
    let groups = &block.groups[..checked];
    let own = own_addresses(engine, found);
    // The accesses of the instruction. Each access may have several parts.
    let first =
        block.accesses.iter().position(|access| usize::from(access.tag.instruction()) == here);
    let of = |index: usize| first.and_then(|first| own.get(index.checked_sub(first)?).copied());
    let is_reached = |index: &usize| {
        let Some(tag) = block.accesses.get(*index).map(|access| access.tag) else { return false };
        usize::from(tag.instruction()) == here
    };
    let faults = |index: &usize| {
        let size = u64::from(block.accesses[*index].tag.size());
        let within = |start: u64| fault.is_some_and(|fault| fault.wrapping_sub(start) < size);
        of(*index).is_some_and(within)
    };
    let start =
        block.accesses.partition_point(|access| usize::from(access.tag.instruction()) < here);
    let own_range = start..start + own.len();
    let made = own_range.filter(|index| is_reached(index)).find(faults).unwrap_or(start);
    let (mut clock, last) = (clock, groups.len().saturating_sub(1));
    // The clock at the end of the checked accesses, so that the number of each access is known.
    let rows_checked: u32 = groups.last().map_or(1, |group| group.before + group.rows);
    let begun = engine.counter.accesses_at(clock) - u64::from(rows_checked);
    for (number, group) in groups.iter().enumerate() {
        let uncounted = engine.counter.uncounted;
        let is_last_miss = uncounted.begun == begun + u64::from(group.before);
        for index in group.first.max(made)..group.first + group.count {
            let access = block.accesses[index];
            let within = index - group.first;
            clock -= 2 * u64::from(rows(access.tag));
            let is_told = is_last_miss
                && (uncounted.told >> within & 1 != 0
                    || uncounted.stopped.is_some_and(|stopped| stopped <= within));
            if is_told {
                continue;
            }
            let page = match of(index) {
                Some(address) => is_low(address).then_some(table::offset(address)),
                // The scratch register has the entry of the last group's page, or its first byte's address inverted.
                None => (number == last).then(|| match context.register(found.scratch()) {
                    entry if entry >> 63 == 0 => entry,
                    first => table::offset((!first).wrapping_add(access.distance as u64)),
                }),
            };
            let Some(page) = page.filter(|&page| page < table::BYTES) else { continue };
            let entry = (engine.state.0 + ENTRIES as u64 + page) as *mut Entry;
            // SAFETY: the table has an entry at this address, and no other reference to it exists.
            let entry = unsafe { &mut *entry };
            entry.uncount(access.tag.loads().into(), access.tag.stores().into());
        }
    }
    clock
}

/// The addresses of the accesses of the instruction at which a fault came, in the order of its rows.
fn own_addresses(engine: &Engine, found: &Found) -> Vec<u64> {
    let mut reader = crate::insn::Reader::new();
    // SAFETY: the code has been translated, so the bytes of its instruction can be read.
    let code = unsafe { core::slice::from_raw_parts(found.pc as *const u8, BYTES_MAX) };
    let Some(insn) = reader.read(found.pc, code) else { return Vec::new() };
    let state = engine.state;
    let register = |number: u8| match number {
        crate::emit::NONE => 0,
        number => state.register(number),
    };
    let mut addresses = Vec::new();
    for access in &insn.accesses {
        let place = access.place;
        let base = match access.segment {
            Segment::Flat => 0,
            Segment::Fs => state.get(crate::state::FS_BASE),
            Segment::Gs => state.get(crate::state::GS_BASE),
        };
        let operand = register(place.base)
            .wrapping_add(register(place.index).wrapping_mul(place.scale.into()))
            .wrapping_add(i64::from(place.disp) as u64)
            .wrapping_add(base);
        let address = access.constant.unwrap_or(operand);
        let times = if access.loads && access.stores && !access.is_atomic { 2 } else { 1 };
        for _ in 0..times {
            let mut more = 0;
            for size in crate::insn::pieces(access.bytes) {
                addresses.push(address.wrapping_add(more));
                more += u64::from(size);
            }
        }
    }
    addresses
}
