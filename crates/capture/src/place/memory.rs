//! Which parts of a process's memory are resident and in pages of which size; and reading its
//! strings.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::LARGE;
use crate::tracee::Memory;

const PAGE: u64 = 4096;
/// `_IOWR('f', 16, struct pm_scan_arg)` of include/uapi/linux/fs.h (Linux 6.7).
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const IS_PRESENT: u64 = 1 << 3;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;
/// The most bytes that are read of a program's strings.
const TEXT_MAX: usize = 4096;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Calls `range` for each resident range from `start` to `end`, with whether it is mapped by entries of 2
/// MiB. `None` if the kernel has no `PAGEMAP_SCAN`.
fn ranges(
    pagemap: &File,
    start: u64,
    end: u64,
    mut range: impl FnMut(u64, u64, bool),
) -> Option<()> {
    let mut at = start;
    let mut ranges = [[0_u64; 3]; 256];
    while at < end {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: at,
            end,
            vec: ranges.as_mut_ptr() as u64,
            vec_len: ranges.len() as u64,
            category_inverted: IS_ZERO,
            category_mask: IS_PRESENT | IS_ZERO,
            return_mask: IS_PRESENT | IS_HUGE,
            ..Scan::default()
        };
        // SAFETY: the ranges are ours, and as many as the argument says.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        let found = ranges.get(..usize::try_from(found).ok()?)?;
        for [from, to, categories] in found {
            range(*from, *to, categories & IS_HUGE != 0);
        }
        // The kernel's `walk_end` is that of its own buffer of 512 ranges, and not to be believed.
        match found.last() {
            Some([_, to, _]) if found.len() == ranges.len() => at = *to,
            _ => break,
        }
    }
    Some(())
}

/// The resident bytes from `start` to `end`, and how many of these are mapped by entries of 2 MiB. `None` if
/// the kernel does not report that.
pub(super) fn scan(pagemap: &File, start: u64, end: u64) -> Option<(u64, u64)> {
    let (mut present, mut large) = (0, 0);
    ranges(pagemap, start, end, |from, to, is_large| {
        present += to - from;
        large += if is_large { to - from } else { 0 };
    })?;
    Some((present, large))
}

/// The blocks of 2 MiB between `start` and `end` whose base pages are all resident.
pub(super) fn full_blocks(pagemap: &File, start: u64, end: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let looked = ranges(pagemap, start, end, |from, to, is_large| {
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
