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
//! A fixed block is followed by `count` addresses: those of the accesses that cannot be derived
//! from other addresses ([`Derived`]). `1 + made` is 0, except for a block that a fault has ended
//! after `made` accesses. `E` is set if events follow that happened in the block. In a block that was left early otherwise, the next address is
//! [`Record::NONE`].
//!
//! `size` is the logarithm of the number of bytes. An access is a load, a store, or both for an
//! atomic operation.

/// The low half of the record of an access: all parts of the record except the address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tag(pub u16);

impl Tag {
    /// The mask of the instruction's index; 9 bits, as QEMU's blocks have at most 512 instructions.
    pub const INSTRUCTION_MASK: u16 = 0x1ff;
    /// The position of the logarithm of the size; 4 bits.
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
    /// The source of the derivation: 0 stands for the address of the block's first instruction, and
    /// `1 + n` for the block's recorded address of index `n`.
    pub from: u16,
    /// The difference to the source address, in bytes.
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

    /// The derivation of an address at this distance from the recorded address of that `index`.
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

    /// The derivation in words of the log; `None` if the address is recorded.
    pub const fn from_words(words: [u16; Derived::WORDS]) -> Option<Derived> {
        let [from, a, b, c, d] = words;
        let distance = a as u64 | (b as u64) << 16 | (c as u64) << 32 | (d as u64) << 48;
        if from == u16::MAX { None } else { Some(Derived { from, distance }) }
    }
}

/// The smallest number of accesses that QEMU itself makes when it saves registers to a signal
/// frame. If one instruction makes at least this many accesses after those that the block made at
/// its last run, these accesses are QEMU's and not the program's.
pub const STRAYS_MIN: usize = 24;

/// The kind of a record that is not an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Control {
    /// Begins the block of this number.
    Block = 0,
    /// Begins the block of this number, whose fetch the filter has dropped.
    Context = 1,
    /// This number of instructions ran in blocks whose fetches and accesses the filter has all
    /// dropped.
    Advance = 2,
    /// Begins a block whose accesses are in its descriptor; see [`Record::fixed`].
    Fixed = 3,
    /// This number of accesses was made before the next record. A later [`Control::Hits`] reports
    /// them.
    Passed = 4,
    /// A number of accesses to one page, which were counted instead of recorded; see [`Record::hits`]. The
    /// next word is the address of the page.
    Hits = 5,
    /// The next word is an address of more than 48 bits; the value is its [`Tag`].
    Wide = 6,
    /// An event; see [`event_header`]. The words of the event follow.
    Event = 7,
    /// Padding: the reader skips this record and the next records, whose number is the value.
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
    /// Fetches of blocks.
    Fetch = 0,
    /// Loads.
    Load = 1,
    /// Stores.
    Store = 2,
}

/// A record, with access to its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record(pub u64);

impl Record {
    /// The position of the address or value.
    pub const VALUE_SHIFT: u32 = 16;
    /// The position of a fixed block's number of addresses.
    pub const COUNT_SHIFT: u32 = 56;
    /// The position of the number of accesses that a fixed block made before a fault.
    pub const MADE_SHIFT: u32 = 48;
    /// Set for a fixed block that events follow: above the number of accesses that it made.
    const EVENTS: u64 = 1 << 55;
    /// After a fixed block that was left early: in place of the address of the first access that
    /// was not made.
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

    /// The record of the fixed block `number`, which `count` addresses follow.
    #[inline]
    pub const fn fixed(number: u32, count: u8) -> Record {
        let count = (count as u64) << Record::COUNT_SHIFT;
        Record(count | Record::control(Control::Fixed, number as u64).0)
    }

    /// The number of a fixed block, and the number of its addresses.
    #[inline]
    pub const fn fixed_parts(self) -> (u32, usize) {
        (self.value() as u32, (self.0 >> Record::COUNT_SHIFT) as usize)
    }

    /// The record of this fixed block after a fault has ended it after `made` accesses.
    pub const fn left_after(self, made: u8) -> Record {
        Record(self.0 | (1 + made as u64) << Record::MADE_SHIFT)
    }

    /// The record of this fixed block if events that happened in it follow its addresses.
    pub const fn with_events(self) -> Record {
        Record(self.0 | Record::EVENTS)
    }

    /// Whether events that happened in this fixed block follow its addresses.
    pub const fn has_events(self) -> bool {
        self.0 & Record::EVENTS != 0
    }

    /// The number of accesses after which a fault ended this fixed block, if one did.
    pub const fn made(self) -> Option<usize> {
        match self.0 >> Record::MADE_SHIFT & 0x7f {
            0 => None,
            made => Some(made as usize - 1),
        }
    }

    /// The record of `count` accesses of one kind to a page. The last use of the page is later than
    /// that of all pages reported this way before. If `goes` is true, the page is evicted instead:
    /// the next page that is entered replaces it.
    pub const fn hits(of: HitsOf, count: u64, goes: bool) -> Record {
        Record::control(Control::Hits, count << 3 | (goes as u64) << 2 | of as u64)
    }

    /// The kind and number of these accesses, and whether the page is evicted.
    pub const fn hits_parts(self) -> (Option<HitsOf>, u64, bool) {
        let of = match self.value() & 3 {
            0 => Some(HitsOf::Fetch),
            1 => Some(HitsOf::Load),
            2 => Some(HitsOf::Store),
            _ => None,
        };
        (of, self.value() >> 3, self.value() & 4 != 0)
    }

    /// The low half of an access's record.
    #[inline]
    pub const fn tag(self) -> Tag {
        Tag(self.0 as u16)
    }

    /// The address or value.
    #[inline]
    pub const fn value(self) -> u64 {
        self.0 >> Record::VALUE_SHIFT
    }

    /// The address of an access. A kernel's is the extension of its lowest 48 bits.
    #[inline]
    pub const fn address(self) -> u64 {
        (self.0 as i64 >> Record::VALUE_SHIFT) as u64
    }

    /// Whether it is a control record.
    #[inline]
    pub const fn is_control(self) -> bool {
        self.0 as u16 & Tag::CONTROL != 0
    }

    /// The kind of a control record, if known.
    pub const fn as_control(self) -> Option<Control> {
        if self.is_control() { Control::from_bits(self.0 as u16 & !Tag::CONTROL) } else { None }
    }
}

/// The kind of an event. Words with its data follow its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum EventCode {
    /// The thread begins: its thread identifier.
    ThreadStart = 1,
    /// The thread has ended.
    ThreadEnd = 2,
    /// A mapping of the program: address of the first byte, end, QEMU's page flags.
    Region = 3,
    /// A part of the text of `/proc/self/maps`: number of bytes, then the text.
    MapsText = 4,
    /// All regions and maps have been reported: the guest base.
    Layout = 5,
    /// A system call: its [`Call`], six arguments, its result; device, inode and size in bytes of
    /// its file, or zeros; the length of the path in bytes, then the path.
    Call = 6,
    /// `execve` begins: the length of the text in bytes, then path and arguments, each with a zero
    /// at the end.
    Execve = 7,
    /// A note for the reader of the trace: the length of the text in bytes, then the text.
    Note = 8,
    /// A file or blocking call: the guest's system call number, six arguments, the result, the times
    /// of its beginning and end, the file offset or `u64::MAX`; the number of descriptors, and for
    /// each its number, mode and flags (`mode << 32 | flags`), device, inode and size in bytes; the
    /// number of buffers, and for each its address and size in bytes; the length of the name in
    /// bytes, then the name.
    FileCall = 9,
    /// A block of memory was allocated: its address, its size in bytes, and the return addresses of
    /// the calls that led to the allocation, innermost first.
    Allocate = 10,
    /// A block of memory is about to be freed: its address.
    Free = 11,
    /// The stack of the thread that has allocated the block of the next event, in a program for AMD64: the
    /// frame pointer of the function that the program has called, and the words of the stack from there
    /// on.
    Stack = 12,
    /// In a whole machine: the processor has looked a page up in the page table. The address of the access, the
    /// physical address of the same byte, a [`Machine`], and the physical addresses of the entries, from the root.
    Translation = 13,
    /// The block that runs is left after this number of instructions.
    Left = 14,
    /// A control register is written: its number, its old value, its new value.
    Control = 15,
    /// The translation of the page at this address is flushed.
    Flush = 16,
    /// An interrupt or exception: its vector, what caused it (8 bits each), whether it is in user mode, and from bit
    /// 32 on its error code; the address of the instruction; the address of a page fault.
    Interrupt = 17,
    /// The processor continues with another task: its pid, and from bit 32 on its tgid; 1 if it is not a thread
    /// of the kernel; the physical address of its space's root; its name, 16 bytes.
    Task = 18,
    /// A task gets another name: as for [`EventCode::Task`].
    Named = 19,
    /// The space with the root at this physical address ends.
    SpaceEnd = 20,
    /// The entry of QEMU's own TLB for the previous access: its address, its physical address, the logarithm of
    /// the page's size. Only in a check of the recorder.
    Physical = 21,
    /// The page of memory at this physical address is a part of a page table from here on: the address, and in its
    /// lowest bits the level, 1 for a page whose entries map base pages. Its entries are 0 except those that follow.
    /// With level 0 it is no longer a part of one.
    Table = 22,
    /// Adjacent page-table entries that were found: the physical address of the first, then their values.
    Entries = 23,
    /// A store to a page-table entry: the entry's physical address, and its value after the store.
    Stored = 24,
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
            22 => EventCode::Table,
            23 => EventCode::Entries,
            24 => EventCode::Stored,
            _ => return None,
        })
    }
}

/// The properties of a translation in [`EventCode::Translation`], besides its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The logarithm of the page's bytes.
    pub size_log: u8,
    /// The kind of the access: 0 a load, 1 a store, 2 a fetch.
    pub access: u8,
    /// Whether the access is one of a program.
    pub is_user: bool,
    /// Whether the entries together permit stores.
    pub writable: bool,
    /// Whether they permit fetches.
    pub executable: bool,
    /// Whether they permit accesses of programs.
    pub user: bool,
    /// Whether the translation is that of all spaces.
    pub global: bool,
    /// Whether the page has been stored to.
    pub dirty: bool,
    /// The number of entries.
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

    /// The properties that a word contains.
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

/// The record of an event with `words` words.
pub const fn event_header(code: EventCode, words: u16) -> Record {
    Record::control(Control::Event, (words as u64) << 16 | code as u64)
}

/// The code and the number of words in the value of an event's record.
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
    /// `clone`: flags and stack in the first two arguments.
    Clone = 7,
    /// `fork`, `vfork`: the first argument has the flags that `clone` would have for it.
    Fork = 8,
    /// `execve`, `execveat`: reported only if the call has failed.
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
    /// `prctl` with [`PR_PAGEWALK`]; the message is in the next arguments.
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
    /// A block was allocated: its address, its size in bytes, and the frame of the function that the
    /// program has called for it. The bits above the lowest byte say how far below the frame pointer
    /// the caller's frame pointer and the return address are.
    Allocated = 3,
    /// The block at this address is about to be freed.
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

/// Linux: the flag of `clone` for a child that shares the address space.
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
