//! The shared memory between a recorded program and its recorder.
//!
//! The plugin inside QEMU writes, the host process that started QEMU reads. Nothing is sent
//! and nothing is locked: all of it is one sparse file that both have mapped, so that nothing
//! is lost when the program is killed, forks, or closes its descriptors.
//!
//! ```text
//!   0              HEADER_BYTES
//!   +---------+---------------+----------------+----------+---------------------------------+
//!   | Session | Process slots | Ring headers   | Cursors  | Chunks, 8 MiB each              |
//!   +---------+---------------+----------------+----------+---------------------------------+
//!                 |                |                |           |
//!                 one per process  one per chunk:   |           a ring: what one thread did,
//!                 that lives       marks,           |           or block descriptors, or tags
//!                                  positions        where each thread of a process writes next
//! ```
//!
//! A process that forks takes another [`Process`] slot in the same mapping; one that executes
//! another program maps the file again by its path. A thread takes a chunk for its ring; a
//! process takes chunks for the blocks that it translates, and for the tags of fixed ones. The
//! host gives chunks back.
//!
//! # Order of threads and processes
//!
//! A thread ends a *segment* of its ring every [`SPAN_RECORDS`] records and at each system
//! call: it looks at the system's monotonic clock and publishes the pair of position and time, a
//! [`Mark`]. The host orders segments by these times, so a thread that sleeps holds up nobody.
//! What a thread did before it woke another, wrote into a pipe or created a process comes first,
//! since its segment ended before that call began and the other's next segment ends after the call
//! that waited for it. What threads and processes tell each other by memory alone, without a
//! system call, is in order to within a segment only.
#![no_std]

mod claim;
mod contents;
mod layout;
mod process;
mod record;
mod session;
mod thread;

pub use claim::{Entrant, Slot};
pub use contents::{Contents, Place, Replaces, SURE_PAGES_MAX};
pub use layout::{
    BLOCKS_PER_CHUNK, CHUNK_BYTES, CHUNKS_MAX, MARKS_MAX, NEXT_BYTES, PROCESSES_MAX, RING_RECORDS,
    SESSION_BYTES, SPAN_RECORDS, SPAN_ROOM, TAGS_PER_CHUNK, VCPUS_MAX, chunk_offset, next_offset,
    process_offset, ring_offset,
};
pub use process::{Block, LOG_CHUNKS_MAX, Origin, Process, ProcessState, TAG_CHUNKS_MAX};
pub use record::{
    CLONE_VFORK, CLONE_VM, Call, Control, Derived, EventCode, HitsOf, PR_PAGEWALK, Record,
    STRAYS_MIN, Said, Tag, event_header, event_parts,
};
pub use session::{MAGIC, PATH_BYTES_MAX, REFUSED_BYTES_MAX, Session, Start, VERSION};
pub use thread::{ChunkState, Mark, Next, Ring};
