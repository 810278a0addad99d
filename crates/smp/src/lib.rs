//! Many processors on the memory manager and the HAT layer: platforms of locks, virtual time, and the
//! loads that K94 measures.
//!
//! ```text
//!   load: micro, tpcb, ...                        a thread per processor
//!      |  \  vm::Kernel                           the code of a kernel, not a model of it
//!      |   \ |
//!   hat::Hat, under a scheme of locks             (or the layer alone)
//!      |                     |
//!   Locks                  Platform
//!   Native   the host's      Cpu: work priced, shootdowns, frames for tables
//!   Ranked   order asserted
//!   Timed    virtual time  --> Baton: one processor runs, the one with the least clock
//! ```
#![deny(unsafe_code)]

mod baton;
mod biased;
mod board;
mod clients;
mod costs;
mod host;
mod kenbus;
mod kernel;
mod layer;
mod load;
mod memory;
mod native;
mod predict;
mod prices;
mod ranked;
mod replay;
mod run;
pub mod skeleton;
mod stats;
mod threads;
mod timed;
mod watched;
mod world;

pub use crate::{
    baton::{Baton, CPUS_MAX, Finished, cpu, now, pass, spend},
    board::{Board, Cpu, ShootCounts, Shootdowns, Tlb, TlbEntry},
    clients::{ClientsOutcome, ClientsPlan, run_clients},
    costs::{Costs, LockKind},
    host::{HostOutcome, HostPlan, run_on_host},
    kenbus::KENBUS,
    load::Load,
    memory::SharedMemory,
    native::Native,
    prices::HostPrices,
    ranked::Ranked,
    run::{ContextUse, HatOutcome, LockShare, Plan, SCHEMES, TABLES, named, run},
    stats::{ClassCounts, Histogram, LockCounts, TimeUse},
    timed::Timed,
};
