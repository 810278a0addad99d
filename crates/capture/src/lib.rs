//! Starts a program under QEMU, or with the engine in it, and turns what the recorder sends into a trace.
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
//! [`place`] runs a program without recording it, and gives its memory other page sizes.
//!
//! The plugin is the crate `recorder`, the engine the crate `engine`; what both sides share is the crate `ring`.

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
