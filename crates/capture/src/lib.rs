//! Starts a program in QEMU, or with the engine in it, and turns the recorder's data into a trace.
//!
//! ```text
//!   command --> find program, QEMU, plugin --> session (shared memory) --> start
//!
//!   rings --> Process: segments of all threads in order --> Decoder --> Window --> Sink
//!     |          one per process                             blocks     skip, max    |
//!     +-- Supervisor: who comes, who has ended                                       |
//!                                     record(): a Writer            <----------------+
//!                                     Live: a Batcher for the first
//! ```
//!
//! [`record_system`] records a whole machine in the same way: its virtual CPUs are the threads of one process.
//!
//! [`place`] runs a program without recording it, and changes the page sizes of its memory.
//!
//! The plugin is in the crate `recorder`, the engine in the crate `engine`, and what they share with this
//! crate is in the crate `ring`.

mod allocations;
mod attach;
mod command;
mod decode;
mod elf;
mod error;
mod executed;
mod facts;
mod filter;
mod inject;
mod launch;
mod library;
mod live;
mod machine;
mod maps;
mod options;
mod pagemap;
mod pages;
pub mod place;
mod process;
mod qemu;
mod record;
mod session;
mod signals;
mod signs;
mod snapshot;
mod supervise;
mod system;
mod tracee;
mod window;

pub use attach::{Attachment, attach, operate};
pub use error::Error;
pub use live::Live;
pub use options::{Engine, Options, Outcome, Progress, Recorded};
pub use record::record;
pub use signs::Sign;
pub use system::{System, record_system};
