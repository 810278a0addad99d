//! Stored traces: their contents, storing and exporting.

use std::{io::ErrorKind, path::Path};

use machine::results::name_regions;
use pyo3::{exceptions::PyBrokenPipeError, prelude::*};
use serde_json::json;
use symbols::Symbols;
use trace::{Writer, export};

use crate::{
    error::{failed, refused},
    machines::names,
    open::{Reading, open},
    progress::Progress,
};

/// The header as JSON; the number of accesses and the digest, if known.
#[pyfunction]
pub(crate) fn trace_header(
    trace: &str,
    reading: &Reading,
) -> PyResult<(String, Option<u64>, Option<String>)> {
    let source = open(trace, reading)?;
    let header = serde_json::to_string(source.header()).map_err(failed)?;
    Ok((header, source.total(), source.digest()))
}

/// All counts of `pagewalk info`, as JSON.
#[pyfunction]
#[pyo3(signature = (trace, reading, progress))]
pub(crate) fn trace_info(
    py: Python<'_>,
    trace: &str,
    reading: &Reading,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    py.detach(|| {
        let mut source = open(trace, reading)?;
        let total = source.total();
        let mut progress = Progress::new(progress);
        let info = trace::info(&mut *source, &mut |done| progress.report(done, total));
        match info {
            Ok(mut info) => {
                let mut symbols = Symbols::new();
                name_regions(&mut info.regions, &mut |place, is_return| {
                    names(&mut symbols, place, is_return)
                });
                serde_json::to_string(&info).map_err(failed)
            }
            Err(error) => Err(progress.error_or(|| source.failed(error))),
        }
    })
}

/// Writes all of `trace` to the trace file `output`. Returns a summary as JSON.
#[pyfunction]
#[pyo3(signature = (trace, reading, output, force, progress))]
pub(crate) fn store(
    py: Python<'_>,
    trace: &str,
    reading: &Reading,
    output: &str,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    py.detach(|| {
        let mut source = open(trace, reading)?;
        let mut progress = Progress::new(progress);
        let options = trace::Options { overwrite: force, ..trace::Options::default() };
        let mut writer =
            Writer::create(Path::new(output), source.header().clone(), options).map_err(refused)?;
        let total = source.total();
        let copied =
            trace::copy(&mut *source, &mut writer, &mut |done| progress.report(done, total));
        if let Err(error) = copied {
            return Err(progress.error_or(|| source.failed(error)));
        }
        let summary = writer.finish().map_err(failed)?;
        Ok(json!({
            "path": summary.path.to_string_lossy(),
            "bytes": summary.bytes,
            "accesses": summary.accesses,
            "instructions": summary.instructions,
            "digest": summary.digest,
            "warnings": source.warnings(),
        })
        .to_string())
    })
}

/// Writes all of `trace` to `output` in the format `champsim`, `csv` or `drmemtrace`. Returns a summary as JSON.
#[pyfunction]
#[pyo3(signature = (format, trace, reading, output, *, thread, force, progress))]
#[expect(clippy::too_many_arguments, reason = "these are the arguments of the command")]
pub(crate) fn export_trace(
    py: Python<'_>,
    format: &str,
    trace: &str,
    reading: &Reading,
    output: &str,
    thread: Option<u32>,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let write = match format {
        "champsim" => export::champsim,
        "csv" => export::csv,
        "drmemtrace" => export::drmemtrace,
        other => {
            let what = format!("`{other}` is not a format: choose champsim, csv or drmemtrace");
            return Err(refused(what));
        }
    };
    py.detach(|| {
        let mut source = open(trace, reading)?;
        let total = source.total();
        let mut progress = Progress::new(progress);
        let options = export::Options { overwrite: force, thread };
        let written = write(&mut *source, Path::new(output), &options, &mut |done| {
            progress.report(done, total)
        });
        match written {
            Ok(Some(summary)) => {
                let warnings = [source.warnings(), &summary.warnings].concat();
                let (records, bytes) = (summary.records, summary.bytes);
                Ok(json!({ "records": records, "bytes": bytes, "warnings": warnings }).to_string())
            }
            Ok(None) => Err(progress.error_or(|| failed(trace::Error::Interrupted))),
            // The trace is not damaged: this format cannot represent it with the given options.
            Err(error @ trace::Error::Parameters(_)) => Err(refused(error)),
            // The reader of the output has ended, as `head` does after its last line.
            Err(trace::Error::Io { error, .. }) if error.kind() == ErrorKind::BrokenPipe => {
                Err(PyBrokenPipeError::new_err(error.to_string()))
            }
            Err(error) => Err(source.failed(error)),
        }
    })
}
