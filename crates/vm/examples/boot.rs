//! A kernel that consists only of a memory manager over x86-64 page tables, with spin locks. It
//! builds and links without std, boots as a process, runs a stream of the model test, and prints
//! the digest. The tests compare this digest with the digest that they compute themselves.
#![no_std]
#![no_main]
// This program uses only a part of what the module `model` defines.
#![allow(dead_code)]

extern crate alloc;

#[path = "../tests/vm/board.rs"]
mod board;

/// Replaces the test allocator's module: here no allocation is refused.
mod heap {
    pub(crate) fn unrefused<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

#[path = "../../physmem/examples/host/mod.rs"]
mod host;
#[path = "../tests/vm/model.rs"]
mod model;
#[path = "../tests/vm/tables.rs"]
mod tables;
#[path = "../tests/vm/world.rs"]
mod world;

use core::ffi::c_int;

use hat::{
    Pool,
    locking::{Global, Spin},
};
use pagetable::Mounted;
use tables::TABLES;
use world::{Large, World};

type Locked = World<Spin, Global<dyn Mounted, Spin>>;

#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    let scheme = Global::new(Pool::unlimited());
    let mut world = Locked::under(scheme, &TABLES[0], "lru", (150, 5), Large::No);
    world.run(300);
    host::say(world.digest());
    0
}
