//! The engine: a binary translator that runs an x86-64 program in its own process and records its memory
//! accesses.
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
//! The program has its own layout, stack and files as the kernel has made them; the engine's memory is in a
//! range that programs do not use. The program's code is never executed in place. It is copied block by block
//! ([`translate`]), with stores into the ring (crate `ring`) before each instruction that accesses memory.
//! Blocks jump to each other; the engine is entered for branches to new targets, system calls, repeated
//! instructions and signals.
//!
//! The engine uses no vector registers and no thread-local memory, so that those of the program are
//! unchanged. It is built for the target `x86_64-unknown-none` with the feature `blob`.
#![no_std]
#![cfg(target_arch = "x86_64")]

extern crate alloc;

mod area;
mod assist;
mod attach;
mod bare;
mod clock;
mod count;
mod counting;
mod detour;
mod emit;
mod enter;
mod evict;
mod exec;
mod family;
mod files;
mod flags;
mod follows;
mod heap;
mod insn;
mod leave;
mod library;
mod lock;
mod own;
mod ran_before;
mod record;
mod repeat;
mod run;
mod signal;
mod state;
mod sys;
mod table;
mod tell;
mod threads;
mod translate;
mod vectors;
mod ways;
mod windows;

pub use heap::Heap;
pub use run::begin;

/// Ends the process after printing where the engine has failed.
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
