//! Names of kinds of access in text, without regard to case.

use addr::Kind;

const NAMES: [(&[u8], Kind); 14] = [
    (b"r", Kind::Load),
    (b"w", Kind::Store),
    (b"load", Kind::Load),
    (b"store", Kind::Store),
    (b"fetch", Kind::Fetch),
    (b"read", Kind::Load),
    (b"write", Kind::Store),
    (b"l", Kind::Load),
    (b"s", Kind::Store),
    (b"i", Kind::Fetch),
    (b"f", Kind::Fetch),
    (b"ifetch", Kind::Fetch),
    (b"ld", Kind::Load),
    (b"st", Kind::Store),
];

/// The kind that `text` names.
#[inline]
pub(crate) fn kind(text: &[u8]) -> Option<Kind> {
    NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map(|&(_, kind)| kind)
}

/// The kind for the letter R (load) or W (store).
#[inline]
pub(crate) fn read_or_write(text: &[u8]) -> Option<Kind> {
    match text {
        b"R" | b"r" => Some(Kind::Load),
        b"W" | b"w" => Some(Kind::Store),
        _ => None,
    }
}
