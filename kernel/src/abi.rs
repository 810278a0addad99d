//! What kernel and programs agree on. The kernel has this file as a module, and user/main.rs has it as its own.

/// The calls. Arguments and results are words; the first result is [`OK`] or an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Number {
    /// Sends a message to `to` if that is not [`NOBODY`], then receives one from `from`, or from [`ANYBODY`].
    /// (to, from, tag, word, word, word) -> sender, tag, word, word, word.
    Ipc = 0,
    /// Where a page that comes with a message may go. (flexpage)
    Accept = 1,
    /// Takes pages back that were mapped on: all rights but those of the flexpage's. (flexpage, own too?)
    Flush = 2,
    /// A thread. (where, stack, argument, argument, space) -> thread; for spaces see [`SPACE_SAME`].
    Spawn = 3,
    /// This space again, as it is, with one thread that is where this one is. -> thread, or 0 in the new one.
    Fork = 4,
    /// The thread ends. (code)
    Exit = 5,
    /// Waits for a thread to end. (thread) -> code
    Wait = 6,
    /// Stops a thread. (thread)
    Kill = 7,
    /// A region. (start, bytes, rights, source, file, first page); for sources see [`SOURCE_ZEROS`].
    Map = 8,
    /// No region any more. (start, bytes)
    Unmap = 9,
    /// Other rights of regions. (start, bytes, rights)
    Protect = 10,
    /// The contents of private pages are not needed any more. (start, bytes)
    Discard = 11,
    /// Other threads first.
    Yield = 12,
    /// Up to 40 bytes for the serial line. (length, bytes, bytes, bytes, bytes, bytes)
    Print = 13,
    /// A number of the kernel's. (which) -> number; see [`Fact`].
    Fact = 14,
    /// The thread runs on this processor alone from here on. (processor)
    Processor = 15,
    /// The machine ends. (0: all is well)
    Shutdown = 16,
    /// A fault of the kernel's own, for tests. (which, how often); see [`Failure`].
    Fail = 17,
}

/// All of them, by their numbers.
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

/// What is known of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Fact {
    /// Processors that take part.
    Processors = 0,
    /// Frames that are free.
    FreeFrames = 1,
    /// Pages in swap.
    Swapped = 2,
    /// Pages read from swap so far.
    SwapReads = 3,
    /// Shootdowns that asked other processors.
    Shootdowns = 4,
    /// Faults that were answered by a copy.
    Copies = 5,
    /// Faults that were answered, in all.
    Faults = 6,
    /// The processor that the thread runs on.
    ThisProcessor = 7,
    /// Whether the kernel finds its own books in order: 0.
    Check = 8,
    /// Spaces that there are.
    Spaces = 9,
}

/// All of them, by their numbers.
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

/// What a test can have fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Failure {
    /// The allocation of a frame that is so many from here on, counted from 1.
    Frame = 0,
    /// The processor that calls: it stays in the kernel with interrupts off.
    Processor = 1,
}

/// Done.
pub const OK: u64 = 0;
/// No such call, or arguments that it cannot have.
pub const BAD: u64 = 1;
/// No memory is left: of frames, of swap, or of the kernel's own.
pub const MEMORY: u64 = 2;
/// There is no such thread.
pub const NO_THREAD: u64 = 3;
/// A page that came with the message lies where something is already, or nowhere: the message came without it.
pub const OVERLAP: u64 = 4;

/// No thread: nothing is sent, or nothing received.
pub const NOBODY: u64 = u64::MAX;
/// Any thread.
pub const ANYBODY: u64 = u64::MAX - 1;
/// The kernel as a sender.
pub const KERNEL: u64 = u64::MAX - 2;

/// A thread of [`Number::Spawn`] in the caller's space.
pub const SPACE_SAME: u64 = 0;
/// In a space of its own, which the kernel pages: the program is there, with a stack.
pub const SPACE_PAGED: u64 = 1;
/// In a space of its own, which is empty: the caller is its pager.
pub const SPACE_EMPTY: u64 = 2;
/// In a space of its own, which is empty and has no pager.
pub const SPACE_WITHOUT_PAGER: u64 = 3;
/// In the space of the thread that this is added to.
pub const SPACE_OF: u64 = 1 << 32;

/// Zeros of the space's own.
pub const SOURCE_ZEROS: u64 = 0;
/// Zeros that children share.
pub const SOURCE_SHARED: u64 = 1;
/// A file, whose pages are the space's own once it has stored there.
pub const SOURCE_FILE: u64 = 2;
/// A file that stores change.
pub const SOURCE_FILE_SHARED: u64 = 3;

/// A message's tag says that a page comes with it: its second word is the sender's flexpage, its third the hot spot.
pub const TAG_MAP: u64 = 1;
/// The page leaves the sender.
pub const TAG_GRANT: u64 = 2;
/// The kernel tells a pager of a fault: words are the address, what was tried (0 fetch, 1 load, 2 store), where.
pub const TAG_FAULT: u64 = 0x100;

/// A code of [`Number::Exit`] that the kernel gives a thread that it has stopped.
pub const STOPPED: u64 = u64::MAX;

/// Loads.
pub const READ: u64 = 1;
/// Stores.
pub const WRITE: u64 = 2;
/// Fetches.
pub const EXECUTE: u64 = 4;

/// Where the program begins.
pub const PROGRAM: u64 = 0x40_0000;
/// Where the first stack ends.
pub const STACK_END: u64 = 0x3000_0000;
/// And its bytes.
pub const STACK_BYTES: u64 = 0x1_0000;

/// An aligned power of two of addresses with rights, as a word: `start | log2(bytes) << 4 | rights`.
#[allow(dead_code)]
pub const fn flexpage(start: u64, shift: u64, rights: u64) -> u64 {
    start | shift << 4 | rights
}
