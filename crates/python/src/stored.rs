//! Stored traces: what is in them, and generators that make them.

use std::path::Path;

use pyo3::prelude::*;
use serde_json::json;
use trace::Writer;

use crate::{
    error::{failed, refused},
    open::open,
    progress::Progress,
};

/// Header as JSON, accesses if known, digest if known.
#[pyfunction]
pub(crate) fn trace_header(trace: &str) -> PyResult<(String, Option<u64>, Option<String>)> {
    let source = open(trace).map_err(refused)?;
    let header = serde_json::to_string(source.header()).map_err(failed)?;
    Ok((header, source.total(), source.digest()))
}

/// Everything that `pagewalk info` counts, as JSON.
#[pyfunction]
#[pyo3(signature = (trace, progress))]
pub(crate) fn trace_info(
    py: Python<'_>,
    trace: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut source = open(trace).map_err(refused)?;
    py.detach(|| {
        let total = source.total();
        let mut progress = Progress::new(progress);
        let info = trace::info(&mut *source, &mut |done| progress.report(done, total));
        match info {
            Ok(info) => serde_json::to_string(&info).map_err(failed),
            Err(error) => Err(progress.error_or(|| failed(error))),
        }
    })
}

/// Writes the trace that the generator `spec` makes to `output`; a summary as JSON.
#[pyfunction]
#[pyo3(signature = (spec, output, force, progress))]
pub(crate) fn generate(
    py: Python<'_>,
    spec: &str,
    output: &str,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut source = open(spec).map_err(refused)?;
    let options = trace::Options { overwrite: force, ..trace::Options::default() };
    let mut writer =
        Writer::create(Path::new(output), source.header().clone(), options).map_err(refused)?;
    py.detach(|| {
        let total = source.total();
        let mut progress = Progress::new(progress);
        let copied =
            trace::copy(&mut *source, &mut writer, &mut |done| progress.report(done, total));
        if let Err(error) = copied {
            return Err(progress.error_or(|| failed(error)));
        }
        let summary = writer.finish().map_err(failed)?;
        Ok(json!({
            "path": summary.path.to_string_lossy(),
            "bytes": summary.bytes,
            "accesses": summary.accesses,
            "instructions": summary.instructions,
            "digest": summary.digest,
        })
        .to_string())
    })
}
