//! Many processors on the HAT layer: platforms of locks, virtual time, and the loads that K94
//! measures.
//!
//! ```text
//!   load: micro, tpcb, ...                        a thread per processor
//!      |
//!   hat::Hat, under a scheme of locks             the code of a kernel, not a model of it
//!      |                     |
//!   Locks                  Platform
//!   Native   the host's      Cpu: work priced, shootdowns, frames for tables
//!   Ranked   order asserted
//!   Timed    virtual time  --> Baton: one processor runs, the one with the least clock
//! ```
#![forbid(unsafe_code)]

mod baton;
mod board;
mod costs;
mod host;
mod load;
mod native;
mod ranked;
mod run;
mod stats;
mod timed;

pub use crate::{
    baton::{Baton, CPUS_MAX, Finished, cpu, now, pass, spend},
    board::{Board, Cpu, ShootCounts, Shootdowns, Tlb, TlbEntry},
    costs::{Costs, LockKind},
    host::{HostOutcome, HostPlan, run_on_host},
    load::Load,
    native::Native,
    ranked::Ranked,
    run::{LockShare, Outcome, Plan, SCHEMES, TABLES, named, run},
    stats::{ClassCounts, Histogram, LockCounts},
    timed::Timed,
};
