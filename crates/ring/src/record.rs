//! Records: eight bytes each.
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
//! |  count   |E 1 + made|  number of a block | 1|      Fixed       |   a fixed block
//! +----------+----------+--------------------+---------------------+
//! ```
//!
//! A fixed block is followed by `count` addresses. They are the addresses of those accesses whose
//! address cannot be derived from other data ([`Derived`]). `1 + made` is the number of accesses
//! plus one if a fault has ended the block after `made` accesses, and 0 otherwise. `E` is set if
//! events that happened in the block follow it. If a block was left early for another reason,
//! [`Record::NONE`] stands in place of the address of the first access that was not made.
//!
//! `size` is the logarithm of the number of bytes. An access is a load, a store, or both for an
//! atomic operation.

/// The lowest 16 bits of the record of an access: all parts of the record except the address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tag(pub u16);

impl Tag {
    /// The mask of the instruction's index. It has 9 bits, since a block in QEMU has at most 512
    /// instructions.
    pub const INSTRUCTION_MASK: u16 = 0x1ff;
    /// The position of the logarithm of the size, which has 4 bits.
    pub const SIZE_SHIFT: u32 = 9;
    /// Set if the access reads.
    pub const LOAD: u16 = 1 << 13;
    /// Set if the access writes.
    pub const STORE: u16 = 1 << 14;
    /// Set in records that are not accesses.
    pub const CONTROL: u16 = 1 << 15;

    /// The index of the instruction in its block.
    pub const fn instruction(self) -> u16 {
        self.0 & Tag::INSTRUCTION_MASK
    }

    /// The number of bytes accessed.
    pub const fn size(self) -> u32 {
        1 << (self.0 >> Tag::SIZE_SHIFT & 0xf)
    }

    /// Whether the access reads.
    pub const fn loads(self) -> bool {
        self.0 & Tag::LOAD != 0
    }

    /// Whether the access writes.
    pub const fn stores(self) -> bool {
        self.0 & Tag::STORE != 0
    }
}

/// How the address of an access that a fixed block does not record is derived from recorded data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Derived {
    /// The address from which the access's address is derived. 0 stands for the address of the
    /// block's first instruction, and `1 + n` stands for the block's recorded address with index
    /// `n`.
    pub from: u16,
    /// The difference in bytes between the derived address and that address.
    pub distance: u64,
}

impl Derived {
    /// The [`Derived::words`] of an access whose address is recorded.
    pub const NOT: [u16; Derived::WORDS] = [u16::MAX; Derived::WORDS];
    /// The number of 16-bit words of a derivation in the log.
    pub const WORDS: usize = 5;

    /// The derivation of an address at this distance from the block's first instruction.
    pub const fn from_pc(distance: u64) -> Derived {
        Derived { from: 0, distance }
    }

    /// The derivation of an address at this distance from the recorded address with this `index`.
    pub const fn new(index: u16, distance: u64) -> Derived {
        Derived { from: 1 + index, distance }
    }

    /// The derivation as words of the log.
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

    /// The derivation that these words of the log represent. `None` if they say that the address is
    /// recorded.
    pub const fn from_words(words: [u16; Derived::WORDS]) -> Option<Derived> {
        let [from, a, b, c, d] = words;
        let distance = a as u64 | (b as u64) << 16 | (c as u64) << 32 | (d as u64) << 48;
        if from == u16::MAX { None } else { Some(Derived { from, distance }) }
    }
}

/// The smallest number of accesses that QEMU itself makes when it saves registers to a signal
/// frame. If an instruction makes at least this number of accesses more than at the block's last
/// execution, these additional accesses are made by QEMU and not by the program.
pub const STRAYS_MIN: usize = 24;

/// The kind of a record that is not an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Control {
    /// A block begins. The value is its number.
    Block = 0,
    /// A block begins whose fetch the filter has dropped. The value is the block's number.
    Context = 1,
    /// Blocks have run whose fetches and accesses the filter has all dropped. The value is the
    /// number of their instructions.
    Advance = 2,
    /// A fixed block begins, whose descriptor lists its accesses: see [`Record::fixed`].
    Fixed = 3,
    /// Accesses were made before the next record, and a later [`Control::Hits`] reports them. The
    /// value is the number of these accesses.
    Passed = 4,
    /// Accesses to one page were counted instead of recorded: see [`Record::hits`]. The next word
    /// is the address of the page.
    Hits = 5,
    /// An access whose address has more than 48 bits. The value is its [`Tag`], and the next word
    /// is its address.
    Wide = 6,
    /// An event; see [`event_header`]. The words of the event follow.
    Event = 7,
    /// Padding. The value is the number of records after this one that the reader skips too.
    Pad = 8,
    /// The process requests the contents of the first-level TLBs and waits: see
    /// [`crate::Contents`].
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

/// The kind of the accesses that [`Control::Hits`] counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HitsOf {
    /// The fetch of a block.
    Fetch = 0,
    /// A load.
    Load = 1,
    /// A store.
    Store = 2,
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record(pub u64);

impl Record {
    /// The position of the address or value.
    pub const VALUE_SHIFT: u32 = 16;
    /// The position of a fixed block's number of addresses.
    pub const COUNT_SHIFT: u32 = 56;
    /// The position of the number of accesses that a fixed block made before a fault.
    pub const MADE_SHIFT: u32 = 48;
    /// Set for a fixed block if events that happened in it follow. This is the bit above the number
    /// of accesses that it made.
    const EVENTS: u64 = 1 << 55;
    /// If a fixed block was left early, this value stands in place of the address of the first
    /// access that was not made.
    pub const NONE: u64 = u64::MAX;
    /// The largest address or value.
    pub const VALUE_MAX: u64 = (1 << 48) - 1;

    /// The record of an access; `address` must not exceed [`Record::VALUE_MAX`].
    #[inline]
    pub const fn access(address: u64, tag: u16) -> Record {
        Record(address << Record::VALUE_SHIFT | tag as u64)
    }

    /// A control record; `value` must not exceed [`Record::VALUE_MAX`].
    #[inline]
    pub const fn control(control: Control, value: u64) -> Record {
        Record(value << Record::VALUE_SHIFT | (Tag::CONTROL | control as u16) as u64)
    }

    /// The record of the fixed block `number`. `count` addresses follow it.
    #[inline]
    pub const fn fixed(number: u32, count: u8) -> Record {
        let count = (count as u64) << Record::COUNT_SHIFT;
        Record(count | Record::control(Control::Fixed, number as u64).0)
    }

    /// For a fixed block: its number, and how many addresses follow it.
    #[inline]
    pub const fn fixed_parts(self) -> (u32, usize) {
        (self.value() as u32, (self.0 >> Record::COUNT_SHIFT) as usize)
    }

    /// This record of a fixed block, changed for the case that a fault has ended the block after
    /// `made` accesses.
    pub const fn left_after(self, made: u8) -> Record {
        Record(self.0 | (1 + made as u64) << Record::MADE_SHIFT)
    }

    /// This record of a fixed block, changed for the case that events that happened in the block
    /// follow its addresses.
    pub const fn with_events(self) -> Record {
        Record(self.0 | Record::EVENTS)
    }

    /// Whether events that happened in this fixed block follow its addresses.
    pub const fn has_events(self) -> bool {
        self.0 & Record::EVENTS != 0
    }

    /// If a fault ended this fixed block: the number of accesses that the block made before the
    /// fault.
    pub const fn made(self) -> Option<usize> {
        match self.0 >> Record::MADE_SHIFT & 0x7f {
            0 => None,
            made => Some(made as usize - 1),
        }
    }

    /// The record of `count` accesses of one kind to a page. With `goes` false, the page was last
    /// used later than all pages that such records have named before. With `goes` true, the page is
    /// evicted: the next page that gets an entry replaces it.
    pub const fn hits(of: HitsOf, count: u64, goes: bool) -> Record {
        Record::control(Control::Hits, count << 3 | (goes as u64) << 2 | of as u64)
    }

    /// For a record of [`Record::hits`]: the kind of the accesses, their number, and whether the
    /// page is evicted.
    pub const fn hits_parts(self) -> (Option<HitsOf>, u64, bool) {
        let of = match self.value() & 3 {
            0 => Some(HitsOf::Fetch),
            1 => Some(HitsOf::Load),
            2 => Some(HitsOf::Store),
            _ => None,
        };
        (of, self.value() >> 3, self.value() & 4 != 0)
    }

    /// The tag of an access: the lowest 16 bits of its record.
    #[inline]
    pub const fn tag(self) -> Tag {
        Tag(self.0 as u16)
    }

    /// The part of the record that is an address or a value.
    #[inline]
    pub const fn value(self) -> u64 {
        self.0 >> Record::VALUE_SHIFT
    }

    /// The address of an access. The record has its lowest 48 bits; a kernel's address is the sign
    /// extension of these.
    #[inline]
    pub const fn address(self) -> u64 {
        (self.0 as i64 >> Record::VALUE_SHIFT) as u64
    }

    /// Whether the record is a control record.
    #[inline]
    pub const fn is_control(self) -> bool {
        self.0 as u16 & Tag::CONTROL != 0
    }

    /// The kind of a control record. `None` if the kind is unknown, or if this is not a control
    /// record.
    pub const fn as_control(self) -> Option<Control> {
        if self.is_control() { Control::from_bits(self.0 as u16 & !Tag::CONTROL) } else { None }
    }
}

/// The kind of an event. Words with the event's data follow its record; the variants say which
/// words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum EventCode {
    /// The thread begins. One word: its thread identifier.
    ThreadStart = 1,
    /// The thread has ended. No words.
    ThreadEnd = 2,
    /// A mapping of the program. The words are the address of its first byte, its end, and QEMU's
    /// page flags.
    Region = 3,
    /// A part of the text of `/proc/self/maps`. The words are the number of bytes, and then the
    /// text.
    MapsText = 4,
    /// All regions and the text of `/proc/self/maps` have been recorded. One word: the number that
    /// QEMU adds to a guest address.
    Layout = 5,
    /// A system call. The words are its [`Call`], six arguments and its result; the device, inode
    /// and size in bytes of its file, or zeros; and the length of the path in bytes, then the path.
    Call = 6,
    /// `execve` begins. The words are the length of the text in bytes, then the path and the
    /// arguments, each with a zero byte at the end.
    Execve = 7,
    /// A note for people who use the trace. The words are the length of the text in bytes, then the
    /// text.
    Note = 8,
    /// A file call or a blocking call. The words are: the guest's system call number, six arguments
    /// and the result; the times of its beginning and its end; the file offset, or `u64::MAX`; the
    /// number of descriptors, and for each its number, mode and flags (`mode << 32 | flags`),
    /// device, inode and size in bytes; the number of buffers, and for each its address and size in
    /// bytes; and the length of the call's name in bytes, then the name.
    FileCall = 9,
    /// A block of memory was allocated. The words are its address, its size in bytes, and the
    /// return addresses of the calls that led to the allocation, innermost first.
    Allocate = 10,
    /// A block of memory is about to be freed. One word: its address.
    Free = 11,
    /// A part of the stack of a thread that has allocated a block, in a program for AMD64. The
    /// event of the allocation comes next. The words are the frame pointer of the function that the
    /// program has called to allocate, and the words of the stack from this address on.
    Stack = 12,
    /// In a whole machine: the processor has looked up a page in the page table. The words are the
    /// address of the access, the physical address of the same byte, a [`Machine`], and the
    /// physical addresses of the page-table entries, from the root on.
    Translation = 13,
    /// In a whole machine: the current block is left early. One word: the number of its
    /// instructions that were executed.
    Left = 14,
    /// A control register is written. The words are its number, its old value and its new value.
    Control = 15,
    /// The translation of one page is flushed. One word: an address in this page.
    Flush = 16,
    /// An interrupt or exception. The first word has its vector in bits 0 to 7, its cause in bits 8
    /// to 15, whether it came in user mode in bit 16, and its error code from bit 32 on. The other
    /// words are the address of the instruction, and, for a page fault, the faulting address.
    Interrupt = 17,
    /// The processor switches to another task. The words are: the task's pid, and from bit 32 on
    /// its tgid; 1 if it is not a kernel thread; the physical address of the root of its page
    /// table; and 16 bytes with its name.
    Task = 18,
    /// A task gets another name. The words are those of [`EventCode::Task`].
    Named = 19,
    /// An address space ends. One word: the physical address of the root of its page table.
    SpaceEnd = 20,
    /// How QEMU's own TLB translates the previous access. The words are its address, its physical
    /// address, and the logarithm of the page size. Recorded only when the recorder is being
    /// checked.
    Physical = 21,
    /// What the thread has left out since its last record: the numbers of accesses and of instructions.
    LeftOut = 22,
    /// The sign that begins the windows has come in this thread.
    Begins = 23,
    /// The process waits for [`crate::Process::places`], as its mappings have changed.
    Places = 24,
    /// The page of memory at this physical address is a part of a page table from here on: the address, and in its
    /// lowest bits the level, 1 for a page whose entries map base pages. Its entries are 0 except those that follow.
    /// With level 0 it is no longer a part of one.
    Table = 25,
    /// Adjacent page-table entries that were found: the physical address of the first, then their values.
    Entries = 26,
    /// A store to a page-table entry: the entry's physical address, and its value after the store.
    Stored = 27,
}

impl EventCode {
    /// The code with this number.
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
            13 => EventCode::Translation,
            14 => EventCode::Left,
            15 => EventCode::Control,
            16 => EventCode::Flush,
            17 => EventCode::Interrupt,
            18 => EventCode::Task,
            19 => EventCode::Named,
            20 => EventCode::SpaceEnd,
            21 => EventCode::Physical,
            22 => EventCode::LeftOut,
            23 => EventCode::Begins,
            24 => EventCode::Places,
            25 => EventCode::Table,
            26 => EventCode::Entries,
            27 => EventCode::Stored,
            _ => return None,
        })
    }
}

/// The properties of a translation in [`EventCode::Translation`], without its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The base-2 logarithm of the page size in bytes.
    pub size_log: u8,
    /// The kind of the access: 0 is a load, 1 is a store, 2 is a fetch.
    pub access: u8,
    /// Whether the access was made in user mode.
    pub is_user: bool,
    /// Whether all page-table entries together permit stores.
    pub writable: bool,
    /// Whether all page-table entries together permit fetches.
    pub executable: bool,
    /// Whether all page-table entries together permit accesses in user mode.
    pub user: bool,
    /// Whether the translation is global: valid in all address spaces.
    pub global: bool,
    /// Whether the page is dirty, that is, whether a store to it has been made.
    pub dirty: bool,
    /// The number of page-table entries.
    pub entries: u8,
}

impl Machine {
    /// The properties as one word.
    pub const fn bits(self) -> u64 {
        self.size_log as u64
            | (self.access as u64) << 8
            | (self.entries as u64) << 16
            | (self.is_user as u64) << 24
            | (self.writable as u64) << 25
            | (self.executable as u64) << 26
            | (self.user as u64) << 27
            | (self.global as u64) << 28
            | (self.dirty as u64) << 29
    }

    /// The properties that a word represents.
    pub const fn from_bits(bits: u64) -> Machine {
        Machine {
            size_log: bits as u8,
            access: (bits >> 8) as u8,
            entries: (bits >> 16) as u8,
            is_user: bits >> 24 & 1 != 0,
            writable: bits >> 25 & 1 != 0,
            executable: bits >> 26 & 1 != 0,
            user: bits >> 27 & 1 != 0,
            global: bits >> 28 & 1 != 0,
            dirty: bits >> 29 & 1 != 0,
        }
    }
}

/// The record of an event that `words` words follow.
pub const fn event_header(code: EventCode, words: u16) -> Record {
    Record::control(Control::Event, (words as u64) << 16 | code as u64)
}

/// For the value of an event's record: the event's code, and the number of words that follow.
pub const fn event_parts(value: u64) -> (Option<EventCode>, usize) {
    (EventCode::from_bits(value as u16), (value >> 16 & 0xffff) as usize)
}

/// The system calls that change an address space, or begin or end threads and processes.
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
    /// `clone`. The first two arguments are the flags and the stack.
    Clone = 7,
    /// `fork` or `vfork`. The first argument is the flags of a `clone` that does the same.
    Fork = 8,
    /// `execve` or `execveat`. Recorded only if the call has failed.
    Execve = 9,
    /// `exit`.
    Exit = 10,
    /// `exit_group`.
    ExitGroup = 11,
    /// `process_madvise`.
    ProcessMadvise = 12,
    /// `mlock`. The third argument is 0.
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
    /// `mbind`. The fourth argument is the first word of the mask of nodes.
    Mbind = 21,
    /// `prctl(PR_SET_THP_DISABLE)`.
    HugePages = 22,
    /// `prctl` with [`PR_PAGEWALK`]. The message is in the other arguments.
    Marker = 23,
}

/// The option of `prctl` by which a program sends a message to its recorder; `pagewalk.h` and
/// `pagewalk.marker` contain this number too. Linux has no such option and returns `EINVAL`.
pub const PR_PAGEWALK: u64 = 0x5057_4c4b;

/// The message of a `prctl` with [`PR_PAGEWALK`], in the lowest byte of its second argument; further
/// data is in the next arguments. Messages 1 and 2 are in `pagewalk.h`; `preload/allocations.c` sends
/// the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Said {
    /// A block was allocated. The next arguments are its address, its size in bytes, and the frame
    /// pointer of the function that the program has called to allocate it. The bits above the
    /// lowest byte of the message say how many bytes below this frame pointer the caller's frame
    /// pointer and the return address are stored.
    Allocated = 3,
    /// A block is about to be freed. The next argument is its address.
    Freed = 4,
}

impl Said {
    /// The message in this argument, if the argument is a known message.
    pub const fn from_argument(argument: u64) -> Option<Said> {
        Some(match argument as u8 {
            3 => Said::Allocated,
            4 => Said::Freed,
            _ => return None,
        })
    }
}

/// Linux: the flag of `clone` for a child that shares its parent's address space.
pub const CLONE_VM: u64 = 0x100;
/// Linux: the flag of `clone` for a `vfork`.
pub const CLONE_VFORK: u64 = 0x4000;

impl Call {
    /// Whether a `clone` with these flags creates a thread. A `vfork` creates no thread in QEMU,
    /// which implements it as a `fork`.
    pub const fn makes_thread(flags: u64) -> bool {
        flags & CLONE_VM != 0 && flags & CLONE_VFORK == 0
    }

    /// The system call with this number.
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
