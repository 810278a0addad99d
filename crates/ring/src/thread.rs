use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::{MARKS_MAX, RING_RECORDS, SPAN_RECORDS};

/// What a chunk is used for, as [`Ring::state`] holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ChunkState {
    /// Nobody's.
    Free = 0,
    /// A process has taken it and fills the header.
    Claimed = 1,
    /// A thread writes its ring.
    Attached = 2,
    /// The thread has ended; what it wrote waits for the host.
    Closed = 3,
    /// A piece of a block log.
    Log = 4,
}

impl ChunkState {
    /// The state of that number.
    pub const fn from_bits(bits: u32) -> Option<ChunkState> {
        match bits {
            0 => Some(ChunkState::Free),
            1 => Some(ChunkState::Claimed),
            2 => Some(ChunkState::Attached),
            3 => Some(ChunkState::Closed),
            4 => Some(ChunkState::Log),
            _ => None,
        }
    }
}

/// The end of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// Records of the ring before it, counted from the thread's first.
    pub position: u64,
    /// Whether the last block before it has run to its end.
    pub whole: bool,
    /// When it ended, in nanoseconds of the system's monotonic clock.
    pub ns: u64,
}

/// Where a thread writes its next record: an address in its process, or [`Next::NOWHERE`].
///
/// It is moved on after what is before it was written, and it is in shared memory. So it tells
/// how far a thread came that was killed, and no record needs to show that it was written.
#[repr(C, align(64))]
pub struct Next {
    address: AtomicU64,
    /// 1 if the thread records nothing: what is written at the address belongs to no ring.
    pub idle: AtomicU32,
}

const _: () = assert!(size_of::<Next>() == 64);

impl Next {
    /// The address of a thread that has no ring yet. It looks like the end of a span.
    pub const NOWHERE: u64 = (SPAN_RECORDS * size_of::<u64>() - 1) as u64;

    /// Position in the thread's ring, whose present span begins at the position `opened` and has `span` records at
    /// most; `None` without a ring.
    pub fn position(&self, opened: u64, span: u32) -> Option<u64> {
        // Chunks are as aligned in a process's memory as in the file.
        let index = match self.address.load(Ordering::Acquire) {
            0..=Next::NOWHERE => return None,
            _ if self.idle.load(Ordering::Acquire) != 0 => return None,
            address => address / size_of::<u64>() as u64 % RING_RECORDS as u64,
        };
        let written = index.wrapping_sub(opened) % RING_RECORDS as u64;
        Some(opened.wrapping_add(written.min(span.into())))
    }
}

/// The header of a thread's ring: positions and marks; the records are in the chunk.
#[repr(C, align(4096))]
pub struct Ring {
    /// A [`ChunkState`].
    pub state: AtomicU32,
    /// The process slot it belongs to.
    pub process: AtomicU32,
    /// That slot's generation.
    pub generation: AtomicU32,
    /// The thread's number in the process, from 0.
    pub thread: AtomicU32,
    /// While the thread looks at the clock and publishes what it saw: a time that is not after it.
    /// Otherwise 0.
    pub stamping: AtomicU64,
    /// Marks published.
    pub marks_head: AtomicU64,
    /// Accesses that the filter dropped.
    pub filtered: AtomicU64,
    /// Position of the span that the thread writes.
    pub opened: AtomicU64,
    /// The virtual CPU that the thread runs on, and so which [`Next`] is its own.
    pub vcpu: AtomicU32,
    /// The most records between two positions that were opened.
    pub span: AtomicU32,
    pad: [u32; 2],
    /// Records that the host is done with.
    pub tail: AtomicU64,
    /// Marks that the host is done with.
    pub marks_tail: AtomicU64,
    /// 1 while the thread waits for space.
    pub writer_sleeps: AtomicU32,
    /// A futex that wakes it.
    pub space: AtomicU32,
    pad2: [u64; 5],
    marks: [[AtomicU64; 2]; MARKS_MAX],
}

impl Ring {
    /// Makes the header a new thread's. Only who has claimed the chunk may call it.
    pub fn reset(&self, process: u32, generation: u32, thread: u32, vcpu: u32) {
        self.process.store(process, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.thread.store(thread, Ordering::Relaxed);
        self.vcpu.store(vcpu, Ordering::Relaxed);
        self.span.store(SPAN_RECORDS as u32, Ordering::Relaxed);
        for word in [
            &self.stamping,
            &self.marks_head,
            &self.filtered,
            &self.opened,
            &self.tail,
            &self.marks_tail,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.writer_sleeps.store(0, Ordering::Relaxed);
    }

    /// Whether there is room for a mark.
    pub fn has_room_for_mark(&self) -> bool {
        let head = self.marks_head.load(Ordering::Relaxed);
        head - self.marks_tail.load(Ordering::Acquire) < MARKS_MAX as u64
    }

    /// Ends a segment at `position`, at the time that `clock` says; false if too many marks wait,
    /// and the segment goes on.
    pub fn publish(&self, position: u64, whole: bool, clock: impl FnOnce() -> u64) -> bool {
        if !self.has_room_for_mark() {
            return false;
        }
        let head = self.marks_head.load(Ordering::Relaxed);
        // A host that looks at the clock between our looking at it and publishing what we saw must
        // not take later marks of other threads first: it looks at `stamping`. Either it sees that,
        // or its own look at the clock came first.
        let slot = |index: u64| &self.marks[index as usize % MARKS_MAX];
        let last = head.checked_sub(1).map_or(1, |last| slot(last)[1].load(Ordering::Relaxed));
        self.stamping.store(last.max(1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slot = slot(head);
        slot[0].store(position << 1 | u64::from(whole), Ordering::Relaxed);
        slot[1].store(clock(), Ordering::Relaxed);
        self.marks_head.store(head + 1, Ordering::Release);
        self.stamping.store(0, Ordering::Release);
        true
    }

    /// The mark of that number, which must be one between `marks_tail` and `marks_head`.
    pub fn mark(&self, index: u64) -> Mark {
        let slot = &self.marks[index as usize % MARKS_MAX];
        let position = slot[0].load(Ordering::Relaxed);
        Mark {
            position: position >> 1,
            whole: position & 1 != 0,
            ns: slot[1].load(Ordering::Relaxed),
        }
    }
}
