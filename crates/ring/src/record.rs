//! One record: eight bytes.
//!
//! ```text
//!  63                              16 15 14 13 12   9 8          0
//! +----------------------------------+--+--+--+------+------------+
//! |             address              | 0|st|ld| size | instruction|   an access
//! +----------------------------------+--+--+--+------+------------+
//! |              value               | 1|       control           |   anything else
//! +----------------------------------+--+-------------------------+
//! |                        any address                            |   behind a fixed block
//! +---------------------------------------------------------------+
//!
//!  63      56 55      48 47                16 15                  0
//! +----------+----------+--------------------+---------------------+
//! |  count   | 1 + made |  number of a block | 1|      Fixed       |   a fixed block
//! +----------+----------+--------------------+---------------------+
//! ```
//!
//! Behind a fixed block are `count` addresses, those that do not follow from others ([`Derived`]).
//! `1 + made` is 0, but for a block that was left by a fault after it had made so many accesses.
//! What else is left before its end has [`Record::NONE`] for the next address.
//!
//! `size` is the logarithm of the bytes. An access is a load or a store or, for one atomic
//! operation, both.

/// The low half of an access's record: all but its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tag(pub u16);

impl Tag {
    /// Position of the instruction's index; 9 bits, as QEMU's blocks have at most 512.
    pub const INSTRUCTION_MASK: u16 = 0x1ff;
    /// Position of the size's logarithm; 4 bits.
    pub const SIZE_SHIFT: u32 = 9;
    /// Set for what reads.
    pub const LOAD: u16 = 1 << 13;
    /// Set for what writes.
    pub const STORE: u16 = 1 << 14;
    /// Set for what is no access.
    pub const CONTROL: u16 = 1 << 15;

    /// Index of the instruction in its block.
    pub const fn instruction(self) -> u16 {
        self.0 & Tag::INSTRUCTION_MASK
    }

    /// Bytes accessed.
    pub const fn size(self) -> u32 {
        1 << (self.0 >> Tag::SIZE_SHIFT & 0xf)
    }

    /// Whether it reads.
    pub const fn loads(self) -> bool {
        self.0 & Tag::LOAD != 0
    }

    /// Whether it writes.
    pub const fn stores(self) -> bool {
        self.0 & Tag::STORE != 0
    }
}

/// How the address of an access that a fixed block does not record follows from what it does record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Derived {
    /// What it follows from: 0 the block's first instruction, `1 + n` the block's address `n` of
    /// those that are recorded.
    pub from: u16,
    /// How much further on it is.
    pub distance: u64,
}

impl Derived {
    /// [`Derived::words`] of an access that is recorded.
    pub const NOT: [u16; Derived::WORDS] = [u16::MAX; Derived::WORDS];
    /// How many numbers of 16 bits say it in the log.
    pub const WORDS: usize = 5;

    /// So far behind the block's first instruction.
    pub const fn from_pc(distance: u64) -> Derived {
        Derived { from: 0, distance }
    }

    /// So far behind the address `index` of those that are recorded.
    pub const fn new(index: u16, distance: u64) -> Derived {
        Derived { from: 1 + index, distance }
    }

    /// As the log has it.
    pub const fn words(self) -> [u16; Derived::WORDS] {
        let distance = self.distance;
        [
            self.from,
            distance as u16,
            (distance >> 16) as u16,
            (distance >> 32) as u16,
            (distance >> 48) as u16,
        ]
    }

    /// What the log says of an access; `None` if it is recorded.
    pub const fn from_words(words: [u16; Derived::WORDS]) -> Option<Derived> {
        let [from, a, b, c, d] = words;
        let distance = a as u64 | (b as u64) << 16 | (c as u64) << 32 | (d as u64) << 48;
        if from == u16::MAX { None } else { Some(Derived { from, distance }) }
    }
}

/// The fewest accesses with which QEMU itself saves the registers of a signal's frame. So many of one instruction, behind
/// what a block did the last time, are not the program's.
pub const STRAYS_MIN: usize = 24;

/// What a record is that is no access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Control {
    /// The block of that number begins.
    Block = 0,
    /// It begins, and the filter has dropped its fetch.
    Context = 1,
    /// That many instructions ran in blocks that the filter dropped whole.
    Advance = 2,
    /// A block begins whose accesses are those of its descriptor; see [`Record::fixed`].
    Fixed = 3,
    /// That many accesses were made before what follows, and are told by [`Control::Hits`] later.
    Passed = 4,
    /// Accesses to a page that were not told one by one; see [`Record::hits`]. Its address is the next word.
    Hits = 5,
    /// The next word is an address of more than 48 bits; the value is its [`Tag`].
    Wide = 6,
    /// An event; see [`event_header`]. Its words follow.
    Event = 7,
    /// Nothing; that many more records mean nothing either.
    Pad = 8,
    /// The process waits to be told what is in the first TLBs: see [`crate::Contents`].
    Ask = 9,
}

impl Control {
    const fn from_bits(bits: u16) -> Option<Control> {
        Some(match bits {
            0 => Control::Block,
            1 => Control::Context,
            2 => Control::Advance,
            3 => Control::Fixed,
            4 => Control::Passed,
            5 => Control::Hits,
            6 => Control::Wide,
            7 => Control::Event,
            8 => Control::Pad,
            9 => Control::Ask,
            _ => return None,
        })
    }
}

/// What accesses are that are told by [`Control::Hits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HitsOf {
    /// Fetches of blocks.
    Fetch = 0,
    /// Loads.
    Load = 1,
    /// Stores.
    Store = 2,
}

/// A record, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record(pub u64);

impl Record {
    /// Position of the address or value.
    pub const VALUE_SHIFT: u32 = 16;
    /// Position of a fixed block's number of addresses.
    pub const COUNT_SHIFT: u32 = 56;
    /// Position of what a fault says of a fixed block.
    pub const MADE_SHIFT: u32 = 48;
    /// Behind a fixed block: the address of an access that it was left before.
    pub const NONE: u64 = u64::MAX;
    /// The largest address or value.
    pub const VALUE_MAX: u64 = (1 << 48) - 1;

    /// An access; `address` must not exceed [`Record::VALUE_MAX`].
    #[inline]
    pub const fn access(address: u64, tag: u16) -> Record {
        Record(address << Record::VALUE_SHIFT | tag as u64)
    }

    /// Anything else; `value` must not exceed [`Record::VALUE_MAX`].
    #[inline]
    pub const fn control(control: Control, value: u64) -> Record {
        Record(value << Record::VALUE_SHIFT | (Tag::CONTROL | control as u16) as u64)
    }

    /// Block `number`, behind which `count` addresses follow.
    #[inline]
    pub const fn fixed(number: u32, count: u8) -> Record {
        let count = (count as u64) << Record::COUNT_SHIFT;
        Record(count | Record::control(Control::Fixed, number as u64).0)
    }

    /// Number and addresses of a fixed block.
    #[inline]
    pub const fn fixed_parts(self) -> (u32, usize) {
        (self.value() as u32, (self.0 >> Record::COUNT_SHIFT) as usize)
    }

    /// The record of this fixed block when a fault has ended it after `made` accesses.
    pub const fn left_after(self, made: u8) -> Record {
        Record(self.0 | (1 + made as u64) << Record::MADE_SHIFT)
    }

    /// After how many accesses a fault left this fixed block, if one did.
    pub const fn made(self) -> Option<usize> {
        match self.0 >> Record::MADE_SHIFT & 0xff {
            0 => None,
            made => Some(made as usize - 1),
        }
    }

    /// `count` accesses to a page, loads, stores or fetches; the last of them comes after all of those
    /// that were told so before. Or else the page `goes`: it makes room for the next one that comes.
    pub const fn hits(of: HitsOf, count: u64, goes: bool) -> Record {
        Record::control(Control::Hits, count << 3 | (goes as u64) << 2 | of as u64)
    }

    /// What such accesses were, how many, and whether the page goes.
    pub const fn hits_parts(self) -> (Option<HitsOf>, u64, bool) {
        let of = match self.value() & 3 {
            0 => Some(HitsOf::Fetch),
            1 => Some(HitsOf::Load),
            2 => Some(HitsOf::Store),
            _ => None,
        };
        (of, self.value() >> 3, self.value() & 4 != 0)
    }

    /// The low half.
    #[inline]
    pub const fn tag(self) -> Tag {
        Tag(self.0 as u16)
    }

    /// The address or value.
    #[inline]
    pub const fn value(self) -> u64 {
        self.0 >> Record::VALUE_SHIFT
    }

    /// Whether it is no access.
    #[inline]
    pub const fn is_control(self) -> bool {
        self.0 as u16 & Tag::CONTROL != 0
    }

    /// Which one, if it is a known one.
    pub const fn as_control(self) -> Option<Control> {
        if self.is_control() { Control::from_bits(self.0 as u16 & !Tag::CONTROL) } else { None }
    }
}

/// What an event is; its words follow its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum EventCode {
    /// The thread begins: its number at the system.
    ThreadStart = 1,
    /// The thread has ended.
    ThreadEnd = 2,
    /// A mapping of the program: first byte, end, QEMU's page flags.
    Region = 3,
    /// A piece of `/proc/self/maps`: bytes, then the text.
    MapsText = 4,
    /// All regions and maps have been told: the guest base.
    Layout = 5,
    /// A system call: its [`Call`], six arguments, its result; device, inode and bytes of the file
    /// that it is about, or zeros; path bytes, then the path.
    Call = 6,
    /// `execve` begins: text bytes, then path and arguments with a zero after each.
    Execve = 7,
    /// Something that the trace's reader must know: text bytes, then the text.
    Note = 8,
    /// A file or blocking call: the guest's number of it, six arguments, its result, the times at
    /// which it began and ended, the file offset or `u64::MAX`; how many descriptors, and
    /// for each its number, mode and flags (`mode << 32 | flags`), device, inode and bytes; how many
    /// buffers, and for each its address and bytes; the name's bytes, then the name.
    FileCall = 9,
    /// A block was allocated: its address and bytes, and the return addresses of the calls that
    /// led there, innermost first.
    Allocate = 10,
    /// A block is about to be given back: its address.
    Free = 11,
    /// The stack of the thread that has allocated the block that is told next, for a program of AMD64: the
    /// frame pointer of the function that the program has called, and the words from there on.
    Stack = 12,
}

impl EventCode {
    /// The code of that number.
    pub const fn from_bits(bits: u16) -> Option<EventCode> {
        Some(match bits {
            1 => EventCode::ThreadStart,
            2 => EventCode::ThreadEnd,
            3 => EventCode::Region,
            4 => EventCode::MapsText,
            5 => EventCode::Layout,
            6 => EventCode::Call,
            7 => EventCode::Execve,
            8 => EventCode::Note,
            9 => EventCode::FileCall,
            10 => EventCode::Allocate,
            11 => EventCode::Free,
            12 => EventCode::Stack,
            _ => return None,
        })
    }
}

/// The record of an event that `words` words follow.
pub const fn event_header(code: EventCode, words: u16) -> Record {
    Record::control(Control::Event, (words as u64) << 16 | code as u64)
}

/// Code and words of the value of an event's record.
pub const fn event_parts(value: u64) -> (Option<EventCode>, usize) {
    (EventCode::from_bits(value as u16), (value >> 16 & 0xffff) as usize)
}

/// The system calls that change an address space or begin and end threads and processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Call {
    /// `mmap`, with its offset in bytes.
    Mmap = 1,
    /// `munmap`.
    Munmap = 2,
    /// `mprotect`.
    Mprotect = 3,
    /// `mremap`.
    Mremap = 4,
    /// `brk`.
    Brk = 5,
    /// `madvise`.
    Madvise = 6,
    /// `clone`: flags and stack in the first two arguments.
    Clone = 7,
    /// `fork`, `vfork`: `clone`'s flags for it in the first argument.
    Fork = 8,
    /// `execve`, `execveat`: told only when it has failed.
    Execve = 9,
    /// `exit`.
    Exit = 10,
    /// `exit_group`.
    ExitGroup = 11,
    /// `process_madvise`.
    ProcessMadvise = 12,
    /// `mlock`; the third argument is 0.
    Mlock = 13,
    /// `mlock2`.
    Mlock2 = 14,
    /// `munlock`.
    Munlock = 15,
    /// `mlockall`.
    Mlockall = 16,
    /// `munlockall`.
    Munlockall = 17,
    /// `msync`.
    Msync = 18,
    /// `shmat`.
    Shmat = 19,
    /// `shmdt`.
    Shmdt = 20,
    /// `mbind`; the fourth argument is the mask's first word.
    Mbind = 21,
    /// `prctl(PR_SET_THP_DISABLE)`.
    HugePages = 22,
    /// `prctl` with [`PR_PAGEWALK`]: what is said follows in the next arguments.
    Marker = 23,
}

/// The option of `prctl` by which a program says something to its recorder; `pagewalk.h` and
/// `pagewalk.marker` have it too. Linux knows no such option and answers with `EINVAL`.
pub const PR_PAGEWALK: u64 = 0x5057_4c4b;

/// What `prctl` with [`PR_PAGEWALK`] says in its second argument, in the lowest byte; what follows is
/// in the next ones. 1 and 2 are in `pagewalk.h`; `preload/allocations.c` says the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Said {
    /// A block was allocated: its address, its bytes, and the frame of the function that the program
    /// has called for it. Above the lowest byte is how far below the frame pointer the caller's and
    /// the return address are.
    Allocated = 3,
    /// The block at that address is about to be given back.
    Freed = 4,
}

impl Said {
    /// What is said in that argument, if it is one of these.
    pub const fn from_argument(argument: u64) -> Option<Said> {
        Some(match argument as u8 {
            3 => Said::Allocated,
            4 => Said::Freed,
            _ => return None,
        })
    }
}

/// Linux: a `clone` with this flag shares its address space,
pub const CLONE_VM: u64 = 0x100;
/// and with this one it is a `vfork`.
pub const CLONE_VFORK: u64 = 0x4000;

impl Call {
    /// Whether a `clone` with these flags makes a thread: QEMU's `vfork` is a `fork`.
    pub const fn makes_thread(flags: u64) -> bool {
        flags & CLONE_VM != 0 && flags & CLONE_VFORK == 0
    }

    /// The call of that number.
    pub const fn from_bits(bits: u64) -> Option<Call> {
        Some(match bits {
            1 => Call::Mmap,
            2 => Call::Munmap,
            3 => Call::Mprotect,
            4 => Call::Mremap,
            5 => Call::Brk,
            6 => Call::Madvise,
            7 => Call::Clone,
            8 => Call::Fork,
            9 => Call::Execve,
            10 => Call::Exit,
            11 => Call::ExitGroup,
            12 => Call::ProcessMadvise,
            13 => Call::Mlock,
            14 => Call::Mlock2,
            15 => Call::Munlock,
            16 => Call::Mlockall,
            17 => Call::Munlockall,
            18 => Call::Msync,
            19 => Call::Shmat,
            20 => Call::Shmdt,
            21 => Call::Mbind,
            22 => Call::HugePages,
            23 => Call::Marker,
            _ => return None,
        })
    }
}
