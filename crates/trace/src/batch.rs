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
//! An event at index `len()` comes after the last access of the batch.

use std::fmt;

use addr::Kind;

use crate::Event;

/// What an access is, besides its address, in 32 bits.
///
/// ```text
///  31               16 15            2 1  0
/// +-------------------+---------------+----+
/// |   instructions    |  size, bytes  |kind|
/// +-------------------+---------------+----+
/// ```
///
/// `instructions` counts the instructions that began since the row before, this row's own
/// among them: a fetch of a block counts 1, its third instruction's load 2 more. Gaps of more
/// than 65535 are an [`Event::Gap`] before the row. The sum over a trace is its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Meta(u32);

impl Meta {
    /// The largest size of one access, in bytes.
    pub const SIZE_MAX: u32 = (1 << 14) - 1;
    /// The largest count of instructions that one row carries.
    pub const INSTRUCTIONS_MAX: u32 = (1 << 16) - 1;

    /// A row of `kind` and `size` bytes after `instructions` instructions.
    ///
    /// Sizes and counts above the maximum are cut to it.
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

    /// The row's bits as stored, or `None` if they name no kind.
    pub const fn from_bits(bits: u32) -> Option<Meta> {
        if bits & 3 == 3 { None } else { Some(Meta(bits)) }
    }

    /// The bits as drawn above.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Fetch, load or store.
    #[inline]
    pub const fn kind(self) -> Kind {
        // A table, since a simulator does this for every access.
        const KINDS: [Kind; 4] = [Kind::Fetch, Kind::Load, Kind::Store, Kind::Store];
        KINDS[(self.0 & 3) as usize]
    }

    /// `self.kind() as usize`.
    #[inline]
    pub const fn kind_index(self) -> usize {
        (self.0 & 3) as usize
    }

    /// Bytes accessed.
    #[inline]
    pub const fn size(self) -> u32 {
        self.0 >> 2 & Meta::SIZE_MAX
    }

    /// Instructions since the row before.
    #[inline]
    pub const fn instructions(self) -> u32 {
        self.0 >> 16
    }

    /// This row with `more` added to its count of instructions. The caller knows that the sum fits into the
    /// count's 16 bits.
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

/// From `start` on, the accesses are `thread`'s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Index of the first access in the batch.
    pub start: u32,
    /// The thread's number in the trace: 0 is the first.
    pub thread: u32,
}

/// An event and its place: before the access at index `at` of the batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Index of the access that it precedes; `len()` at the end of the batch.
    pub at: u32,
    /// The thread that caused it.
    pub thread: u32,
    /// What happened.
    pub event: Event,
}

/// Which pages are sure to be in the first TLBs of a machine.
///
/// Under LRU these are, of each set, those that were used last, as many as it has room for. Otherwise they follow from
/// what the TLBs held at some time ([`Contents`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurePages {
    /// How many of code, and how many of data; of all sets.
    pub pages: [u32; 2],
    /// How many sets there are. The number of a page, divided by that, leaves the number of its set.
    pub sets: [u32; 2],
    /// Which page of a full set makes room.
    pub replaces: [Replaces; 2],
    /// Whether both are in one TLB, which the first of each says all about.
    pub together: bool,
}

/// Which page of a full set of a TLB makes room for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replaces {
    /// The one that was used longest ago.
    Lru,
    /// The one that came in longest ago.
    Fifo,
    /// One at a place that is drawn.
    Random,
}

/// What a TLB holds, for who follows from there on which page makes room.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// Its places, those of each set behind those of the one before: in the order from which [`Replaces::Random`]
    /// draws, or else as pages came in, with empty ones behind.
    pub places: Vec<Place>,
    /// Where the splitmix64 sequence is by which places are drawn; 0 if none is.
    pub sequence: u64,
}

/// What is at one place of a TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nothing.
    Empty,
    /// What serves another space.
    Other,
    /// The page that begins there.
    Page(u64),
}

/// Accesses that a batch counts instead of holding them, as a recorder tells them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// So many were made before what follows, and are told by [`Counted::Hits`] later.
    Passed(u64),
    /// So many accesses of `kind` to the 4K page at `page` hit the first TLB. The last of them came
    /// after those of pages that were told so before.
    Hits {
        /// What they were.
        kind: Kind,
        /// Where the page begins.
        page: u64,
        /// How many; 0 where the order alone is told.
        count: u64,
        /// Whether the page makes room for the next that comes into that TLB, instead of being the youngest.
        goes: bool,
    },
    /// The recorder waits to be told what the first TLBs hold, when all before has run.
    Asked,
}

/// [`Counted::Hits`] and their place: after the accesses before index `at`, and before an event there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hits {
    /// Index of an access in the batch; `len()` at its end.
    pub at: u32,
    /// The thread that made them.
    pub thread: u32,
    /// What they were.
    pub kind: Kind,
    /// Where the page begins.
    pub page: u64,
    /// How many.
    pub count: u64,
    /// Whether the page makes room for the next that comes into that TLB.
    pub goes: bool,
}

/// All accesses of the process before index `at` were made by the time `ns`.
///
/// Stamps give an order to what several processes did, never durations: a recorded program runs
/// many times slower than by itself, and not everywhere by the same factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// An index in the batch; `len()` at its end.
    pub at: u32,
    /// Nanoseconds of the recording's clock.
    pub ns: u64,
}

/// Of which block an access is, as far as a batch tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// Of the block at `address`, and there of the instruction of that number, from 0.
    At {
        /// Where the block begins.
        address: u64,
        /// Instructions of it before the access's own.
        instruction: u32,
    },
    /// Of the block that its thread was in when the batch began, so many instructions later.
    Before {
        /// How many.
        instructions: u32,
    },
    /// There is no fetch near it.
    Unknown,
}

impl Block {
    /// As far as [`Batch::block_of`] looks for a fetch: a block has 512 instructions in QEMU, none of which makes more
    /// than a few accesses, unless it is a `rep` instruction.
    const ROWS_MAX: usize = 1 << 13;

    /// The block that so many instructions later is the same.
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

/// Consecutive accesses of a trace and the events among them.
///
/// Holding one from a [`crate::Source`] proves: `addr` and `meta` have one length, `paddr` has
/// it too or is empty, segments, events and stamps ascend, and the first segment starts at 0 if there
/// is any access.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Virtual addresses.
    pub addr: Vec<u64>,
    /// Kinds, sizes and instruction counts.
    pub meta: Vec<Meta>,
    /// Physical addresses where the trace knows them; empty otherwise.
    pub paddr: Vec<u64>,
    /// Whose accesses they are.
    pub segments: Vec<Segment>,
    /// What happened among them.
    pub events: Vec<Placed>,
    /// When they were made, in a trace of one process of a recording; empty in others.
    pub stamps: Vec<Stamp>,
    /// Accesses that are not held, since they hit: in a run beside the program alone.
    pub hits: Vec<Hits>,
    /// How many of these were made before the access of that index, and after the one before in this list.
    pub passed: Vec<(u32, u64)>,
    /// Whether the recorder waits to be told what the first TLBs hold when all of this has run
    /// ([`crate::Source::answer`]).
    pub asks: bool,
    /// Where a processor went from one program to another, before the access of that index, and
    /// why ([`crate::switches::Switches`]). It is not stored.
    pub switches: Vec<(u32, &'static str)>,
    /// Index in the trace of the first access.
    pub first: u64,
}

impl Batch {
    /// Accesses in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.addr.len()
    }

    /// Whether it holds no access; it may still hold events.
    pub fn is_empty(&self) -> bool {
        self.addr.is_empty()
    }

    /// Instructions that its accesses count, and those that no access does.
    pub(crate) fn instructions(&self) -> u64 {
        let others = self.events.iter().map(|placed| placed.event.uncounted_instructions());
        let counted = self.meta.iter().map(|meta| u64::from(meta.instructions()));
        counted.sum::<u64>() + others.sum::<u64>()
    }

    /// Forgets the contents and keeps the memory.
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

    /// Appends an access of `thread`, opening a segment if the thread changed.
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

    /// The block that the access at `index` is of: the last that its thread fetched.
    ///
    /// Only in a trace with all of its fetches is that the block which made the access. It is [`Block::Unknown`] if more
    /// accesses of the thread lie between.
    pub fn block_of(&self, index: usize) -> Block {
        self.block_within(index, None, Block::ROWS_MAX)
    }

    /// The block that the access at `index` is of, however far back its thread fetched it. Where the block of an access
    /// before it of the same thread is `known`, by its index, nothing before that is looked at.
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

    /// Keeps only the accesses from index `from` to before `to`; leaves the events alone.
    pub(crate) fn keep(&mut self, from: u32, to: u32) {
        for column in [&mut self.addr, &mut self.paddr] {
            column.truncate(to as usize);
            column.drain(..column.len().min(from as usize));
        }
        self.meta.truncate(to as usize);
        self.meta.drain(..from as usize);
        // The last segment that begins at or before `from` is the first one kept.
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

    /// Appends an event that comes after all accesses so far.
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
        // Far from any fetch it is found if that is asked for.
        let mut far = Batch::default();
        far.push(0, 0x1000, row(Kind::Fetch, 1));
        (0..20_000).for_each(|_| far.push(0, 1, row(Kind::Load, 1)));
        assert_eq!(far.block_of(20_000), Block::Unknown);
        let found = Block::At { address: 0x1000, instruction: 20_000 };
        assert_eq!(far.block_after(20_000, None), found);
        assert_eq!(far.block_after(20_000, Some((9, far.block_of(9)))), found);
    }
}
