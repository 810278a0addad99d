//! Exceptions that Python raises while Rust waits.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

/// The exception that ended a wait, such as the `KeyboardInterrupt` of a signal.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Keeps `error` until it can be raised.
    pub(crate) fn set(&self, error: PyErr) {
        *self.0.lock().unwrap_or_else(|poison| poison.into_inner()) = Some(error);
    }

    /// The exception that was kept; if there is none, `error`. The kept exception is preferred to
    /// the error that it caused.
    pub(crate) fn or(&self, error: PyErr) -> PyErr {
        self.take().unwrap_or(error)
    }

    fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner()).take()
    }

    /// Whether to continue: false if a signal asks to stop. The exception of such a signal is
    /// kept.
    pub(crate) fn go_on(&self) -> bool {
        match Python::attach(|py| py.check_signals()) {
            Ok(()) => true,
            Err(error) => {
                self.set(error);
                false
            }
        }
    }
}
