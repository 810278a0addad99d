//! Runs the memory manager and the HAT layer on many processors: the loads that K94 measures, under
//! each locking scheme, in virtual time and on this host.
//!
//! ```text
//!   load: micro, tpcb, ...                        a thread per processor
//!      |  \  vm::Kernel                           the code of a kernel, not a model of it
//!      |   \ |
//!   hat::Hat, under a scheme of locks             (or the layer alone)
//!      |                     |
//!   locks::Native, Timed   Cpu: work priced, shootdowns, frames for tables
//! ```
#![deny(unsafe_code)]

mod board;
mod clients;
mod host;
mod kenbus;
mod kernel;
mod layer;
mod load;
mod memory;
mod names;
mod plan;
mod predict;
mod replay;
mod run;
pub mod skeleton;
mod spaces;
mod threads;
pub mod times;
mod world;

pub use locks::{
    Baton, CPUS_MAX, ClassCounts, Costs, Finished, Histogram, HostPrices, LockCounts, LockKind,
    Native, Ranked, TimeUse, Timed, cpu, now, pass, spend,
};

pub use crate::{
    board::{Board, Cpu, ShootCounts, Shootdowns, Tlb, TlbEntry},
    clients::{ClientsOutcome, ClientsPlan, ClientsPrices, run_clients},
    host::{HostOutcome, run_on_host},
    kenbus::KENBUS,
    load::Load,
    memory::SharedMemory,
    plan::HostPlan,
    run::{ContextUse, HatOutcome, LockShare, Order, Plan, SCHEMES, TABLES, run, run_in},
};
