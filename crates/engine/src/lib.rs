//! The engine: a binary translator that runs an x86-64 program in its own process and records what it does to memory.
//!
//! ```text
//!   pagewalk (crate `capture`)           the program's process
//!   +------------------------+  ptrace  +-------------------------------------------+
//!   | executes the program,  |--------->| engine: begin -> dispatch <--+            |
//!   | puts the engine in,    |          |    translate |     exits     |            |
//!   | lets it go             |          |              v               |            |
//!   |                        |  rings   |    translated code ----------+            |
//!   | reads the rings        |<---------|      the program's instructions, and      |
//!   +------------------------+          |      stores of block numbers and addresses|
//!                                       +-------------------------------------------+
//! ```
//!
//! The program keeps its own layout, stack and files: the kernel has made them, and the engine's memory is where no
//! program has any. Its code is never executed where it is. It is copied block by block ([`translate`]), with stores
//! into the ring of the crate `ring` in front of each instruction that accesses memory. Blocks jump to each other;
//! the engine is entered for branches whose target is new, system calls, repeated instructions and signals.
//!
//! The engine uses no vector register and no thread-local memory, so that those of the program stay where they are.
//! It is built for the target `x86_64-unknown-none` with the feature `blob`.
#![no_std]
#![cfg(target_arch = "x86_64")]

extern crate alloc;

mod assist;
mod emit;
mod follows;
mod heap;
mod insn;
mod record;
mod repeat;
mod run;
mod signal;
mod state;
mod sys;
mod tell;
mod translate;
mod vectors;
mod ways;

pub use heap::Heap;
pub use run::begin;

/// Ends the process after a line that says where the engine has failed.
pub fn fail(what: &str, line: u32) -> ! {
    let mut digits = [0; 18];
    sys::say(&[
        "pagewalk: the engine failed in ",
        what,
        ":",
        sys::hex(line.into(), &mut digits),
        "\n",
    ]);
    sys::exit(125)
}
