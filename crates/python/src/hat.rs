//! Memory management on several processors, in virtual time and on this host.

use hat::ContextLimit;
use pyo3::prelude::*;
use serde_json::json;
use smp::{Costs, HostPlan, LockKind, Plan, Shootdowns, named};

use crate::{
    error::{failed, refused},
    open::{Reading, open},
    progress::Progress,
};

/// Runs a load on one number of processors under one locking scheme. Returns the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (
    *, cpus, scheme, load, skeleton, table, hat_only, pool_bytes, lock_per_list, shootdowns, contexts,
    context_threshold, virtual_caches, lock_kind, seed,
))]
#[expect(clippy::too_many_arguments, reason = "they are what the command is given")]
pub(crate) fn hat_run(
    py: Python<'_>,
    cpus: usize,
    scheme: String,
    load: String,
    skeleton: Option<String>,
    table: String,
    hat_only: bool,
    pool_bytes: Option<u64>,
    lock_per_list: bool,
    shootdowns: &str,
    contexts: Option<u32>,
    context_threshold: u32,
    virtual_caches: bool,
    lock_kind: &str,
    seed: u64,
) -> PyResult<String> {
    let plan = Plan {
        cpus,
        scheme,
        load,
        skeleton,
        table,
        hat_only,
        pool_bytes,
        lock_per_list,
        shootdowns: named("kind of shootdown", shootdowns, &Shootdowns::ALL).map_err(refused)?,
        contexts: contexts.map(|contexts| ContextLimit { contexts, threshold: context_threshold }),
        virtual_caches,
        kind: named("kind of lock", lock_kind, &LockKind::ALL).map_err(refused)?,
        costs: Costs::SPARCCENTER_2000,
        seed,
    };
    let outcome = py.detach(|| smp::run(&plan)).map_err(refused)?;
    serde_json::to_string(&outcome).map_err(failed)
}

/// Runs a load on this host's processors, with its control. Returns the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (*, threads, scheme, load, skeleton, table, hat_only, rounds, seed))]
#[expect(clippy::too_many_arguments, reason = "they are what the command is given")]
pub(crate) fn hat_run_on_host(
    py: Python<'_>,
    threads: usize,
    scheme: String,
    load: String,
    skeleton: Option<String>,
    table: String,
    hat_only: bool,
    rounds: usize,
    seed: u64,
) -> PyResult<String> {
    let plan = HostPlan { threads, scheme, load, skeleton, table, hat_only, rounds, seed };
    let outcome = py.detach(|| smp::run_on_host(&plan)).map_err(refused)?;
    serde_json::to_string(&outcome).map_err(failed)
}

/// The skeleton of the trace at `path` as text, and a summary of it as JSON.
#[pyfunction]
#[pyo3(signature = (path, reading, *, progress))]
pub(crate) fn skeleton(
    py: Python<'_>,
    path: &str,
    reading: &Reading,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    py.detach(|| {
        let mut source = open(path, reading)?;
        let total = source.total();
        let mut progress = Progress::new(progress);
        let collected =
            smp::skeleton::collect(&mut *source, &mut |done| progress.report(done, total));
        match collected {
            Ok(Some(skeleton)) => {
                let names = skeleton
                    .processes
                    .iter()
                    .map(|process| json!({ "name": process.name, "steps": process.steps.len() }));
                let counts = json!({
                    "processes": names.collect::<Vec<_>>(),
                    "files": skeleton.files.len(),
                    "steps": skeleton.steps(),
                    "instructions": skeleton.instructions(),
                    "warnings": source.warnings(),
                });
                Ok((skeleton.to_string(), counts.to_string()))
            }
            Ok(None) => Err(progress.error_or(|| failed(trace::Error::Interrupted))),
            Err(error) => Err(source.failed(error)),
        }
    })
}

/// The names of locking schemes, loads, page tables, kinds of shootdown and kinds of lock; and the
/// largest number of processors.
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
