//! Instrumentation of blocks when QEMU translates them, and the log of blocks.
//!
//! A block's descriptor is written to the log before the block can run on any thread. So the host
//! finds the descriptor in the log when it reads the block's number in a ring.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use std::cell::UnsafeCell;

use ring::{BLOCKS_PER_CHUNK, Block, Control, Derived, Record, TAGS_PER_CHUNK};

use crate::ffi::{self, ExecCb, Id, MemCb, Tb};
use crate::filter::{self, Watched};
use crate::qemu::Plan;
use crate::{derived, global, library, qemu, sure, vcpu};

/// The callbacks for this process. They depend on whether there is a filter, and on how this
/// version of QEMU encodes accesses.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    filters: bool,
    /// Whether code is inserted in place of callbacks.
    inline: bool,
    block: ExecCb,
    access: MemCb,
}

impl Callbacks {
    /// Chooses the callbacks. `None` if the filter does not support this QEMU's encoding of
    /// accesses. If `inline_code` is set in Pagewalk's own QEMU, inserted code replaces callbacks.
    pub(crate) fn choose(filters: bool, inline_code: bool) -> Option<Callbacks> {
        // The position of the access size in QEMU 6 to 9, and in QEMU 10.
        let (four, five) = (vcpu::keeps_size_at(vcpu::SIZE_SHIFT), vcpu::keeps_size_at(5));
        let (block, access): (ExecCb, MemCb) = match (filters, four, five) {
            (false, true, _) => (vcpu::on_block, vcpu::on_access::<{ vcpu::SIZE_SHIFT }>),
            (false, _, true) => (vcpu::on_block, vcpu::on_access::<5>),
            (false, ..) => (vcpu::on_block, vcpu::on_access_any),
            (true, true, _) => (filter::on_block, filter::on_access::<{ vcpu::SIZE_SHIFT }>),
            (true, _, true) => (filter::on_block, filter::on_access::<5>),
            (true, ..) => return None,
        };
        let inline = inline_code && !filters && qemu::IS_OURS;
        Some(Callbacks { filters, inline, block, access })
    }
}

impl Callbacks {
    /// The callbacks for a whole machine, which runs in Pagewalk's own QEMU.
    #[cfg(feature = "inside")]
    pub(crate) fn of_machine(inline: bool, access: Option<MemCb>) -> Callbacks {
        // 5 is the position of the access size in QEMU 10.
        let access = access.unwrap_or(vcpu::on_access_of_machine::<5>);
        Callbacks { filters: false, inline, block: vcpu::on_block, access }
    }
}

struct Chosen(UnsafeCell<Option<Callbacks>>);

// SAFETY: the value is written before QEMU translates, and only read afterwards.
unsafe impl Sync for Chosen {}

static CALLBACKS: Chosen = Chosen(UnsafeCell::new(None));

/// Uses `callbacks` from now on. Must be called before anything is translated.
pub(crate) fn set(callbacks: Callbacks) {
    // SAFETY: see `Chosen`.
    unsafe { *CALLBACKS.0.get() = Some(callbacks) };
}

/// Called when QEMU has translated a block. QEMU translates on one thread at a time.
pub(crate) unsafe extern "C" fn on_translate(_: Id, tb: *mut Tb) {
    // SAFETY: see `Chosen`.
    let Some(callbacks) = (unsafe { *CALLBACKS.0.get() }) else { return };
    if global::is_stopped() {
        return;
    }
    // SAFETY: `tb` and its instructions are QEMU's and live during this call.
    unsafe {
        let count = ffi::qemu_plugin_tb_n_insns(tb);
        if count == 0 {
            return;
        }
        let first = ffi::qemu_plugin_tb_get_insn(tb, 0);
        let last = ffi::qemu_plugin_tb_get_insn(tb, count - 1);
        let pc = ffi::qemu_plugin_tb_vaddr(tb);
        if library::is_library(pc) {
            return;
        }
        let end = ffi::qemu_plugin_insn_vaddr(last) + ffi::qemu_plugin_insn_size(last) as u64;
        let length = end.wrapping_sub(pc) as u32;
        let plan = if callbacks.inline { Plan::make() } else { None };
        let tags = plan.as_ref().map_or(&[][..], Plan::fixed_tags);
        let derived = plan.as_ref().map_or(&[][..], Plan::derived);
        let block = Block {
            pc,
            bytes: length,
            instructions: count as u32,
            accesses: tags.len() as u32,
            recorded: derived.iter().filter(|derived| derived.is_none()).count() as u32,
            tags: global::process().tags.load(Ordering::Relaxed),
            pad: 0,
        };
        qemu::learn_base(pc, ffi::qemu_plugin_insn_haddr(first));
        let is_counted = plan.as_ref().is_some_and(Plan::is_counted);
        let Some(number) = log(block, tags, derived, is_counted) else { return };
        match &plan {
            Some(plan) => plan.write(number),
            None => {
                let userdata = if callbacks.filters {
                    // Never freed, since QEMU may keep the block's code for any length of time.
                    Box::into_raw(Box::new(Watched::new(number.into(), block))).cast()
                } else {
                    Record::control(Control::Block, number.into()).0 as *mut c_void
                };
                let on_block = if sure::is_on() { sure::on_block } else { callbacks.block };
                ffi::qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, ffi::CB_NO_REGS, userdata);
            }
        }
        let has_callback = |&index: &usize| plan.as_ref().is_none_or(|plan| plan.keeps(index));
        for index in (0..count).filter(has_callback) {
            ffi::qemu_plugin_register_vcpu_mem_cb(
                ffi::qemu_plugin_tb_get_insn(tb, index),
                callbacks.access,
                ffi::CB_NO_REGS,
                ffi::MEM_RW,
                index as *mut c_void,
            );
        }
    }
}

/// Called when QEMU drops its translated blocks.
pub(crate) unsafe extern "C" fn on_flush(_: Id) {
    qemu::forget_code();
    if !sure::is_on() {
        // The counted accesses are reported now. Code that is translated from now on may not count
        // accesses.
        sure::settle(0);
    }
}

/// Appends a block as [`append`] does. Also stores the block's data in this process if the block
/// does not record all addresses, or if accesses are counted.
fn log(block: Block, tags: &[u16], derived: &[Option<Derived>], is_counted: bool) -> Option<u32> {
    let number = append(block, tags, derived)?;
    if block.recorded < block.accesses || sure::is_on() {
        let parts = if is_counted { 1 + tags.len() } else { 0 };
        let kept = derived::Block {
            number,
            pc: block.pc,
            bytes: block.bytes,
            instructions: block.instructions,
            is_counted,
            recorded: block.recorded as u8,
            accesses: tags.iter().copied().zip(derived.iter().copied()).collect(),
            parts: (0..parts).map(|_| AtomicU32::new(0)).collect(),
        };
        derived::keep(number, kept);
    }
    Some(number)
}

/// Appends a block to the process's logs, with the tags of a fixed block and the derivations of
/// addresses that it does not record. Returns the block's number; `None` if there is no room.
fn append(block: Block, tags: &[u16], derived: &[Option<Derived>]) -> Option<u32> {
    let (shared, process, slot) = (global::shared(), global::process(), global::slot());
    let leaves_out = block.recorded < block.accesses;
    let words = derived.iter().filter(|_| leaves_out).flat_map(|derived| match derived {
        Some(derived) => derived.words(),
        None => Derived::NOT,
    });
    let mut end = block.tags;
    for (index, tag) in (block.tags as usize..).zip(tags.iter().copied().chain(words)) {
        let (chunk, index) = shared.place_in_log(&process.tag_log, index, TAGS_PER_CHUNK, slot)?;
        // SAFETY: the index is inside the chunk, which is this process's; one thread appends.
        unsafe { shared.records(chunk).cast::<u16>().add(index).write(tag) };
        end = index as u32 + 1;
    }
    process.tags.store(end, Ordering::Relaxed);
    let number = process.blocks.load(Ordering::Relaxed);
    let at = (number - slot.blocks_inherited) as usize;
    let (chunk, index) = shared.place_in_log(&process.log, at, BLOCKS_PER_CHUNK, slot)?;
    // SAFETY: as above.
    unsafe { shared.blocks(chunk).add(index).write(block) };
    process.blocks.store(number + 1, Ordering::Release);
    Some(number)
}

/// The number of a block that consists of two parts of `whole`, which is a counted block: its fetch
/// and its access number `index`, counted from 1. With `index` 0, the block consists of the fetch
/// only. The block is created at the first request. `None` if there is no room for it.
pub(crate) fn part(whole: &derived::Block, index: usize) -> Option<u32> {
    let place = whole.parts.get(index)?;
    if let Some(number) = place.load(Ordering::Relaxed).checked_sub(1) {
        return Some(number);
    }
    let access = index.checked_sub(1).and_then(|access| whole.accesses.get(access));
    let tags = access.map(|&(tag, _)| tag);
    let block = Block {
        pc: whole.pc,
        bytes: whole.bytes,
        instructions: whole.instructions,
        accesses: tags.iter().len() as u32,
        recorded: tags.iter().len() as u32,
        tags: global::process().tags.load(Ordering::Relaxed),
        pad: 0,
    };
    let number = append(block, tags.as_slice(), &[])?;
    place.store(number + 1, Ordering::Relaxed);
    Some(number)
}
