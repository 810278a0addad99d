//! A kernel that consists only of a HAT layer over x86-64 page tables: it builds and links without
//! std, boots as a process, runs a stream of the model test, and prints the digest. The tests
//! compare this digest with the digest that they compute themselves.
#![no_std]
#![no_main]
// This program uses only a part of what the module `model` defines.
#![allow(dead_code)]

extern crate alloc;

#[path = "../../physmem/examples/host/mod.rs"]
mod host;
#[path = "../tests/hat/model.rs"]
mod model;

use core::ffi::c_int;

use alloc::boxed::Box;

use hat::Hat;
use model::World;
use pagetable::{Mount, SparseMemory, X86_64};

#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    let table = Mount::tree(X86_64::<4>::new(), SparseMemory::new(1 << 34));
    host::say(World::new(5, Hat::new(Box::new(table))).run(600));
    0
}
