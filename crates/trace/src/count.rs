//! Texts with counts.

/// A text such as `1 line is REST` or `3 lines are REST`; `one` and `many` are the noun and its
/// verb, in singular and plural.
pub(crate) fn counted(count: u64, one: &str, many: &str, rest: &str) -> String {
    format!("{count} {} {rest}", if count == 1 { one } else { many })
}
