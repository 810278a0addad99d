//! Which parts of a process's memory are resident and in pages of which size; and reading its
//! strings.

use std::fs::File;
use std::io;

use super::LARGE;
use crate::pagemap;
use crate::tracee::Memory;

const PAGE: u64 = 4096;
/// The most bytes that are read of a program's strings.
const TEXT_MAX: usize = 4096;

/// The resident bytes from `start` to `end`, and how many of these are mapped by entries of 2 MiB. `None` if
/// the kernel does not report that.
pub(super) fn scan(pagemap: &File, start: u64, end: u64) -> Option<(u64, u64)> {
    let (mut present, mut large) = (0, 0);
    pagemap::ranges(pagemap, start, end, |from, to, is_large| {
        present += to - from;
        large += if is_large { to - from } else { 0 };
    })?;
    Some((present, large))
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

/// The blocks of 2 MiB in a range, as the first byte of the first and the end of the last; `None` if there is
/// none.
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
        // Never across the end of a page, which may be the end of all.
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
