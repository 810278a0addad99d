//! Text for counts.

/// `1 line is REST`, `3 lines are REST`: `one` and `many` are the noun with its verb in singular
/// and plural.
pub(crate) fn counted(count: u64, one: &str, many: &str, rest: &str) -> String {
    format!("{count} {} {rest}", if count == 1 { one } else { many })
}
