//! A machine: hardware and operating system put together from a description, and the run of a
//! trace through it.
//!
//! ```text
//!  machines/*.toml --> Description --> Machine --run(Source)--> Results --> JSON
//!                                        |
//!          +-----------------------------+------------------------------+
//!          |  Source -> TLBs -> page table -> walker -> data caches     |   run, hardware, ram
//!          |               \-> fault -> System: mappings, flushes       |   os/
//!          +------------------------------------------------------------+
//! ```
//!
//! Only this crate knows both halves: `mmu` does not know that there is an operating system,
//! and the operating system does not know that its memory is simulated. Counts come first and
//! are exact; time is a second step over them ([`Results::time`]).
#![forbid(unsafe_code)]

mod count;
pub mod curve;
pub mod description;
mod hardware;
mod kernel_path;
mod machine;
mod managers;
mod os;
mod page_table_bench;
mod ram;
mod report;
pub mod results;
mod run;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod worlds;

pub use self::os::names::Names;
pub use self::ram::table::page_table_formats;
pub use self::results::Results;
pub use description::{
    Description, Error,
    builtin::{BUILTIN, Builtin},
    units,
};
pub use machine::{Machine, RunOptions};
pub use page_table_bench::{PageTableBench, Work};
pub use run::Progress;
