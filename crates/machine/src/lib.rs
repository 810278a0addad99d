//! A machine: hardware and operating system combined as described, and the run of a trace through
//! it.
//!
//! ```text
//!  machines/*.toml --> Description --> Machine --run(Source)--> Results --> JSON
//!                                        |
//!          +-----------------------------+------------------------------+
//!          |  Source -> TLBs -> page table -> walker -> data caches     |   run, hardware, ram
//!          |               \-> fault -> System: mappings, flushes       |   os, managers
//!          +------------------------------------------------------------+
//! ```
//!
//! Only this crate depends on both the hardware and the operating systems. `mmu` does not depend on
//! an operating system, and an operating system does not know that its memory is simulated. Counts
//! come first and are exact; time is computed from them in a second step ([`Results::time`]).
#![forbid(unsafe_code)]

mod kernel_path;
mod machine;
mod page_table_bench;
pub mod sweep;
pub mod worlds;

pub use ::{description, results, run::curve};

pub use ::run::{Progress, RunOptions};
pub use description::{
    Description, Error,
    builtin::{BUILTIN, Builtin},
    units,
};
pub use machine::Machine;
pub use managers::{WrittenRule, written_rules};
pub use os::names::Names;
pub use page_table_bench::{PageTableBench, Work};
pub use ram::table::page_table_formats;
pub use results::Results;
