//! Counts in sentences.

/// `1 line is REST`, `3 lines are REST`: `one` and `many` are the noun with its verb.
pub(crate) fn counted(count: u64, one: &str, many: &str, rest: &str) -> String {
    format!("{count} {} {rest}", if count == 1 { one } else { many })
}
