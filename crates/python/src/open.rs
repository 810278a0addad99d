//! From what a user calls a trace to a source of accesses.

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

/// How often a signal is looked for while a file or a pipe is being opened.
const PATIENCE: Duration = Duration::from_millis(100);

/// How a trace of another tool is read.
#[pyclass(frozen, module = "pagewalk._native")]
pub(crate) struct Reading {
    options: Options,
}

#[pymethods]
impl Reading {
    /// What the document `options` says, which has all fields of [`Options`].
    #[new]
    fn new(options: &str) -> PyResult<Reading> {
        Ok(Reading { options: told(options)? })
    }
}

/// A source that may go to another thread, and what Python raised while it was asked.
pub(crate) struct Opened {
    source: Box<dyn Source + Send>,
    raised: Raised,
}

impl Opened {
    /// The error to raise for `error`, which came from the source or from what was done with it.
    pub(crate) fn failed(&self, error: impl std::fmt::Display) -> PyErr {
        self.raised.or(failed(error))
    }

    /// What Python raises while the source is asked.
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
/// A pipe may have nothing to give for long: waiting for it ends with a signal.
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

/// Does `work` on a thread of its own while this one looks for signals.
fn patiently<T: Send + 'static>(
    raised: &Raised,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (done, result) = channel();
    // Nobody waits for the thread if it waits for ever; then it ends with the process.
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
