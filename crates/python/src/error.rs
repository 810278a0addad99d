//! The exception for everything that can go wrong, and its subclass for requests that were correct
//! but failed.

use pyo3::{PyErr, create_exception, exceptions::PyException};

create_exception!(
    _native,
    Error,
    PyException,
    "What cannot be done: one line that says what is wrong, where, and what to do."
);
create_exception!(
    _native,
    WorkError,
    Error,
    "The request was good and the work failed: a damaged trace, a full disk, a failed check."
);

/// An error in the request itself.
pub(crate) fn refused(error: impl std::fmt::Display) -> PyErr {
    Error::new_err(one_line(&error.to_string()))
}

/// An error in the work, after the request had been accepted.
pub(crate) fn failed(error: impl std::fmt::Display) -> PyErr {
    WorkError::new_err(one_line(&error.to_string()))
}

/// The text with line breaks and runs of blanks replaced by single blanks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
