//! Why a machine cannot be built as its file says.

/// A key of a machine file, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The key, as in `tlb.l1d.entries`.
    pub key: String,
    /// What is wrong with its value, and what to write instead.
    pub what: String,
}

impl Refusal {
    /// The value at `key` is wrong: `what`.
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> Refusal {
        Refusal { key: key.into(), what: what.into() }
    }
}
