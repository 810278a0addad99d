//! A whole machine, in Pagewalk's own qemu-system-x86_64: its virtual CPUs are the threads of one process.
//!
//! ```text
//!   a marker in the guest -----------> begin, end, pause
//!   QEMU's TLB is filled ------------> event Translation      qemu/pagewalk/system.h reports these
//!   interrupt, exception ------------> event Interrupt
//!   write of CR0, CR3, CR4; INVLPG --> events Control, Flush
//!   store to a page table -----------> event Stored           tables.rs knows which memory they are in
//!   entry of __switch_to and others -> events Task, Named, SpaceEnd
//! ```
//!
//! Nothing is recorded before the guest executes the marker [`BEGIN`], unless the plugin has the
//! argument `begin=now`, or `entry=0xADDRESS`: then recording begins with the code at this address.
//! A marker is a long NOP whose bytes are [`MARKER`], the marker's number and [`MARKER_END`]. With
//! `markers=on` nothing is recorded, and only the marker [`PAUSE`] has an effect: the machine
//! pauses.
//!
//! # Events in the middle of a block
//!
//! A fill of QEMU's TLB happens while a block runs. The code of a fixed block
//! ([`ring::Control::Fixed`]) has already moved its cursor behind all of the block's records. It
//! still writes to the span, so nothing may end this span. So events wait in [`Waiting`] until the
//! next block begins. Meanwhile the cursor is [`Next::NOWHERE`], so that the next block takes the
//! slow path. The record of the fixed block is marked with [`Record::with_events`], and the events
//! follow it. All other blocks read their cursor for each access, so events are recorded between
//! their accesses.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::size_of;
use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ring::{Control, EventCode, Machine, Next, Record};

use crate::ffi::{self, ExecCb, Id, MemInfo, Tb};
use crate::isa::Guest;
use crate::shared::Shared;
use crate::tables::{self, Tables};
use crate::translate::{self, Callbacks};
use crate::vcpu::{Phase, cursor, next};
use crate::{global, skip, span, vcpu};

/// The maximum number of virtual CPUs of a machine.
const VCPUS: usize = 64;
/// The bytes of a marker before its number: a NOP with an operand of 32 bits, `[rax + rax + 0x505700NN]`.
const MARKER: [u8; 4] = [0x0f, 0x1f, 0x84, 0x00];
/// The bytes of a marker after its number.
const MARKER_END: [u8; 3] = [0x00, 0x57, 0x50];
/// The numbers of the markers that begin a recording, end it, and pause the machine.
const BEGIN: u8 = 1;
const END: u8 = 2;
const PAUSE: u8 = 3;
/// QEMU's numbers of RSI and RDI.
const RSI: c_int = 6;
const RDI: c_int = 7;
/// The length in bytes of a task's name in Linux.
const NAME_BYTES: usize = 16;

unsafe extern "C" {
    fn pagewalk_install(
        id: u64,
        info: *const c_void,
        argc: c_int,
        argv: *const *const c_char,
    ) -> c_int;
    fn pagewalk_read(vcpu: c_uint, address: u64, to: *mut c_void, bytes: usize) -> bool;
    fn pagewalk_physical(vcpu: c_uint, address: u64) -> u64;
    fn pagewalk_lookup(
        vcpu: c_uint,
        about: u32,
        address: u64,
        physical: *mut u64,
        size_log: *mut u8,
    ) -> bool;
    fn pagewalk_register(vcpu: c_uint, number: c_int) -> u64;
    fn pagewalk_kernel_gs(vcpu: c_uint) -> u64;
    fn pagewalk_control(vcpu: c_uint, number: c_int) -> u64;
    fn pagewalk_begin(vcpu: c_uint);
    fn pagewalk_pause(vcpu: c_uint);
    fn pagewalk_watch(page: u64, on: bool);
    fn pagewalk_memory(page: u64) -> *const u64;
    fn pagewalk_root(vcpu: c_uint, root: *mut u64, levels: *mut u8) -> bool;
    fn pagewalk_listen(listener: *const Listener);
    static mut pagewalk_keeps_addresses: bool;
}

/// `PagewalkEntry`.
#[repr(C)]
struct Entry {
    address: u64,
    value: u64,
}

/// `PagewalkWalk`.
#[repr(C)]
struct Walk {
    count: u32,
    entries: [Entry; 5],
}

/// `PagewalkFill`.
#[repr(C)]
struct Fill {
    address: u64,
    physical: u64,
    bytes: u64,
    walk: *const Walk,
    access: u8,
    rights: u8,
    tlb: u8,
    is_user: bool,
    is_nested: bool,
}

/// `PagewalkInterrupt`.
#[repr(C)]
struct Interrupt {
    pc: u64,
    address: u64,
    error: u32,
    vector: u8,
    origin: u8,
    is_user: bool,
}

/// `PagewalkControl`.
#[repr(C)]
struct Written {
    old: u64,
    value: u64,
    number: u8,
}

/// `PagewalkInvalidation`.
#[repr(C)]
struct Invalidation {
    address: u64,
    is_all: bool,
}

/// `PagewalkStored`.
#[repr(C)]
struct StoredTo {
    physical: u64,
    bytes: u32,
}

/// `PagewalkListener`.
#[repr(C)]
struct Listener {
    filled: unsafe extern "C" fn(c_uint, *const Fill),
    faulted: *const c_void,
    interrupted: unsafe extern "C" fn(c_uint, *const Interrupt),
    controlled: unsafe extern "C" fn(c_uint, *const Written),
    invalidated: unsafe extern "C" fn(c_uint, *const Invalidation),
    left: unsafe extern "C" fn(c_uint, c_uint),
    paused: unsafe extern "C" fn(c_uint),
    stored: unsafe extern "C" fn(c_uint, *const StoredTo),
}

// SAFETY: the value is constant.
unsafe impl Sync for Listener {}

static LISTENER: Listener = Listener {
    filled: on_fill,
    // A page fault is also an interrupt, which is recorded.
    faulted: ptr::null(),
    interrupted: on_interrupt,
    controlled: on_control,
    invalidated: on_invalidation,
    left: on_left,
    paused: on_pause,
    stored: on_stored,
};

static ON: AtomicBool = AtomicBool::new(false);
/// Whether a recording has ended, so that no second one begins.
static ENDED: AtomicBool = AtomicBool::new(false);
static VCPUS_COUNT: AtomicU64 = AtomicU64::new(0);

/// Whether this process emulates a whole machine.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// What is known about the guest's kernel: addresses of functions, and offsets in structures. A
/// number is 0 if it is unknown.
#[derive(Clone, Copy)]
struct Kernel {
    /// The addresses of `__switch_to(previous, next)`, `pgd_free(mm, pgd)` and
    /// `__set_task_comm(task, name)`.
    switch_to: u64,
    pgd_free: u64,
    set_comm: u64,
    /// The offset of the pointer to the current task in a processor's data (per-CPU data).
    current: u64,
    /// Offsets of fields in `task_struct`.
    mm: u64,
    active_mm: u64,
    pid: u64,
    tgid: u64,
    comm: u64,
    /// The offset of a field in `mm_struct`.
    pgd: u64,
    /// The address of the code with which recording begins.
    entry: u64,
}

struct Cell<T>(UnsafeCell<T>);

// SAFETY: the content is written before virtual CPUs run, or it is used only by the thread of one
// virtual CPU.
unsafe impl<T> Sync for Cell<T> {}

static KERNEL: Cell<Kernel> = Cell(UnsafeCell::new(Kernel {
    switch_to: 0,
    pgd_free: 0,
    set_comm: 0,
    current: 0,
    mm: 0,
    active_mm: 0,
    pid: 0,
    tgid: 0,
    comm: 0,
    pgd: 0,
    entry: 0,
}));

static TABLES: Cell<Tables> = Cell(UnsafeCell::new(Tables::new()));

/// The memory of the machine, as the virtual CPU of this number changes it.
struct Ram(u32);

impl tables::Memory for Ram {
    fn page(&mut self, page: u64) -> Option<[u64; 512]> {
        // SAFETY: QEMU has this page as long as the machine runs, and no virtual CPU runs now.
        unsafe { pagewalk_memory(page).cast::<[u64; 512]>().as_ref().copied() }
    }

    fn entry(&mut self, address: u64) -> Option<u64> {
        // SAFETY: as above; the entry is in the page.
        unsafe {
            let page = pagewalk_memory(address & !0xfff);
            (!page.is_null()).then(|| page.add(address as usize % 4096 / 8).read())
        }
    }

    fn watch(&mut self, page: u64, on: bool) {
        // SAFETY: on the thread of the virtual CPUs.
        unsafe { pagewalk_watch(page, on) }
    }

    fn tell(&mut self, code: EventCode, words: &[u64]) {
        event(self.0, code, words);
    }
}

fn tables() -> &'static mut Tables {
    // SAFETY: all virtual CPUs run on one thread, and functions that get the reference do not call
    // this function.
    unsafe { &mut *TABLES.0.get() }
}

fn kernel() -> &'static Kernel {
    // SAFETY: see `Cell`.
    unsafe { &*KERNEL.0.get() }
}

/// Events that wait for the end of a fixed block, each with its header; and the cursor that the
/// virtual CPU will have again afterwards.
struct Waiting {
    words: Vec<u64>,
    next: *mut u64,
}

static WAITING: [Cell<Waiting>; VCPUS] =
    [const { Cell(UnsafeCell::new(Waiting { words: Vec::new(), next: ptr::null_mut() })) }; VCPUS];

/// Called for each plugin of qemu-system. A plugin with the argument `session=PATH` is the
/// recorder. A plugin without it is the checker.
///
/// # Safety
///
/// As for `qemu_plugin_install`.
pub(crate) unsafe fn install(
    id: Id,
    info: &ffi::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> Result<c_int, &'static str> {
    // SAFETY: QEMU's promise.
    let arguments = (0..argc.max(0) as usize).map(|at| unsafe { CStr::from_ptr(*argv.add(at)) });
    let (mut session, mut begins, mut pauses, mut checks) = (None, false, false, false);
    let mut found = *kernel();
    for argument in arguments {
        let bytes = argument.to_bytes_with_nul();
        if let Some(path) = bytes.strip_prefix(b"session=") {
            session = CStr::from_bytes_with_nul(path).ok();
        } else if bytes == b"begin=now\0" {
            begins = true;
        } else if bytes == b"check=on\0" {
            checks = true;
        } else if bytes == b"markers=on\0" {
            pauses = true;
        } else if let Some((name, value)) = number(argument) {
            let field = match name {
                "switch_to" => &mut found.switch_to,
                "pgd_free" => &mut found.pgd_free,
                "set_comm" => &mut found.set_comm,
                "current" => &mut found.current,
                "mm" => &mut found.mm,
                "active_mm" => &mut found.active_mm,
                "pid" => &mut found.pid,
                "tgid" => &mut found.tgid,
                "comm" => &mut found.comm,
                "pgd" => &mut found.pgd,
                "entry" => &mut found.entry,
                _ => {
                    return Err(
                        "one of the plugin's arguments NAME=0xNUMBER has an unknown name: use the \
                     recorder and `pagewalk record` of one version",
                    );
                }
            };
            *field = value;
        }
    }
    if pauses {
        // SAFETY: the function has the type that QEMU requires, and lives as long as QEMU.
        unsafe { ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate) };
        ENDED.store(true, Ordering::Relaxed);
        return Ok(0);
    }
    let Some(path) = session else {
        // SAFETY: as for this function.
        return Ok(unsafe { pagewalk_install(id, ptr::from_ref(info).cast(), argc, argv) });
    };
    if info.vcpus_max() as usize > VCPUS {
        return Err("the machine has too many processors: at most 64 can be recorded (-smp)");
    }
    let shared = Shared::open(path)?;
    let inline = shared.session().inline_code != 0 && !checks;
    let callbacks = Callbacks::of_machine(inline, checks.then_some(on_checked));
    let slot = shared
        .enter(Guest::MACHINE_X86_64, None)
        .ok_or("the recording's shared memory already has the largest number of processes")?;
    translate::set(callbacks);
    if info.vcpus_max() == 1 {
        vcpu::set_alone();
    }
    ON.store(true, Ordering::Relaxed);
    global::start(shared, slot, Guest::X86_64)?;
    VCPUS_COUNT.store(info.vcpus_max().max(1) as u64, Ordering::Relaxed);
    if !begins {
        global::wait();
    }
    // SAFETY: no virtual CPU runs yet. The functions have the types that QEMU requires, and live as
    // long as QEMU.
    unsafe {
        *KERNEL.0.get() = found;
        pagewalk_keeps_addresses = true;
        pagewalk_listen(&LISTENER);
        ffi::qemu_plugin_register_vcpu_init_cb(id, on_processor);
        ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
        ffi::qemu_plugin_register_flush_cb(id, translate::on_flush);
        ffi::qemu_plugin_register_atexit_cb(id, on_exit, ptr::null_mut());
    }
    Ok(0)
}

/// An argument `NAME=0xNUMBER`.
fn number(argument: &CStr) -> Option<(&str, u64)> {
    let (name, value) = argument.to_str().ok()?.split_once('=')?;
    Some((name, u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?))
}

unsafe extern "C" fn on_processor(_: Id, vcpu: c_uint) {
    vcpu::begin(vcpu);
}

/// Called when QEMU has translated a block. Instruments the block if recording is on. Registers
/// callbacks if the block contains a marker, begins the kernel, or begins one of the kernel
/// functions that are watched.
unsafe extern "C" fn on_translate(id: Id, tb: *mut Tb) {
    // SAFETY: `tb` and its instructions are QEMU's and live during this call.
    unsafe {
        let kernel = kernel();
        let watched: [(u64, ExecCb); 3] = [
            (kernel.switch_to, on_switch),
            (kernel.pgd_free, on_space_end),
            (kernel.set_comm, on_named),
        ];
        translate::on_translate(id, tb);
        let pc = ffi::qemu_plugin_tb_vaddr(tb);
        for (address, callback) in watched {
            if address != 0 && address == pc && !global::is_stopped() {
                ffi::qemu_plugin_register_vcpu_tb_exec_cb(
                    tb,
                    callback,
                    ffi::CB_R_REGS,
                    ptr::null_mut(),
                );
            }
        }
        if kernel.entry != 0 && kernel.entry == pc && global::is_stopped() {
            let number = usize::from(BEGIN) as *mut c_void;
            ffi::qemu_plugin_register_vcpu_tb_exec_cb(tb, on_marker, ffi::CB_R_REGS, number);
        }
        for index in 0..ffi::qemu_plugin_tb_n_insns(tb) {
            let instruction = ffi::qemu_plugin_tb_get_insn(tb, index);
            if ffi::qemu_plugin_insn_size(instruction) != 8 {
                continue;
            }
            let mut bytes = [0u8; 8];
            ffi::qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), bytes.len());
            if bytes[..4] == MARKER && bytes[5..] == MARKER_END {
                let number = usize::from(bytes[4]) as *mut c_void;
                let callback: ExecCb = on_marker;
                ffi::qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    callback,
                    ffi::CB_R_REGS,
                    number,
                );
            }
        }
    }
}

unsafe extern "C" fn on_marker(vcpu: c_uint, number: *mut c_void) {
    match number as usize as u8 {
        BEGIN if global::is_stopped() && !ENDED.load(Ordering::Relaxed) => {
            global::resume();
            // SAFETY: on the thread of the virtual CPU.
            unsafe { pagewalk_begin(vcpu) };
            // All virtual CPUs run on this thread, one at a time.
            (0..VCPUS_COUNT.load(Ordering::Relaxed) as u32).for_each(tell_processor);
        }
        END if !global::is_stopped() => end(vcpu),
        // SAFETY: as above.
        PAUSE => unsafe { pagewalk_pause(vcpu) },
        _ => {}
    }
}

/// Records the state of a virtual CPU when the recording begins: its control registers and its
/// task.
fn tell_processor(vcpu: u32) {
    for number in [0, 3, 4] {
        // SAFETY: on the thread of the virtual CPUs.
        let value = unsafe { pagewalk_control(vcpu, number) };
        event(vcpu, EventCode::Control, &[number as u64, 0, value]);
    }
    // SAFETY: as above.
    let data = unsafe { pagewalk_kernel_gs(vcpu) };
    let task = read(vcpu, data.wrapping_add(kernel().current));
    if kernel().current != 0 && task >> 63 != 0 {
        tell_task(vcpu, task);
    }
}

/// Ends the recording: the host takes over all records.
fn end(vcpu: u32) {
    ENDED.store(true, Ordering::Relaxed);
    for vcpu in 0..VCPUS_COUNT.load(Ordering::Relaxed) as u32 {
        settle(vcpu);
        span::close(vcpu);
    }
    global::stop(vcpu);
}

unsafe extern "C" fn on_exit(_: Id, _: *mut c_void) {
    if !global::is_stopped() {
        for vcpu in 0..VCPUS_COUNT.load(Ordering::Relaxed) as u32 {
            settle(vcpu);
            span::close(vcpu);
        }
    }
}

/// The number of 8 bytes at `address` in the guest's memory. 0 if the address is not mapped.
fn read(vcpu: u32, address: u64) -> u64 {
    let mut value = 0u64;
    // SAFETY: `value` has 8 bytes.
    let is_read = unsafe { pagewalk_read(vcpu, address, (&raw mut value).cast(), 8) };
    if is_read { value } else { 0 }
}

fn name(vcpu: u32, address: u64) -> [u64; 2] {
    let mut name = [0u64; NAME_BYTES / 8];
    // SAFETY: as above, with the size of the name.
    unsafe { pagewalk_read(vcpu, address, name.as_mut_ptr().cast(), NAME_BYTES) };
    name
}

/// Records the identifiers, the address space and the name of the task whose structure is at the
/// address `task`.
fn tell_task(vcpu: u32, task: u64) {
    let kernel = kernel();
    let ids = read(vcpu, task + kernel.pid) as u32 as u64 | read(vcpu, task + kernel.tgid) << 32;
    let own = read(vcpu, task + kernel.mm);
    let mm = if own != 0 { own } else { read(vcpu, task + kernel.active_mm) };
    let pgd = if mm == 0 { 0 } else { read(vcpu, mm + kernel.pgd) };
    // SAFETY: on the thread of the virtual CPU.
    let root = if pgd == 0 { 0 } else { unsafe { pagewalk_physical(vcpu, pgd) } };
    let [first, second] = name(vcpu, task + kernel.comm);
    event(vcpu, EventCode::Task, &[ids, u64::from(own != 0), root, first, second]);
}

/// Called when `__switch_to(previous, next)` begins.
unsafe extern "C" fn on_switch(vcpu: c_uint, _: *mut c_void) {
    // SAFETY: as above.
    let task = unsafe { pagewalk_register(vcpu, RSI) };
    tell_task(vcpu, task);
}

/// Called when `pgd_free(mm, pgd)` begins.
unsafe extern "C" fn on_space_end(vcpu: c_uint, _: *mut c_void) {
    // SAFETY: as above.
    let root = unsafe { pagewalk_physical(vcpu, pagewalk_register(vcpu, RSI)) };
    event(vcpu, EventCode::SpaceEnd, &[root]);
    if !global::is_stopped() {
        tables().ended(root, &mut Ram(vcpu));
    }
}

/// Called when `__set_task_comm(task, name)` begins.
unsafe extern "C" fn on_named(vcpu: c_uint, _: *mut c_void) {
    // SAFETY: as above.
    let (task, text) = unsafe { (pagewalk_register(vcpu, RDI), pagewalk_register(vcpu, RSI)) };
    let kernel = kernel();
    let ids = read(vcpu, task + kernel.pid) as u32 as u64 | read(vcpu, task + kernel.tgid) << 32;
    let mm = read(vcpu, task + kernel.mm);
    let pgd = if mm == 0 { 0 } else { read(vcpu, mm + kernel.pgd) };
    // SAFETY: as above.
    let root = if pgd == 0 { 0 } else { unsafe { pagewalk_physical(vcpu, pgd) } };
    let [first, second] = name(vcpu, text);
    event(vcpu, EventCode::Named, &[ids, 1, root, first, second]);
}

unsafe extern "C" fn on_fill(vcpu: c_uint, fill: *const Fill) {
    if global::is_stopped() {
        return;
    }
    // SAFETY: QEMU's structures live during the call.
    let (fill, walk) = unsafe { (&*fill, &*(*fill).walk) };
    let count = (walk.count as usize).min(walk.entries.len());
    let entries = &walk.entries[..count];
    let (mut root, mut levels) = (0, 0);
    // SAFETY: on the thread of the virtual CPUs.
    if count > 0 && unsafe { pagewalk_root(vcpu, &raw mut root, &raw mut levels) } {
        tables().used(root, levels, &mut Ram(vcpu));
    }
    let mut words = [0u64; 3 + 5];
    words[0] = fill.address;
    words[1] = fill.physical;
    // The rights are what all page-table entries together permit. QEMU's own TLB permits less: no
    // stores to pages that are not dirty.
    let all = entries.iter().fold(u64::MAX, |all, entry| all & entry.value);
    let never_runs = entries.iter().any(|entry| entry.value >> 63 != 0);
    let last = entries.last().map_or(0, |entry| entry.value);
    let is_store = fill.access == 1;
    words[2] = Machine {
        size_log: fill.bytes.trailing_zeros() as u8,
        access: fill.access,
        is_user: fill.is_user,
        writable: all >> 1 & 1 != 0 || count == 0,
        executable: !never_runs,
        user: all >> 2 & 1 != 0 || count == 0,
        global: last >> 8 & 1 != 0,
        dirty: last >> 6 & 1 != 0 || is_store,
        entries: count as u8,
    }
    .bits();
    for (word, entry) in words[3..].iter_mut().zip(entries) {
        *word = entry.address;
    }
    event(vcpu, EventCode::Translation, &words[..3 + count]);
}

unsafe extern "C" fn on_interrupt(vcpu: c_uint, interrupt: *const Interrupt) {
    // SAFETY: as above.
    let Interrupt { pc, address, error, vector, origin, is_user } = unsafe { interrupt.read() };
    let about = u64::from(vector) | u64::from(origin) << 8 | u64::from(is_user) << 16;
    event(vcpu, EventCode::Interrupt, &[about | u64::from(error) << 32, pc, address]);
}

unsafe extern "C" fn on_control(vcpu: c_uint, written: *const Written) {
    // SAFETY: as above.
    let Written { old, value, number } = unsafe { written.read() };
    event(vcpu, EventCode::Control, &[number.into(), old, value]);
}

unsafe extern "C" fn on_invalidation(vcpu: c_uint, invalidation: *const Invalidation) {
    // SAFETY: as above.
    let Invalidation { address, is_all } = unsafe { invalidation.read() };
    if !is_all {
        event(vcpu, EventCode::Flush, &[address]);
    }
}

unsafe extern "C" fn on_stored(vcpu: c_uint, stored: *const StoredTo) {
    if global::is_stopped() {
        return;
    }
    // SAFETY: as above.
    let StoredTo { physical, bytes } = unsafe { stored.read() };
    tables().stored(physical, bytes.into(), &mut Ram(vcpu));
}

unsafe extern "C" fn on_left(vcpu: c_uint, done: c_uint) {
    event(vcpu, EventCode::Left, &[done.into()]);
}

/// Called before another virtual CPU may run. Ends the segment, so that the accesses of this
/// virtual CPU are ordered before those of the other one.
unsafe extern "C" fn on_pause(vcpu: c_uint) {
    if !global::is_stopped() && !vcpu::is_alone() {
        settle(vcpu);
        span::mark(vcpu, true);
    }
}

/// Called for an access if the recorder is being checked. Also records the physical address to
/// which QEMU's TLB translates the access.
unsafe extern "C" fn on_checked(
    vcpu: c_uint,
    about: MemInfo,
    address: u64,
    instruction: *mut c_void,
) {
    let (mut physical, mut size_log) = (0, 0);
    // SAFETY: QEMU calls this on the thread of `vcpu`, and `pagewalk_lookup` writes the numbers
    // before it returns.
    unsafe {
        vcpu::on_access_of_machine::<5>(vcpu, about, address, instruction);
        if pagewalk_lookup(vcpu, about, address, &raw mut physical, &raw mut size_log) {
            event(vcpu, EventCode::Physical, &[address, physical, size_log.into()]);
        }
    }
}

fn waiting(vcpu: u32) -> *mut Waiting {
    WAITING[vcpu as usize % VCPUS].0.get()
}

/// Records an event: at once, or, if a fixed block is being executed, after this block.
fn event(vcpu: u32, code: EventCode, words: &[u64]) {
    // A reset writes control registers before the virtual CPU begins.
    if global::is_stopped() || vcpu as usize >= VCPUS || vcpu >= vcpu::vcpus_high() {
        return;
    }
    let waiting = waiting(vcpu);
    // SAFETY: only the thread of this virtual CPU uses its events.
    unsafe {
        let is_first = (*waiting).words.is_empty();
        if is_first && !mark_fixed(vcpu) {
            span::event(vcpu, code, &[words]);
            // The block continues after this event, and its code relies on having room for all of
            // its accesses.
            return span::make_room(vcpu, 1);
        }
        (*waiting).words.push(ring::event_header(code, words.len() as u16).0);
        (*waiting).words.extend_from_slice(words);
        if is_first {
            (*waiting).next = *next(vcpu);
            *next(vcpu) = Next::NOWHERE as *mut u64;
        }
    }
}

/// If a block has begun since the last event, and the last such block is a fixed block: marks its
/// record and returns true. Otherwise returns false.
unsafe fn mark_fixed(vcpu: u32) -> bool {
    // SAFETY: the records lie in the present span and are this thread's.
    unsafe {
        if (*cursor(vcpu)).phase != Phase::Attached {
            return false;
        }
        let from = (*cursor(vcpu)).uncounted;
        let length = (*next(vcpu)).offset_from(from);
        let Ok(length) = usize::try_from(length) else { return false };
        let last = skip::last_block(slice::from_raw_parts(from, length));
        if last.is_empty() {
            return false;
        }
        let place = from.add(last.start);
        let record = Record(*place);
        let is_fixed = record.as_control() == Some(Control::Fixed);
        if is_fixed {
            *place = record.with_events().0;
        }
        is_fixed
    }
}

/// Records the events that wait for the end of a block. Called before the next block begins.
pub(crate) fn settle(vcpu: u32) {
    if vcpu as usize >= VCPUS {
        return;
    }
    let waiting = waiting(vcpu);
    // SAFETY: only the thread of this virtual CPU uses its events.
    unsafe {
        if (*waiting).words.is_empty() {
            return;
        }
        *next(vcpu) = (*waiting).next;
        let words = core::mem::take(&mut (*waiting).words);
        let mut at = 0;
        while at < words.len() {
            let (code, count) = ring::event_parts(Record(words[at]).value());
            if let Some(code) = code {
                span::event(vcpu, code, &[&words[at + 1..at + 1 + count]]);
            }
            at += 1 + count;
        }
        // The vector is kept, so that its memory is used for the next events.
        (*waiting).words = words;
        (*waiting).words.clear();
    }
}

const _: () = assert!(size_of::<Walk>() == 8 + 5 * 16);
