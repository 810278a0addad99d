use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The first word of a session.
pub const MAGIC: u64 = u64::from_le_bytes(*b"pagewalk");
/// The version of the layout in this crate; plugin and host must have the same version.
pub const VERSION: u32 = 17;
/// Bytes of a path in the session, including its final zero.
pub const PATH_BYTES_MAX: usize = 4096;

/// Bytes of the text that says why the engine refuses a program.
pub const REFUSED_BYTES_MAX: usize = 128;

/// The data common to all recorded processes. The host initialises it before the first process
/// starts.
#[repr(C, align(4096))]
pub struct Session {
    /// The value of [`MAGIC`].
    pub magic: u64,
    /// The value of [`VERSION`].
    pub version: u32,
    /// The process identifier of the host: a process that waits for space checks whether the host
    /// is alive.
    pub host_pid: u32,
    /// 1 to drop accesses by the filter `page16`.
    pub filter_page16: u32,
    /// 1 if the plugin may write code into QEMU's translations in place of callbacks.
    pub inline_code: u32,
    /// 1 to follow forks and `execve`.
    pub follow: u32,
    /// 1 to record file and blocking calls.
    pub calls: u32,
    /// 1 if a block's fetch counts as an access.
    pub fetches: u32,
    /// 1 if a program with the engine waits at its end until the host has read its page table.
    pub pages: u32,
    /// For code and for data: the number of entries of the first-level TLB of the machine that is simulated
    /// at the same time, if guaranteed hits are to be counted; 0 to record all accesses.
    pub sure_pages: [u32; 2],
    /// For code and for data: the number of sets of these TLBs. The set of a page is its page
    /// number modulo this number.
    pub sure_sets: [u32; 2],
    /// For code and for data: the replacement policy of these TLBs, as a [`crate::Replaces`].
    pub sure_replaces: [u32; 2],
    /// The number of blocks that a process records in full before it requests the contents of the
    /// TLBs, if it needs these contents.
    pub sure_patience: u32,
    /// 1 if one TLB serves both code and data; in that case the first elements of the arrays above
    /// describe it.
    pub sure_together: u32,
    /// The number of accesses to drop before recording begins. The plugin drops whole spans and
    /// reports how many accesses; the host drops the remaining accesses one by one.
    pub skip_accesses: u64,
    /// The directory and the beginning of QEMU's file name, `/usr/bin/qemu-`; zero-terminated.
    pub qemu: [u8; PATH_BYTES_MAX],
    /// The `-plugin` argument for programs that are followed; zero-terminated.
    pub plugin: [u8; 2 * PATH_BYTES_MAX],
    /// The directory and the beginning of the file name of the library that marks allocations, such
    /// as `/lib/pagewalk-allocations-`; zero-terminated, empty if allocations are not to be marked.
    pub allocations: [u8; PATH_BYTES_MAX],
    /// Set by the host when it stops reading: all processes continue without being recorded.
    pub over: AtomicU32,
    /// Incremented when a process or a thread arrives, so that the host searches for the new one.
    pub arrivals: AtomicU32,
    /// 1 while the host sleeps on `doorbell`.
    pub host_sleeps: AtomicU32,
    /// A futex that wakes the host.
    pub doorbell: AtomicU32,
    /// One more than the highest chunk that was ever claimed.
    pub chunks_high: AtomicU32,
    /// One more than the highest process slot that was ever claimed.
    pub processes_high: AtomicU32,
    /// The number of processes that may be running: processes that were forked, or are about to be,
    /// and that have not reported their end. A process that is ended by `SIGKILL`, or a process
    /// with several threads that is ended by any signal, does not report its end.
    pub running: AtomicU32,
    /// A futex of the host: incremented when a process asks to be traced ([`crate::Tracing`]).
    pub asks: AtomicU32,
    /// Set by the plugin of a process that can count guaranteed hits.
    pub counts: AtomicU32,
    /// 1 once the engine has ended a program that it cannot record.
    pub is_refused: AtomicU32,
    /// The number of threads and processes for which there was no room and which are not recorded.
    pub lost: AtomicU64,
    /// The address of the instruction at which the engine had to stop.
    pub refused_at: AtomicU64,
    /// The reason for the refusal as text, padded with zeros.
    pub refused: [AtomicU8; REFUSED_BYTES_MAX],
}

/// The address range of the engine's own memory in a program; its code is at the beginning.
pub const ENGINE_MEMORY: core::ops::Range<u64> = 0x0ff0_0000_0000..0x1400_0000_0000;

/// The data that the host writes into a program's memory for the engine: where the program begins, and
/// the session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The path of the session, zero-terminated.
    pub session: [u8; 64],
    /// The program's first instruction.
    pub pc: u64,
    /// The initial stack pointer.
    pub rsp: u64,
    /// The initial flags register.
    pub flags: u64,
    /// The address of the engine, and its size in bytes.
    pub engine: [u64; 2],
}
