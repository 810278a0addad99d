//! Every page table: against the model, and bit by bit against what its literature says.

mod common;

mod adaptive;
mod arm;
mod cached;
mod cuckoo;
mod guarded;
mod hashed;
mod irix;
mod mpt;
mod notes;
mod race;
mod sparc;
mod split;
mod x86_32;
mod x86_64;
