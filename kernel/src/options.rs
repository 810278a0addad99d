//! The command line: words such as `processors=2`, separated by blanks.

use hat::locking::Once;

use crate::locks::PolledOnce;

/// The value of the word with that key.
pub fn word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let value = |word: &'a str| word.strip_prefix(key)?.strip_prefix('=');
    line.split_ascii_whitespace().find_map(value)
}

/// The value of `key` as a number. A suffix `M` is ignored.
pub fn number(line: &str, key: &str) -> Option<u64> {
    word(line, key)?.trim_end_matches('M').parse().ok()
}

/// The most bytes of a command line.
const LONGEST: usize = 512;

/// Copies the line to memory that is used for nothing else.
pub fn keep(line: &str) -> &'static str {
    static KEPT: PolledOnce<([u8; LONGEST], usize)> = PolledOnce::empty();
    let (bytes, length) = KEPT.get(|| {
        let length = line.len().min(LONGEST);
        let mut bytes = [0; LONGEST];
        bytes[..length].copy_from_slice(&line.as_bytes()[..length]);
        (bytes, length)
    });
    core::str::from_utf8(&bytes[..*length]).unwrap_or("")
}
