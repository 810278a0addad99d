//! Somebody else's QEMU: what it exports besides its plugin interface, if that is anything.

use core::ffi::{CStr, c_void};
use std::sync::OnceLock;

use ring::Derived;

use crate::inline;
use crate::internals::{Internals, RegionFn};
use crate::tcg::Tcg;
use crate::{exchange, links, vcpu};

struct Found {
    internals: Internals,
    tcg: Option<Tcg>,
}

// SAFETY: it holds addresses of what QEMU exports, which are the same for all threads.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

static FOUND: OnceLock<Found> = OnceLock::new();

fn found() -> &'static Found {
    FOUND.get_or_init(|| Found { internals: Internals::find(), tcg: Tcg::find() })
}

fn internals() -> &'static Internals {
    &found().internals
}

/// The recorder is there.
pub(crate) fn begin() {
    internals();
}

/// Whether code can be written in place of callbacks.
pub(crate) fn writes_code() -> bool {
    vcpu::keeps_size_at(vcpu::SIZE_SHIFT) && found().tcg.is_some()
}

/// Whether the end of a program by a signal is seen. The first call sees to it.
pub(crate) fn tells_of_ends() -> bool {
    exchange::watch()
}

/// Whether [`flush`] does anything.
pub(crate) fn can_flush() -> bool {
    internals().can_flush_now()
}

/// What QEMU adds to a guest's address to reach it.
pub(crate) fn guest_base() -> usize {
    internals().guest_base()
}

/// An instruction at the address `guest` of the program is at `host` in this process; null if QEMU does not say.
pub(crate) fn learn_base(guest: u64, host: *const c_void) {
    internals().learn_base(guest, host);
}

/// The path of the program that this QEMU runs, if that is known.
pub(crate) fn program() -> Option<&'static CStr> {
    let path = internals().exec_path();
    // SAFETY: QEMU's string is terminated and is not changed after the start.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// Forgets all translated code, if that can be.
pub(crate) fn flush(vcpu: u32) {
    internals().flush(vcpu);
}

/// The same before it returns; only in a system call's callback.
pub(crate) fn flush_now(vcpu: u32) {
    internals().flush_now(vcpu);
}

/// Calls `each` for every mapping of the guest, if QEMU lets us.
pub(crate) fn walk_regions(context: *mut c_void, each: RegionFn) {
    internals().walk_regions(context, each);
}

/// QEMU throws its translations away.
pub(crate) fn forget_code() {
    links::forget();
    internals().forget_callbacks(vcpu::vcpus_high());
}

/// What is to be put into the block that is being translated.
pub(crate) struct Plan {
    tcg: &'static Tcg,
    plan: inline::Plan,
}

impl Plan {
    /// See [`inline::Plan::make`].
    pub(crate) unsafe fn make(pc: u64, bytes: u32, instructions: u32) -> Option<Plan> {
        let tcg = found().tcg.as_ref()?;
        // SAFETY: as the caller promises.
        let plan = unsafe { inline::Plan::make(tcg, pc, bytes, instructions) }?;
        Some(Plan { tcg, plan })
    }

    /// Whether the instruction of that index keeps its callbacks.
    pub(crate) fn keeps(&self, instruction: usize) -> bool {
        self.plan.kept().has(instruction)
    }

    /// The tags of the accesses of a fixed block.
    pub(crate) fn fixed_tags(&self) -> &[u16] {
        self.plan.fixed_tags()
    }

    /// How the addresses of a fixed block's accesses follow from others.
    pub(crate) fn derived(&self) -> &[Option<Derived>] {
        self.plan.derived()
    }

    /// Whether its accesses are counted, where they surely hit.
    pub(crate) fn is_counted(&self) -> bool {
        self.plan.is_counted()
    }

    /// Puts code for block and accesses into the block, whose number is `number`.
    pub(crate) unsafe fn write(&self, number: u32) {
        // SAFETY: as the caller promises.
        unsafe {
            self.plan.write(self.tcg, number);
            links::link(self.tcg, self.plan.kept());
        }
    }
}
