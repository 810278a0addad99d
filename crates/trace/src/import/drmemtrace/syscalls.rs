//! Finds memory-related system calls among the functions that the tracer recorded.
//!
//! ```text
//!   FUNC_ID 2^32+9 | FUNC_ARG ... x6 |  (the call runs)  | FUNC_ID 2^32+9 | FUNC_RETVAL [ SYSCALL_FAILED ]
//! ```

use super::record::FUNC_ID_SYSCALL;
use crate::{Arch, Event};

const ARGS_MAX: usize = 6;

/// Linux: flags of `clone` in `include/uapi/linux/sched.h`.
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
/// Linux: the signal that `fork` passes in `clone`'s flags, and the flags that `vfork` uses, in
/// `kernel/fork.c`: the child uses the parent's memory, and the parent waits for it.
const SIGCHLD: u64 = 17;
const VFORK: u64 = CLONE_VM | CLONE_VFORK | SIGCHLD;
/// Linux: `MAP_FIXED`, and the flags of a private anonymous mapping (for a call whose end was not
/// recorded), in `include/uapi/asm-generic/mman-common.h`.
const MAP_FIXED: u32 = 0x10;
const MAP_PRIVATE_ANONYMOUS: u64 = 0x22;
/// Linux: the unit of `mmap2`'s offset, in `mm/mmap.c`, `mmap_pgoff` of 32-bit systems.
const MMAP2_BYTES: u64 = 4096;
const PROT_READ_WRITE: u64 = 3;
/// Linux: `EINVAL`, for a failure of unknown kind.
const EINVAL: i64 = 22;

/// The call that a thread is in.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    id: u64,
    fresh: bool,
    args: [u64; ARGS_MAX],
    count: usize,
    /// Whether the tracer is an old one, which wrote 1 for success and 0 for failure instead of the
    /// result.
    boolean: bool,
    /// Calls that were omitted because their arguments are not in the trace.
    pub(crate) incomplete: u64,
}

/// The memory-related calls of an instruction set, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Mmap,
    /// `mmap` with its offset in units of [`MMAP2_BYTES`].
    Mmap2,
    Mprotect,
    Munmap,
    Brk,
    Mremap,
    Madvise,
    Clone,
    Fork,
    Vfork,
    Exit,
    ExitGroup,
    /// A call whose arguments are in memory: `clone3`, and the old `mmap` of 32-bit systems. The
    /// trace has no contents of memory.
    InMemory,
}

impl Call {
    /// Linux: `arch/x86/entry/syscalls/syscall_64.tbl` and `syscall_32.tbl`, `arch/arm/tools/syscall.tbl` and
    /// `include/uapi/asm-generic/unistd.h`. A trace that does not name its instruction set is taken to be of
    /// x86-64.
    fn from_number(number: u64, arch: Arch) -> Option<Call> {
        let numbers: &[(u64, Call)] = match arch {
            Arch::X86_64 | Arch::Unknown => &[
                (9, Call::Mmap),
                (10, Call::Mprotect),
                (11, Call::Munmap),
                (12, Call::Brk),
                (25, Call::Mremap),
                (28, Call::Madvise),
                (56, Call::Clone),
                (57, Call::Fork),
                (58, Call::Vfork),
                (60, Call::Exit),
                (231, Call::ExitGroup),
                (435, Call::InMemory),
            ],
            Arch::Aarch64 | Arch::Riscv64 => &[
                (222, Call::Mmap),
                (226, Call::Mprotect),
                (215, Call::Munmap),
                (214, Call::Brk),
                (216, Call::Mremap),
                (233, Call::Madvise),
                (220, Call::Clone),
                (93, Call::Exit),
                (94, Call::ExitGroup),
                (435, Call::InMemory),
            ],
            Arch::I386 | Arch::Arm => &[
                (90, Call::InMemory),
                (192, Call::Mmap2),
                (125, Call::Mprotect),
                (91, Call::Munmap),
                (45, Call::Brk),
                (163, Call::Mremap),
                (if arch == Arch::I386 { 219 } else { 220 }, Call::Madvise),
                (120, Call::Clone),
                (2, Call::Fork),
                (190, Call::Vfork),
                (1, Call::Exit),
                (if arch == Arch::I386 { 252 } else { 248 }, Call::ExitGroup),
                (435, Call::InMemory),
            ],
        };
        numbers.iter().find(|(known, _)| *known == number).map(|&(_, call)| call)
    }

    /// The number of arguments without which the call cannot be used.
    fn needs(self) -> usize {
        match self {
            Call::Fork | Call::Vfork | Call::InMemory => 0,
            Call::Brk | Call::Clone | Call::Exit | Call::ExitGroup => 1,
            Call::Mmap | Call::Mmap2 | Call::Munmap => 2,
            Call::Mprotect | Call::Madvise | Call::Mremap => 3,
        }
    }
}

impl Calls {
    /// A marker `FUNC_ID` of `value`.
    pub(crate) fn id(&mut self, value: u64) {
        if value != self.id {
            self.count = 0;
        }
        (self.id, self.fresh) = (value, true);
    }

    /// A marker `FUNC_ARG`; a call that does not return is reported at once.
    pub(crate) fn arg(&mut self, value: u64, arch: Arch) -> Option<Event> {
        if std::mem::take(&mut self.fresh) {
            self.count = 0;
        }
        if let Some(arg) = self.args.get_mut(self.count) {
            *arg = value;
            self.count += 1;
        }
        let group = match self.call(arch)? {
            Call::Exit => false,
            Call::ExitGroup => true,
            _ => return None,
        };
        (self.count == 1).then_some(Event::Exit { status: value as i32, group })
    }

    /// A marker `FUNC_RETVAL`, with the errno of a `SYSCALL_FAILED` after it.
    pub(crate) fn returned(&mut self, value: u64, errno: Option<u64>, arch: Arch) -> Option<Event> {
        let call = self.call(arch)?;
        let count = std::mem::take(&mut self.count);
        if count < call.needs() {
            self.incomplete += 1;
            return None;
        }
        // A mapping cannot have the address 1, so this tracer records only whether a call
        // succeeded.
        self.boolean |= matches!(call, Call::Mmap | Call::Mmap2) && value == 1;
        let arg = |index: usize, absent: u64| if index < count { self.args[index] } else { absent };
        let (a, b, c) = (arg(0, 0), arg(1, 0), arg(2, 0));
        let result = match errno {
            Some(errno) => -(i64::try_from(errno).unwrap_or(EINVAL)),
            None if !self.boolean => value as i64,
            None if value == 0 => -EINVAL,
            None => match call {
                Call::Mmap | Call::Mmap2 if arg(3, 0) as u32 & MAP_FIXED != 0 => a as i64,
                Call::Mprotect | Call::Munmap | Call::Madvise => 0,
                Call::Brk => a as i64,
                // The trace does not have the address of the new mapping.
                _ => {
                    self.incomplete += 1;
                    return None;
                }
            },
        };
        Some(match call {
            Call::Mmap | Call::Mmap2 => Event::Mmap {
                addr: a,
                bytes: b,
                prot: arg(2, PROT_READ_WRITE) as u32,
                flags: arg(3, MAP_PRIVATE_ANONYMOUS) as u32,
                fd: arg(4, u64::MAX) as i32,
                offset: match call {
                    Call::Mmap2 => arg(5, 0).wrapping_mul(MMAP2_BYTES),
                    _ => arg(5, 0),
                },
                path: None,
                file: None,
                result,
            },
            Call::Mprotect => Event::Mprotect { addr: a, bytes: b, prot: c as u32, result },
            Call::Munmap => Event::Munmap { addr: a, bytes: b, result },
            Call::Brk => Event::Brk { addr: a, result },
            Call::Mremap => Event::Mremap {
                addr: a,
                old_bytes: b,
                new_bytes: c,
                flags: arg(3, 0) as u32,
                new_addr: arg(4, 0),
                result,
            },
            Call::Madvise => Event::Madvise { addr: a, bytes: b, advice: c as u32, result },
            Call::Clone if a & CLONE_THREAD != 0 => Event::Clone { flags: a, stack: b, result },
            Call::Clone => Event::Fork { result, flags: a },
            Call::Fork => Event::Fork { result, flags: SIGCHLD },
            Call::Vfork => Event::Fork { result, flags: VFORK },
            Call::InMemory => {
                self.incomplete += 1;
                return None;
            }
            // An exit that returns has failed. The event was already reported when the call was
            // made.
            Call::Exit | Call::ExitGroup => return None,
        })
    }

    fn call(&self, arch: Arch) -> Option<Call> {
        Call::from_number(self.id.checked_sub(FUNC_ID_SYSCALL)?, arch)
    }
}
