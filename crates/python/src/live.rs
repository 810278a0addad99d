//! Programs that are recorded into traces, or simulated while they run.

use std::path::PathBuf;
use std::time::Duration;

use capture::{Attachment, Engine, Options, Outcome, System};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::{
    error::{failed, refused},
    progress::Progress,
    told::told,
};

/// The program to record, and which parts of it.
#[pyclass(frozen, module = "pagewalk._native")]
pub(crate) struct Recording {
    pub(crate) options: Options,
}

#[pymethods]
impl Recording {
    /// Reads the JSON document `options`, which has all fields of [`Options`].
    #[new]
    fn new(options: &str) -> PyResult<Recording> {
        Ok(Recording { options: told(options)? })
    }
}

/// Records a program and its children into `output`. Returns the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (recording, output, force, progress))]
pub(crate) fn record(
    py: Python<'_>,
    recording: &Recording,
    output: PathBuf,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let writer = trace::Options { overwrite: force, ..trace::Options::default() };
    py.detach(|| {
        let mut progress = Progress::new(progress);
        let options = &recording.options;
        let outcome = capture::record(options, &output, &writer, &mut |at| {
            progress.report(at.accesses, None);
        });
        outcome.map(|outcome| describe(&outcome).to_string()).map_err(sorted)
    })
}

/// Records a part of a running program into `output`. `process` has the number of its process, the
/// largest number of seconds to record, and the command that starts the operator. Returns the
/// outcome as JSON.
#[pyfunction]
#[pyo3(signature = (recording, process, output, force, progress))]
pub(crate) fn attach(
    py: Python<'_>,
    recording: &Recording,
    process: (u32, Option<f64>, Vec<String>),
    output: PathBuf,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let writer = trace::Options { overwrite: force, ..trace::Options::default() };
    let (pid, seconds, operator) = process;
    // No limit if the number is larger than any duration.
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let operator = operator.into_iter().map(Into::into).collect();
    let attachment = Attachment { pid, limit, operator };
    py.detach(|| {
        let mut progress = Progress::new(progress);
        let options = &recording.options;
        let outcome = capture::attach(&attachment, options, &output, &writer, &mut |at| {
            progress.report(at.accesses, None);
        });
        outcome.map(|outcome| describe(&outcome).to_string()).map_err(sorted)
    })
}

/// Does the work of an operator ([`attach`]), as its environment says.
#[pyfunction]
pub(crate) fn operate(py: Python<'_>) -> PyResult<()> {
    Ok(py.detach(capture::operate)?)
}

/// Records a whole system, which the JSON document `system` describes with all fields of [`System`], into
/// `output`. Returns the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (system, output, force, progress))]
pub(crate) fn record_system(
    py: Python<'_>,
    system: &str,
    output: PathBuf,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let system: System = told(system)?;
    let writer = trace::Options { overwrite: force, ..trace::Options::default() };
    py.detach(|| {
        let mut progress = Progress::new(progress);
        let outcome = capture::record_system(&system, &output, &writer, &mut |at| {
            progress.report(at.accesses, None);
        });
        outcome.map(|outcome| describe(&outcome).to_string()).map_err(sorted)
    })
}

/// The exception for `error`: either the request was wrong, or the work failed.
pub(crate) fn sorted(error: capture::Error) -> PyErr {
    use capture::Error::{Garbled, Injection, Kept, NoProcess, NotEntered, Refused, System, Trace};
    match error {
        Garbled { .. }
        | Injection { .. }
        | Kept { .. }
        | NoProcess { .. }
        | NotEntered { .. }
        | Refused { .. }
        | System { .. }
        | Trace { .. } => failed(error),
        _ => refused(error),
    }
}

fn describe(outcome: &Outcome) -> Value {
    let engine = match outcome.engine {
        Engine::Auto | Engine::Qemu => "qemu",
        Engine::Native => "native",
    };
    let processes: Vec<Value> = outcome
        .processes
        .iter()
        .map(|recorded| {
            json!({
                "number": recorded.process.number,
                "pid": recorded.process.pid,
                "parent": recorded.process.parent,
                "name": recorded.process.name(),
                "command": recorded.process.programs.last().map(|program| &program.command),
                "programs": recorded.process.programs,
                "accesses": recorded.accesses,
                "instructions": recorded.instructions,
            })
        })
        .collect();
    let summary = &outcome.summary;
    json!({
        "exit_status": outcome.status,
        "engine": engine,
        "path": summary.path.to_string_lossy(),
        "accesses": summary.accesses,
        "instructions": summary.instructions,
        "bytes": summary.bytes,
        "digest": summary.digest,
        "processes": processes,
        "notes": outcome.notes,
        "lost": outcome.lost,
    })
}
