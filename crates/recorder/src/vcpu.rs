//! The callbacks for every block and every access, and the cursors that they move.
//!
//! ```text
//!   NEXT[vcpu] -------------------------------------+
//!                                                   v
//!   ring   | block 17 | load a | store b | block 18 |     |     |     ...     |    | span's end
//!                                                                             ^
//!                                                    from here on, a block takes the slow path
//! ```
//!
//! A callback executes one load, one store and one addition. The slow path ends the span and waits
//! for the host. A block takes it when it begins and the span has room for fewer than [`SPAN_ROOM`]
//! records, so that the rest of the block's code need not check (`qemu/pagewalk/block.c`). The
//! cursor of a thread without a ring is [`Next::NOWHERE`], which looks like the end of a span. The
//! cursor of a thread that is not recorded points into memory that is written again and again and
//! never read.
//!
//! The table of cursors is a variable of the plugin, so that the callbacks know its address. Part
//! of the session is mapped over this variable. So if a thread is killed, the host can see how much
//! it has recorded.

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
/// The bits of a cursor that give its offset within the span.
pub(crate) const SPAN_MASK: usize = SPAN_RECORDS * RECORD_BYTES - 1;
/// The largest offset in a span at which there is room for a block. Blocks never fill a span to its
/// end, since a cursor at the end would look like one at the beginning of a span.
pub(crate) const ROOMY_BYTES: usize = (SPAN_RECORDS - SPAN_ROOM) * RECORD_BYTES;
/// In the word by which QEMU 6 to 9 describes an access: the position of the logarithm of the
/// access size.
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

/// The data of a thread, besides the address of its next record.
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
    /// The data of a thread that has not begun to record.
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

// SAFETY: an entry is used only by the thread of its virtual CPU.
unsafe impl<T> Sync for PerVcpu<T> {}

impl<T> PerVcpu<T> {
    /// A table that is all zero. The loader provides it without touching the memory.
    const fn new() -> PerVcpu<T> {
        PerVcpu(UnsafeCell::new([const { MaybeUninit::zeroed() }; VCPUS_MAX]))
    }

    #[inline(always)]
    fn at(&self, vcpu: u32) -> *mut T {
        // SAFETY: the masked index is inside the table.
        unsafe { self.0.get().cast::<T>().add(vcpu as usize & (VCPUS_MAX - 1)) }
    }
}

/// A span to which all threads write that are not recorded.
#[repr(C, align(16384))]
struct Scratch(UnsafeCell<[u64; SPAN_RECORDS]>);

// SAFETY: the memory is written through raw pointers and never read.
unsafe impl Sync for Scratch {}

static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; SPAN_RECORDS]));
const _: () = assert!(align_of::<Scratch>() > SPAN_MASK);

static NEXT: PerVcpu<Next> = PerVcpu::new();
static CURSORS: PerVcpu<Cursor> = PerVcpu::new();
static HIGH: AtomicU32 = AtomicU32::new(0);
static ALONE: AtomicBool = AtomicBool::new(false);

/// The place of the cursor of `vcpu`. The cursor is the address of the thread's next record.
#[inline(always)]
pub(crate) fn next(vcpu: u32) -> *mut *mut u64 {
    NEXT.at(vcpu).cast()
}

/// Whether the rest of the span may be too short for a block, or there is no span.
#[inline(always)]
fn is_tight(at: *mut u64) -> bool {
    at as usize & SPAN_MASK > ROOMY_BYTES
}

/// Makes the thread of `vcpu` write to memory that is never read.
pub(crate) unsafe fn idle(vcpu: u32) {
    // SAFETY: the caller is the thread of `vcpu`, and the scratch span is as long as any other
    // span.
    unsafe {
        (*NEXT.at(vcpu)).idle.store(1, Ordering::Release);
        *next(vcpu) = SCRATCH.0.get().cast();
    }
}

/// The data of the thread of `vcpu`.
#[inline(always)]
pub(crate) fn cursor(vcpu: u32) -> *mut Cursor {
    CURSORS.at(vcpu)
}

/// One more than the highest virtual CPU so far.
pub(crate) fn vcpus_high() -> u32 {
    HIGH.load(Ordering::Relaxed)
}

/// Called while the process has one thread, on virtual CPU 0. From now on translated code may be
/// for this thread only. [`expect_threads`] must be called before another thread is created.
pub(crate) fn set_alone() {
    ALONE.store(true, Ordering::Release);
}

/// Whether code that is translated now runs on virtual CPU 0 only.
pub(crate) fn is_alone() -> bool {
    ALONE.load(Ordering::Acquire)
}

/// Called when `vcpu` begins a system call that may create a thread. Code that is for virtual CPU 0
/// only is dropped before the new thread exists.
///
/// QEMU itself also drops this code when the second thread begins, but not if the program has
/// created a shared mapping before.
pub(crate) fn expect_threads(vcpu: u32) {
    if ALONE.swap(false, Ordering::AcqRel) {
        sure::stop();
        qemu::flush_now(vcpu);
    }
}

/// Begins a thread on `vcpu`. Returns false if the table has no cursor for `vcpu`.
pub(crate) fn begin(vcpu: u32) -> bool {
    if vcpu as usize >= VCPUS_MAX {
        return false;
    }
    HIGH.fetch_max(vcpu + 1, Ordering::Relaxed);
    // SAFETY: the thread of this virtual CPU is not running yet.
    unsafe {
        next(vcpu).write(Next::NOWHERE as *mut u64);
        (*NEXT.at(vcpu)).idle.store(0, Ordering::Release);
        cursor(vcpu).write(Cursor::FRESH);
    }
    true
}

/// Makes the cursors visible to the host: maps the part of the session at `session` over the table.
/// The process must have one thread.
pub(crate) fn share(session: *mut u8) -> Result<(), &'static str> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: with an old size of 0, `mremap` maps shared pages a second time. The table has the
    // same length and alignment, and its content is not needed any more.
    let mapped = unsafe { libc::mremap(session.cast(), 0, NEXT_BYTES, flags, table()) };
    if mapped == libc::MAP_FAILED {
        return Err(
            "it cannot map the part of the recording's shared memory that contains its threads' \
             positions",
        );
    }
    Ok(())
}

/// Makes the cursors private again. Called in a child without a slot: the cursors that the host
/// sees are those of the parent.
pub(crate) fn keep_apart() {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: as above.
    unsafe {
        if libc::mmap(table(), NEXT_BYTES, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0)
            == libc::MAP_FAILED
        {
            // The child must not write to the parent's cursors.
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
    // The records are written first. If the process is killed in between, the cursor must not be
    // behind records that were not written.
    compiler_fence(Ordering::Release);
    // SAFETY: the caller is the thread of `vcpu`.
    unsafe { *next(vcpu) = at };
}

/// The address of the next record of `vcpu`.
pub(crate) fn position(vcpu: u32) -> *mut u64 {
    // SAFETY: the caller is the thread of `vcpu`.
    unsafe { *next(vcpu) }
}

/// Called in the child of a fork. The child has only the calling thread, and its ring is still that
/// of the parent.
pub(crate) fn begin_all() {
    for vcpu in 0..vcpus_high() {
        begin(vcpu);
    }
}

/// Called when a block begins. `record` is the block's whole record.
pub(crate) unsafe extern "C" fn on_block(vcpu: c_uint, record: *mut c_void) {
    // SAFETY: QEMU calls this on the thread of `vcpu`. Either `at` is inside the thread's span, or
    // `is_tight` is true for it.
    unsafe {
        let at = *next(vcpu);
        if is_tight(at) {
            return span::put_slow(vcpu, record as u64);
        }
        *at = record as u64;
        advance(vcpu, at.add(1));
    }
}

/// Called when a block with inserted code begins and the span is nearly full.
pub(crate) unsafe extern "C" fn on_room(vcpu: c_uint, _: *mut c_void) {
    qemu::settle(vcpu);
    span::make_room(vcpu, 1);
}

/// Called for an access by the instruction that has the index `instruction` in its block.
///
/// `SIZE_SHIFT` is the position of the logarithm of the access size in `info`. Bits 16 and 17 of
/// `info` say whether the access is a load and a store.
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

/// Called for an access in a whole machine. If the address is the sign extension of its lowest 48
/// bits, the access takes one record.
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

/// As [`on_access`], for a version of QEMU whose encoding of `info` this crate does not know.
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

/// Moves the bits of `info` to their positions in a [`Tag`].
#[inline(always)]
pub(crate) fn tag<const SIZE_SHIFT: u32>(info: MemInfo, instruction: u64) -> u64 {
    let info = u64::from(info);
    let size = (info >> SIZE_SHIFT & 7) << Tag::SIZE_SHIFT;
    let kind = info >> 3 & u64::from(Tag::LOAD | Tag::STORE);
    instruction | size | kind
}

/// Whether this version of QEMU has the logarithm of the access size at `size_shift` and the store
/// bit at bit 17.
pub(crate) fn keeps_size_at(size_shift: u32) -> bool {
    (0..6).all(|log| {
        let load = log << size_shift | 1 << 16;
        let store = log << size_shift | 2 << 16;
        // SAFETY: both functions depend only on their argument and have no effects.
        unsafe {
            ffi::qemu_plugin_mem_size_shift(load) == log
                && !ffi::qemu_plugin_mem_is_store(load)
                && ffi::qemu_plugin_mem_is_store(store)
        }
    })
}

const _: () = assert!(Control::Block as u16 == 0 && Tag::LOAD == 1 << 13 && Tag::STORE == 1 << 14);
