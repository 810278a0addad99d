//! System calls, without a C library.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Linux's numbers of the system calls that the engine makes or handles.
pub(crate) mod nr {
    pub(crate) const READ: u64 = 0;
    pub(crate) const WRITE: u64 = 1;
    pub(crate) const CLOSE: u64 = 3;
    pub(crate) const FSTAT: u64 = 5;
    pub(crate) const LSEEK: u64 = 8;
    pub(crate) const MMAP: u64 = 9;
    pub(crate) const MPROTECT: u64 = 10;
    pub(crate) const MUNMAP: u64 = 11;
    pub(crate) const BRK: u64 = 12;
    pub(crate) const RT_SIGACTION: u64 = 13;
    pub(crate) const RT_SIGPROCMASK: u64 = 14;
    pub(crate) const RT_SIGRETURN: u64 = 15;
    pub(crate) const PWRITE64: u64 = 18;
    pub(crate) const MREMAP: u64 = 25;
    pub(crate) const MSYNC: u64 = 26;
    pub(crate) const MADVISE: u64 = 28;
    pub(crate) const SHMAT: u64 = 30;
    pub(crate) const SHMCTL: u64 = 31;
    pub(crate) const GETPID: u64 = 39;
    pub(crate) const CLONE: u64 = 56;
    pub(crate) const FORK: u64 = 57;
    pub(crate) const VFORK: u64 = 58;
    pub(crate) const EXECVE: u64 = 59;
    pub(crate) const EXIT: u64 = 60;
    pub(crate) const KILL: u64 = 62;
    pub(crate) const SHMDT: u64 = 67;
    pub(crate) const FCNTL: u64 = 72;
    pub(crate) const FTRUNCATE: u64 = 77;
    pub(crate) const READLINK: u64 = 89;
    pub(crate) const SIGALTSTACK: u64 = 131;
    pub(crate) const PERSONALITY: u64 = 135;
    pub(crate) const MLOCK: u64 = 149;
    pub(crate) const MUNLOCK: u64 = 150;
    pub(crate) const MLOCKALL: u64 = 151;
    pub(crate) const MUNLOCKALL: u64 = 152;
    pub(crate) const PRCTL: u64 = 157;
    pub(crate) const ARCH_PRCTL: u64 = 158;
    pub(crate) const GETEUID: u64 = 107;
    pub(crate) const GETTID: u64 = 186;
    pub(crate) const FUTEX: u64 = 202;
    pub(crate) const RESTART_SYSCALL: u64 = 219;
    pub(crate) const CLOCK_GETTIME: u64 = 228;
    pub(crate) const EXIT_GROUP: u64 = 231;
    pub(crate) const MBIND: u64 = 237;
    pub(crate) const OPENAT: u64 = 257;
    pub(crate) const NEWFSTATAT: u64 = 262;
    pub(crate) const PIPE2: u64 = 293;
    pub(crate) const SECCOMP: u64 = 317;
    pub(crate) const MEMFD_CREATE: u64 = 319;
    pub(crate) const RT_TGSIGQUEUEINFO: u64 = 297;
    pub(crate) const EXECVEAT: u64 = 322;
    pub(crate) const MLOCK2: u64 = 325;
    pub(crate) const PKEY_MPROTECT: u64 = 329;
    pub(crate) const RSEQ: u64 = 334;
    pub(crate) const CLONE3: u64 = 435;
    pub(crate) const PROCESS_MADVISE: u64 = 440;
}

pub(crate) const PROT_READ: u64 = 1;
pub(crate) const PROT_WRITE: u64 = 2;
pub(crate) const PROT_EXEC: u64 = 4;
pub(crate) const MAP_SHARED: u64 = 1;
pub(crate) const MAP_PRIVATE: u64 = 2;
pub(crate) const MAP_FIXED: u64 = 0x10;
pub(crate) const MAP_ANONYMOUS: u64 = 0x20;
pub(crate) const MAP_NORESERVE: u64 = 0x4000;
pub(crate) const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

pub(crate) const ENOSYS: i64 = -38;
pub(crate) const EINVAL: i64 = -22;
pub(crate) const EFAULT: i64 = -14;
pub(crate) const EPERM: i64 = -1;
pub(crate) const ENOMEM: i64 = -12;
/// Linux's internal result if a signal was delivered before the call: see [`crate::signal`].
pub(crate) const RESTART: i64 = -512;

/// Whether a result is an error.
pub(crate) fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}

/// Makes a system call.
///
/// # Safety
///
/// The conditions of the system call with these arguments.
pub(crate) unsafe fn call(number: u64, a: [u64; 6]) -> i64 {
    let mut result = number as i64;
    // SAFETY: the caller guarantees the arguments. The kernel preserves all registers except these.
    unsafe {
        asm!("syscall", inlateout("rax") result, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], out("rcx") _, out("r11") _)
    };
    result
}

/// Maps new memory at `at`, or at any address if `at` is 0. Returns its address; `None` on errors.
pub(crate) fn map(
    at: u64,
    bytes: u64,
    rights: u64,
    flags: u64,
    fd: i64,
    offset: u64,
) -> Option<u64> {
    // SAFETY: if `flags` request that a mapping is replaced, the mapping belongs to the engine.
    let at = unsafe { call(nr::MMAP, [at, bytes, rights, flags, fd as u64, offset]) };
    (!is_error(at)).then_some(at as u64)
}

/// Maps the shared memory at `from` a second time at `to`, over the mapping there.
pub(crate) fn again(from: u64, bytes: u64, to: u64) -> Option<u64> {
    const MREMAP_MAYMOVE: u64 = 1;
    const MREMAP_FIXED: u64 = 2;
    // SAFETY: an old size of 0 maps shared pages once more; what is at `to` is the engine's.
    let at = unsafe { call(nr::MREMAP, [from, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to, 0]) };
    (at as u64 == to).then_some(to)
}

/// Ends the process.
pub(crate) fn exit(status: u64) -> ! {
    loop {
        // SAFETY: the call does not return.
        unsafe { call(nr::EXIT_GROUP, [status, 0, 0, 0, 0, 0]) };
    }
}

/// Prints a line.
pub(crate) fn say(parts: &[&str]) {
    for part in parts {
        // SAFETY: the pointer and the length are those of a slice.
        unsafe { call(nr::WRITE, [2, part.as_ptr() as u64, part.len() as u64, 0, 0, 0]) };
    }
}

/// The address of a function of the kernel that reads a clock ([`crate::clock`]). 0 if no such
/// function is known.
pub(crate) static CLOCK: AtomicU64 = AtomicU64::new(0);

/// The time of the system's monotonic clock in nanoseconds.
pub(crate) fn now() -> u64 {
    const CLOCK_MONOTONIC: u64 = 1;
    let mut time = [0u64; 2];
    let clock = CLOCK.load(Ordering::Relaxed);
    // SAFETY: the function is `clock_gettime`; both write one `timespec`.
    unsafe {
        if clock != 0 {
            let read: extern "C" fn(u64, *mut [u64; 2]) -> i32 = core::mem::transmute(clock);
            if read(CLOCK_MONOTONIC, &mut time) == 0 {
                return time[0] * 1_000_000_000 + time[1];
            }
        }
        let to = time.as_mut_ptr() as u64;
        call(nr::CLOCK_GETTIME, [CLOCK_MONOTONIC, to, 0, 0, 0, 0]);
    }
    time[0] * 1_000_000_000 + time[1]
}

/// Waits on the word or wakes waiters: the system call `futex`.
pub(crate) fn futex(word: *const u32, operation: u64, value: u32, timeout: *const [u64; 2]) {
    // SAFETY: the word is mapped for as long as the process lives.
    unsafe { call(nr::FUTEX, [word as u64, operation, value.into(), timeout as u64, 0, 0]) };
}

/// Writes the number in hexadecimal to `to`.
pub(crate) fn hex(number: u64, to: &mut [u8; 18]) -> &str {
    to[..2].copy_from_slice(b"0x");
    let digits = (16 - number.leading_zeros() as usize / 4).max(1);
    for (at, digit) in to[2..2 + digits].iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * at)) as usize & 15];
    }
    core::str::from_utf8(&to[..2 + digits]).unwrap_or("")
}
