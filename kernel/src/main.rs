//! A small kernel on Pagewalk's crates: `physmem` manages its frames, `pagetable` its page tables, `hat` the
//! mappings, and `vm` the contents of spaces. README.md in this folder says how to run and change it.
//!
//! ```text
//!   start                      what the command line asks for
//!   judge  stream              processors beside `pagetable`; the model test of `vm`
//!   call  ipc                  system calls, messages with pages
//!     machine                  threads run, faults are answered
//!       task  disk  flexpage   threads and spaces; the RAM disk; aligned ranges
//!         shootdown  locks     processors that forget; locks that answer meanwhile
//!           direct  heap  console  options  memory  trap  abi  bytes
//!             arch             x86_64, riscv64
//! ```
#![no_std]
#![no_main]

extern crate alloc;

mod abi;
mod arch;
#[allow(dead_code)]
mod bytes;
mod call;
mod console;
mod direct;
mod disk;
mod flexpage;
mod heap;
mod ipc;
mod judge;
mod locks;
mod machine;
mod memory;
mod options;
mod shootdown;
mod start;
mod task;
mod trap;

// The model test of `vm`, as it is: its modules stand at the root of a crate.
#[cfg(feature = "stream")]
#[allow(dead_code)]
#[path = "../../crates/vm/tests/vm/board.rs"]
mod board;
#[cfg(feature = "stream")]
#[allow(dead_code)]
#[path = "../../crates/vm/tests/vm/model.rs"]
mod model;
#[cfg(feature = "stream")]
mod stream;
#[cfg(feature = "stream")]
#[allow(dead_code)]
#[path = "../../crates/vm/tests/vm/tables.rs"]
mod tables;
#[cfg(feature = "stream")]
#[allow(dead_code)]
#[path = "../../crates/vm/tests/vm/world.rs"]
mod world;

use core::panic::PanicInfo;

/// The most processors.
pub const PROCESSORS_MAX: usize = 4;

/// The first Rust function of the first processor.
pub fn begin(boot: &arch::Boot) -> ! {
    start::first(boot)
}

/// The first Rust function of each other processor.
pub fn begin_other(number: usize) -> ! {
    start::other(number)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    console::last_line(format_args!("the kernel has a defect: {info}"));
    arch::exit(false)
}
