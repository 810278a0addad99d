//! The layout of the shared file, and the sizes of its parts.

use crate::{Block, Next, Process, Ring, Session};

/// The size of a chunk in bytes. A chunk is the ring of one thread, or a part of one of a process's
/// logs.
///
/// A chunk is several times as large as a core's private cache. So when a thread writes to it
/// again, the lines that the host has read are in the shared cache, from which they are fetched
/// faster than from the private cache of the host's core.
pub const CHUNK_BYTES: usize = 8 << 20;
/// The number of chunks. It is the limit on the threads that exist at one time and the chunks of
/// the logs together.
pub const CHUNKS_MAX: usize = 16 << 10;
/// The largest number of processes that can be recorded at one time.
pub const PROCESSES_MAX: usize = 1024;
/// The largest number of virtual CPUs of a process at one time. It is larger than the number of
/// threads that Linux allows a user by default. It is a power of two, so that masking keeps an
/// index in range.
pub const VCPUS_MAX: usize = 1 << 15;
/// The size in bytes of the table of cursors of a process.
pub const NEXT_BYTES: usize = VCPUS_MAX * size_of::<Next>();
/// The number of records in a ring.
pub const RING_RECORDS: usize = CHUNK_BYTES / 8;
/// The number of records after which the plugin ends a segment and checks that the ring has free
/// space.
///
/// It is a power of two, because the plugin detects the end of a span by the low bits of its
/// pointer.
pub const SPAN_RECORDS: usize = 2048;
/// When a block begins, its span has room for at least this number of records: for the block and
/// its accesses.
pub const SPAN_ROOM: usize = 128;
/// The largest number of segments of one ring that may wait for the host.
pub const MARKS_MAX: usize = 4096;
/// The number of block descriptors in a chunk.
pub const BLOCKS_PER_CHUNK: usize = CHUNK_BYTES / size_of::<Block>();
/// The number of tags in a chunk.
pub const TAGS_PER_CHUNK: usize = CHUNK_BYTES / size_of::<u16>();

const RINGS: usize = PROCESSES + PROCESSES_MAX * size_of::<Process>();
const PROCESSES: usize = size_of::<Session>();
const NEXTS: usize = RINGS + CHUNKS_MAX * size_of::<Ring>();
const CHUNKS: usize = (NEXTS + PROCESSES_MAX * NEXT_BYTES).next_multiple_of(CHUNK_BYTES);

/// The length of the shared file in bytes. The file is sparse: only pages that were accessed take
/// memory.
pub const SESSION_BYTES: usize = CHUNKS + CHUNKS_MAX * CHUNK_BYTES;

/// The byte offset of the slot of process `index`.
pub const fn process_offset(index: usize) -> usize {
    assert!(index < PROCESSES_MAX);
    PROCESSES + index * size_of::<Process>()
}

/// The byte offset of the header of chunk `index`.
pub const fn ring_offset(index: usize) -> usize {
    assert!(index < CHUNKS_MAX);
    RINGS + index * size_of::<Ring>()
}

/// The byte offset of the cursors of process `index`: a [`Next`] for each of its virtual CPUs.
pub const fn next_offset(index: usize) -> usize {
    assert!(index < PROCESSES_MAX);
    NEXTS + index * NEXT_BYTES
}

/// The byte offset of chunk `index`.
pub const fn chunk_offset(index: usize) -> usize {
    assert!(index < CHUNKS_MAX);
    CHUNKS + index * CHUNK_BYTES
}

const _: () = {
    assert!(SPAN_RECORDS.is_power_of_two());
    assert!(RING_RECORDS.is_multiple_of(SPAN_RECORDS));
    assert!(size_of::<Session>().is_multiple_of(4096));
    assert!(size_of::<Process>().is_multiple_of(4096));
    assert!(size_of::<Ring>().is_multiple_of(4096));
    assert!(NEXTS.is_multiple_of(4096) && NEXT_BYTES.is_multiple_of(4096));
};
