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
//! [`place`] runs a program without recording it, and changes the page sizes of its memory.
//!
//! The plugin is in the crate `recorder`, the engine in the crate `engine`, and what they share with this
//! crate is in the crate `ring`.

mod allocations;
mod command;
mod decode;
mod elf;
mod error;
mod facts;
mod inject;
mod launch;
mod library;
mod live;
mod maps;
mod options;
pub mod place;
mod process;
mod qemu;
mod record;
mod session;
mod signals;
mod signs;
mod supervise;
mod tracee;
mod window;

pub use error::Error;
pub use live::Live;
pub use options::{Engine, Options, Outcome, Progress, Recorded};
pub use record::record;
pub use signs::Sign;
