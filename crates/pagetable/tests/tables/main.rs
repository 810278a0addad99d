//! Compares every page table with a model, and its entries bit by bit with the literature.

mod common;

mod aarch64;
mod adaptive;
mod arm;
mod beside;
mod cached;
mod cuckoo;
mod decode;
mod guarded;
mod halves;
mod hashed;
#[path = "../../../physmem/tests/support/heap.rs"]
mod heap;
mod irix;
mod live;
mod low;
mod mpt;
mod no_memory;
mod notes;
mod race;
mod refused;
mod riscv;
mod sparc;
mod split;
mod x86_32;
mod x86_64;
