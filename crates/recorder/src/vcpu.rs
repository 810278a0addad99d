//! The callbacks that run for every block and every access, and the cursor they move.
//!
//! ```text
//!   NEXT[vcpu] -------------------------------------+
//!                                                   v
//!   ring   | block 17 | load a | store b | block 18 |     |     |     ...     |    | span's end
//!                                                                             ^
//!                                                    from here on the slow path
//! ```
//!
//! A callback is a load, a store and an addition. The slow path ends the span and waits for the
//! host: it is taken while [`SPAN_ROOM`] records are left, so that a block's own code need not
//! look (`qemu/pagewalk/block.c`). A cursor that has no ring yet is [`Next::NOWHERE`], and looks like a
//! span's end. The cursor of a thread that is not to record goes round in memory that nobody reads.
//!
//! The table of cursors is a variable of the plugin, so that its address is known to the
//! callbacks, and part of the session is mapped over it, so that the host sees how far a thread
//! came that was killed.

use core::cell::UnsafeCell;
use core::ffi::{c_uint, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use ring::{Control, NEXT_BYTES, Next, Record, Ring, SPAN_RECORDS, SPAN_ROOM, Tag, VCPUS_MAX};

use crate::begun::Begun;
use crate::ffi::MemInfo;
use crate::filter::Filter;
use crate::{ffi, qemu, span, sure};

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = size_of::<u64>();
/// The bits of a cursor that say where in its span it is.
pub(crate) const SPAN_MASK: usize = SPAN_RECORDS * RECORD_BYTES - 1;
/// The most that they are while there is room for a block. No span is filled to its end, which
/// would look like the beginning of one.
pub(crate) const ROOMY_BYTES: usize = (SPAN_RECORDS - SPAN_ROOM) * RECORD_BYTES;
/// Where QEMU 6 to 9 have the size's logarithm in what they tell of an access.
pub(crate) const SIZE_SHIFT: u32 = 4;

/// What a cursor is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its thread has not recorded anything yet.
    Fresh,
    /// It has a ring.
    Attached,
    /// Its thread records nothing more.
    Off,
}

/// What else is known of a thread.
pub(crate) struct Cursor {
    pub(crate) phase: Phase,
    pub(crate) ring: *const Ring,
    pub(crate) records: *mut u64,
    /// First record of the present span, and its position in the ring's count.
    pub(crate) span: *mut u64,
    pub(crate) span_position: u64,
    /// While accesses are skipped: the first record that has not been counted.
    pub(crate) uncounted: *mut u64,
    /// The system call that the thread is in, and its arguments.
    pub(crate) call: Option<ring::Call>,
    pub(crate) arguments: [u64; 6],
    /// The file or blocking call that it is in.
    pub(crate) file_call: Option<Begun>,
    pub(crate) filter: Filter,
}

impl Cursor {
    /// A cursor whose thread has not begun.
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
    /// All zero, which is what the loader gives without touching the memory.
    const fn new() -> PerVcpu<T> {
        PerVcpu(UnsafeCell::new([const { MaybeUninit::zeroed() }; VCPUS_MAX]))
    }

    #[inline(always)]
    fn at(&self, vcpu: u32) -> *mut T {
        // SAFETY: the masked index is inside the table.
        unsafe { self.0.get().cast::<T>().add(vcpu as usize & (VCPUS_MAX - 1)) }
    }
}

/// A span for all threads that record nothing.
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

/// The next record of `vcpu`.
#[inline(always)]
pub(crate) fn next(vcpu: u32) -> *mut *mut u64 {
    NEXT.at(vcpu).cast()
}

/// Whether the rest of the span may be too short for a block, or there is no span.
#[inline(always)]
fn is_tight(at: *mut u64) -> bool {
    at as usize & SPAN_MASK > ROOMY_BYTES
}

/// Lets `vcpu` write where nobody reads.
pub(crate) unsafe fn idle(vcpu: u32) {
    // SAFETY: the caller is the thread of `vcpu`; the scratch span has as much room as any.
    unsafe {
        (*NEXT.at(vcpu)).idle.store(1, Ordering::Release);
        *next(vcpu) = SCRATCH.0.get().cast();
    }
}

/// The cursor of `vcpu`.
#[inline(always)]
pub(crate) fn cursor(vcpu: u32) -> *mut Cursor {
    CURSORS.at(vcpu)
}

/// One more than the highest virtual CPU so far.
pub(crate) fn vcpus_high() -> u32 {
    HIGH.load(Ordering::Relaxed)
}

/// The process has one thread, on virtual CPU 0, and whoever makes another says so before.
pub(crate) fn set_alone() {
    ALONE.store(true, Ordering::Release);
}

/// Whether code that is translated now is run on virtual CPU 0 only.
pub(crate) fn is_alone() -> bool {
    ALONE.load(Ordering::Acquire)
}

/// The system call that `vcpu` begins may make a thread: code that is for virtual CPU 0 only is
/// forgotten before there is another.
///
/// QEMU itself begins anew with the second thread, but not if a shared mapping came before it.
pub(crate) fn expect_threads(vcpu: u32) {
    if ALONE.swap(false, Ordering::AcqRel) {
        sure::stop();
        qemu::flush_now(vcpu);
    }
}

/// A thread begins on `vcpu`; false if there is no cursor for it.
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

/// Lets the host see the cursors, at `session`. The process must have one thread.
pub(crate) fn share(session: *mut u8) -> Result<(), &'static str> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: an old size of 0 maps shared pages once more. The table is as long and as aligned,
    // and nothing is in it that is needed.
    let mapped = unsafe { libc::mremap(session.cast(), 0, NEXT_BYTES, flags, table()) };
    if mapped == libc::MAP_FAILED { Err("cannot map the cursors of its threads") } else { Ok(()) }
}

/// Lets nobody see them any more: they are a parent's, and this is a child that has no place.
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

/// Moves the cursor of `vcpu` on to `at`, behind what has been written.
#[inline(always)]
pub(crate) unsafe fn advance(vcpu: u32, at: *mut u64) {
    // A kill between the two must not leave a cursor behind what was not written.
    compiler_fence(Ordering::Release);
    // SAFETY: the caller is the thread of `vcpu`.
    unsafe { *next(vcpu) = at };
}

/// Where the next record of `vcpu` goes.
pub(crate) fn position(vcpu: u32) -> *mut u64 {
    // SAFETY: the caller is the thread of `vcpu`.
    unsafe { *next(vcpu) }
}

/// All threads but the caller's are gone, and its ring is the parent's: a fork's child.
pub(crate) fn begin_all() {
    for vcpu in 0..vcpus_high() {
        begin(vcpu);
    }
}

/// A block begins; `record` is its whole record.
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

/// A block begins that records itself, and its span is nearly full.
pub(crate) unsafe extern "C" fn on_room(vcpu: c_uint, _: *mut c_void) {
    span::make_room(vcpu, 1);
}

/// An access of the instruction whose index is `instruction`.
///
/// `SIZE_SHIFT` is where QEMU keeps the size's logarithm in `info`; load and store are its
/// bits 16 and 17.
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

/// An access of the instruction whose index is `instruction`, where this crate does not know how QEMU encodes
/// `info`.
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

/// Puts the bits of `info` where a [`Tag`] has them.
#[inline(always)]
pub(crate) fn tag<const SIZE_SHIFT: u32>(info: MemInfo, instruction: u64) -> u64 {
    let info = u64::from(info);
    let size = (info >> SIZE_SHIFT & 7) << Tag::SIZE_SHIFT;
    let kind = info >> 3 & u64::from(Tag::LOAD | Tag::STORE);
    instruction | size | kind
}

/// Whether QEMU keeps the size's logarithm at `SIZE_SHIFT` and the store bit at 17.
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
