//! From what a user calls a trace to a source of accesses.

use std::{
    ops::{Deref, DerefMut},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use pyo3::prelude::*;
use trace::{
    Bounds, Source,
    import::{Fetches, Interleave, Options},
};

use crate::{
    columns::open_table,
    error::{failed, refused},
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
    #[new]
    #[pyo3(signature = (
        *, format, keep_going, fetches, arch, columns, interleave, v2p, process, no_fetch, spread,
        skip, warmup, max_accesses, kernel
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are what the command is given")]
    fn new(
        format: Option<&str>,
        keep_going: bool,
        fetches: &str,
        arch: Option<&str>,
        columns: Vec<(String, String)>,
        interleave: &str,
        v2p: Option<PathBuf>,
        process: Option<String>,
        no_fetch: bool,
        spread: Option<u64>,
        skip: u64,
        warmup: u64,
        max_accesses: Option<u64>,
        kernel: Option<&str>,
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
        let arch = arch.map(str::parse).transpose().map_err(refused)?;
        let kernel = kernel.map(str::parse).transpose().map_err(refused)?;
        let bounds = Bounds { skip, warmup, accesses_max: max_accesses };
        let options = Options {
            format,
            keep_going,
            fetches,
            arch,
            columns,
            interleave,
            v2p,
            process,
            data_only: no_fetch,
            spread,
            bounds,
            kernel,
        };
        Ok(Reading { options })
    }
}

/// A source that may go to another thread, and what Python raised while it was asked.
pub(crate) struct Opened {
    source: Box<dyn Source + Send>,
    raised: Raised,
}

/// An exception that ended a wait, the `KeyboardInterrupt` of a signal for instance.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Keeps `error` until somebody can raise it.
    pub(crate) fn set(&self, error: PyErr) {
        *self.0.lock().unwrap_or_else(|poison| poison.into_inner()) = Some(error);
    }

    /// What was raised, in place of the error that came of it.
    pub(crate) fn or(&self, error: PyErr) -> PyErr {
        self.take().unwrap_or(error)
    }

    fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner()).take()
    }

    /// Whether no signal asks to stop; keeps the exception if one does.
    fn go_on(&self) -> bool {
        match Python::attach(|py| py.check_signals()) {
            Ok(()) => true,
            Err(error) => {
                self.set(error);
                false
            }
        }
    }
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
