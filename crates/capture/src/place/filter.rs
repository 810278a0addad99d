//! The filter of system calls. It decides which calls stop the program, so that its launcher can
//! act.
//!
//! ```text
//!   mmap mremap munmap   a length of 2 MiB or more; mmap of a pool's pages
//!   mprotect             its range crosses a multiple of 2 MiB, as an arena does that grows
//!   brk execve clone3    always            clone      CLONE_UNTRACED, whose child would have the filter and no launcher
//!   seccomp ptrace       always, and prctl(PR_SET_SECCOMP); afterwards placing may do harm,
//!                        or tracing may be impossible
//! ```
//!
//! All other calls run as without the filter. The kernel evaluates the words of [`libc::seccomp_data`].
//! Without a launcher, a call that the filter stops would fail with `ENOSYS`; therefore the launcher's
//! programs are killed when it dies.

use std::io;

use super::LARGE;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const TO_X: u16 = (libc::BPF_MISC | libc::BPF_TAX) as u16;
const ADD_X: u16 = (libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X) as u16;
const XOR_X: u16 = (libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X) as u16;
const SHIFT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;

/// `AUDIT_ARCH_X86_64`.
const X86_64: u32 = 0xc000_003e;
const CLONE_UNTRACED: u32 = libc::CLONE_UNTRACED as u32;

/// The offset of the lower half of the argument at `at`; the upper half is four bytes further.
const fn argument(at: u32) -> u32 {
    16 + 8 * at
}

const fn step(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// The program of the filter.
pub(super) fn program() -> Vec<libc::sock_filter> {
    let (allow, stop) =
        (step(RETURN, libc::SECCOMP_RET_ALLOW), step(RETURN, libc::SECCOMP_RET_TRACE));
    let long = |at: u32| {
        // Stop if the upper half is not zero, or if the lower half is large.
        vec![
            step(LOAD, argument(at) + 4),
            jump(EQUAL, 0, 0, 2),
            step(LOAD, argument(at)),
            jump(AT_LEAST, LARGE as u32, 0, 1),
            stop,
            allow,
        ]
    };
    let mut mmap =
        vec![step(LOAD, argument(3)), jump(ANY_BIT, libc::MAP_HUGETLB as u32, 0, 1), stop];
    mmap.extend(long(1));
    // Compares the block in which the range begins with the block in which it ends, by their lower
    // halves.
    let mprotect = vec![
        step(LOAD, argument(2)),
        jump(ANY_BIT, libc::PROT_WRITE as u32, 1, 0),
        allow,
        step(LOAD, argument(0)),
        step(TO_X, 0),
        step(LOAD, argument(1)),
        step(ADD_X, 0),
        step(XOR_X, 0),
        step(SHIFT, LARGE.trailing_zeros()),
        jump(EQUAL, 0, 0, 1),
        allow,
        stop,
    ];
    let clone = vec![step(LOAD, argument(0)), jump(ANY_BIT, CLONE_UNTRACED, 0, 1), stop, allow];
    let prctl =
        vec![step(LOAD, argument(0)), jump(EQUAL, libc::PR_SET_SECCOMP as u32, 0, 1), stop, allow];
    let calls: [(i64, Vec<libc::sock_filter>); 12] = [
        (libc::SYS_mmap, mmap),
        (libc::SYS_mremap, long(2)),
        (libc::SYS_munmap, long(1)),
        (libc::SYS_mprotect, mprotect),
        (libc::SYS_brk, vec![stop]),
        (libc::SYS_execve, vec![stop]),
        (libc::SYS_execveat, vec![stop]),
        (libc::SYS_clone, clone),
        (libc::SYS_clone3, vec![stop]),
        (libc::SYS_prctl, prctl),
        (libc::SYS_seccomp, vec![stop]),
        (libc::SYS_ptrace, vec![stop]),
    ];
    // Programs with 32 bits and x32 programs have other call numbers, and their calls are never
    // stopped.
    let mut program = vec![step(LOAD, 4), jump(EQUAL, X86_64, 1, 0), allow];
    for (number, what) in calls {
        program.push(step(LOAD, 0));
        program.push(jump(EQUAL, number as u32, 0, what.len() as u8));
        program.extend(what);
    }
    program.push(allow);
    program
}

/// Installs the filter for this process and for all processes that it starts. This function makes
/// only system calls.
///
/// Without CAP_SYS_ADMIN, the kernel requires that no program gains privileges by being executed.
pub(super) fn install(program: &[libc::sock_filter]) -> io::Result<()> {
    let filter =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let install = || {
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // Without this flag, Linux before 5.16 slows the whole program down: its loads may then not
        // be executed speculatively before stores.
        let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        // SAFETY: the program lives as long as the call, and the kernel only reads it.
        match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    install().or_else(|error| {
        // SAFETY: a plain system call.
        let asked = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        if error.raw_os_error() == Some(libc::EACCES) && asked == 0 {
            install()
        } else {
            Err(error)
        }
    })
}
