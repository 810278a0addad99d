//! A QEMU other than Pagewalk's own: the recorder is a plugin and uses only QEMU's plugin
//! interface.
//!
//! All blocks and accesses are recorded by callbacks. The plugin interface does not report mappings from
//! before the program began, nor which program QEMU runs, and it cannot make QEMU drop translated code.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use ring::Derived;

/// A function that is called with the first byte, the end, and QEMU's page flags of each mapping of
/// the guest.
pub(crate) type RegionFn = unsafe extern "C" fn(*mut c_void, u64, u64, u64) -> c_int;

/// The number that QEMU adds to a guest's address, as found from instructions.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// Whether code can be inserted in place of callbacks and translated code be dropped, and whether the end of
/// a program by a signal is reported.
pub(crate) const IS_OURS: bool = false;

/// Does nothing: the recorder cannot announce itself.
pub(crate) fn begin() {}

/// The number that QEMU adds to a guest's address to access it.
pub(crate) fn guest_base() -> usize {
    BASE.load(Ordering::Relaxed)
}

/// Takes note that the instruction at the program's address `guest` is at `host` in this process; null if
/// QEMU does not report that.
pub(crate) fn learn_base(guest: u64, host: *const c_void) {
    if !host.is_null() {
        BASE.store((host as usize).wrapping_sub(guest as usize), Ordering::Relaxed);
    }
}

/// The plugin interface of this version does not report the program's path.
pub(crate) fn program() -> Option<&'static CStr> {
    None
}

/// Does nothing: translated code cannot be dropped.
pub(crate) fn flush(_: u32) {}

/// Does nothing: translated code cannot be dropped.
pub(crate) fn flush_now(_: u32) {}

/// Does not call `each`: mappings are not known.
pub(crate) fn walk_regions(_: *mut c_void, _: RegionFn) {}

/// Whether a whole machine is recorded: never.
pub(crate) fn is_machine() -> bool {
    false
}

/// Does nothing: there is no whole machine.
pub(crate) fn settle(_: u32) {}

/// Does nothing: no translated code is the recorder's own.
pub(crate) fn forget_code() {}

/// The code to insert into a block: none here.
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
