use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::{MARKS_MAX, RING_RECORDS, SPAN_RECORDS};

/// What a chunk is used for, in [`Ring::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ChunkState {
    /// Not in use.
    Free = 0,
    /// A process has claimed the chunk and is initialising its header.
    Claimed = 1,
    /// The ring of a running thread.
    Attached = 2,
    /// The ring of a thread that has ended. The host has not read all of its records yet.
    Closed = 3,
    /// A part of a log of blocks or of a log of tags.
    Log = 4,
}

impl ChunkState {
    /// The state with this number.
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
    /// The number of records of the thread before this mark, counted from the thread's first
    /// record.
    pub position: u64,
    /// Whether the last block before this mark has run to its end.
    pub whole: bool,
    /// The time when the segment ended, in nanoseconds of the system's monotonic clock.
    pub ns: u64,
}

/// The cursor of a thread: where it writes its next record, as an address in its process, or
/// [`Next::NOWHERE`].
///
/// The cursor is advanced after a record was written, and it is in shared memory. So if a thread is
/// killed, its cursor shows which records are complete. The records themselves need not show this.
#[repr(C, align(64))]
pub struct Next {
    address: AtomicU64,
    /// 1 if the thread records nothing. The address is then in memory that belongs to no ring.
    pub idle: AtomicU32,
}

const _: () = assert!(size_of::<Next>() == 64);

impl Next {
    /// The value of [`Ring::vcpu`] for a thread without a virtual CPU, whose cursor is
    /// [`Ring::next`].
    pub const OWN: u32 = u32::MAX;
    /// The address of a thread that has no ring yet. It looks like the end of a span.
    pub const NOWHERE: u64 = (SPAN_RECORDS * size_of::<u64>() - 1) as u64;

    /// Resets the cursor to that of a thread that has no ring yet.
    fn reset(&self) {
        self.address.store(Next::NOWHERE, Ordering::Relaxed);
        self.idle.store(0, Ordering::Release);
    }

    /// The position in the thread's ring up to which records are complete. `None` if the thread has
    /// no ring. The current span begins at the position `opened` and has at most `span` records.
    pub fn position(&self, opened: u64, span: u32) -> Option<u64> {
        // Chunks have the same alignment in a process's memory as in the file.
        let index = match self.address.load(Ordering::Acquire) {
            0..=Next::NOWHERE => return None,
            _ if self.idle.load(Ordering::Acquire) != 0 => return None,
            address => address / size_of::<u64>() as u64 % RING_RECORDS as u64,
        };
        let written = index.wrapping_sub(opened) % RING_RECORDS as u64;
        Some(opened.wrapping_add(written.min(span.into())))
    }
}

/// The header of a thread's ring, with positions and marks. The records are in the chunk.
#[repr(C, align(4096))]
pub struct Ring {
    /// The state as a [`ChunkState`].
    pub state: AtomicU32,
    /// The index of the process slot to which the thread belongs.
    pub process: AtomicU32,
    /// The generation of the process slot.
    pub generation: AtomicU32,
    /// The thread's number in the process, from 0.
    pub thread: AtomicU32,
    /// While the thread reads the clock and publishes a mark, this is a time that is not later than
    /// the time of the mark. Otherwise it is 0.
    pub stamping: AtomicU64,
    /// The number of marks published.
    pub marks_head: AtomicU64,
    /// The number of accesses that the filter dropped.
    pub filtered: AtomicU64,
    /// The position in the ring of the span to which the thread is writing.
    pub opened: AtomicU64,
    /// The virtual CPU of the thread, which selects the thread's [`Next`]. [`Next::OWN`] selects
    /// the field `next`.
    pub vcpu: AtomicU32,
    /// The maximum number of records from the beginning of a span to the beginning of the next one.
    pub span: AtomicU32,
    pad: [u32; 2],
    /// The number of records that the host has finished reading.
    pub tail: AtomicU64,
    /// The number of marks that the host has finished reading.
    pub marks_tail: AtomicU64,
    /// 1 while the thread waits for space.
    pub writer_sleeps: AtomicU32,
    /// A futex that wakes the waiting thread.
    pub space: AtomicU32,
    pad2: [u64; 5],
    /// The cursor of a thread that has no virtual CPU.
    pub next: Next,
    marks: [[AtomicU64; 2]; MARKS_MAX],
}

impl Ring {
    /// Initialises the header for a new thread. Only the process that has claimed the chunk may
    /// call it.
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
        self.next.reset();
    }

    /// Whether the ring has room for another mark.
    pub fn has_room_for_mark(&self) -> bool {
        let head = self.marks_head.load(Ordering::Relaxed);
        head - self.marks_tail.load(Ordering::Acquire) < MARKS_MAX as u64
    }

    /// Ends a segment at `position`, at the time that `clock` returns. Returns false if too many
    /// marks wait for the host. In this case the segment continues.
    pub fn publish(&self, position: u64, whole: bool, clock: impl FnOnce() -> u64) -> bool {
        if !self.has_room_for_mark() {
            return false;
        }
        let head = self.marks_head.load(Ordering::Relaxed);
        // The host may read the clock after this thread has read it, and before this thread
        // publishes its mark. The host must not then process later marks of other threads first. So
        // the host also reads `stamping`: either it sees that this is not 0, or the host has read
        // the clock before this thread.
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

    /// The mark number `index`, which must be at least `marks_tail` and less than `marks_head`.
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
