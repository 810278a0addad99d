//! Reports the progress of a run to a Python function, and stops the run at signals.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The time between two calls of the Python function.
const INTERVAL: Duration = Duration::from_millis(80);

/// Calls a Python function with the number of accesses done and the total number, at most twelve
/// times per second. Keeps the exception that the function raises, or the `KeyboardInterrupt` of a
/// signal.
pub(crate) struct Progress {
    function: Option<Py<PyAny>>,
    called: Instant,
    raised: Option<PyErr>,
}

impl Progress {
    pub(crate) fn new(function: Option<Py<PyAny>>) -> Progress {
        Progress { function, called: Instant::now(), raised: None }
    }

    /// Reports progress; `false` asks the work to stop. Called without the interpreter's lock.
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

    /// The exception that was raised during the work; if there is none, `other`. The exception is
    /// preferred to the error that it caused in the work.
    pub(crate) fn error_or(self, other: impl FnOnce() -> PyErr) -> PyErr {
        self.raised.unwrap_or_else(other)
    }
}
