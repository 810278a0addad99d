//! The parts of the shared memory that both sides compute.

mod allocations;
mod own;
