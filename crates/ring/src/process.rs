use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::Contents;

/// Chunks of block descriptors that one process can fill.
pub const LOG_CHUNKS_MAX: usize = 928;
/// Chunks of tags that one process can fill.
pub const TAG_CHUNKS_MAX: usize = 48;

/// Where a process slot is in its life, as [`Process::state`] holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ProcessState {
    /// Nobody's.
    Free = 0,
    /// A process has taken it and fills it.
    Claimed = 1,
    /// It records.
    Live = 2,
}

impl ProcessState {
    /// The state of that number.
    pub const fn from_bits(bits: u32) -> Option<ProcessState> {
        match bits {
            0 => Some(ProcessState::Free),
            1 => Some(ProcessState::Claimed),
            2 => Some(ProcessState::Live),
            _ => None,
        }
    }
}

/// How a process came to be recorded, as [`Process::origin`] holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Origin {
    /// QEMU started with the plugin: the first program, or one that was executed.
    Started = 0,
    /// It was forked from the process in slot `parent`.
    Forked = 1,
    /// A process that was recorded before has executed another program.
    Executed = 2,
}

/// A basic block, as translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Block {
    /// Address of its first instruction.
    pub pc: u64,
    /// Bytes of its instructions.
    pub bytes: u32,
    /// How many instructions it has.
    pub instructions: u32,
    /// How many accesses a fixed block makes; 0 for others.
    pub accesses: u32,
    /// Of how many of them it records the addresses. If they are fewer, each access has
    /// [`crate::Derived::WORDS`] entries in the log of tags behind the tags of all.
    pub recorded: u32,
    /// Index of the first of their [`crate::Tag`]s in the log of tags.
    pub tags: u32,
    /// Nothing.
    pub pad: u32,
}

/// A recorded program of a process. `execve` ends one and begins another in a new slot.
#[repr(C, align(4096))]
pub struct Process {
    /// A [`ProcessState`].
    pub state: AtomicU32,
    /// Its number at the system.
    pub pid: AtomicU32,
    /// An [`Origin`].
    pub origin: AtomicU32,
    /// The guest's processor, as ELF numbers machines.
    pub machine: AtomicU32,
    /// The slot it was forked from.
    pub parent: AtomicU32,
    /// That slot's generation.
    pub parent_generation: AtomicU32,
    /// Blocks that it has from its parent; its log begins with the block of this number.
    pub blocks_inherited: AtomicU32,
    /// Distinguishes the users of a slot: the session's arrival count when it was taken.
    pub generation: AtomicU32,
    /// Set by the host: record nothing more, run at full speed.
    pub stop: AtomicU32,
    /// Set by the plugin before an `execve` that leaves QEMU behind; cleared if it failed.
    pub leaving: AtomicU32,
    /// Threads that have begun; the next thread's number.
    pub threads: AtomicU32,
    /// Block descriptors in the log. A block's number is known before it first runs.
    pub blocks: AtomicU32,
    /// Accesses that were dropped before recording began.
    pub skipped_accesses: AtomicU64,
    /// Instructions of these.
    pub skipped_instructions: AtomicU64,
    /// Tags in the log of tags; a block's are there before the block is in its log.
    pub tags: AtomicU32,
    /// The flags of the `clone` call that forked it.
    pub fork_flags: AtomicU32,
    /// Set by the plugin before it executes another program; cleared if that failed.
    pub executing: AtomicU32,
    /// Set by the plugin while it has counted accesses that it has not told: what is lost if the process ends then.
    pub counting: AtomicU32,
    /// When it began, in nanoseconds of the system's monotonic clock.
    pub began_ns: AtomicU64,
    /// The chunks of the log in order: [`crate::BLOCKS_PER_CHUNK`] descriptors each.
    pub log: [AtomicU32; LOG_CHUNKS_MAX],
    /// The chunks of the log of tags in order: [`crate::TAGS_PER_CHUNK`] each.
    pub tag_log: [AtomicU32; TAG_CHUNKS_MAX],
    /// What the first TLBs of the machine that runs beside hold, once it has asked.
    pub contents: Contents,
}
