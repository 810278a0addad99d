//! Which parts of a process's memory are resident, and in which page sizes; and reading strings of
//! the process.

use std::fs::File;
use std::io;

use super::LARGE;
use crate::pagemap;
use crate::tracee::Memory;

const PAGE: u64 = 4096;
/// The maximum number of bytes that are read of one of a program's strings.
const TEXT_MAX: usize = 4096;

/// The pages of a range that are in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Resident {
    /// The number of resident bytes.
    pub(super) bytes: u64,
    /// The number of resident bytes that are mapped by entries of 2 MiB.
    pub(super) large: u64,
    /// The number of resident bytes that are in base pages although they could be in large pages.
    /// The bytes at the two ends of the range, outside of its whole blocks, count only if they are
    /// at least as many as a large page has.
    pub(super) missing: u64,
}

impl Resident {
    /// The resident memory of the range from `start` to `end`. Each part that is in memory is given by its
    /// start, its end, and whether entries of 2 MiB map it.
    fn of(start: u64, end: u64, parts: impl IntoIterator<Item = (u64, u64, bool)>) -> Resident {
        let (first, last) = blocks(start, end).unwrap_or((end, end));
        let (mut found, mut at_ends) = (Resident::default(), 0);
        for (from, to, is_large) in parts {
            found.bytes += to - from;
            if is_large {
                found.large += to - from;
                continue;
            }
            let inside = to.min(last).saturating_sub(from.max(first));
            found.missing += inside;
            at_ends += to - from - inside;
        }
        // These bytes would be one more block if the range began at a multiple of 2 MiB.
        found.missing += if at_ends >= LARGE { at_ends } else { 0 };
        found
    }
}

/// The resident memory of the range from `start` to `end`. `None` if the kernel does not report
/// which pages are large.
pub(super) fn scan(pagemap: &File, start: u64, end: u64) -> Option<Resident> {
    let mut parts = Vec::new();
    pagemap::ranges(pagemap, start, end, |from, to, is_large| parts.push((from, to, is_large)))?;
    Some(Resident::of(start, end, parts))
}

/// The blocks of 2 MiB between `start` and `end` whose base pages are all resident.
pub(super) fn full_blocks(pagemap: &File, start: u64, end: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let looked = pagemap::ranges(pagemap, start, end, |from, to, is_large| {
        if let Some((first, last)) = blocks(from, to).filter(|_| !is_large) {
            found.extend((first..last).step_by(LARGE as usize));
        }
    });
    if looked.is_none() {
        found.clear();
    }
    found
}

/// The whole blocks of 2 MiB in a range: the beginning of the first block, and the end of the last
/// one. `None` if the range contains no whole block.
pub(super) fn blocks(start: u64, end: u64) -> Option<(u64, u64)> {
    let (first, last) = (start.checked_next_multiple_of(LARGE)?, end & !(LARGE - 1));
    (first < last).then_some((first, last))
}

/// The range extended to whole pages.
pub(super) fn whole_pages(start: u64, bytes: u64) -> (u64, u64) {
    let end = start.saturating_add(bytes);
    (start & !(PAGE - 1), end.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1)))
}

/// The zero-terminated string at `address`, without the zero.
pub(super) fn text(memory: &Memory, address: u64) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    while found.len() < TEXT_MAX {
        // Do not read across the end of a page, since the next page may not be mapped.
        let at = address + found.len() as u64;
        let mut part = vec![0; (PAGE - at % PAGE).min(256) as usize];
        memory.read_at(&mut part, at)?;
        if let Some(end) = part.iter().position(|&byte| byte == 0) {
            found.extend(&part[..end]);
            return Ok(found);
        }
        found.extend(part);
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// The word at `address`.
pub(super) fn word(memory: &Memory, address: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    memory.read_at(&mut bytes, address)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_page_at_the_ends_of_a_range_is_not_missing() {
        let mib = 1 << 20;
        let of = |start, end, parts: &[(u64, u64, bool)]| {
            let found = Resident::of(start, end, parts.iter().copied());
            (found.bytes, found.large, found.missing)
        };
        // The table consists of whole blocks, and 8 KiB of another mapping follow it.
        let table = [(4 * mib, 8 * mib, true), (8 * mib, 8 * mib + 8192, false)];
        assert_eq!(of(4 * mib, 8 * mib + 8192, &table), (4 * mib + 8192, 4 * mib, 0));
        // One block in the range has base pages.
        let block = [(4 * mib, 6 * mib, true), (6 * mib, 6 * mib + 4096, false)];
        assert_eq!(of(4 * mib, 8 * mib, &block), (2 * mib + 4096, 2 * mib, 4096));
        // Both ends together could be a block.
        let unaligned =
            [(3 * mib, 4 * mib, false), (4 * mib, 8 * mib, true), (8 * mib, 9 * mib, false)];
        assert_eq!(of(3 * mib, 9 * mib, &unaligned), (6 * mib, 4 * mib, 2 * mib));
        assert_eq!(of(3 * mib, 5 * mib, &[(3 * mib, 5 * mib, false)]), (2 * mib, 0, 2 * mib));
        assert_eq!(of(mib, 2 * mib, &[(mib, 2 * mib, false)]), (mib, 0, 0));
    }
}
