//! Opens a source of accesses from the name that a user gives for a trace.

use std::{
    ops::{Deref, DerefMut},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use pyo3::prelude::*;
use trace::{Source, import::Options};

use crate::{
    columns::open_table,
    error::{failed, refused},
    raised::Raised,
    told::told,
};

/// The time between two checks for signals while a file or a pipe is being opened.
const PATIENCE: Duration = Duration::from_millis(100);

/// Options for reading traces.
#[pyclass(frozen, module = "pagewalk._native")]
pub(crate) struct Reading {
    options: Options,
}

#[pymethods]
impl Reading {
    /// Reads the JSON document `options`, which has all fields of [`Options`].
    #[new]
    fn new(options: &str) -> PyResult<Reading> {
        Ok(Reading { options: told(options)? })
    }
}

/// A source that can be moved to another thread, and the exception that Python raised while it was
/// read.
pub(crate) struct Opened {
    source: Box<dyn Source + Send>,
    raised: Raised,
}

impl Opened {
    /// The exception to raise for `error` from the source or from its processing.
    pub(crate) fn failed(&self, error: impl std::fmt::Display) -> PyErr {
        self.raised.or(failed(error))
    }

    /// The exception that Python raised while the source was read.
    pub(crate) fn raised(&self) -> Raised {
        self.raised.clone()
    }
}

impl Deref for Opened {
    type Target = dyn Source + Send;

    fn deref(&self) -> &Self::Target {
        &*self.source
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.source
    }
}

/// Opens what `trace` names: see [`trace::open`].
///
/// A pipe may deliver no data for a long time; a signal ends the wait.
pub(crate) fn open(trace: &str, reading: &Reading) -> PyResult<Opened> {
    let options = reading.options.clone();
    let raised = Raised::default();
    let (spec, asked) = (trace.to_owned(), options.clone());
    let opened = patiently(&raised, move || trace::open(&spec, &asked))?;
    let mut source = match opened {
        Ok(source) => source,
        Err(trace::Error::Table(path)) => {
            let table = open_table(&path, &options, raised.clone())?;
            trace::import::part(table, &options).map_err(refused)?
        }
        Err(error) => return Err(refused(error)),
    };
    let waiting = raised.clone();
    source.while_waiting(Box::new(move || waiting.go_on()));
    Ok(Opened { source, raised })
}

/// Does `work` on another thread, while this thread checks for signals.
fn patiently<T: Send + 'static>(
    raised: &Raised,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (done, result) = channel();
    // If the thread never returns, it ends together with the process.
    let _ = thread::Builder::new()
        .name("trace opener".to_owned())
        .spawn(move || done.send(work()))
        .map_err(failed)?;
    loop {
        match result.recv_timeout(PATIENCE) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) if raised.go_on() => {}
            Err(_) => return Err(raised.or(failed("the trace cannot be opened"))),
        }
    }
}
