//! Names that a user gives: schemes of locks, loads, page tables.

/// What `name` stands for.
pub fn named<T: Copy>(what: &str, name: &str, all: &[(&str, T)]) -> Result<T, String> {
    let known = all.iter().find(|(of, _)| *of == name).map(|(_, value)| *value);
    known.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("`{name}` is not a {what}: choose from {}", names.join(", "))
    })
}
