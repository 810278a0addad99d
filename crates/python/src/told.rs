//! Options that Python passes as one JSON document, so that a new option needs no code here.

use pyo3::prelude::*;
use serde_json::Value;

use crate::error::refused;

/// Parses `document`. The error describes the defect of the document.
pub(crate) fn told<T: serde::de::DeserializeOwned>(document: &str) -> PyResult<T> {
    // By way of a value: an error has the place in a text that nobody sees otherwise.
    let value: Value = serde_json::from_str(document).map_err(refused)?;
    serde_json::from_value(value).map_err(refused)
}
