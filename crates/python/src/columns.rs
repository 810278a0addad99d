//! Tables that Python reads: columns come in as bytes and leave as a stored trace.
//!
//! ```text
//!   Parquet --pyarrow--> pull() --bytes--> ColumnSource --> Writer --> FILE.pwt
//! ```

use pyo3::{prelude::*, types::PyBytes};
use trace::import::{ColumnSource, Columns};

use crate::{error::failed, progress::Progress, stored::write};

/// The columns of `trace::import::COLUMNS` in their order, `u64` in native byte order each.
type Pulled<'py> = (
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
);

/// Writes the rows that `pull` gives, until it gives `None`, to the trace `output`; a summary as
/// JSON.
#[pyfunction]
#[pyo3(signature = (format, fetches, pull, output, force, progress))]
pub(crate) fn store_columns(
    py: Python<'_>,
    format: &str,
    fetches: bool,
    pull: Py<PyAny>,
    output: &str,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    py.detach(|| {
        let mut raised = None;
        let mut source = ColumnSource::new(format, fetches, || {
            Python::attach(|py| ask(pull.bind(py))).map_err(|error| {
                raised = Some(error);
                trace::Error::Interrupted
            })
        });
        let stored = write(&mut source, output, force, Progress::new(progress));
        drop(source);
        match raised {
            Some(error) => Err(error),
            None => stored,
        }
    })
}

fn ask(pull: &Bound<'_, PyAny>) -> PyResult<Option<Columns>> {
    pull.py().check_signals()?;
    let Some((addr, size, kind, thread, paddr, instrs)) =
        pull.call0()?.extract::<Option<Pulled<'_>>>()?
    else {
        return Ok(None);
    };
    Ok(Some(Columns {
        addr: numbers(Some(addr))?,
        size: numbers(size)?,
        kind: numbers(kind)?,
        thread: numbers(thread)?,
        paddr: numbers(paddr)?,
        instrs: numbers(instrs)?,
    }))
}

fn numbers(bytes: Option<Bound<'_, PyBytes>>) -> PyResult<Vec<u64>> {
    let Some(bytes) = &bytes else { return Ok(Vec::new()) };
    let (numbers, rest) = bytes.as_bytes().as_chunks();
    if !rest.is_empty() {
        return Err(failed("a column of a table is no whole number of 8-byte values"));
    }
    Ok(numbers.iter().map(|&number| u64::from_ne_bytes(number)).collect())
}
