use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The first word of a session.
pub const MAGIC: u64 = u64::from_le_bytes(*b"pagewalk");
/// The version of the layout in this crate; plugin and host must have the same version.
pub const VERSION: u32 = 19;
/// The maximum size in bytes of a path in the session, including its final zero.
pub const PATH_BYTES_MAX: usize = 4096;

/// The maximum size in bytes of the text that says why the engine refuses a program.
pub const REFUSED_BYTES_MAX: usize = 128;

/// The data common to all recorded processes. The host initialises it before the first process
/// starts.
#[repr(C, align(4096))]
pub struct Session {
    /// The value of [`MAGIC`].
    pub magic: u64,
    /// The value of [`VERSION`].
    pub version: u32,
    /// The process identifier of the host. A process that waits for space checks that the host is
    /// alive.
    pub host_pid: u32,
    /// 1 if the filter `page16` drops accesses.
    pub filter_page16: u32,
    /// 1 if the plugin may write code into QEMU's translations in place of callbacks.
    pub inline_code: u32,
    /// 1 if forks and `execve` are followed.
    pub follow: u32,
    /// 1 if file calls and blocking calls are recorded.
    pub calls: u32,
    /// 1 if a block's fetch counts as an access.
    pub fetches: u32,
    /// 1 if a program with the engine waits at its end until the host has read its page table.
    pub pages: u32,
    /// If guaranteed hits are to be counted: the numbers of entries of the first-level TLBs for
    /// code and for data, in the machine that is simulated at the same time. 0 if all accesses are
    /// to be recorded.
    pub sure_pages: [u32; 2],
    /// The numbers of sets of these TLBs for code and for data. The set of a page is its page
    /// number modulo the number of sets.
    pub sure_sets: [u32; 2],
    /// The replacement policies of these TLBs for code and for data, each as a [`crate::Replaces`].
    pub sure_replaces: [u32; 2],
    /// The number of blocks that a process records in full before it requests the contents of the
    /// TLBs. It needs them only for FIFO and random replacement.
    pub sure_patience: u32,
    /// 1 if one TLB is for both code and data. The first elements of the arrays above then describe
    /// this TLB.
    pub sure_together: u32,
    /// The number of accesses to drop before recording begins. The plugin drops whole spans and
    /// reports how many accesses it has dropped. The host drops the remaining accesses one by one.
    pub skip_accesses: u64,
    /// The directory and the beginning of QEMU's file name, such as `/usr/bin/qemu-`;
    /// zero-terminated.
    pub qemu: [u8; PATH_BYTES_MAX],
    /// The `-plugin` argument for programs that are followed; zero-terminated.
    pub plugin: [u8; 2 * PATH_BYTES_MAX],
    /// The directory and the beginning of the file name of the library that reports allocations,
    /// such as `/lib/pagewalk-allocations-`; zero-terminated. Empty if allocations are not to be
    /// recorded.
    pub allocations: [u8; PATH_BYTES_MAX],
    /// Set by the host when it stops reading. All processes then continue without being recorded.
    pub over: AtomicU32,
    /// Incremented when a process or a thread begins to be recorded, so that the host searches for
    /// it.
    pub arrivals: AtomicU32,
    /// 1 while the host sleeps on `doorbell`.
    pub host_sleeps: AtomicU32,
    /// A futex that wakes the host.
    pub doorbell: AtomicU32,
    /// One more than the highest index of a chunk that was ever claimed.
    pub chunks_high: AtomicU32,
    /// One more than the highest index of a process slot that was ever claimed.
    pub processes_high: AtomicU32,
    /// The number of processes that may be running. A process is counted from before it is forked
    /// until it reports its end. Two kinds of processes do not report their end and stay counted: a
    /// process that is ended by `SIGKILL`, and a process with several threads that is ended by any
    /// signal.
    pub running: AtomicU32,
    /// A futex on which the host waits. It is incremented when a process asks to be traced
    /// ([`crate::Tracing`]).
    pub asks: AtomicU32,
    /// Set by the plugin of a process that can count guaranteed hits.
    pub counts: AtomicU32,
    /// 1 after the engine has ended a program that it cannot record.
    pub is_refused: AtomicU32,
    /// The number of threads and processes that are not recorded because the session had no room
    /// for them.
    pub lost: AtomicU64,
    /// The address of the instruction at which the engine had to stop.
    pub refused_at: AtomicU64,
    /// The reason for the refusal as text, padded with zeros.
    pub refused: [AtomicU8; REFUSED_BYTES_MAX],
    /// 1 if the engine leaves out what is outside of the windows: it runs code there that records nothing, and reports
    /// how many accesses and instructions it has left out. If 0, the host drops them.
    pub leaves_out: u32,
    /// What begins the window, as a [`BeginsWith`].
    pub sign: u32,
    /// The number of the marker that begins the window, for [`BeginsWith::Marker`].
    pub sign_number: u64,
    /// The number of accesses of each process to leave out before its first window, from the sign on if there is one.
    pub leave_out: u64,
    /// The lengths of a window and of a period in accesses, if periods begin with a window each; otherwise 0.
    pub sample: [u64; 2],
    /// 1 once the sign has come in one of the processes.
    pub begun: AtomicU32,
    /// 1 once the threads of a process to which the host has attached are to leave the engine.
    pub leaves: AtomicU32,
}

/// What begins a window, in [`Session::sign`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum BeginsWith {
    /// Nothing: it begins with the process.
    None = 0,
    /// A call of a function. The host passes the addresses of the function to each process
    /// ([`crate::Process::places`]).
    Symbol = 1,
    /// Any marker.
    AnyMarker = 2,
    /// The marker of a number.
    Marker = 3,
}

/// The value of a SIGTRAP, sent by `rt_tgsigqueueinfo`, by which threads of the engine make others leave translated code.
pub const PARKS: u64 = u64::from_le_bytes(*b"pagewalk");

/// The address of the engine's code in a program. The engine's other memory is further up: see [`crate::Own`].
pub const ENGINE_AT: u64 = 0x0ff0_0000_0000;

/// The data that the host writes into a program's memory for the engine: the registers with which
/// the program begins, and the path of the session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The path of the session, zero-terminated.
    pub session: [u8; 64],
    /// The address of the program's first instruction.
    pub pc: u64,
    /// The program's initial stack pointer.
    pub rsp: u64,
    /// The program's initial flags register.
    pub flags: u64,
    /// The address of the engine, and its size in bytes.
    pub engine: [u64; 2],
    /// The address of an [`Attach`] if the program runs already; otherwise 0.
    pub attach: u64,
}

/// The data by which the host and the engine put the threads of a running process into the engine. [`AttachThread`]s
/// follow it in memory. It begins a page of the engine's memory, so that another host finds it if the first one was killed.
#[repr(C)]
#[derive(Debug)]
pub struct Attach {
    /// The fields that one side writes before the other one reads them.
    pub told: AttachTold,
    /// Set by the engine, at last: [`AttachTold::READY`] once all fields are set, or [`AttachTold::FAILED`].
    pub is_ready: AtomicU32,
    /// Set by the host: 1 once all threads are to go on.
    pub goes: AtomicU32,
}

/// The numbers in an [`Attach`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachTold {
    /// [`AttachTold::MAGIC`], and the [`VERSION`] of the host.
    pub magic: u64,
    /// See `magic`.
    pub version: u64,
    /// The process that the host has attached to. A child that it has forked has a copy of this structure.
    pub pid: u64,
    /// The process that puts the threads in and takes them out, and the time at which it began, as `/proc/PID/stat` has it.
    pub operator: u64,
    /// See `operator`.
    pub operator_began: u64,
    /// The number of threads.
    pub threads: u64,
    /// Set by the engine: the address at which all threads but the first enter it, with their
    /// [`AttachThread::engine`] in rdi.
    pub entry: u64,
    /// Set by the engine: the address after the instruction by which it makes system calls for the program.
    pub called: u64,
    /// Set by the engine: the address of an instruction by which the host makes a thread that is to be put back execute
    /// system calls. A thread that no host watches waits behind it, before `site_end`.
    pub site: u64,
    /// See `site`.
    pub site_end: u64,
    /// Set by the engine: the address of [`Session::leaves`].
    pub leaves: u64,
    /// Set by the engine as soon as it has taken over signals: the address of the program's actions, `struct sigaction` by
    /// number.
    pub actions: u64,
    /// The address and the size of the engine's code and initial stack, up to this structure and what follows it.
    pub engine: [u64; 2],
    /// Set by the engine: the address of its [`crate::Own`].
    pub own: u64,
    /// If the engine could not begin: the address and the length of a text that says why.
    pub why: [u64; 2],
    /// Room for arguments of system calls that the host makes a thread execute.
    pub scratch: [u64; 4],
}

impl AttachTold {
    /// The value of `magic`.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"attached");
    /// [`Attach::is_ready`] of an engine that has begun.
    pub const READY: u32 = 1;
    /// [`Attach::is_ready`] of an engine that could not begin: see [`AttachTold::why`].
    pub const FAILED: u32 = 2;
}

/// A thread of a running process, as the host has stopped it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachThread {
    /// The thread's identifier.
    pub tid: u64,
    /// The thread's general registers, by the processor's numbers.
    pub registers: [u64; 16],
    /// The address of the thread's next instruction.
    pub pc: u64,
    /// The thread's flags.
    pub flags: u64,
    /// The base of `fs`.
    pub fs: u64,
    /// The base of `gs`.
    pub gs: u64,
    /// The thread's mask of blocked signals.
    pub mask: u64,
    /// The address, size and signature with which the thread is registered for restartable
    /// sequences; zeros if it is not registered.
    pub rseq: [u64; 3],
    /// The number of the system call that the thread makes again by `restart_syscall`, or 0.
    pub restarts: u64,
    /// Linux's internal result of the system call in which the host has stopped the thread, at `pc`; otherwise 0. It says
    /// whether a signal ends the call.
    pub interrupted: i64,
    /// Set by the engine: the address of the thread's engine, and its stack pointer.
    pub engine: u64,
    /// See `engine`.
    pub stack: u64,
}

/// What the host needs to put a thread back into the program, beside its registers. It is at [`Outside::AT`] behind the
/// thread's base of `gs`, where the registers come first, by the processor's numbers, and then the flags.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Outside {
    /// The address of the program's next instruction. During a system call of the program, the one after it.
    pub pc: u64,
    /// The program's mask of blocked signals.
    pub mask: u64,
    /// The program's alternate stack: address, flags, size.
    pub alternate: [u64; 3],
    /// See [`AttachThread::rseq`].
    pub rseq: [u64; 3],
    /// 1 once the thread waits to be put back.
    pub is_parked: u64,
}

impl Outside {
    /// The offset from the base of `gs`.
    pub const AT: usize = 0x100;
    /// The offset of the program's base of `gs` from the base of `gs` in the engine.
    pub const GS_AT: usize = 0xd0;
    /// The offset of the thread's identifier. A thread that has just begun still has another one's base of `gs`.
    pub const TID_AT: usize = 0xf0;
}

const _: () = assert!(Outside::AT + size_of::<Outside>() <= 0x180);
