//! Faults of QEMU 7.2's translated code, seen before QEMU sees them.
//!
//! QEMU may find that nothing is wrong: it protects pages whose code it has translated against writing. It returns in
//! that case, the access is done again, and we take back what we wrote.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::derived::{Fault, mark};
use crate::vcpu::{self, Phase, cursor};
use crate::{global, internals, qemu};

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// QEMU's handlers of [`SIGNALS`].
struct Handlers(UnsafeCell<[MaybeUninit<libc::sigaction>; 2]>);

// SAFETY: written before our handler is set, by the one thread that translates; read by it.
unsafe impl Sync for Handlers {}

static HANDLERS: Handlers = Handlers(UnsafeCell::new([MaybeUninit::uninit(); 2]));
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Where a virtual CPU's number is, counted from its environment.
static INDEX_OFFSET: AtomicUsize = AtomicUsize::new(0);
/// QEMU's function that knows translated code.
static IN_CODE: AtomicUsize = AtomicUsize::new(0);
/// Whether faults are seen.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const SEEN: u32 = 1;
const UNSEEN: u32 = 2;

/// Whether faults are seen, so that addresses may be left out. The first call, from the translation
/// of a block, when QEMU has set its handlers, sees to it.
pub(crate) fn sees_faults(index_offset: usize) -> bool {
    match STATE.load(Ordering::Acquire) {
        UNKNOWN => {
            // Code that is not recorded would be taken for the block before it.
            let all_code_is_recorded = global::shared().session().allocations[0] == 0;
            let sees = all_code_is_recorded && cfg!(target_arch = "x86_64") && watch(index_offset);
            STATE.store(if sees { SEEN } else { UNSEEN }, Ordering::Release);
            sees
        }
        state => state == SEEN,
    }
}

/// Puts our handlers before QEMU's.
fn watch(index_offset: usize) -> bool {
    let in_code = internals::symbol(c"in_code_gen_buffer");
    if in_code.is_null() {
        return false;
    }
    IN_CODE.store(in_code as usize, Ordering::Relaxed);
    INDEX_OFFSET.store(index_offset, Ordering::Relaxed);
    // SAFETY: plain system calls on structures of ours; all that the handler reads is there.
    unsafe {
        let handlers = &mut *HANDLERS.0.get();
        for (&signal, handler) in SIGNALS.iter().zip(handlers.iter_mut()) {
            let known = libc::sigaction(signal, ptr::null(), handler.as_mut_ptr()) == 0
                && (*handler.as_ptr()).sa_flags & libc::SA_SIGINFO != 0;
            if !known {
                return false;
            }
        }
        for (&signal, handler) in SIGNALS.iter().zip(handlers.iter()) {
            let mut ours = handler.assume_init();
            ours.sa_sigaction = on_fault as Handler as usize;
            if libc::sigaction(signal, &ours, ptr::null_mut()) != 0 {
                return false;
            }
        }
    }
    true
}

/// A fault, or a signal of that number.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: QEMU's handler is one of three arguments. It may jump out of here: nothing of ours
    // needs to be dropped.
    unsafe {
        let here = if (*info).si_code > 0 { translated(context) } else { None };
        let marked = here.and_then(|(fault, vcpu)| mark(fault, vcpu));
        let handlers = &*HANDLERS.0.get();
        let handler = handlers[usize::from(signal == SIGNALS[1])].assume_init().sa_sigaction;
        transmute::<usize, Handler>(handler)(signal, info, context);
        if let Some((place, record)) = marked {
            place.write(record);
        }
    }
}

/// The fault and the virtual CPU, if translated code has faulted whose thread records.
unsafe fn translated(context: *mut c_void) -> Option<(Fault, u32)> {
    // SAFETY: the kernel's context; in translated code the environment is in its register.
    unsafe {
        let (fault, code, environment) = registers(context)?;
        let in_code: unsafe extern "C" fn(*const c_void) -> bool =
            transmute(IN_CODE.load(Ordering::Relaxed));
        if global::is_stopped() || !in_code(code as *const c_void) {
            return None;
        }
        let index = environment.wrapping_add(INDEX_OFFSET.load(Ordering::Relaxed));
        let vcpu = *(index as *const u32);
        if vcpu >= vcpu::vcpus_high() || (*cursor(vcpu)).phase != Phase::Attached {
            return None;
        }
        Some((fault, vcpu))
    }
}

/// The fault, where the code was, and the environment of the virtual CPU.
#[cfg(target_arch = "x86_64")]
unsafe fn registers(context: *mut c_void) -> Option<(Fault, u64, usize)> {
    const PROTECTION: i64 = 13;
    const PAGE: i64 = 14;
    const WRITES: i64 = 2;
    // SAFETY: the kernel's context.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let register = |name: c_int| registers[name as usize];
    let fault = match register(libc::REG_TRAPNO) {
        PAGE => Fault {
            address: (register(libc::REG_CR2) as u64).wrapping_sub(qemu::guest_base() as u64),
            is_write: register(libc::REG_ERR) & WRITES != 0,
        },
        PROTECTION => Fault { address: u64::MAX, is_write: false },
        _ => return None,
    };
    // `TCG_AREG0` of QEMU on this host.
    Some((fault, register(libc::REG_RIP) as u64, register(libc::REG_RBP) as usize))
}

/// Nothing is left out on other hosts.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn registers(_: *mut c_void) -> Option<(Fault, u64, usize)> {
    None
}
