//! Memory management on several processors, in virtual time and on this host.

use pyo3::prelude::*;
use serde_json::json;
use smp::{HostPlan, LockKind, Plan, Shootdowns};

use crate::{
    error::{failed, refused},
    open::{Reading, open},
    progress::Progress,
    told::told,
};

/// Runs the load of the JSON document `plan`, which has all fields of [`Plan`], in virtual time.
/// Returns the outcome as JSON.
#[pyfunction]
pub(crate) fn hat_run(py: Python<'_>, plan: &str) -> PyResult<String> {
    let plan: Plan = told(plan)?;
    let outcome = py.detach(|| smp::run(&plan)).map_err(refused)?;
    serde_json::to_string(&outcome).map_err(failed)
}

/// Runs the load of the JSON document `plan`, which has all fields of [`HostPlan`], on this host's
/// processors, with its control. Returns the outcome as JSON.
#[pyfunction]
pub(crate) fn hat_run_on_host(py: Python<'_>, plan: &str) -> PyResult<String> {
    let plan: HostPlan = told(plan)?;
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
