//! Sweeps: many designs in one pass over a trace.

use machine::{
    Results,
    sweep::{SweepOptions, sweep},
};
use pyo3::prelude::*;
use serde_json::Value;

use crate::{
    error::failed,
    machines::Machine,
    open::{Reading, open},
    progress::Progress,
};

/// The parts of results that the results of a sweep leave out: they are as long as the trace or the
/// machine file, and a table of designs has no columns for them.
const LEFT_OUT: [&str; 5] = ["trace", "machine", "regions", "timeline", "map"];

/// The counts of a design as JSON, or the error.
type Outcome = (Option<String>, Option<String>);

/// Runs a trace through all of `machines`. Returns the outcomes in the order of `machines`, and
/// notes on the trace.
#[pyfunction]
#[pyo3(signature = (machines, trace, reading, threads, progress))]
pub(crate) fn sweep_trace(
    py: Python<'_>,
    machines: Vec<PyRef<'_, Machine>>,
    trace: &str,
    reading: &Reading,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<Outcome>, Vec<String>)> {
    let machines: Vec<machine::Machine> = machines.iter().map(|one| one.machine.clone()).collect();
    py.detach(|| {
        let mut source = open(trace, reading)?;
        let mut progress = Progress::new(progress);
        let mut report = |at: machine::Progress| progress.report(at.accesses, at.total);
        let options = SweepOptions { threads, progress: &mut report };
        match sweep(&machines, &mut *source, options) {
            Ok(outcomes) => {
                let outcomes = outcomes.into_iter().map(|outcome| match outcome {
                    Ok(results) => Ok((Some(counts(&results)?), None)),
                    Err(error) => Ok((None, Some(error))),
                });
                Ok((outcomes.collect::<PyResult<_>>()?, source.warnings().to_vec()))
            }
            Err(error) => Err(progress.error_or(|| source.failed(error))),
        }
    })
}

fn counts(results: &Results) -> PyResult<String> {
    let mut document = serde_json::to_value(results).map_err(failed)?;
    if let Value::Object(fields) = &mut document {
        LEFT_OUT.iter().for_each(|name| drop(fields.remove(*name)));
    }
    Ok(document.to_string())
}
