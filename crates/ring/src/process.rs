use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::{Contents, Own};

/// The largest number of chunks of block descriptors of one process.
pub const LOG_CHUNKS_MAX: usize = 928;
/// The largest number of chunks of tags of one process.
pub const TAG_CHUNKS_MAX: usize = 48;

/// The most addresses of the symbol that begins a window.
pub const PLACES_MAX: usize = 32;
/// See [`Process::last_pages`].
pub const LAST_PAGES_WANTED: u32 = 1;
/// See [`Process::last_pages`].
pub const LAST_PAGES_TAKEN: u32 = 2;

/// The state of a process slot, in [`Process::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ProcessState {
    /// Not in use.
    Free = 0,
    /// A process has claimed the slot and is initialising it.
    Claimed = 1,
    /// The process of the slot is being recorded.
    Live = 2,
}

impl ProcessState {
    /// The state with this number.
    pub const fn from_bits(bits: u32) -> Option<ProcessState> {
        match bits {
            0 => Some(ProcessState::Free),
            1 => Some(ProcessState::Claimed),
            2 => Some(ProcessState::Live),
            _ => None,
        }
    }
}

/// How the recording of a process began, in [`Process::origin`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Origin {
    /// QEMU was started with the plugin: for the first program, or for a program that another one
    /// executed.
    Started = 0,
    /// The process was forked from the process in slot `parent`.
    Forked = 1,
    /// A recorded process has executed another program.
    Executed = 2,
}

/// The steps by which a process and the host prepare an `execve`, in [`Process::tracing`]. The host
/// traces the process with `ptrace`, so that the host can load the engine into the new program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Tracing {
    /// No `execve` is being prepared.
    Not = 0,
    /// The process waits for the host to trace it.
    Asked = 1,
    /// The host is about to trace the process.
    Taken = 2,
    /// The host traces the process. The process may now execute the program.
    Ready = 3,
    /// The host cannot trace the process.
    Refused = 4,
    /// `execve` has failed. The process stops at a breakpoint, and the host must stop tracing it.
    Failed = 5,
}

impl Tracing {
    /// The state with this number.
    pub const fn from_bits(bits: u32) -> Option<Tracing> {
        match bits {
            0 => Some(Tracing::Not),
            1 => Some(Tracing::Asked),
            2 => Some(Tracing::Taken),
            3 => Some(Tracing::Ready),
            4 => Some(Tracing::Refused),
            5 => Some(Tracing::Failed),
            _ => None,
        }
    }
}

/// The descriptor of a basic block that was translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Block {
    /// The address of the block's first instruction.
    pub pc: u64,
    /// The total size of the block's instructions in bytes.
    pub bytes: u32,
    /// The number of instructions in the block.
    pub instructions: u32,
    /// The number of accesses of a fixed block, not counting the fetch; 0 for other blocks.
    pub accesses: u32,
    /// The number of these accesses whose addresses are recorded. If not all addresses are
    /// recorded, the log of tags has [`crate::Derived::WORDS`] entries for each access, after the
    /// tags of all accesses.
    pub recorded: u32,
    /// The index, in the log of tags, of the [`crate::Tag`] of the first access.
    pub tags: u32,
    /// Unused.
    pub pad: u32,
}

/// A process that runs a recorded program. `execve` ends the use of the slot and begins the use of
/// another slot.
#[repr(C, align(4096))]
pub struct Process {
    /// The state as a [`ProcessState`].
    pub state: AtomicU32,
    /// The process identifier.
    pub pid: AtomicU32,
    /// The origin as an [`Origin`].
    pub origin: AtomicU32,
    /// The guest's processor, as the machine number in ELF files.
    pub machine: AtomicU32,
    /// The index of the slot of the process's parent, if it was forked.
    pub parent: AtomicU32,
    /// The generation of the parent's slot.
    pub parent_generation: AtomicU32,
    /// The number of blocks that the process inherited from its parent. The first block in its own
    /// log has this number.
    pub blocks_inherited: AtomicU32,
    /// A number that distinguishes the users of a slot: the value of
    /// [`Session::arrivals`](crate::Session::arrivals) when the slot was claimed.
    pub generation: AtomicU32,
    /// Set by the host if the process is to run at full speed without recording.
    pub stop: AtomicU32,
    /// Set by the plugin before an `execve` that the kernel carries out natively, without QEMU.
    /// Cleared if the `execve` has failed.
    pub leaving: AtomicU32,
    /// The number of threads that have begun. It is also the number that the next thread will get.
    pub threads: AtomicU32,
    /// The number of block descriptors in the log of blocks. A block is put into the log before it
    /// runs for the first time.
    pub blocks: AtomicU32,
    /// The number of accesses that the recorder has dropped because of `--skip`.
    pub skipped_accesses: AtomicU64,
    /// The number of instructions that were dropped with these accesses.
    pub skipped_instructions: AtomicU64,
    /// The number of tags in the log of tags. The tags of a block are in this log before the block
    /// is in the log of blocks.
    pub tags: AtomicU32,
    /// The flags of the `clone` call by which the process was forked.
    pub fork_flags: AtomicU32,
    /// Set by the plugin before it executes another program. Cleared if this has failed.
    pub executing: AtomicU32,
    /// Set by the plugin while it has counted accesses that it has not reported: these counts are
    /// lost if the process is killed.
    pub counting: AtomicU32,
    /// How far an `execve` has been prepared, as a [`Tracing`]. It is a futex on which process and
    /// host wait.
    pub tracing: AtomicU32,
    /// The identifier of the thread that calls `execve`.
    pub executes: AtomicU32,
    /// The value is [`LAST_PAGES_WANTED`] while the program waits, at its end, until the host has
    /// read its page table. The host then stores [`LAST_PAGES_TAKEN`].
    pub last_pages: AtomicU32,
    /// When the process began, in nanoseconds of the system's monotonic clock.
    pub began_ns: AtomicU64,
    /// The chunks of the log of blocks, in order: [`crate::BLOCKS_PER_CHUNK`] descriptors each.
    pub log: [AtomicU32; LOG_CHUNKS_MAX],
    /// The chunks of the log of tags, in order: [`crate::TAGS_PER_CHUNK`] tags each.
    pub tag_log: [AtomicU32; TAG_CHUNKS_MAX],
    /// The contents of the first-level TLBs of the machine that is simulated at the same time, for
    /// a process that requests them.
    pub contents: Contents,
    /// The number of accesses of the process so far, recorded or left out, in this program and those that it ran before. It
    /// is kept while the process leaves accesses out, or may do so again, and [`u64::MAX`] afterwards. Accesses before
    /// the sign that begins the windows do not count.
    pub position: AtomicU64,
    /// The number of times that the process has asked for `places`.
    pub places_asked: AtomicU32,
    /// The number of these requests that the host has answered.
    pub places_answered: AtomicU32,
    /// The number of `places`; more than [`PLACES_MAX`] if they do not fit.
    pub places_count: AtomicU32,
    /// The addresses that begin the window once one of them is executed.
    pub places: [AtomicU64; PLACES_MAX],
    /// The address ranges of the engine's own memory.
    pub own: Own,
}
