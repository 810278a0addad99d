//! Why a machine cannot be built from its file.

/// A wrong key of a machine file, and what is wrong with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The key, such as `tlb.l1d.entries`.
    pub key: String,
    /// Why the key's value is wrong, and which values are possible.
    pub what: String,
}

impl Refusal {
    /// An error for a wrong value at `key`. `what` says what is wrong.
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> Refusal {
        Refusal { key: key.into(), what: what.into() }
    }
}
