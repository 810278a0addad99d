//! Options that Python passes as one JSON document, so that a new option needs no code here.

use pyo3::prelude::*;
use serde_json::Value;

use crate::error::refused;

/// Parses `document`. The error says what is wrong in the document.
pub(crate) fn told<T: serde::de::DeserializeOwned>(document: &str) -> PyResult<T> {
    // The text is first parsed into a value, because errors of parsing a text directly contain a
    // line and column of the document, which users do not see.
    let value: Value = serde_json::from_str(document).map_err(refused)?;
    serde_json::from_value(value).map_err(refused)
}
