use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The first word of a session.
pub const MAGIC: u64 = u64::from_le_bytes(*b"pagewalk");
/// The layout that this crate describes; plugin and host must agree on it.
pub const VERSION: u32 = 14;
/// Bytes of a path in the session, its final zero included.
pub const PATH_BYTES_MAX: usize = 4096;

/// Bytes of the words by which the engine refuses a program.
pub const REFUSED_BYTES_MAX: usize = 128;

/// What all recorded processes share. The host fills it before the first of them starts.
#[repr(C, align(4096))]
pub struct Session {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Process number of the host: whoever waits for space looks whether it lives.
    pub host_pid: u32,
    /// 1 to drop accesses by the filter `page16`.
    pub filter_page16: u32,
    /// 1 if the plugin may write into QEMU's translation what its callbacks do otherwise.
    pub inline_code: u32,
    /// 1 to follow forks and `execve`.
    pub follow: u32,
    /// 1 to tell file and blocking calls.
    pub calls: u32,
    /// 1 if a block's fetch counts as an access.
    pub fetches: u32,
    /// How many pages of code and of data the first TLBs have room for of the machine that runs beside, if accesses
    /// that surely hit them are to be counted; 0 to tell all.
    pub sure_pages: [u32; 2],
    /// How many sets they are in, of as many pages each. The number of a page, divided by that, leaves the
    /// number of its set.
    pub sure_sets: [u32; 2],
    /// Which page makes room in a full set of theirs: a [`crate::Replaces`].
    pub sure_replaces: [u32; 2],
    /// Blocks after which a process that tells all asks what they hold, where it has to.
    pub sure_patience: u32,
    /// 1 if both are in one TLB, which the first of each says all about.
    pub sure_together: u32,
    /// Accesses to drop before recording begins. The plugin drops whole spans and tells how
    /// many; the host drops the rest exactly.
    pub skip_accesses: u64,
    /// Directory and first part of QEMU's file name: `/usr/bin/qemu-`; zero-terminated.
    pub qemu: [u8; PATH_BYTES_MAX],
    /// The `-plugin` argument for followed programs; zero-terminated.
    pub plugin: [u8; 2 * PATH_BYTES_MAX],
    /// Directory and first part of the file name of the library that marks allocations, as in
    /// `/lib/pagewalk-allocations-`; zero-terminated, empty if they are not to be marked.
    pub allocations: [u8; PATH_BYTES_MAX],
    /// Set by the host when it looks no more: everybody runs on unrecorded.
    pub over: AtomicU32,
    /// Counts up when a process or a thread comes: the host looks for it then.
    pub arrivals: AtomicU32,
    /// 1 while the host sleeps on `doorbell`.
    pub host_sleeps: AtomicU32,
    /// A futex that wakes the host.
    pub doorbell: AtomicU32,
    /// One more than the highest chunk that was ever taken.
    pub chunks_high: AtomicU32,
    /// One more than the highest process slot that was ever taken.
    pub processes_high: AtomicU32,
    /// Processes that may run: those that were forked, or are about to be, and have not said that they end. One
    /// that `SIGKILL` ends stays among them, and so does one with several threads that any signal ends.
    pub running: AtomicU32,
    /// Set by the plugin of a process that can count such accesses.
    pub counts: AtomicU32,
    /// 1 once the engine has ended a program that it cannot record.
    pub is_refused: AtomicU32,
    /// Threads and processes that found no room and are not recorded.
    pub lost: AtomicU64,
    /// The address of the instruction that the engine could not go on with.
    pub refused_at: AtomicU64,
    /// Why, in words, with zeros behind.
    pub refused: [AtomicU8; REFUSED_BYTES_MAX],
}

/// What a program that the engine is put into finds in its memory: where it begins and where to report.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The path of the session, with a zero behind.
    pub session: [u8; 64],
    /// The program's first instruction.
    pub pc: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// Its flags.
    pub flags: u64,
    /// Where the engine is, and how many bytes it has.
    pub engine: [u64; 2],
}
