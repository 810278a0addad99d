//! Another QEMU than our own: the recorder is a plugin and uses QEMU's plugin interface alone.
//!
//! All blocks and accesses are recorded by callbacks. The plugin interface does not report what was mapped before the
//! program began, nor which program QEMU runs, and it cannot have QEMU forget translated code.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use ring::Derived;

/// Called with the first byte, the end, and QEMU's page flags of each mapping of the guest.
pub(crate) type RegionFn = unsafe extern "C" fn(*mut c_void, u64, u64, u64) -> c_int;

/// What QEMU adds to a guest's address, as instructions tell it.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// Whether code can be written in place of callbacks and translated code be forgotten, and whether the end of a
/// program by a signal is reported.
pub(crate) const IS_OURS: bool = false;

/// The recorder is there.
pub(crate) fn begin() {}

/// What QEMU adds to a guest's address to reach it.
pub(crate) fn guest_base() -> usize {
    BASE.load(Ordering::Relaxed)
}

/// An instruction at the address `guest` of the program is at `host` in this process; null if QEMU does not say.
pub(crate) fn learn_base(guest: u64, host: *const c_void) {
    if !host.is_null() {
        BASE.store((host as usize).wrapping_sub(guest as usize), Ordering::Relaxed);
    }
}

/// The plugin interface of this version does not report the program's path.
pub(crate) fn program() -> Option<&'static CStr> {
    None
}

/// Does nothing: translated code cannot be forgotten.
pub(crate) fn flush(_: u32) {}

/// Does nothing: translated code cannot be forgotten.
pub(crate) fn flush_now(_: u32) {}

/// Calls `each` for no mapping: they are not known.
pub(crate) fn walk_regions(_: *mut c_void, _: RegionFn) {}

/// Does nothing: no translated code is the recorder's own.
pub(crate) fn forget_code() {}

/// The code that is put into a block. There is none here.
pub(crate) enum Plan {}

impl Plan {
    pub(crate) unsafe fn make() -> Option<Plan> {
        None
    }

    pub(crate) fn keeps(&self, _: usize) -> bool {
        match *self {}
    }

    pub(crate) fn fixed_tags(&self) -> &[u16] {
        match *self {}
    }

    pub(crate) fn derived(&self) -> &[Option<Derived>] {
        match *self {}
    }

    pub(crate) fn is_counted(&self) -> bool {
        match *self {}
    }

    pub(crate) unsafe fn write(&self, _: u32) {
        match *self {}
    }
}
