//! Programs: recorded into traces, or simulated while they run.

use std::{ffi::OsString, path::PathBuf};

use capture::{Engine, Options, Outcome, Sign};
use pyo3::prelude::*;
use serde_json::{Value, json};
use trace::Filter;

use crate::{
    error::{failed, refused},
    progress::Progress,
};

/// What to record of which program.
#[pyclass(frozen, module = "pagewalk._native")]
pub(crate) struct Recording {
    pub(crate) options: Options,
    /// Whether a machine that runs beside is told each access.
    pub(crate) tells_all: bool,
}

#[pymethods]
impl Recording {
    #[new]
    #[pyo3(signature = (
        command, *, engine, engine_path, aslr, qemu, qemus, plugins, skip, max_accesses, max_bytes, ends, fetches, filter, callbacks, follow,
        process, calls, arguments, allocations, libraries,
        from_symbol, to_symbol, from_marker, to_marker, instructions, one_cpu, tells_all
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are what the command is given")]
    fn new(
        command: Vec<OsString>,
        engine: &str,
        engine_path: PathBuf,
        aslr: bool,
        qemu: Option<PathBuf>,
        qemus: PathBuf,
        plugins: Vec<PathBuf>,
        skip: u64,
        max_accesses: Option<u64>,
        max_bytes: Option<u64>,
        ends: bool,
        fetches: bool,
        filter: &str,
        callbacks: bool,
        follow: bool,
        process: Option<String>,
        calls: bool,
        arguments: bool,
        allocations: bool,
        libraries: PathBuf,
        from_symbol: Option<String>,
        to_symbol: Option<String>,
        from_marker: Option<i64>,
        to_marker: Option<i64>,
        instructions: Option<u64>,
        one_cpu: bool,
        tells_all: bool,
    ) -> PyResult<Recording> {
        // A number below 0 is any marker.
        let sign = |symbol: Option<String>, marker: Option<i64>| {
            let marker = marker.map(|number| Sign::Marker(u64::try_from(number).ok()));
            symbol.map(Sign::Symbol).or(marker)
        };
        let filter = match filter {
            "none" => Filter::None,
            "page16" => Filter::Page16,
            other => {
                return Err(refused(format!(
                    "there is no filter `{other}`: choose none or page16"
                )));
            }
        };
        let engine = match engine {
            "qemu" => Engine::Qemu,
            "native" => Engine::Native,
            other => {
                return Err(refused(format!(
                    "there is no engine `{other}`: choose qemu or native"
                )));
            }
        };
        let options = Options {
            engine,
            engine_path: Some(engine_path),
            aslr,
            skip_accesses: skip,
            accesses_max: max_accesses,
            bytes_max: max_bytes,
            ends,
            fetches,
            filter,
            callbacks,
            follow,
            process,
            calls,
            arguments,
            allocations,
            libraries: Some(libraries),
            from: sign(from_symbol, from_marker),
            to: sign(to_symbol, to_marker),
            instructions_max: instructions,
            one_cpu,
            qemu,
            qemus: Some(qemus),
            plugins,
            ..Options::new(command)
        };
        Ok(Recording { options, tells_all })
    }
}

/// Records a program and its children into `output`; the outcome as JSON.
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

/// The exception for `error`: whether the request or the work was at fault.
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
        Engine::Qemu => "qemu",
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
