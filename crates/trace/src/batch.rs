//! A batch: consecutive accesses as a struct of arrays.
//!
//! ```text
//!   addr   | a0 | a1 | a2 | a3 | a4 | a5 |      one u64 an access
//!   meta   | m0 | m1 | m2 | m3 | m4 | m5 |      one u32: kind, size, instructions
//!   paddr  | p0 | p1 | p2 | p3 | p4 | p5 |      one u64, or the array is empty
//!   segments  [0: thread 1]   [3: thread 2]     who made the accesses from there on
//!   events        [2: mmap]         [6: exit]   what happened before the access at that index
//!   stamps             [3: 170 ns]  [6: 300 ns] by when those before that index were made
//! ```
//!
//! An event at the index `len()` comes after the last access of the batch.

use std::fmt;

use addr::Kind;

use crate::Event;

/// The properties of an access other than its address, in 32 bits.
///
/// ```text
///  31               16 15            2 1  0
/// +-------------------+---------------+----+
/// |   instructions    |  size, bytes  |kind|
/// +-------------------+---------------+----+
/// ```
///
/// `instructions` is the number of instructions that began after those counted by the previous row,
/// up to and including the instruction of this row. For example, the fetch of a block counts 1, and
/// a load by the block's third instruction counts 2. More than 65535 instructions are an
/// [`Event::Gap`] before the row. The sum over a trace is the trace's length in instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Meta(u32);

impl Meta {
    /// The largest size of one access, in bytes.
    pub const SIZE_MAX: u32 = (1 << 14) - 1;
    /// The largest number of instructions that one row counts.
    pub const INSTRUCTIONS_MAX: u32 = (1 << 16) - 1;

    /// A row for an access of `kind` and `size` bytes, `instructions` instructions after the
    /// previous row.
    ///
    /// Sizes and counts above their maximum are reduced to the maximum.
    #[inline]
    pub const fn new(kind: Kind, size: u32, instructions: u32) -> Meta {
        let size = if size > Meta::SIZE_MAX { Meta::SIZE_MAX } else { size };
        let instructions = if instructions > Meta::INSTRUCTIONS_MAX {
            Meta::INSTRUCTIONS_MAX
        } else {
            instructions
        };
        Meta(kind as u32 | size << 2 | instructions << 16)
    }

    /// The row with these bits, or `None` if they do not encode a kind.
    pub const fn from_bits(bits: u32) -> Option<Meta> {
        if bits & 3 == 3 { None } else { Some(Meta(bits)) }
    }

    /// The bits in the layout above.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Fetch, load or store.
    #[inline]
    pub const fn kind(self) -> Kind {
        // A table is fastest; a simulator does this for every access.
        const KINDS: [Kind; 4] = [Kind::Fetch, Kind::Load, Kind::Store, Kind::Store];
        KINDS[(self.0 & 3) as usize]
    }

    /// `self.kind() as usize`, computed without a branch.
    #[inline]
    pub const fn kind_index(self) -> usize {
        (self.0 & 3) as usize
    }

    /// The size of the access in bytes.
    #[inline]
    pub const fn size(self) -> u32 {
        self.0 >> 2 & Meta::SIZE_MAX
    }

    /// The number of instructions since the row before.
    #[inline]
    pub const fn instructions(self) -> u32 {
        self.0 >> 16
    }

    /// This row with `more` added to its number of instructions. The sum must fit into 16 bits.
    #[inline]
    pub(crate) const fn plus_instructions(self, more: u32) -> Meta {
        Meta(self.0.wrapping_add(more << 16))
    }
}

impl fmt::Debug for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}B +{}", self.kind().name(), self.size(), self.instructions())
    }
}

/// The start of a range of accesses that were made by `thread`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The index, in the batch, of the first of these accesses.
    pub start: u32,
    /// The thread's number in the trace; the first thread is 0.
    pub thread: u32,
}

/// An event, and its position: before the access at index `at` of the batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The index of the access that the event precedes; `len()` for an event at the end of the
    /// batch.
    pub at: u32,
    /// The thread that caused the event.
    pub thread: u32,
    /// The event itself.
    pub event: Event,
}

/// Which pages are guaranteed to hit in the first-level TLBs of a machine.
///
/// With LRU, these are the most recently used pages of each set, as many as the set has ways. With
/// other policies, the pages are computed from the contents of the TLBs at some time
/// ([`Contents`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurePages {
    /// The number of pages in the TLB for code and in the TLB for data, over all sets.
    pub pages: [u32; 2],
    /// The number of sets of each TLB. A page belongs to the set whose number is the page number
    /// modulo this number.
    pub sets: [u32; 2],
    /// The replacement policy.
    pub replaces: [Replaces; 2],
    /// Whether code and data share one TLB; then the first element of each array describes it.
    pub together: bool,
}

/// Which page of a full set of a TLB is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replaces {
    /// The page that was used longest ago.
    Lru,
    /// The page that was inserted longest ago.
    Fifo,
    /// The page in a way that is chosen at random.
    Random,
}

/// The contents of a TLB, from which later replacements can be computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// The entries, set after set. With [`Replaces::Random`], the entries of a set are in the order
    /// of ways from which the policy selects; with other policies they are in the order of
    /// insertion, with empty entries last.
    pub places: Vec<Place>,
    /// The state of the splitmix64 sequence that selects random ways; 0 for other policies.
    pub sequence: u64,
}

/// The content of one entry of a TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The entry is empty.
    Empty,
    /// A page of another space.
    Other,
    /// The page that begins at this address.
    Page(u64),
}

/// Accesses that a recorder reports as counts instead of single rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// This number of accesses was made before the rows and events that follow. A later
    /// [`Counted::Hits`] says which accesses these were.
    Passed(u64),
    /// `count` accesses of `kind` to the 4K page at `page` hit in the first-level TLB. The last of
    /// these accesses came after all accesses to the pages that were reported before this page.
    Hits {
        /// The kind of the accesses.
        kind: Kind,
        /// The address of the page.
        page: u64,
        /// The number of accesses; 0 if only the order is reported.
        count: u64,
        /// Whether the page is the next one to be replaced in the TLB, instead of the most recently
        /// used one.
        goes: bool,
    },
    /// The recorder waits for the contents of the first-level TLBs after everything before has run.
    Asked,
}

/// [`Counted::Hits`] and their position: before the access with the index `at`, and before events
/// at this position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hits {
    /// The index of an access in the batch; `len()` for the end of the batch.
    pub at: u32,
    /// The thread that made the accesses.
    pub thread: u32,
    /// The kind of the accesses.
    pub kind: Kind,
    /// The address of the page.
    pub page: u64,
    /// The number of accesses.
    pub count: u64,
    /// Whether the page is the next one to be replaced in the TLB.
    pub goes: bool,
}

/// A time stamp: all accesses of the process before index `at` had been made by the time `ns`.
///
/// Stamps determine the order of accesses and events of several processes. They do not give
/// durations: a recorded program runs many times slower than alone, by a factor that varies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// An index in the batch; `len()` for the end of the batch.
    pub at: u32,
    /// The time in nanoseconds of the recording's clock.
    pub ns: u64,
}

/// The basic block that an access belongs to, as far as the batch shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// The block at `address`; within it, instruction number `instruction`, counted from 0.
    At {
        /// The address of the block.
        address: u64,
        /// The number of instructions in the block before the instruction that makes the access.
        instruction: u32,
    },
    /// The block that the thread of the access was executing when the batch began. The access is
    /// made `instructions` instructions later than the beginning of the batch.
    Before {
        /// The number of instructions.
        instructions: u32,
    },
    /// Unknown: no fetch was found nearby.
    Unknown,
}

impl Block {
    /// How many rows back [`Batch::block_of`] searches for a fetch. A block has up to 512 instructions in
    /// QEMU, each of which makes only a few accesses, except `rep` instructions.
    const ROWS_MAX: usize = 1 << 13;

    /// The position `instructions` instructions later in the same block.
    fn later(self, instructions: u32) -> Block {
        match self {
            Block::At { address, instruction } => {
                Block::At { address, instruction: instruction.saturating_add(instructions) }
            }
            Block::Before { instructions: before } => {
                Block::Before { instructions: before.saturating_add(instructions) }
            }
            Block::Unknown => Block::Unknown,
        }
    }
}

/// Consecutive accesses of a trace, and the events among them.
///
/// For a batch from a [`crate::Source`] these properties hold: `addr` and `meta` have equal
/// lengths; `paddr` has the same length or is empty; segments, events and stamps are in ascending
/// order of position; and if there is an access, the first segment starts at 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Virtual addresses.
    pub addr: Vec<u64>,
    /// Kinds, sizes and numbers of instructions.
    pub meta: Vec<Meta>,
    /// Physical addresses if the trace has them, otherwise empty.
    pub paddr: Vec<u64>,
    /// The threads that made the accesses.
    pub segments: Vec<Segment>,
    /// The events among the accesses.
    pub events: Vec<Placed>,
    /// The time stamps, in a trace of one process of a recording; otherwise empty.
    pub stamps: Vec<Stamp>,
    /// Accesses that are only counted and have no rows, because they are guaranteed hits. Only
    /// batches of a running program have such accesses.
    pub hits: Vec<Hits>,
    /// Pairs of an index and a number: before the access with this index, and after the previous
    /// element of this list, this number of accesses was only counted.
    pub passed: Vec<(u32, u64)>,
    /// Whether the recorder waits for the contents of the first-level TLBs after this batch has run
    /// ([`crate::Source::answer`]).
    pub asks: bool,
    /// The switches of a processor to another program. Each element has the index of the access
    /// before which the switch happened, and its cause ([`crate::switches::Switches`]). Not stored
    /// in files.
    pub switches: Vec<(u32, &'static str)>,
    /// The index, in the trace, of the first access.
    pub first: u64,
}

impl Batch {
    /// The number of accesses.
    #[inline]
    pub fn len(&self) -> usize {
        self.addr.len()
    }

    /// Whether there is no access; there may still be events.
    pub fn is_empty(&self) -> bool {
        self.addr.is_empty()
    }

    /// The number of instructions, including those that no access counts.
    pub(crate) fn instructions(&self) -> u64 {
        let others = self.events.iter().map(|placed| placed.event.uncounted_instructions());
        let counted = self.meta.iter().map(|meta| u64::from(meta.instructions()));
        counted.sum::<u64>() + others.sum::<u64>()
    }

    /// Removes the contents and keeps the memory.
    pub fn clear(&mut self) {
        self.addr.clear();
        self.meta.clear();
        self.paddr.clear();
        self.segments.clear();
        self.events.clear();
        self.stamps.clear();
        self.hits.clear();
        self.passed.clear();
        self.asks = false;
        self.switches.clear();
        self.first = 0;
    }

    /// Appends an access of `thread`, with a new segment if the thread has changed.
    #[inline]
    pub fn push(&mut self, thread: u32, addr: u64, meta: Meta) {
        if self.segments.last().is_none_or(|segment| segment.thread != thread) {
            self.segments.push(Segment { start: self.addr.len() as u32, thread });
        }
        self.addr.push(addr);
        self.meta.push(meta);
    }

    /// The thread that made the access at `index`.
    pub fn thread_of(&self, index: usize) -> u32 {
        let started = |segment: &Segment| segment.start as usize <= index;
        let segment = self.segments.partition_point(started).checked_sub(1);
        segment.map_or(0, |segment| self.segments[segment].thread)
    }

    /// The block to which the access at `index` belongs: the last block that the thread of the
    /// access fetched.
    ///
    /// This is the block that made the access only if the trace has all fetches. The result is
    /// [`Block::Unknown`] if there are too many accesses of the thread between the fetch and the
    /// access.
    pub fn block_of(&self, index: usize) -> Block {
        self.block_within(index, None, Block::ROWS_MAX)
    }

    /// The block to which the access at `index` belongs, however many accesses ago its thread
    /// fetched the block. `known` has the index and the block of an earlier access of this thread;
    /// rows before that access are not searched.
    pub fn block_after(&self, index: usize, known: Option<(usize, Block)>) -> Block {
        self.block_within(index, known, usize::MAX)
    }

    fn block_within(&self, index: usize, known: Option<(usize, Block)>, rows_max: usize) -> Block {
        let started = |segment: &Segment| segment.start as usize <= index;
        let segments = &self.segments[..self.segments.partition_point(started)];
        let thread = segments.last().map_or(0, |segment| segment.thread);
        let (mut end, mut instructions, mut rows) = (index + 1, 0, 0);
        for segment in segments.iter().rev() {
            let own = segment.start as usize..end;
            end = segment.start as usize;
            if segment.thread != thread {
                continue;
            }
            for row in own.rev() {
                if let Some((_, block)) = known.filter(|&(at, _)| at == row) {
                    return block.later(instructions);
                }
                let meta = self.meta[row];
                if meta.kind() == Kind::Fetch {
                    return Block::At { address: self.addr[row], instruction: instructions };
                }
                instructions += meta.instructions();
                rows += 1;
                if rows == rows_max {
                    return Block::Unknown;
                }
            }
        }
        Block::Before { instructions }
    }

    /// Keeps only the accesses from index `from` up to but not including `to`; events are
    /// unchanged.
    pub(crate) fn keep(&mut self, from: u32, to: u32) {
        for column in [&mut self.addr, &mut self.paddr] {
            column.truncate(to as usize);
            column.drain(..column.len().min(from as usize));
        }
        self.meta.truncate(to as usize);
        self.meta.drain(..from as usize);
        // The last segment that begins at or before `from` becomes the first segment.
        let before = self.segments.iter().filter(|segment| segment.start <= from).count();
        self.segments.drain(..before.saturating_sub(1));
        self.segments.retain(|segment| segment.start < to);
        self.segments
            .iter_mut()
            .for_each(|segment| segment.start = segment.start.saturating_sub(from));
        if from == to {
            self.segments.clear();
        }
        self.stamps.retain(|stamp| stamp.at > from && stamp.at <= to);
        self.stamps.iter_mut().for_each(|stamp| stamp.at -= from);
        self.first += u64::from(from);
    }

    /// Appends an event after all accesses so far.
    pub fn push_event(&mut self, thread: u32, event: Event) {
        self.events.push(Placed { at: self.addr.len() as u32, thread, event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_of_the_block_that_its_thread_fetched_last() {
        let mut batch = Batch::default();
        let row = |kind, instructions| Meta::new(kind, 4, instructions);
        batch.push(1, 7, row(Kind::Load, 2));
        batch.push(0, 0x1000, row(Kind::Fetch, 9));
        batch.push(0, 1, row(Kind::Load, 0));
        batch.push(0, 2, row(Kind::Store, 3));
        batch.push(1, 0x2000, row(Kind::Fetch, 1));
        batch.push(1, 3, row(Kind::Load, 1));
        batch.push(0, 4, row(Kind::Load, 2));
        let expected = [
            (1, Block::Before { instructions: 2 }),
            (0, Block::At { address: 0x1000, instruction: 0 }),
            (0, Block::At { address: 0x1000, instruction: 0 }),
            (0, Block::At { address: 0x1000, instruction: 3 }),
            (1, Block::At { address: 0x2000, instruction: 0 }),
            (1, Block::At { address: 0x2000, instruction: 1 }),
            (0, Block::At { address: 0x1000, instruction: 5 }),
        ];
        for (index, (thread, block)) in expected.into_iter().enumerate() {
            assert_eq!((batch.thread_of(index), batch.block_of(index)), (thread, block), "{index}");
        }
        for index in 0..expected.len() {
            for before in (0..=index).filter(|&at| batch.thread_of(at) == batch.thread_of(index)) {
                let known = (before, batch.block_of(before));
                assert_eq!(batch.block_after(index, Some(known)), batch.block_of(index));
            }
        }
        // A fetch that is far away is found only by `block_after`.
        let mut far = Batch::default();
        far.push(0, 0x1000, row(Kind::Fetch, 1));
        (0..20_000).for_each(|_| far.push(0, 1, row(Kind::Load, 1)));
        assert_eq!(far.block_of(20_000), Block::Unknown);
        let found = Block::At { address: 0x1000, instruction: 20_000 };
        assert_eq!(far.block_after(20_000, None), found);
        assert_eq!(far.block_after(20_000, Some((9, far.block_of(9)))), found);
    }
}
