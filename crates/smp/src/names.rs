//! Names that a user gives for locking schemes, loads and page tables.

/// The value that `name` stands for. `what` is used in the error.
pub fn named<T: Copy>(what: &str, name: &str, all: &[(&str, T)]) -> Result<T, String> {
    let known = all.iter().find(|(of, _)| *of == name).map(|(_, value)| *value);
    known.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("`{name}` is not a {what}: choose from {}", names.join(", "))
    })
}
