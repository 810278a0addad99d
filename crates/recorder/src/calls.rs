//! The system calls that change an address space, with their numbers for each guest's instruction
//! set.

use core::sync::atomic::{AtomicU32, Ordering};

use ring::{CLONE_VFORK, CLONE_VM, Call, EventCode, PR_PAGEWALK, Said};

use crate::isa::Guest;
use crate::vcpu::{Phase, cursor};
use crate::{
    events, exec, files, filter, global, guest, library, multiplexed, span, sure, vcpu, vfork,
};

/// The result by which QEMU says that a call was interrupted and will be restarted.
const RESTART: i64 = -512;
/// A result from this value to -1 is a negative error number.
const ERRNO_LAST: i64 = -4095;
/// The unit in bytes of the offset of `mmap2`.
const MMAP2_UNIT_BYTES: u64 = 4096;

impl Guest {
    /// The system call with this `number`, and the form of its arguments. `None` if this call does
    /// not change an address space.
    fn call(self, number: i64) -> Option<(Call, Form)> {
        match self {
            Guest::X86_64 => x86_64(number),
            Guest::I386 => i386(number),
            Guest::Arm => arm(number),
            Guest::Generic64 => generic_64(number),
        }
    }
}

/// The form of a call's arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The arguments are those of Linux on AMD64, in the same order.
    Plain,
    /// The first argument points to the actual arguments, which are in memory (`old_mmap`).
    InMemory,
    /// As [`Form::Plain`], but the file offset is in units of 4096 bytes (`mmap2`).
    Pages,
    /// The arguments of `execveat`: a directory's descriptor before the path, and flags at the end.
    At,
    /// A call without arguments that creates a process. The number is the flags of an equivalent
    /// `clone`.
    Fork(u64),
}

/// Linux: the signal that the parent gets when the child ends. It is the lowest byte of `clone`'s
/// flags.
const SIGCHLD: u64 = 17;
/// For a `shmat` that was called through `ipc`: the index of the argument with the address at which
/// the kernel stores the result.
const SHMAT_RESULT: usize = 3;
/// The flags of a `clone` that is equivalent to `vfork`.
const VFORK: u64 = CLONE_VM | CLONE_VFORK | SIGCHLD;
/// Linux: the right to execute a mapping.
const PROT_EXEC: u64 = 4;
/// Linux: the option of `prctl` that disables huge pages.
const PR_SET_THP_DISABLE: u64 = 41;

/// The flags of the last fork. The child reads them.
static FORK_FLAGS: AtomicU32 = AtomicU32::new(0);

/// The flags with which this process was forked.
pub(crate) fn fork_flags() -> u32 {
    FORK_FLAGS.load(Ordering::Relaxed)
}

/// The calls of x86-64, by the numbers in Linux's `arch/x86/entry/syscalls/syscall_64.tbl`.
fn x86_64(number: i64) -> Option<(Call, Form)> {
    use Call::*;
    match number {
        9 => plain(Mmap),
        10 => plain(Mprotect),
        11 => plain(Munmap),
        12 => plain(Brk),
        25 => plain(Mremap),
        28 => plain(Madvise),
        56 => plain(Clone),
        57 => Some((Fork, Form::Fork(SIGCHLD))),
        58 => Some((Fork, Form::Fork(VFORK))),
        59 => plain(Execve),
        60 => plain(Exit),
        26 => plain(Msync),
        30 => plain(Shmat),
        67 => plain(Shmdt),
        149 => plain(Mlock),
        150 => plain(Munlock),
        151 => plain(Mlockall),
        152 => plain(Munlockall),
        157 => plain(HugePages),
        231 => plain(ExitGroup),
        237 => plain(Mbind),
        325 => plain(Mlock2),
        440 => plain(ProcessMadvise),
        322 => Some((Execve, Form::At)),
        _ => None,
    }
}

/// The calls of i386, by the numbers in Linux's `arch/x86/entry/syscalls/syscall_32.tbl`.
fn i386(number: i64) -> Option<(Call, Form)> {
    use Call::*;
    match number {
        1 => plain(Exit),
        2 => Some((Fork, Form::Fork(SIGCHLD))),
        190 => Some((Fork, Form::Fork(VFORK))),
        144 => plain(Msync),
        150 => plain(Mlock),
        151 => plain(Munlock),
        152 => plain(Mlockall),
        153 => plain(Munlockall),
        172 => plain(HugePages),
        274 => plain(Mbind),
        376 => plain(Mlock2),
        397 => plain(Shmat),
        398 => plain(Shmdt),
        440 => plain(ProcessMadvise),
        11 => plain(Execve),
        45 => plain(Brk),
        90 => Some((Mmap, Form::InMemory)),
        91 => plain(Munmap),
        120 => plain(Clone),
        125 => plain(Mprotect),
        163 => plain(Mremap),
        192 => Some((Mmap, Form::Pages)),
        219 => plain(Madvise),
        252 => plain(ExitGroup),
        358 => Some((Execve, Form::At)),
        _ => None,
    }
}

/// The calls of arm, by the numbers in Linux's `arch/arm/tools/syscall.tbl`.
fn arm(number: i64) -> Option<(Call, Form)> {
    use Call::*;
    match number {
        2 => Some((Fork, Form::Fork(SIGCHLD))),
        190 => Some((Fork, Form::Fork(VFORK))),
        192 => Some((Mmap, Form::Pages)),
        387 => Some((Execve, Form::At)),
        1 => plain(Exit),
        11 => plain(Execve),
        45 => plain(Brk),
        91 => plain(Munmap),
        120 => plain(Clone),
        125 => plain(Mprotect),
        144 => plain(Msync),
        150 => plain(Mlock),
        151 => plain(Munlock),
        152 => plain(Mlockall),
        153 => plain(Munlockall),
        163 => plain(Mremap),
        172 => plain(HugePages),
        220 => plain(Madvise),
        248 => plain(ExitGroup),
        305 => plain(Shmat),
        306 => plain(Shmdt),
        319 => plain(Mbind),
        390 => plain(Mlock2),
        440 => plain(ProcessMadvise),
        _ => None,
    }
}

/// The calls of aarch64 and riscv64, by the numbers in Linux's `include/uapi/asm-generic/unistd.h`.
fn generic_64(number: i64) -> Option<(Call, Form)> {
    use Call::*;
    match number {
        93 => plain(Exit),
        94 => plain(ExitGroup),
        214 => plain(Brk),
        215 => plain(Munmap),
        216 => plain(Mremap),
        220 => plain(Clone),
        221 => plain(Execve),
        222 => plain(Mmap),
        226 => plain(Mprotect),
        167 => plain(HugePages),
        196 => plain(Shmat),
        197 => plain(Shmdt),
        227 => plain(Msync),
        228 => plain(Mlock),
        229 => plain(Munlock),
        230 => plain(Mlockall),
        231 => plain(Munlockall),
        235 => plain(Mbind),
        284 => plain(Mlock2),
        440 => plain(ProcessMadvise),
        233 => plain(Madvise),
        281 => Some((Execve, Form::At)),
        _ => None,
    }
}

/// A call whose arguments have the form [`Form::Plain`].
fn plain(call: Call) -> Option<(Call, Form)> {
    Some((call, Form::Plain))
}

/// Called when a system call begins.
pub(crate) fn enter(vcpu: u32, guest: Guest, number: i64, raw: [u64; 6]) {
    let cursor = cursor(vcpu);
    filter::settle(vcpu);
    sure::settle(vcpu);
    let unfolded = match guest {
        Guest::I386 => multiplexed::unfold(number, raw),
        Guest::X86_64 | Guest::Arm | Guest::Generic64 => None,
    };
    let (number, raw) = unfolded.unwrap_or((number, raw));
    let found = guest.call(number);
    let found = found.and_then(|(call, form)| match (call, raw[0] & 0xffff_ffff) {
        (Call::HugePages, PR_PAGEWALK) => Some((Call::Marker, form)),
        (Call::HugePages, option) if option != PR_SET_THP_DISABLE => None,
        _ => Some((call, form)),
    });
    let Some((call, form)) = found else {
        // SAFETY: only this thread uses the cursor.
        unsafe { (*cursor).call = None };
        span::mark(vcpu, true);
        // SAFETY: as above.
        unsafe { (*cursor).file_call = files::begin(guest, number, raw) };
        return;
    };
    sure::forget();
    let mut arguments = arguments(guest, form, raw);
    if call == Call::Shmat && unfolded.is_none() {
        // This argument is meaningful only for a call through `ipc`.
        arguments[SHMAT_RESULT] = 0;
    }
    // SAFETY: as above.
    unsafe {
        (*cursor).call = Some(call);
        (*cursor).file_call = None;
        (*cursor).arguments = arguments;
    }
    match call {
        Call::Clone if Call::makes_thread(arguments[0]) => {
            vcpu::expect_threads(vcpu);
            span::mark(vcpu, true);
        }
        Call::Mlockall => {
            span::mark(vcpu, true);
            // With several threads the session must stay accessible: the other threads write to it
            // at any time.
            if vcpu::is_alone() {
                global::shared().hide(true);
            }
        }
        Call::Clone | Call::Fork => {
            global::shared().session().running.fetch_add(1, Ordering::Relaxed);
            FORK_FLAGS.store(arguments[0] as u32, Ordering::Relaxed);
            span::mark(vcpu, true);
        }
        Call::Exit | Call::ExitGroup => {
            tell(vcpu, call, &arguments, 0);
            span::mark(vcpu, true);
            if call == Call::Exit {
                span::event(vcpu, EventCode::ThreadEnd, &[]);
                span::close(vcpu);
            } else {
                // The count is changed only now, after the mark. A process that sees itself as the
                // only one no longer orders its accesses by those of this process, so these must be
                // in place.
                global::shared().session().running.fetch_sub(1, Ordering::Release);
            }
        }
        Call::Execve => {
            let directory = if form == Form::At { Some(raw[0] as i32) } else { None };
            let at = usize::from(form == Form::At);
            let flags = if form == Form::At { raw[4] as i32 } else { 0 };
            exec::follow(
                vcpu,
                guest,
                &exec::Request {
                    directory,
                    path: raw[at],
                    arguments: raw[at + 1],
                    environment: raw[at + 2],
                    flags,
                },
            );
        }
        _ => span::mark(vcpu, true),
    }
}

/// Called when a system call has returned.
pub(crate) fn leave(vcpu: u32, guest: Guest, result: i64) {
    let cursor = cursor(vcpu);
    // SAFETY: only this thread uses the cursor.
    let (call, file_call, arguments, phase) = unsafe {
        let cursor = &mut *cursor;
        (cursor.call.take(), cursor.file_call.take(), cursor.arguments, cursor.phase)
    };
    if call == Some(Call::Mlockall) && vcpu::is_alone() {
        global::shared().hide(false);
    }
    let forks = matches!(call, Some(Call::Clone | Call::Fork)) && !Call::makes_thread(arguments[0]);
    if forks && result < 0 {
        global::shared().session().running.fetch_sub(1, Ordering::Release);
    }
    if result == RESTART || phase == Phase::Off {
        return;
    }
    if let Some(begun) = file_call {
        files::end(vcpu, guest, begun, result);
        span::mark(vcpu, true);
    }
    let Some(call) = call else { return };
    match call {
        Call::Execve => exec::failed(),
        Call::Clone | Call::Fork if arguments[0] & CLONE_VFORK != 0 => {
            if let Some(child) = u32::try_from(result).ok().filter(|&pid| pid != 0) {
                vfork::wait(child);
            }
        }
        _ => {}
    }
    // QEMU returns the addresses of a 32-bit guest sign-extended.
    let result = match result {
        ERRNO_LAST..0 => result,
        _ => (result as u64 & guest.address_mask()) as i64,
    };
    let mut attached = [0u32];
    let result = match call {
        Call::Shmat if arguments[SHMAT_RESULT] != 0 && result == 0 => {
            guest::read(arguments[SHMAT_RESULT], &mut attached);
            attached[0].into()
        }
        _ => result,
    };
    match Said::from_argument(arguments[1]).filter(|_| call == Call::Marker) {
        Some(said) => {
            said.report(&guest, arguments, |code, parts| span::event(vcpu, code, parts));
        }
        None => tell(vcpu, call, &arguments, result),
    }
    span::mark(vcpu, true);
}

fn arguments(guest: Guest, form: Form, raw: [u64; 6]) -> [u64; 6] {
    let mask = guest.address_mask();
    let mut arguments = raw.map(|argument| argument & mask);
    match form {
        Form::InMemory => {
            let mut words = [0u32; 6];
            if guest::read(arguments[0], &mut words) {
                arguments = words.map(u64::from);
            }
        }
        Form::Pages => arguments[5] *= MMAP2_UNIT_BYTES,
        Form::Fork(flags) => arguments[0] = flags,
        Form::Plain | Form::At => {}
    }
    arguments
}

fn tell(vcpu: u32, call: Call, arguments: &[u64; 6], result: i64) {
    let mut path = [0u8; 4096];
    let mut length = 0;
    if call == Call::Mmap && arguments[4] as i32 >= 0 && result >= 0 {
        length = guest::path_of(arguments[4] as u32, &mut path);
        if arguments[2] & PROT_EXEC != 0 {
            library::mapped(&path[..length], result as u64, arguments[1]);
        }
    }
    let mut arguments = *arguments;
    let mut file = [0; 3];
    if result >= 0 {
        match call {
            Call::Mmap if arguments[4] as i32 >= 0 => file = guest::file_of(arguments[4] as i32),
            Call::Shmat => file = guest::segment_of(arguments[0] as i32),
            _ => {}
        }
    }
    if call == Call::Mbind {
        let mut nodes = [0u64];
        guest::read(arguments[3], &mut nodes);
        arguments[3] = nodes[0];
    }
    let [a, b, c, d, e, f] = arguments;
    let [device, inode, bytes] = file;
    let words = [call as u64, a, b, c, d, e, f, result as u64, device, inode, bytes];
    events::text(vcpu, EventCode::Call, &words, &path[..length]);
}
