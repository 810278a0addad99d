//! A QEMU other than Pagewalk's own: the recorder is a plugin and uses only QEMU's plugin
//! interface.
//!
//! All blocks and accesses are recorded by callbacks. The plugin interface does not report the
//! mappings that exist when the program begins. It does not report which program QEMU runs. It
//! cannot make QEMU drop translated code.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use ring::Derived;

/// A function that is called for each mapping of the guest, with the address of its first byte, its
/// end, and QEMU's page flags.
pub(crate) type RegionFn = unsafe extern "C" fn(*mut c_void, u64, u64, u64) -> c_int;

/// The number that QEMU adds to a guest address to get the host address. It is found from the
/// addresses of instructions.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// Whether this is Pagewalk's own QEMU. Only there can code be inserted in place of callbacks, can
/// translated code be dropped, and is the end of a program by a signal reported.
pub(crate) const IS_OURS: bool = false;

/// Does nothing: the recorder cannot notify this QEMU of its presence.
pub(crate) fn begin() {}

/// The number that QEMU adds to a guest address to get the host address.
pub(crate) fn guest_base() -> usize {
    BASE.load(Ordering::Relaxed)
}

/// Computes the base from one instruction: it is at the address `guest` in the program and at
/// `host` in this process. `host` is null if QEMU does not report the host address.
pub(crate) fn learn_base(guest: u64, host: *const c_void) {
    if !host.is_null() {
        BASE.store((host as usize).wrapping_sub(guest as usize), Ordering::Relaxed);
    }
}

/// Returns `None`: the plugin interface does not report the program's path.
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

/// Does nothing: the recorder has inserted no code of its own.
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
