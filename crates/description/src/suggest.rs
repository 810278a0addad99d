//! Suggestions for misspelt words.
//!
//! ```text
//!   entres  --one letter missing-->  entries      at most a third of the letters may differ
//!   epyc    --begins------------->  epyc-9005     or it is the beginning of just one name
//! ```

/// The word of `known` that is most similar to `word`, if one is similar enough.
pub(crate) fn nearest<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let mut begun = known.clone().into_iter().filter(|name| name.starts_with(&lower));
    if let (false, Some(one), None) = (lower.is_empty(), begun.next(), begun.next()) {
        return Some(one);
    }
    let near = known.into_iter().map(|name| (distance(&lower, name), name));
    near.filter(|(far, name)| *far <= name.len().min(lower.len()).div_ceil(3))
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
}

/// `; did you mean ...?` if a known word is similar enough, otherwise an empty string.
pub(crate) fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    nearest(word, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// The least number of edits that turn one word into the other. An edit adds, removes or changes a
/// letter, or swaps two adjacent letters (Damerau 1964, restricted: no letter is edited twice).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for at in 0..=one.len() {
        for to in 0..=other.len() {
            rows[at][to] = if at == 0 || to == 0 {
                at + to
            } else {
                let same = usize::from(one[at - 1] != other[to - 1]);
                let mut best = (rows[at - 1][to - 1] + same)
                    .min(rows[at - 1][to] + 1)
                    .min(rows[at][to - 1] + 1);
                if at > 1 && to > 1 && one[at - 1] == other[to - 2] && one[at - 2] == other[to - 1]
                {
                    best = best.min(rows[at - 2][to - 2] + 1);
                }
                best
            };
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_nearly_right_is_guessed_and_another_is_not() {
        let keys = ["entries", "ways", "replacement", "page_sizes", "array"];
        for (word, meant) in [
            ("entres", Some("entries")),
            ("entreis", Some("entries")),
            ("Ways", Some("ways")),
            ("repl", Some("replacement")),
            ("page_size", Some("page_sizes")),
            ("latency", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, keys), meant, "{word}");
        }
        assert_eq!(nearest("epyc", ["opteron-2008", "epyc-9005"]), Some("epyc-9005"));
        assert_eq!(nearest("l", ["l1i", "l1d"]), None);
        assert_eq!(nearest("l9", ["l1", "l2"]), Some("l1"));
    }

    #[test]
    fn distances_are_those_of_small_words() {
        for (one, other, expected) in
            [("", "", 0), ("", "abc", 3), ("ab", "ba", 1), ("abc", "ac", 1), ("abcd", "axcy", 2)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected));
        }
    }
}
