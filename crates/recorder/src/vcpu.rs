//! The callbacks for every block and every access, and the cursors that they move.
//!
//! ```text
//!   NEXT[vcpu] -------------------------------------+
//!                                                   v
//!   ring   | block 17 | load a | store b | block 18 |     |     |     ...     |    | span's end
//!                                                                             ^
//!                                                    from here on the slow path
//! ```
//!
//! A callback is a load, a store and an addition. The slow path ends the span and waits for the host:
//! it is taken when less than [`SPAN_ROOM`] records are left, so that a block's own code need not check
//! (`qemu/pagewalk/block.c`). The cursor of a thread without a ring is [`Next::NOWHERE`], which looks
//! like the end of a span. The cursor of a thread that is not recorded cycles through memory that is
//! never read.
//!
//! The table of cursors is a variable of the plugin, so that its address is known to the callbacks,
//! and part of the session is mapped over it, so that the host sees how far a thread came that was
//! killed.

use core::cell::UnsafeCell;
use core::ffi::{c_uint, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use ring::{
    Control, FileCall, NEXT_BYTES, Next, Record, Ring, SPAN_RECORDS, SPAN_ROOM, Tag, VCPUS_MAX,
};

use crate::ffi::MemInfo;
use crate::filter::Filter;
use crate::{ffi, qemu, span, sure};

/// The size of a record in bytes.
pub(crate) const RECORD_BYTES: usize = size_of::<u64>();
/// The bits of a cursor that are the offset in its span.
pub(crate) const SPAN_MASK: usize = SPAN_RECORDS * RECORD_BYTES - 1;
/// The largest offset at which there is room for a block. No span is filled to its end, which would
/// look like the beginning of a span.
pub(crate) const ROOMY_BYTES: usize = (SPAN_RECORDS - SPAN_ROOM) * RECORD_BYTES;
/// The position of the logarithm of the size in QEMU 6 to 9's description of an access.
pub(crate) const SIZE_SHIFT: u32 = 4;

/// The phase of a thread's recording.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The thread has not recorded anything yet.
    Fresh,
    /// The thread has a ring.
    Attached,
    /// The thread's recording has ended.
    Off,
}

/// Further data of a thread.
pub(crate) struct Cursor {
    pub(crate) phase: Phase,
    pub(crate) ring: *const Ring,
    pub(crate) records: *mut u64,
    /// The first record of the current span, and its position in the ring.
    pub(crate) span: *mut u64,
    pub(crate) span_position: u64,
    /// While accesses are skipped: the first record that has not been counted.
    pub(crate) uncounted: *mut u64,
    /// The system call that the thread is in, and its arguments.
    pub(crate) call: Option<ring::Call>,
    pub(crate) arguments: [u64; 6],
    /// The file or blocking call that the thread is in.
    pub(crate) file_call: Option<FileCall>,
    pub(crate) filter: Filter,
}

impl Cursor {
    /// The data of a thread that has not begun.
    pub(crate) const FRESH: Cursor = Cursor {
        phase: Phase::Fresh,
        ring: ptr::null(),
        records: ptr::null_mut(),
        span: ptr::null_mut(),
        span_position: 0,
        uncounted: ptr::null_mut(),
        call: None,
        arguments: [0; 6],
        file_call: None,
        filter: Filter::EMPTY,
    };
}

#[repr(C, align(4096))]
struct PerVcpu<T>(UnsafeCell<[MaybeUninit<T>; VCPUS_MAX]>);

// SAFETY: an entry is used by the thread of its virtual CPU only.
unsafe impl<T> Sync for PerVcpu<T> {}

impl<T> PerVcpu<T> {
    /// All zero, as the loader provides without touching the memory.
    const fn new() -> PerVcpu<T> {
        PerVcpu(UnsafeCell::new([const { MaybeUninit::zeroed() }; VCPUS_MAX]))
    }

    #[inline(always)]
    fn at(&self, vcpu: u32) -> *mut T {
        // SAFETY: the masked index is inside the table.
        unsafe { self.0.get().cast::<T>().add(vcpu as usize & (VCPUS_MAX - 1)) }
    }
}

/// A span for all threads that are not recorded.
#[repr(C, align(16384))]
struct Scratch(UnsafeCell<[u64; SPAN_RECORDS]>);

// SAFETY: it is written through raw pointers and never read.
unsafe impl Sync for Scratch {}

static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; SPAN_RECORDS]));
const _: () = assert!(align_of::<Scratch>() > SPAN_MASK);

static NEXT: PerVcpu<Next> = PerVcpu::new();
static CURSORS: PerVcpu<Cursor> = PerVcpu::new();
static HIGH: AtomicU32 = AtomicU32::new(0);
static ALONE: AtomicBool = AtomicBool::new(false);

/// The variable with the cursor of `vcpu`: the address of its next record.
#[inline(always)]
pub(crate) fn next(vcpu: u32) -> *mut *mut u64 {
    NEXT.at(vcpu).cast()
}

/// Whether the rest of the span may be too short for a block, or there is no span.
#[inline(always)]
fn is_tight(at: *mut u64) -> bool {
    at as usize & SPAN_MASK > ROOMY_BYTES
}

/// Makes `vcpu` write to memory that is never read.
pub(crate) unsafe fn idle(vcpu: u32) {
    // SAFETY: the caller is the thread of `vcpu`; the scratch span has as much room as any.
    unsafe {
        (*NEXT.at(vcpu)).idle.store(1, Ordering::Release);
        *next(vcpu) = SCRATCH.0.get().cast();
    }
}

/// The further data of `vcpu`.
#[inline(always)]
pub(crate) fn cursor(vcpu: u32) -> *mut Cursor {
    CURSORS.at(vcpu)
}

/// One more than the highest virtual CPU so far.
pub(crate) fn vcpus_high() -> u32 {
    HIGH.load(Ordering::Relaxed)
}

/// Takes note that the process has one thread, on virtual CPU 0. It is announced before another one
/// is created.
pub(crate) fn set_alone() {
    ALONE.store(true, Ordering::Release);
}

/// Whether code that is translated now runs on virtual CPU 0 only.
pub(crate) fn is_alone() -> bool {
    ALONE.load(Ordering::Acquire)
}

/// Called when the system call that `vcpu` begins may create a thread: code that is for virtual CPU
/// 0 only is dropped before there is another one.
///
/// QEMU itself drops this code when the second thread begins, but not if there was a shared mapping
/// before.
pub(crate) fn expect_threads(vcpu: u32) {
    if ALONE.swap(false, Ordering::AcqRel) {
        sure::stop();
        qemu::flush_now(vcpu);
    }
}

/// Begins a thread on `vcpu`; false if there is no cursor for it.
pub(crate) fn begin(vcpu: u32) -> bool {
    if vcpu as usize >= VCPUS_MAX {
        return false;
    }
    HIGH.fetch_max(vcpu + 1, Ordering::Relaxed);
    // SAFETY: the thread of this virtual CPU does not run yet.
    unsafe {
        next(vcpu).write(Next::NOWHERE as *mut u64);
        (*NEXT.at(vcpu)).idle.store(0, Ordering::Release);
        cursor(vcpu).write(Cursor::FRESH);
    }
    true
}

/// Makes the cursors visible to the host, at `session`. The process must have one thread.
pub(crate) fn share(session: *mut u8) -> Result<(), &'static str> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: an old size of 0 maps shared pages once more. The table is as long and as aligned,
    // and nothing is in it that is needed.
    let mapped = unsafe { libc::mremap(session.cast(), 0, NEXT_BYTES, flags, table()) };
    if mapped == libc::MAP_FAILED {
        return Err("it cannot map its threads' positions in the recording");
    }
    Ok(())
}

/// Makes the cursors private again: the visible ones are the parent's, and this is a child without
/// a slot.
pub(crate) fn keep_apart() {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: as above.
    unsafe {
        if libc::mmap(table(), NEXT_BYTES, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0)
            == libc::MAP_FAILED
        {
            // It must not write where its parent writes.
            libc::abort();
        }
    }
}

fn table() -> *mut c_void {
    NEXT.0.get().cast()
}

/// Advances the cursor of `vcpu` to `at`, after the records that have been written.
#[inline(always)]
pub(crate) unsafe fn advance(vcpu: u32, at: *mut u64) {
    // If the process is killed between the two, the cursor must not be behind words that were not
    // written.
    compiler_fence(Ordering::Release);
    // SAFETY: the caller is the thread of `vcpu`.
    unsafe { *next(vcpu) = at };
}

/// The address of the next record of `vcpu`.
pub(crate) fn position(vcpu: u32) -> *mut u64 {
    // SAFETY: the caller is the thread of `vcpu`.
    unsafe { *next(vcpu) }
}

/// Called in a fork's child: all threads but the caller are gone, and the caller's ring is the
/// parent's.
pub(crate) fn begin_all() {
    for vcpu in 0..vcpus_high() {
        begin(vcpu);
    }
}

/// Called when a block begins; `record` is its whole record.
pub(crate) unsafe extern "C" fn on_block(vcpu: c_uint, record: *mut c_void) {
    // SAFETY: QEMU calls this on the thread of `vcpu`; `at` is inside its span, or it is tight.
    unsafe {
        let at = *next(vcpu);
        if is_tight(at) {
            return span::put_slow(vcpu, record as u64);
        }
        *at = record as u64;
        advance(vcpu, at.add(1));
    }
}

/// Called when a block begins that records itself, and its span is nearly full.
pub(crate) unsafe extern "C" fn on_room(vcpu: c_uint, _: *mut c_void) {
    qemu::settle(vcpu);
    span::make_room(vcpu, 1);
}

/// Called for an access of the instruction with the index `instruction`.
///
/// `SIZE_SHIFT` is the position of the logarithm of the size in `info`; bits 16 and 17 are load and
/// store.
pub(crate) unsafe extern "C" fn on_access<const SIZE_SHIFT: u32>(
    vcpu: c_uint,
    info: MemInfo,
    address: u64,
    instruction: *mut c_void,
) {
    let tag = tag::<SIZE_SHIFT>(info, instruction as u64);
    // SAFETY: as for `on_block`.
    unsafe {
        let at = *next(vcpu);
        if is_tight(at) || address > Record::VALUE_MAX {
            return span::access_slow(vcpu, address, tag);
        }
        *at = address << 16 | tag;
        advance(vcpu, at.add(1));
    }
}

/// Called for an access in a whole machine. An address that is the extension of its lowest 48 bits has one record.
pub(crate) unsafe extern "C" fn on_access_of_machine<const SIZE_SHIFT: u32>(
    vcpu: c_uint,
    info: MemInfo,
    address: u64,
    instruction: *mut c_void,
) {
    let tag = tag::<SIZE_SHIFT>(info, instruction as u64);
    // SAFETY: as for `on_block`.
    unsafe {
        let at = *next(vcpu);
        if is_tight(at) || ((address as i64) << 16 >> 16) as u64 != address {
            return span::access_slow(vcpu, address, tag);
        }
        *at = address << 16 | tag;
        advance(vcpu, at.add(1));
    }
}

/// Called for an access of the instruction with the index `instruction`, if this crate does not know QEMU's
/// encoding of `info`.
pub(crate) unsafe extern "C" fn on_access_any(
    vcpu: c_uint,
    info: MemInfo,
    address: u64,
    instruction: *mut c_void,
) {
    // SAFETY: QEMU calls this on the thread of `vcpu`.
    unsafe {
        let size = u64::from(ffi::qemu_plugin_mem_size_shift(info) & 0xf) << Tag::SIZE_SHIFT;
        let kind = if ffi::qemu_plugin_mem_is_store(info) { Tag::STORE } else { Tag::LOAD };
        span::access_slow(vcpu, address, instruction as u64 | size | u64::from(kind));
    }
}

/// Moves the bits of `info` to their places in a [`Tag`].
#[inline(always)]
pub(crate) fn tag<const SIZE_SHIFT: u32>(info: MemInfo, instruction: u64) -> u64 {
    let info = u64::from(info);
    let size = (info >> SIZE_SHIFT & 7) << Tag::SIZE_SHIFT;
    let kind = info >> 3 & u64::from(Tag::LOAD | Tag::STORE);
    instruction | size | kind
}

/// Whether QEMU has the logarithm of the size at `SIZE_SHIFT` and the store bit at 17.
pub(crate) fn keeps_size_at(size_shift: u32) -> bool {
    (0..6).all(|log| {
        let load = log << size_shift | 1 << 16;
        let store = log << size_shift | 2 << 16;
        // SAFETY: both are pure functions of their argument.
        unsafe {
            ffi::qemu_plugin_mem_size_shift(load) == log
                && !ffi::qemu_plugin_mem_is_store(load)
                && ffi::qemu_plugin_mem_is_store(store)
        }
    })
}

const _: () = assert!(Control::Block as u16 == 0 && Tag::LOAD == 1 << 13 && Tag::STORE == 1 << 14);
