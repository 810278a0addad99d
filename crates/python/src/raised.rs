//! Exceptions that Python raises while Rust waits for something.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

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
