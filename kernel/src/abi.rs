//! The interface between kernel and user programs. The file is a module both of the kernel and of
//! user/main.rs.

/// An enumeration of words, which count from 0.
macro_rules! words {
    ($(#[$about:meta])* $name:ident: $($(#[$doc:meta])* $variant:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u64)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them, by their words.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The one with this word, if there is one.
            pub fn of(word: u64) -> Option<$name> {
                $name::ALL.get(usize::try_from(word).ok()?).copied()
            }
        }
    };
}

words! {
    /// The system calls. Arguments and results are words; the first result is [`OK`] or an error.
    Number:
    /// Sends a message to `to` if that is not [`NOBODY`], then receives one from `from`, or from [`ANYBODY`].
    /// (to, from, tag, word, word, word) -> sender, tag, word, word, word.
    Ipc,
    /// Sets where pages that come with messages may be mapped. (flexpage)
    Accept,
    /// Unmaps pages from all spaces to which they were mapped on, with the rights of the flexpage.
    /// (flexpage, own too?)
    Flush,
    /// Creates a thread. (pc, stack, argument, argument, space) -> thread; for spaces see
    /// [`SPACE_SAME`].
    Spawn,
    /// Copies this space, with one thread, which continues where this one is. -> thread, or 0 in the copy.
    Fork,
    /// Ends the calling thread. (code)
    Exit,
    /// Waits for a thread to end. (thread) -> code
    Wait,
    /// Kills a thread. (thread)
    Kill,
    /// Maps a region. (start, bytes, rights, source, file, first page); for sources see
    /// [`SOURCE_ZEROS`].
    Map,
    /// Unmaps regions. (start, bytes)
    Unmap,
    /// Changes the rights of regions. (start, bytes, rights)
    Protect,
    /// Discards the contents of private pages. (start, bytes)
    Discard,
    /// Lets other threads run first.
    Yield,
    /// Prints up to 40 bytes on the serial line. (length, bytes, bytes, bytes, bytes, bytes)
    Print,
    /// Reads a number of the kernel. (which, address) -> number; see [`Fact`].
    Fact,
    /// Restricts the thread to this processor from here on. (processor)
    Processor,
    /// Ends the machine. (0: success)
    Shutdown,
    /// Injects a fault of the kernel, for tests. (which, number); see [`Failure`].
    Fail,
}

words! {
    /// Numbers that the kernel reports.
    Fact:
    /// The number of processors in use.
    Processors,
    /// The number of free frames.
    FreeFrames,
    /// The number of pages in swap.
    Swapped,
    /// The number of pages read from swap so far.
    SwapReads,
    /// The number of shootdowns that interrupted other processors.
    Shootdowns,
    /// The number of faults that copied a page.
    Copies,
    /// The number of all faults that were handled.
    Faults,
    /// The processor that the thread is running on.
    ThisProcessor,
    /// 0 if the kernel's data structures are consistent, `u64::MAX` if they cannot be looked at now: no other
    /// thread may run.
    Check,
    /// The number of spaces.
    Spaces,
    /// Of the 16 pages from the second argument on: a bit for each that is mapped, from bit 16 on for each whose
    /// accessed bit is set, from bit 32 on for each whose dirty bit is set.
    Usage,
    /// The number of faults so far that were resolved in the way whose number is the second argument: minor, write,
    /// cache, zero page, zero, copy, disk, swap.
    FaultsOfKind,
    /// A digest of the caller's tables for 4 GiB from the second argument on (`bytes.rs`), or 0; u64::MAX as for Check.
    Tables,
}

words! {
    /// Faults that a test can inject.
    Failure:
    /// The allocation of a frame that comes after this number of allocations, counted from 1,
    /// fails.
    Frame,
    /// The calling processor stays in the kernel with interrupts disabled, if it is not the last one.
    Processor,
    /// The operation of the kernel that asks for memory of its own after this number of questions, counted from
    /// 1, is refused it.
    Heap,
    /// The entry of the page at this address gets another value in a bit that hardware ignores.
    Entry,
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
