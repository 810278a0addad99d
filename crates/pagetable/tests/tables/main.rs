//! Every page table: against the model, and bit by bit against what its literature says.

mod common;

mod cached;
mod guarded;
mod hashed;
mod mpt;
mod x86_64;
