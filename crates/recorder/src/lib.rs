//! The recorder: a QEMU plugin that writes a program's memory accesses into shared rings.
//!
//! ```text
//!   QEMU (user mode)                                   pagewalk (crate `capture`)
//!   +--------------------------------------+           +--------------------------+
//!   | block, accesses --> code of their own|   rings   |                          |
//!   |          or on_block, on_access -----+---------->| merges threads, encodes, |
//!   | system calls    --> calls -----------+---------->| writes the trace         |
//!   | translation     --> translate -------+--> log -->|                          |
//!   +--------------------------------------+           +--------------------------+
//! ```
//!
//! The recorder is linked into Pagewalk's own QEMU. There it inserts code into translations in
//! place of callbacks, and leaves out addresses that can be derived from others ([`derived`]). It
//! also makes blocks jump directly to the next block in places where QEMU would look up that block.
//! Callbacks ([`vcpu`]) record the accesses of QEMU's helper functions. In another QEMU, the
//! recorder is a plugin and uses callbacks only. Only the module `qemu` differs between the two: it
//! is `inside.rs` for Pagewalk's own QEMU, with the C code in `qemu/pagewalk`, and `outside.rs` for
//! other versions of QEMU.
//!
//! To record an access, the recorder uses no extra thread, no lock and no allocation, and writes no
//! file. The host writes the files. So a program may fork, close all of its descriptors or be
//! killed at any time. The layout of the shared memory is in the crate `ring`.
//!
//! In the child of a fork, QEMU calls [`on_fork`] before any code of the program runs. The child
//! then claims its own slot and rings. `execve` is followed by executing QEMU again ([`exec`]).
//!
//! QEMU's plugin interface is GPL-2.0-or-later, and so is this crate.
#![allow(clippy::missing_safety_doc)]
// Much of this crate is used only in Pagewalk's own QEMU.
#![cfg_attr(not(feature = "inside"), allow(dead_code))]

mod calls;
mod derived;
mod ending;
mod events;
mod exec;
mod ffi;
mod files;
mod filter;
mod global;
mod guest;
mod isa;
mod library;
#[cfg(feature = "inside")]
mod machine;
mod maps;
mod multiplexed;
#[cfg_attr(feature = "inside", path = "inside.rs")]
#[cfg_attr(not(feature = "inside"), path = "outside.rs")]
mod qemu;
mod shared;
mod skip;
mod span;
mod sure;
#[cfg(any(feature = "inside", test))]
mod tables;
mod trail;
mod translate;
mod vcpu;
mod vfork;
mod wait;
mod words;

use core::ffi::{CStr, c_char, c_int, c_uint};
use core::sync::atomic::Ordering;

use isa::Guest;
use shared::Shared;
use translate::Callbacks;

/// Called by QEMU when it loads the plugin. One of the arguments is `session=PATH`.
///
/// # Safety
///
/// QEMU calls this function once, with information about itself and `argc` zero-terminated
/// arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const core::ffi::c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    #[cfg(feature = "inside")]
    // SAFETY: as above.
    if let Some(result) = unsafe { of_machine(id, info, argc, argv) } {
        return result;
    }
    // SAFETY: QEMU's promise.
    let arguments = (0..argc.max(0) as usize).map(|at| unsafe { CStr::from_ptr(*argv.add(at)) });
    // SAFETY: as above.
    let info = unsafe { &*info.cast::<ffi::Info>() };
    match install(id, info, arguments) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("pagewalk: the recorder cannot start in QEMU: {why}");
            1
        }
    }
}

/// The plugin's result for a whole machine. `None` if QEMU runs a program.
///
/// # Safety
///
/// As for [`qemu_plugin_install`].
#[cfg(feature = "inside")]
unsafe fn of_machine(
    id: u64,
    info: *const core::ffi::c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> Option<c_int> {
    // SAFETY: QEMU's promise.
    let result = unsafe {
        let info = &*info.cast::<ffi::Info>();
        info.system_emulation.then(|| machine::install(id, info, argc, argv))?
    };
    Some(result.unwrap_or_else(|why| {
        eprintln!("pagewalk: the recorder cannot start in QEMU: {why}");
        1
    }))
}

fn install<'a>(
    id: u64,
    info: &ffi::Info,
    mut arguments: impl Iterator<Item = &'a CStr>,
) -> Result<(), &'static str> {
    if info.system_emulation {
        return Err(
            "this plugin records programs only (in qemu-x86_64, for example), not whole machines \
             (qemu-system-x86_64)",
        );
    }
    // SAFETY: QEMU's string is terminated.
    let target = unsafe { CStr::from_ptr(info.target_name) };
    let (guest, machine) = Guest::from_target(target.to_bytes()).ok_or(
        "it cannot record programs for this QEMU's processor, only for x86_64, i386, arm, \
             aarch64 and riscv64",
    )?;
    let path = arguments
        .find_map(|argument| argument.to_bytes_with_nul().strip_prefix(b"session="))
        .and_then(|path| CStr::from_bytes_with_nul(path).ok())
        .ok_or(
            "the plugin's argument session=PATH is missing: run `pagewalk record`, which adds it",
        )?;
    let shared = Shared::open(path)?;
    let session = shared.session();
    let callbacks = Callbacks::choose(session.filter_page16 != 0, session.inline_code != 0).ok_or(
        "--user-filter page16 does not work with this version of QEMU: leave the option out, \
             or use another QEMU",
    )?;
    let slot = shared
        .enter(machine, None)
        .ok_or("too many processes run at one time: 1024 can be recorded")?;
    translate::set(callbacks);
    qemu::begin();
    if qemu::IS_OURS {
        vcpu::set_alone();
        sure::prepare(session, guest);
    }
    global::start(shared, slot, guest)?;
    // SAFETY: the functions have the types that QEMU requires, and live as long as QEMU.
    unsafe {
        libc::pthread_atfork(None, None, Some(on_fork));
        ffi::qemu_plugin_register_vcpu_init_cb(id, on_thread);
        ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, translate::on_translate);
        ffi::qemu_plugin_register_flush_cb(id, translate::on_flush);
        ffi::qemu_plugin_register_vcpu_syscall_cb(id, on_call);
        ffi::qemu_plugin_register_vcpu_syscall_ret_cb(id, on_return);
    }
    Ok(())
}

/// Called when a virtual CPU begins; its thread does not run yet.
unsafe extern "C" fn on_thread(_: u64, vcpu: c_uint) {
    // Recording ends if the thread has no cursor, or if it begins unannounced while translated code
    // is for the first thread only. This code would write into the first thread's ring.
    if !vcpu::begin(vcpu) || (vcpu != 0 && vcpu::is_alone()) {
        global::stop(0);
    }
}

/// Called in the child of a fork, which has one thread and has not executed anything.
unsafe extern "C" fn on_fork() {
    if global::is_stopped() {
        // The translated code that the child has inherited is not instrumented.
        return vcpu::keep_apart();
    }
    let session = global::shared().session();
    if session.follow == 0 || session.over.load(Ordering::Relaxed) != 0 {
        return global::start_child(None);
    }
    let parent = *global::slot();
    let machine = global::process().machine.load(Ordering::Relaxed);
    let parent = Some((&parent, calls::fork_flags()));
    global::start_child(global::shared().enter(machine, parent));
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn on_call(
    _: u64,
    vcpu: c_uint,
    number: i64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    _: u64,
    _: u64,
) {
    if !global::is_stopped() {
        calls::enter(vcpu, global::guest(), number, [a, b, c, d, e, f]);
    }
}

unsafe extern "C" fn on_return(_: u64, vcpu: c_uint, _: i64, result: i64) {
    if global::is_stopped() {
        return global::forget_code(vcpu);
    }
    calls::leave(vcpu, global::guest(), result);
}
