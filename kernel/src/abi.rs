//! The interface between kernel and user programs. The file is a module both of the kernel and of
//! user/main.rs.

/// The system calls. Arguments and results are words; the first result is [`OK`] or an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Number {
    /// Sends a message to `to` if that is not [`NOBODY`], then receives one from `from`, or from [`ANYBODY`].
    /// (to, from, tag, word, word, word) -> sender, tag, word, word, word.
    Ipc = 0,
    /// Sets where pages that come with messages may be mapped. (flexpage)
    Accept = 1,
    /// Unmaps pages from all spaces to which they were mapped on, with the rights of the flexpage.
    /// (flexpage, own too?)
    Flush = 2,
    /// Creates a thread. (pc, stack, argument, argument, space) -> thread; for spaces see
    /// [`SPACE_SAME`].
    Spawn = 3,
    /// Copies this space, with one thread, which continues where this one is. -> thread, or 0 in the copy.
    Fork = 4,
    /// Ends the calling thread. (code)
    Exit = 5,
    /// Waits for a thread to end. (thread) -> code
    Wait = 6,
    /// Kills a thread. (thread)
    Kill = 7,
    /// Maps a region. (start, bytes, rights, source, file, first page); for sources see
    /// [`SOURCE_ZEROS`].
    Map = 8,
    /// Unmaps regions. (start, bytes)
    Unmap = 9,
    /// Changes the rights of regions. (start, bytes, rights)
    Protect = 10,
    /// Discards the contents of private pages. (start, bytes)
    Discard = 11,
    /// Lets other threads run first.
    Yield = 12,
    /// Prints up to 40 bytes on the serial line. (length, bytes, bytes, bytes, bytes, bytes)
    Print = 13,
    /// Reads a number of the kernel. (which) -> number; see [`Fact`].
    Fact = 14,
    /// Restricts the thread to this processor from here on. (processor)
    Processor = 15,
    /// Ends the machine. (0: success)
    Shutdown = 16,
    /// Injects a fault of the kernel, for tests. (which, number); see [`Failure`].
    Fail = 17,
}

/// All system calls, by their numbers.
pub const NUMBERS: [Number; 18] = [
    Number::Ipc,
    Number::Accept,
    Number::Flush,
    Number::Spawn,
    Number::Fork,
    Number::Exit,
    Number::Wait,
    Number::Kill,
    Number::Map,
    Number::Unmap,
    Number::Protect,
    Number::Discard,
    Number::Yield,
    Number::Print,
    Number::Fact,
    Number::Processor,
    Number::Shutdown,
    Number::Fail,
];

/// Numbers that the kernel reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Fact {
    /// The number of processors in use.
    Processors = 0,
    /// The number of free frames.
    FreeFrames = 1,
    /// The number of pages in swap.
    Swapped = 2,
    /// The number of pages read from swap so far.
    SwapReads = 3,
    /// The number of shootdowns that interrupted other processors.
    Shootdowns = 4,
    /// The number of faults that copied a page.
    Copies = 5,
    /// The number of all faults that were handled.
    Faults = 6,
    /// The processor that the thread is running on.
    ThisProcessor = 7,
    /// 0 if the kernel's data structures are consistent.
    Check = 8,
    /// The number of spaces.
    Spaces = 9,
}

/// All facts, by their values.
pub const FACTS: [Fact; 10] = [
    Fact::Processors,
    Fact::FreeFrames,
    Fact::Swapped,
    Fact::SwapReads,
    Fact::Shootdowns,
    Fact::Copies,
    Fact::Faults,
    Fact::ThisProcessor,
    Fact::Check,
    Fact::Spaces,
];

/// Faults that a test can inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Failure {
    /// The allocation of a frame that comes after this number of allocations, counted from 1,
    /// fails.
    Frame = 0,
    /// The calling processor stays in the kernel with interrupts disabled, if it is not the last one.
    Processor = 1,
    /// The operation of the kernel that asks for memory of its own after this number of questions, counted from
    /// 1, is told that there is none.
    Heap = 2,
}

/// Success.
pub const OK: u64 = 0;
/// There is no such call, or its arguments are invalid.
pub const BAD: u64 = 1;
/// Not enough memory: frames, swap, or the kernel's own.
pub const MEMORY: u64 = 2;
/// There is no such thread.
pub const NO_THREAD: u64 = 3;
/// A page that came with the message could not be mapped, as its place is occupied or does not exist: the
/// message came without it.
pub const OVERLAP: u64 = 4;

/// No thread: nothing is sent, or nothing is received.
pub const NOBODY: u64 = u64::MAX;
/// Any thread.
pub const ANYBODY: u64 = u64::MAX - 1;
/// The kernel, as a sender.
pub const KERNEL: u64 = u64::MAX - 2;

/// For [`Number::Spawn`]: the thread is in the caller's space.
pub const SPACE_SAME: u64 = 0;
/// For [`Number::Spawn`]: the thread is in a space of its own, paged by the kernel, with the
/// program and a stack.
pub const SPACE_PAGED: u64 = 1;
/// For [`Number::Spawn`]: the thread is in an empty space of its own, and the caller is its pager.
pub const SPACE_EMPTY: u64 = 2;
/// For [`Number::Spawn`]: the thread is in an empty space of its own, without a pager.
pub const SPACE_WITHOUT_PAGER: u64 = 3;
/// For [`Number::Spawn`]: the thread is in the space of the thread whose number is added to this.
pub const SPACE_OF: u64 = 1 << 32;

/// Private zero-filled memory.
pub const SOURCE_ZEROS: u64 = 0;
/// Zero-filled memory that is shared with children.
pub const SOURCE_SHARED: u64 = 1;
/// A private mapping of a file: stores change copies of its pages.
pub const SOURCE_FILE: u64 = 2;
/// A shared mapping of a file: stores change the file.
pub const SOURCE_FILE_SHARED: u64 = 3;

/// A bit of a message's tag: a page comes with the message. The second word is the sender's flexpage, the
/// third the hot spot.
pub const TAG_MAP: u64 = 1;
/// A bit of a message's tag: the page is removed from the sender (granted).
pub const TAG_GRANT: u64 = 2;
/// The tag of a fault message from the kernel to a pager. Its words are the address, the kind of access (0
/// fetch, 1 load, 2 store), and the pc.
pub const TAG_FAULT: u64 = 0x100;

/// The exit code of a thread that the kernel has stopped.
pub const STOPPED: u64 = u64::MAX;

/// The right to load.
pub const READ: u64 = 1;
/// The right to store.
pub const WRITE: u64 = 2;
/// The right to fetch instructions.
pub const EXECUTE: u64 = 4;

/// The address of the program.
pub const PROGRAM: u64 = 0x40_0000;
/// The end of the first stack.
pub const STACK_END: u64 = 0x3000_0000;
/// The size of the first stack in bytes.
pub const STACK_BYTES: u64 = 0x1_0000;

/// An aligned range of addresses whose size is a power of two, with rights, as a word: `start |
/// log2(bytes) << 4 | rights`.
#[allow(dead_code)]
pub const fn flexpage(start: u64, shift: u64, rights: u64) -> u64 {
    start | shift << 4 | rights
}
