//! Progress from a run without the lock to a Python function, and signals the other way.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How often Python is asked.
const INTERVAL: Duration = Duration::from_millis(80);

/// Calls a Python function with the accesses done and in all, at most twelve times per second,
/// and keeps what it raises: an exception, or the `KeyboardInterrupt` of a signal.
pub(crate) struct Progress {
    function: Option<Py<PyAny>>,
    called: Instant,
    raised: Option<PyErr>,
}

impl Progress {
    pub(crate) fn new(function: Option<Py<PyAny>>) -> Progress {
        Progress { function, called: Instant::now(), raised: None }
    }

    /// Reports; `false` asks the work to stop. Called without the interpreter's lock.
    pub(crate) fn report(&mut self, done: u64, total: Option<u64>) -> bool {
        if self.called.elapsed() < INTERVAL {
            return true;
        }
        self.called = Instant::now();
        Python::attach(|py| match self.ask(py, done, total) {
            Ok(go_on) => go_on,
            Err(error) => {
                self.raised = Some(error);
                false
            }
        })
    }

    fn ask(&self, py: Python<'_>, done: u64, total: Option<u64>) -> PyResult<bool> {
        py.check_signals()?;
        match &self.function {
            Some(function) => {
                let answer = function.bind(py).call1((done, total))?;
                Ok(answer.is_none() || answer.is_truthy()?)
            }
            None => Ok(true),
        }
    }

    /// What was raised while the work went on, in place of the error that stopped it.
    pub(crate) fn error_or(self, other: impl FnOnce() -> PyErr) -> PyErr {
        self.raised.unwrap_or_else(other)
    }
}
