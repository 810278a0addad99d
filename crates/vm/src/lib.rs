//! Virtual memory: what each address *should* hold, and which of it is in memory (OS.md of this
//! project's design calls it the truth; page tables are a cache of it).
//!
//! ```text
//!   faults, calls of processes                      ticks of a clock
//!        |                                               |
//!        v                                               v
//!   Kernel   fault  map  protect  move_pages  fork  exit    reclaim
//!        |
//!        +-- Vm        spaces -> regions -> objects, anons -> frames, swap slots
//!        |             lists of pages by how lately they were used; counts of work
//!        +-- Hat       which translations hardware has            (crate hat)
//!        +-- Physmem   whose a frame is, which are free           (crate physmem)
//!        +-- Platform  copies, zeros, disk, other processors
//! ```
//!
//! [`Vm`] is the state of the memory manager. It works on a HAT layer, physical memory and a
//! platform that are not its own; [`Kernel`] is the four together for as long as an operation
//! lasts, so that a kernel may keep each where it likes and a simulated machine may walk the same
//! page table in between.
//!
//! Frames, owners and swap are counted in base pages. A page larger than that is adjacent, aligned base
//! frames with one translation (G98 sections 6.1 and 6.2): policies wish for it ([`FaultPolicy`]), the
//! fault's layer for large pages loads it or says why not ([`Why`]), and every operation that concerns
//! a part of it makes it smaller first.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod anon;
mod change;
mod check;
mod error;
mod fault;
mod file;
mod frames;
mod large;
mod lock;
mod map;
mod migrate;
mod object;
mod own;
mod platform;
mod policy;
mod process;
mod reclaim;
mod region;
mod replacement;
mod reserve;
mod settings;
mod swap;
mod vm;
mod work;

pub use crate::{
    error::Error,
    object::FileKey,
    platform::{Io, Platform, Store},
    policy::{Ask, Choice, FAULT_POLICIES, Fallback, FaultPolicy, Module},
    region::{Backing, Region},
    replacement::{POLICIES, Replacement},
    reserve::Reserving,
    settings::{Marks, Reference, Resident, Settings, SettingsError, Source},
    swap::Slot,
    vm::{Kernel, Vm},
    work::{Decision, How, Why, Work},
};
