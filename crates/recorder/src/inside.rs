//! Pagewalk's own QEMU: the interface to the files in `qemu/pagewalk`.
//!
//! These files examine a block that QEMU is translating, and insert operations into it. QEMU's
//! plugin interface does not allow this. The types are those of `qemu/pagewalk/recorder.h`.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::{MaybeUninit, offset_of};

use ring::{Control, Derived, NEXT_BYTES, Record, SPAN_ROOM, Tag, VCPUS_MAX};

use crate::derived::Fault;
use crate::ffi::ExecCb;
use crate::trail::{Trail, trail};
use crate::vcpu::{Phase, cursor};
use crate::{derived, global, machine, sure, vcpu, words};

/// `PAGEWALK_INSTRUCTIONS`: the maximum number of instructions of a block in QEMU.
const INSTRUCTIONS_MAX: usize = 512;
/// `PAGEWALK_RECORDED`.
const RECORDED: u16 = u16::MAX;

/// `PagewalkAccess`.
#[repr(C)]
struct Access {
    distance: u64,
    tag: u16,
    from: u16,
}

/// `PagewalkBlock`.
#[repr(C)]
struct Found {
    pc: u64,
    bytes: u32,
    instructions: u32,
    accesses: u32,
    is_fixed: bool,
    is_straight: bool,
    is_behind: bool,
    calls: [u64; INSTRUCTIONS_MAX / 64],
    access: [Access; SPAN_ROOM],
}

/// `PagewalkOrder`.
#[repr(C)]
struct Order {
    record: u64,
    next: *mut c_void,
    next_shift: u32,
    is_alone: bool,
    is_fixed: bool,
    span_mask: u64,
    roomy: u64,
    room: ExecCb,
    before: Option<ExecCb>,
}

/// `PagewalkCount`.
#[repr(C)]
struct Count {
    trail: *mut Trail,
    number: u64,
    is_counted: bool,
    words: u64,
    told: ExecCb,
}

unsafe extern "C" {
    fn pagewalk_survey(block: *mut Found) -> bool;
    fn pagewalk_write(block: *const Found, order: *const Order);
    fn pagewalk_count(block: *const Found, count: *const Count);
    fn pagewalk_link(block: *const Found);
    fn pagewalk_forget_links();
    fn pagewalk_guest_base() -> usize;
    fn pagewalk_program() -> *const c_char;
    fn pagewalk_regions(context: *mut c_void, each: RegionFn);
    fn pagewalk_flush(vcpu: c_uint, now: bool);
    static mut pagewalk_links_pages: bool;
}

// The C files recorder.h, block.c and counted.c contain these numbers too.
const _: () = {
    assert!(SPAN_ROOM == 128 && Record::NONE == u64::MAX && Record::VALUE_SHIFT == 16);
    assert!(Tag::SIZE_SHIFT == 9 && Tag::LOAD == 1 << 13 && Tag::STORE == 1 << 14);
    assert!(words::PAGE_SHIFT == 12 && words::OFFSET_SHIFT == 7 && words::OFFSET_MASK == !0x1f);
    assert!(words::COUNT == (1 << 21) - 1 && words::STEP == 1 << 21);
    assert!(words::INSTRUCTION == words::STEP << 22 && words::HELD == 1 << 63);
    assert!(offset_of!(Trail, made) == 32 && offset_of!(Trail, addresses) == 40 + 8 * SPAN_ROOM);
};

/// A function that is called for each mapping of the guest, with the address of its first byte, its
/// end, and QEMU's page flags.
pub(crate) type RegionFn = unsafe extern "C" fn(*mut c_void, u64, u64, u64) -> c_int;

/// Whether this is Pagewalk's own QEMU. Only there can code be inserted in place of callbacks, can
/// translated code be dropped, and is the end of a program by a signal reported.
pub(crate) const IS_OURS: bool = true;

/// Tells QEMU that the recorder is present, so that blocks may jump directly to blocks in other
/// pages.
pub(crate) fn begin() {
    // SAFETY: nothing has been translated.
    unsafe { pagewalk_links_pages = true };
}

/// The number that QEMU adds to a guest address to get the host address.
pub(crate) fn guest_base() -> usize {
    // SAFETY: it is set before anything is translated.
    unsafe { pagewalk_guest_base() }
}

/// Does nothing, since this QEMU reports the base itself.
pub(crate) fn learn_base(_: u64, _: *const c_void) {}

/// The path of the program that this QEMU runs, for `execve` of `/proc/self/exe`.
pub(crate) fn program() -> Option<&'static CStr> {
    // SAFETY: QEMU's string is terminated and is not changed after the start.
    unsafe {
        let path = pagewalk_program();
        (!path.is_null()).then(|| CStr::from_ptr(path))
    }
}

/// Drops all translated code. Blocks are then translated and instrumented again.
pub(crate) fn flush(vcpu: u32) {
    // SAFETY: this is a thread of QEMU. A flush in a callback is queued.
    unsafe { pagewalk_flush(vcpu, false) };
}

/// Drops all translated code before this function returns. Only for the callback of a system call.
pub(crate) fn flush_now(vcpu: u32) {
    // SAFETY: a thread in a system call runs no translated code.
    unsafe { pagewalk_flush(vcpu, true) };
}

/// Calls `each` for every mapping of the guest.
pub(crate) fn walk_regions(context: *mut c_void, each: RegionFn) {
    // SAFETY: `each` is called before this returns.
    unsafe { pagewalk_regions(context, each) };
}

/// Whether a whole machine is recorded, rather than a program.
pub(crate) fn is_machine() -> bool {
    machine::is_on()
}

/// Called before a block begins or a segment ends. For a whole machine, records the events that
/// wait for the end of a block.
pub(crate) fn settle(vcpu: u32) {
    if machine::is_on() {
        machine::settle(vcpu);
    }
}

/// Called when QEMU drops its translated blocks.
pub(crate) fn forget_code() {
    // SAFETY: no translated code runs.
    unsafe { pagewalk_forget_links() };
}

/// Whether faults are attributed to the right block, so that addresses may be left out. This is not
/// so if allocations are recorded: their library is not recorded itself, and a fault in it would be
/// attributed to the recorded block before it.
fn sees_faults() -> bool {
    global::shared().session().allocations[0] == 0
}

/// Called when the program on `vcpu` gets a signal because of a data access to `address` or an
/// instruction fetch from it, or when the program has written to the code that it executes. After
/// this call, QEMU may end the process without calling the recorder again.
#[unsafe(no_mangle)]
unsafe extern "C" fn pagewalk_faulted(vcpu: c_uint, address: u64, is_fetch: bool, is_write: bool) {
    // SAFETY: the cursor is this thread's.
    let is_recorded =
        vcpu < vcpu::vcpus_high() && unsafe { (*cursor(vcpu)).phase } == Phase::Attached;
    if global::is_stopped() || !is_recorded {
        return;
    }
    if !is_fetch {
        // SAFETY: this is the thread of the virtual CPU.
        unsafe { derived::mark(Fault { address, is_write }, vcpu) };
    }
    sure::settle(vcpu);
}

/// The code to insert into the block that is being translated.
pub(crate) struct Plan {
    found: Found,
    tags: [u16; SPAN_ROOM],
    derived: [Option<Derived>; SPAN_ROOM],
}

impl Plan {
    /// The plan for the block that is being translated. `None` if the block contains an unknown
    /// operation.
    ///
    /// # Safety
    ///
    /// Only in QEMU's callback for a translated block, before callbacks are registered.
    pub(crate) unsafe fn make() -> Option<Plan> {
        let mut found = MaybeUninit::uninit();
        // SAFETY: the function has filled the whole structure if it returns true.
        let mut found =
            unsafe { pagewalk_survey(found.as_mut_ptr()).then(|| found.assume_init()) }?;
        let sees_faults = sees_faults();
        let (mut tags, mut derived) = ([0; SPAN_ROOM], [None; SPAN_ROOM]);
        for (index, access) in found.access[..found.accesses as usize].iter_mut().enumerate() {
            tags[index] = access.tag;
            if !sees_faults {
                access.from = RECORDED;
            }
            let Access { from, distance, .. } = *access;
            derived[index] = (from != RECORDED).then_some(Derived { from, distance });
        }
        // A block that is left by a branch before its last access may count as fixed too, if its
        // accesses are counted: the words of its pages then show which accesses it has made.
        found.is_fixed |= found.is_straight
            && sure::is_on()
            && sure::can_count(&tags[..found.accesses as usize], found.instructions);
        Some(Plan { found, tags, derived })
    }

    /// Whether the instruction with this index keeps its callbacks.
    pub(crate) fn keeps(&self, instruction: usize) -> bool {
        self.found
            .calls
            .get(instruction / 64)
            .is_none_or(|word| word >> (instruction % 64) & 1 != 0)
    }

    /// The tags of the accesses of a fixed block.
    pub(crate) fn fixed_tags(&self) -> &[u16] {
        if self.found.is_fixed { &self.tags[..self.found.accesses as usize] } else { &[] }
    }

    /// For each access of a fixed block: how its address is derived from recorded data, if it is
    /// not recorded itself.
    pub(crate) fn derived(&self) -> &[Option<Derived>] {
        &self.derived[..self.fixed_tags().len()]
    }

    /// Whether the guaranteed hits of this block are counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.is_followed() && sure::can_count(self.fixed_tags(), self.found.instructions)
    }

    /// Whether the pages that the block uses can be determined from its records, while guaranteed
    /// hits of other blocks are counted.
    fn is_followed(&self) -> bool {
        self.found.is_fixed && sure::can_follow(self.found.pc, self.found.bytes)
    }

    /// Inserts the code for the block and its accesses into the block, whose number is `number`.
    ///
    /// # Safety
    ///
    /// As for [`Plan::make`], and for the same block.
    pub(crate) unsafe fn write(&self, number: u32) {
        // SAFETY: as for `make`, which has checked that there is room.
        unsafe {
            match derived::block(number).filter(|_| self.is_followed()) {
                Some(block) => pagewalk_count(
                    &self.found,
                    &Count {
                        trail: trail(),
                        number: number.into(),
                        is_counted: block.is_counted,
                        words: sure::words(),
                        told: sure::on_told,
                    },
                ),
                None => pagewalk_write(&self.found, &self.order(number)),
            }
            if vcpu::is_alone() {
                pagewalk_link(&self.found);
            }
        }
    }

    /// The instructions for the C code: how the block is to record itself.
    fn order(&self, number: u32) -> Order {
        let recorded = self.derived().iter().filter(|derived| derived.is_none()).count();
        let record = match self.found.is_fixed {
            true => Record::fixed(number, recorded as u8),
            false => Record::control(Control::Block, number.into()),
        };
        Order {
            record: record.0,
            next: vcpu::next(0).cast(),
            next_shift: (NEXT_BYTES / VCPUS_MAX).trailing_zeros(),
            is_alone: vcpu::is_alone(),
            is_fixed: self.found.is_fixed,
            span_mask: vcpu::SPAN_MASK as u64,
            roomy: vcpu::ROOMY_BYTES as u64,
            room: vcpu::on_room,
            before: if sure::is_on() { Some(sure::on_plain) } else { None },
        }
    }
}
