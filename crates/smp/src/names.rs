//! Finds locking schemes, loads and page tables by the names that a user gives.

use serde::{Deserialize, Deserializer, de::Error as _};

/// The value that `name` stands for. `what` is used in the error.
pub(crate) fn named<T: Copy>(what: &str, name: &str, all: &[(&str, T)]) -> Result<T, String> {
    let known = all.iter().find(|(of, _)| *of == name).map(|(_, value)| *value);
    known.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("`{name}` is not a {what}: choose from {}", names.join(", "))
    })
}

/// Reads one of the values `all` by its name, as [`named`] does, from a document.
pub(crate) fn read_named<'de, D: Deserializer<'de>, T: Copy>(
    what: &str,
    from: D,
    all: &[(&str, T)],
) -> Result<T, D::Error> {
    named(what, &String::deserialize(from)?, all).map_err(D::Error::custom)
}
