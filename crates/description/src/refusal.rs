//! Why a machine cannot be built from its file.

/// A wrong key of a machine file, and what is wrong with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The key, such as `tlb.l1d.entries`.
    pub key: String,
    /// The reason for which the value is wrong, and the possible values.
    pub what: String,
}

impl Refusal {
    /// The error that the value at `key` is wrong. `what` is the reason.
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> Refusal {
        Refusal { key: key.into(), what: what.into() }
    }
}
