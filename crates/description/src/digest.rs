//! Digests of descriptions, which are equal for equal machines.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// SHA-256 of a description, or of a part of one, in JSON. Two files that describe the same machine
/// have equal digests.
pub fn of(description: &impl Serialize) -> String {
    let json = serde_json::to_vec(description).unwrap_or_default();
    Sha256::digest(&json).iter().map(|byte| format!("{byte:02x}")).collect()
}
