//! From what a user calls a trace to a source of accesses.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use trace::{
    Source,
    import::{Fetches, Format, Interleave, Options},
};

use crate::error::refused;

/// A source that may go to another thread.
pub(crate) type Opened = Box<dyn Source + Send>;

/// How a trace of another tool is read.
#[pyclass(frozen, module = "pagewalk._native")]
pub(crate) struct Reading {
    options: Options,
}

#[pymethods]
impl Reading {
    #[new]
    #[pyo3(signature = (*, format, keep_going, fetches, columns, interleave, v2p))]
    fn new(
        format: Option<&str>,
        keep_going: bool,
        fetches: &str,
        columns: Vec<(String, String)>,
        interleave: &str,
        v2p: Option<PathBuf>,
    ) -> PyResult<Reading> {
        let format = format.map(str::parse).transpose().map_err(refused)?;
        let fetches = match fetches {
            "blocks" => Fetches::Blocks,
            "instructions" => Fetches::Instructions,
            "none" => Fetches::None,
            other => return Err(refused(format!("fetches `{other}`: blocks, instructions, none"))),
        };
        let interleave = match interleave {
            "timestamps" => Interleave::Timestamps,
            "schedule" => Interleave::Schedule,
            other => return Err(refused(format!("interleave `{other}`: timestamps, schedule"))),
        };
        let options = Options { format, keep_going, fetches, columns, interleave, v2p };
        Ok(Reading { options })
    }
}

/// Opens the file called `trace`, or the generator if it begins with `generate:`.
///
/// A file called `.pwt` is held to be one, so that a damaged one is told from other formats.
pub(crate) fn open(trace: &str, reading: &Reading) -> Result<Opened, trace::Error> {
    let mut options = reading.options.clone();
    if options.format.is_none() && trace.ends_with(".pwt") && Path::new(trace).exists() {
        options.format = Some(Format::Pagewalk);
    }
    trace::open(trace, &options)
}
