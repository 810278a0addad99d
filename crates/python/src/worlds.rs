//! Small examples whose numbers are exact.

use machine::worlds::{Numbers, WORLDS};
use pyo3::prelude::*;

use crate::error::refused;

/// The numbers of the example `name`, each with a name.
#[pyfunction]
pub(crate) fn world(name: &str) -> PyResult<Numbers> {
    let known = WORLDS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let all: Vec<&str> = WORLDS.iter().map(|(known, _)| *known).collect();
        refused(format!("there is no world `{name}`: choose one of {}", all.join(", ")))
    })?;
    Ok(known.1())
}
