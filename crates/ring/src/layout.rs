//! Where everything lies in the shared file, and how large it is.

use crate::{Block, Next, Process, Ring, Session};

/// Bytes of a chunk: a ring of one thread or a piece of a process's block log.
///
/// Several times what a core's own cache has: lines that the host has read come back faster from
/// the cache that the cores share than from the other core's.
pub const CHUNK_BYTES: usize = 8 << 20;
/// How many chunks there can be: threads that live at one time, and their blocks.
pub const CHUNKS_MAX: usize = 16 << 10;
/// How many processes can be recorded at one time.
pub const PROCESSES_MAX: usize = 1024;
/// Virtual CPUs that a process can have at one time: more threads than Linux lets a user have
/// by default. A power of two, so that an index is kept inside by masking.
pub const VCPUS_MAX: usize = 1 << 15;
/// Bytes of a process's cursors.
pub const NEXT_BYTES: usize = VCPUS_MAX * size_of::<Next>();
/// Records of a ring.
pub const RING_RECORDS: usize = CHUNK_BYTES / 8;
/// Records after which the plugin ends a segment and looks for space.
///
/// A power of two: the plugin sees the end of a span by the low bits of its pointer.
pub const SPAN_RECORDS: usize = 2048;
/// Records that are free in a span when a block begins: its own and its accesses'.
pub const SPAN_ROOM: usize = 128;
/// Segments of one ring that can wait for the host.
pub const MARKS_MAX: usize = 4096;
/// Block descriptors of one chunk.
pub const BLOCKS_PER_CHUNK: usize = CHUNK_BYTES / size_of::<Block>();
/// Tags of one chunk.
pub const TAGS_PER_CHUNK: usize = CHUNK_BYTES / size_of::<u16>();

const RINGS: usize = PROCESSES + PROCESSES_MAX * size_of::<Process>();
const PROCESSES: usize = size_of::<Session>();
const NEXTS: usize = RINGS + CHUNKS_MAX * size_of::<Ring>();
const CHUNKS: usize = (NEXTS + PROCESSES_MAX * NEXT_BYTES).next_multiple_of(CHUNK_BYTES);

/// Length of the file. It is sparse: only what is touched exists.
pub const SESSION_BYTES: usize = CHUNKS + CHUNKS_MAX * CHUNK_BYTES;

/// Byte offset of the slot of process `index`.
pub const fn process_offset(index: usize) -> usize {
    assert!(index < PROCESSES_MAX);
    PROCESSES + index * size_of::<Process>()
}

/// Byte offset of the header of chunk `index`.
pub const fn ring_offset(index: usize) -> usize {
    assert!(index < CHUNKS_MAX);
    RINGS + index * size_of::<Ring>()
}

/// Byte offset of the cursors of process `index`: a [`Next`] for each of its virtual CPUs.
pub const fn next_offset(index: usize) -> usize {
    assert!(index < PROCESSES_MAX);
    NEXTS + index * NEXT_BYTES
}

/// Byte offset of chunk `index`.
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
