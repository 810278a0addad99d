//! Tables that Python reads: their columns are passed as bytes and form a source like any other.
//!
//! ```text
//!   Parquet --pyarrow--> pull() --bytes--> ColumnSource --> run, info, Writer --> FILE.pwt
//! ```

use std::path::Path;

use pyo3::{prelude::*, types::PyBytes};
use trace::{
    Batch, Header, Source,
    import::{ColumnSource, Columns, Options},
};

use crate::{
    error::{Error, failed},
    raised::Raised,
};

/// The columns of `trace::import::COLUMNS` in that order, each as `u64` in native byte order.
type Pulled<'py> = (
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
);

/// A table, and the function that computes the digest of its file.
struct TableReader<S> {
    rows: S,
    digest: Py<PyAny>,
    done: bool,
}

/// Opens a Parquet file with the Python module `pagewalk.parquet`. Exceptions other than Pagewalk's
/// own errors are stored in `raised`.
pub(crate) fn open_table(
    path: &Path,
    options: &Options,
    raised: Raised,
) -> PyResult<Box<dyn Source + Send>> {
    type Opening = (bool, u64, Py<PyAny>, Py<PyAny>);
    let (fetches, rows, pull, digest): Opening = Python::attach(|py| {
        let module = py.import("pagewalk.parquet")?;
        module.call_method1("open_table", (path, options.columns.clone()))?.extract()
    })?;
    let pull = move || {
        Python::attach(|py| {
            ask(pull.bind(py)).map_err(|error| {
                if error.is_instance_of::<Error>(py) {
                    return trace::Error::Parameters(error.value(py).to_string());
                }
                raised.set(error);
                trace::Error::Interrupted
            })
        })
    };
    let rows = ColumnSource::new("parquet", fetches, pull)
        .with_total(rows)
        .with_arch(options.arch)
        .keep_going(options.keep_going);
    Ok(Box::new(TableReader { rows, digest, done: false }))
}

impl<S: Source> Source for TableReader<S> {
    fn header(&self) -> &Header {
        self.rows.header()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, trace::Error> {
        let more = self.rows.next(batch)?;
        self.done = !more;
        Ok(more)
    }

    fn total(&self) -> Option<u64> {
        self.rows.total()
    }

    fn warnings(&self) -> &[String] {
        self.rows.warnings()
    }

    fn digest(&self) -> Option<String> {
        let digest = || Python::attach(|py| self.digest.call0(py)?.extract(py));
        // The file is read a second time for the digest; if it has been removed, there is no
        // digest.
        if self.done { digest().ok() } else { None }
    }
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
        return Err(failed("a column of a table is not a whole number of 8-byte values"));
    }
    Ok(numbers.iter().map(|&number| u64::from_ne_bytes(number)).collect())
}
