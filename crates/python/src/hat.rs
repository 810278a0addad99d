//! The HAT layer on many processors, in virtual time and on this host's.

use pyo3::prelude::*;
use smp::{Costs, HostPlan, LockKind, Plan, Shootdowns, named};

use crate::error::{failed, refused};

/// Runs one load on one number of processors under one scheme; the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (
    *, cpus, scheme, load, table, pool_bytes, lock_per_list, shootdowns, lock_kind, seed,
))]
#[expect(clippy::too_many_arguments, reason = "they are what the command is given")]
pub(crate) fn hat_run(
    py: Python<'_>,
    cpus: usize,
    scheme: String,
    load: String,
    table: String,
    pool_bytes: Option<u64>,
    lock_per_list: bool,
    shootdowns: &str,
    lock_kind: &str,
    seed: u64,
) -> PyResult<String> {
    let plan = Plan {
        cpus,
        scheme,
        load,
        table,
        pool_bytes,
        lock_per_list,
        shootdowns: named("kind of shootdown", shootdowns, &Shootdowns::ALL).map_err(refused)?,
        kind: named("kind of lock", lock_kind, &LockKind::ALL).map_err(refused)?,
        costs: Costs::SPARCCENTER_2000,
        seed,
    };
    let outcome = py.detach(|| smp::run(&plan)).map_err(refused)?;
    serde_json::to_string(&outcome).map_err(failed)
}

/// Runs one load on this host's processors, beside its control; the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (*, threads, scheme, load, table, rounds, seed))]
pub(crate) fn hat_run_on_host(
    py: Python<'_>,
    threads: usize,
    scheme: String,
    load: String,
    table: String,
    rounds: usize,
    seed: u64,
) -> PyResult<String> {
    let plan = HostPlan { threads, scheme, load, table, rounds, seed };
    let outcome = py.detach(|| smp::run_on_host(&plan)).map_err(refused)?;
    serde_json::to_string(&outcome).map_err(failed)
}

/// Schemes, loads, page tables, kinds of shootdown and of lock, and the most processors.
#[pyfunction]
pub(crate) fn hat_names() -> (Vec<Vec<&'static str>>, usize) {
    fn names<T>(all: &[(&'static str, T)]) -> Vec<&'static str> {
        all.iter().map(|(name, _)| *name).collect()
    }
    let lists = vec![
        smp::SCHEMES.to_vec(),
        names(&smp::Load::ALL),
        smp::TABLES.to_vec(),
        names(&Shootdowns::ALL),
        names(&LockKind::ALL),
    ];
    (lists, smp::CPUS_MAX)
}
