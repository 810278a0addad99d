use sha2::{Digest, Sha256};

use crate::Description;

/// SHA-256 of the description as JSON: the same for two files that describe one machine.
pub(crate) fn of_description(description: &Description) -> String {
    let json = serde_json::to_vec(description).unwrap_or_default();
    Sha256::digest(&json).iter().map(|byte| format!("{byte:02x}")).collect()
}
