//! QEMU's own functions, where its binary lets us see them.
//!
//! Debian's QEMU 7.2 exports all of its symbols. What is found here mends faults of that
//! version or tells more than the plugin interface does; nothing of it is needed to record.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

type GetCpu = unsafe extern "C" fn(c_int) -> *mut c_void;
type OnCpu = unsafe extern "C" fn(*mut c_void);
type Exclusive = unsafe extern "C" fn();
/// Called with the first byte, the end, and QEMU's page flags of each mapping of the guest.
pub(crate) type RegionFn = unsafe extern "C" fn(*mut c_void, u64, u64, u64) -> c_int;
type WalkRegions = unsafe extern "C" fn(*mut c_void, RegionFn) -> c_int;

/// The guest's base, where only instructions tell it.
static LEARNT_BASE: AtomicUsize = AtomicUsize::new(0);

/// The symbols that were found.
#[derive(Clone, Copy)]
pub(crate) struct Internals {
    guest_base: *const usize,
    exec_path: *const *const c_char,
    get_cpu: Option<GetCpu>,
    tb_flush: Option<OnCpu>,
    start_exclusive: Option<Exclusive>,
    end_exclusive: Option<Exclusive>,
    disable_mem_helpers: Option<OnCpu>,
    walk_regions: Option<WalkRegions>,
}

/// QEMU's symbol of that name; null if it exports none.
pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a lookup by a terminated name in the program's own symbols.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

impl Internals {
    /// Looks them up.
    pub(crate) fn find() -> Internals {
        // SAFETY: the types are those of QEMU 7.2's definitions; a null pointer is `None`.
        unsafe {
            Internals {
                guest_base: symbol(c"guest_base").cast(),
                exec_path: symbol(c"exec_path").cast(),
                get_cpu: core::mem::transmute::<*mut c_void, Option<GetCpu>>(symbol(
                    c"qemu_get_cpu",
                )),
                tb_flush: core::mem::transmute::<*mut c_void, Option<OnCpu>>(symbol(c"tb_flush")),
                start_exclusive: core::mem::transmute::<*mut c_void, Option<Exclusive>>(symbol(
                    c"start_exclusive",
                )),
                end_exclusive: core::mem::transmute::<*mut c_void, Option<Exclusive>>(symbol(
                    c"end_exclusive",
                )),
                disable_mem_helpers: core::mem::transmute::<*mut c_void, Option<OnCpu>>(symbol(
                    c"qemu_plugin_disable_mem_helpers",
                )),
                walk_regions: core::mem::transmute::<*mut c_void, Option<WalkRegions>>(symbol(
                    c"walk_memory_regions",
                )),
            }
        }
    }

    /// What QEMU adds to a guest's address to reach it.
    pub(crate) fn guest_base(&self) -> usize {
        if self.guest_base.is_null() {
            return LEARNT_BASE.load(Ordering::Relaxed);
        }
        // SAFETY: the symbol is a `uintptr_t` of QEMU.
        unsafe { *self.guest_base }
    }

    /// An instruction at the address `guest` of the program is at `host` in this process; null
    /// if QEMU does not say.
    pub(crate) fn learn_base(&self, guest: u64, host: *const c_void) {
        if !host.is_null() {
            LEARNT_BASE.store((host as usize).wrapping_sub(guest as usize), Ordering::Relaxed);
        }
    }

    /// The path of the program that this QEMU runs, for `execve` of `/proc/self/exe`.
    pub(crate) fn exec_path(&self) -> *const c_char {
        // SAFETY: the symbol is a `char *` of QEMU.
        if self.exec_path.is_null() { ptr::null() } else { unsafe { *self.exec_path } }
    }

    /// Forgets all translated code; blocks are translated and instrumented anew.
    pub(crate) fn flush(&self, vcpu: u32) {
        if let (Some(get_cpu), Some(tb_flush)) = (self.get_cpu, self.tb_flush) {
            // SAFETY: both accept what they are given here; a flush in a callback is queued.
            unsafe {
                let cpu = get_cpu(vcpu as c_int);
                if !cpu.is_null() {
                    tb_flush(cpu);
                }
            }
        }
    }

    /// Whether [`Internals::flush_now`] does anything.
    pub(crate) fn can_flush_now(&self) -> bool {
        self.get_cpu.is_some()
            && self.tb_flush.is_some()
            && self.start_exclusive.is_some()
            && self.end_exclusive.is_some()
    }

    /// Forgets all translated code before it returns; only in a system call's callback.
    pub(crate) fn flush_now(&self, vcpu: u32) {
        if let (Some(start), Some(end)) = (self.start_exclusive, self.end_exclusive) {
            // SAFETY: this is how QEMU itself flushes when a program exits. A thread in a system
            // call runs no translated code.
            unsafe {
                start();
                self.flush(vcpu);
                end();
            }
        }
    }

    /// Takes from each CPU its pointer into the callbacks of flushed code, which QEMU 7.2
    /// leaves dangling and then aborts on.
    pub(crate) fn forget_callbacks(&self, vcpus: u32) {
        if let (Some(get_cpu), Some(disable)) = (self.get_cpu, self.disable_mem_helpers) {
            for vcpu in 0..vcpus {
                // SAFETY: called while QEMU flushes, when no CPU runs.
                unsafe {
                    let cpu = get_cpu(vcpu as c_int);
                    if !cpu.is_null() {
                        disable(cpu);
                    }
                }
            }
        }
    }

    /// Calls `each` for every mapping of the guest; false if QEMU does not let us.
    pub(crate) fn walk_regions(&self, context: *mut c_void, each: RegionFn) -> bool {
        match self.walk_regions {
            Some(walk) => {
                // SAFETY: the function has this type in QEMU 7.2 for all guests.
                unsafe { walk(context, each) };
                true
            }
            None => false,
        }
    }
}
