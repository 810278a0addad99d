//! The shared memory between a recorded program and its recorder.
//!
//! The plugin inside QEMU writes, and the host process that started QEMU reads. There are no
//! messages and no locks: all data are in one sparse file that both processes have mapped. So no
//! data are lost when the program forks, closes its descriptors or is killed.
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
//! A process that forks claims another [`Process`] slot in the same mapping. A process that
//! executes another program maps the file again by its path. A thread claims a chunk for its ring.
//! A process claims chunks for the blocks that it translates, and for the tags of fixed blocks. The
//! host frees chunks.
//!
//! # Order of threads and processes
//!
//! A thread ends a *segment* of its ring after every [`SPAN_RECORDS`] records and at each system
//! call: it reads the system's monotonic clock and publishes the position and the time as a
//! [`Mark`]. The host orders segments by these times, so a thread that sleeps does not delay other
//! threads. Suppose that one thread wakes another, writes into a pipe or creates a process. Its
//! accesses before this system call are then ordered before the next accesses of the other thread
//! or process: its segment ended before the call began, and the next segment of the other one ends
//! after the call for which it waited. If threads or processes communicate through memory only,
//! without a system call, the order of their accesses is known only as precisely as segments are
//! long.
#![no_std]

mod allocations;
mod claim;
mod contents;
mod files;
mod layout;
mod own;
mod process;
mod record;
mod session;
mod thread;
mod within;

pub use claim::{Entrant, Slot};
pub use contents::{Contents, Place, Replaces, SURE_PAGES_MAX};
pub use files::{Caller, FileCall, FileWords, Told};
pub use layout::{
    BLOCKS_PER_CHUNK, CHUNK_BYTES, CHUNKS_MAX, MARKS_MAX, NEXT_BYTES, PROCESSES_MAX, RING_RECORDS,
    SESSION_BYTES, SPAN_RECORDS, SPAN_ROOM, TAGS_PER_CHUNK, VCPUS_MAX, chunk_offset, next_offset,
    process_offset, ring_offset,
};
pub use own::{OWN_RANGES_MAX, Own, own_add, own_holds};
pub use process::{
    Block, LAST_PAGES_TAKEN, LAST_PAGES_WANTED, LOG_CHUNKS_MAX, Origin, PLACES_MAX, Process,
    ProcessState, TAG_CHUNKS_MAX, Tracing,
};
pub use record::{
    CLONE_VFORK, CLONE_VM, Call, Control, Derived, EventCode, HitsOf, Machine, PR_PAGEWALK, Record,
    STRAYS_MIN, Said, Tag, event_header, event_parts,
};
pub use session::{
    Attach, AttachThread, AttachTold, BeginsWith, ENGINE_AT, MAGIC, Outside, PARKS, PATH_BYTES_MAX,
    REFUSED_BYTES_MAX, Session, Start, VERSION,
};
pub use thread::{ChunkState, Mark, Next, Ring};
pub use within::{Numbers, Within};
