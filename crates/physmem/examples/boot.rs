//! A kernel that consists only of physical memory management: it builds and links without std,
//! boots as a process, runs a stream of the model test, and prints the digest. The tests compare
//! this digest with the digest that they compute themselves.
#![no_std]
#![no_main]
// This program uses only a part of what the module `model` defines.
#![allow(dead_code)]

extern crate alloc;

mod host;
#[path = "../tests/allocators/model.rs"]
mod model;
#[path = "../tests/allocators/rules.rs"]
mod rules;

use core::ffi::c_int;

use addr::{PageSize, PhysAddr};
use model::{Rule, check};
use physmem::{Buddy, Physmem};

#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    let (start, base) = (PhysAddr::new(0), PageSize::SIZE_4K);
    let memory = Physmem::new(start, base.bytes() << 13, base, Buddy::new).unwrap();
    let rule = Rule { holds: rules::buddies_are_joined, finds: |_| true };
    host::say(check(5, memory, rule));
    0
}
