//! The kernel's information on a process's pages: `PAGEMAP_SCAN`, the words of pagemap, and the
//! flags of frames.
//!
//! ```text
//!   PAGEMAP_SCAN   Linux 6.7, for any user: which ranges are resident, and mapped by entries of 2 MiB
//!   pagemap        for root: the frame of each base page
//!   kpageflags     for root: which frames begin and continue a folio, the unit of allocation
//! ```
//!
//! Source: Linux, `Documentation/admin-guide/mm/pagemap.rst`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use trace::{Seen, Translation};

const PAGE: u64 = 4096;
/// `_IOWR('f', 16, struct pm_scan_arg)` of include/uapi/linux/fs.h (Linux 6.7).
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const IS_PRESENT: u64 = 1 << 3;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;
/// Pagemap's bit for a page that is present, and the bits with its frame.
const WORD_PRESENT: u64 = 1 << 63;
const WORD_FRAME: u64 = (1 << 55) - 1;
/// Bits of kpageflags: the first frame of a folio of several frames, and its other frames.
const FRAME_HEAD: u64 = 1 << 15;
const FRAME_TAIL: u64 = 1 << 16;
/// The number of words that are read by one call.
const WORDS: usize = 1 << 13;
/// The size of a page that an entry of the second level of the page table maps.
const LARGE: u64 = 2 << 20;
/// The size of a page that an entry of the third level maps.
const GIGANTIC: u64 = 1 << 30;

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
pub(crate) fn ranges(
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
        // SAFETY: the array has the number of ranges that the argument states.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        let found = ranges.get(..usize::try_from(found).ok()?)?;
        for [from, to, categories] in found {
            range(*from, *to, categories & IS_HUGE != 0);
        }
        // The kernel's `walk_end` is not used: it is the end for the kernel's internal buffer of
        // 512 ranges.
        match found.last() {
            Some([_, to, _]) if found.len() == ranges.len() => at = *to,
            _ => break,
        }
    }
    Some(())
}

/// Whether this kernel has `PAGEMAP_SCAN`.
pub(crate) fn is_supported() -> bool {
    let own = File::open("/proc/self/pagemap");
    own.is_ok_and(|own| ranges(&own, 0, PAGE, |_, _, _| {}).is_some())
}

/// The files from which frames and their folios are read.
#[derive(Debug)]
pub(crate) struct Frames {
    flags: File,
}

impl Frames {
    /// Opens the files. `None` if this process does not have the right to see frames.
    pub(crate) fn open() -> Option<Frames> {
        let flags = File::open("/proc/kpageflags").ok()?;
        // A process without the right to see frames (CAP_SYS_ADMIN) sees zeros in their place.
        let own = File::open("/proc/self/pagemap").ok()?;
        let here = 0_u8;
        let mut word = [0; 8];
        own.read_exact_at(&mut word, &raw const here as u64 / PAGE * 8).ok()?;
        let is_seen = u64::from_le_bytes(word) & WORD_FRAME != 0;
        is_seen.then_some(Frames { flags })
    }
}

/// The resident pages between two addresses of a process, as runs of one size in adjacent frames.
/// `None` if the kernel has no `PAGEMAP_SCAN`, or the process has ended.
pub(crate) fn translations(
    pagemap: &File,
    frames: Option<&Frames>,
    start: u64,
    end: u64,
    found: &mut Vec<Translation>,
) -> Option<()> {
    let mut resident = Vec::new();
    ranges(pagemap, start, end, |from, to, is_large| resident.push((from, to, is_large)))?;
    for (from, to, is_large) in resident {
        match frames {
            None => {
                let page_bytes = if is_large { LARGE } else { PAGE };
                add(found, from, to, page_bytes, None);
            }
            // The process may have ended, or unmapped the pages just now.
            Some(frames) => drop(with_frames(pagemap, frames, (from, to, is_large), found)),
        }
    }
    Some(())
}

/// Appends pages to a list, and joins them with the last run if they continue it.
fn add(found: &mut Vec<Translation>, from: u64, to: u64, page_bytes: u64, paddr: Option<u64>) {
    let pages = (to - from) / page_bytes;
    if let Some(last) = found.last_mut()
        && last.page_bytes == page_bytes
        && last.addr + last.pages * page_bytes == from
        && last.paddr.map(|paddr| paddr + last.pages * page_bytes) == paddr
    {
        last.pages += pages;
        return;
    }
    let page = Translation::base(Seen::Snapshot, from);
    found.push(Translation { page_bytes, pages, paddr, ..page });
}

/// Appends the pages of a resident range with their frames.
fn with_frames(
    pagemap: &File,
    frames: &Frames,
    (from, to, is_large): (u64, u64, bool),
    found: &mut Vec<Translation>,
) -> io::Result<()> {
    let mut bytes = vec![0; 8 * WORDS.min(((to - from) / PAGE) as usize)];
    let mut at = from;
    // The run of adjacent frames that is being collected: first address, first frame, number of
    // pages.
    let mut run: Option<(u64, u64, u64)> = None;
    while at < to {
        let count = WORDS.min(((to - at) / PAGE) as usize);
        let bytes = &mut bytes[..8 * count];
        pagemap.read_exact_at(bytes, at / PAGE * 8)?;
        for word in bytes.as_chunks::<8>().0 {
            let word = u64::from_le_bytes(*word);
            let frame = word & WORD_FRAME;
            let here = (word & WORD_PRESENT != 0 && frame != 0).then_some(frame);
            match (&mut run, here) {
                (Some((_, first, pages)), Some(frame)) if *first + *pages == frame => *pages += 1,
                _ => {
                    if let Some(run) = run.take() {
                        folios(frames, run, is_large, found)?;
                    }
                    run = here.map(|frame| (at, frame, 1));
                }
            }
            at += PAGE;
        }
    }
    run.map_or(Ok(()), |run| folios(frames, run, is_large, found))
}

/// Appends adjacent pages in adjacent frames. A folio is appended as one page if all of it is
/// mapped in order, at an address that is a multiple of its size.
fn folios(
    frames: &Frames,
    (addr, frame, pages): (u64, u64, u64),
    is_large: bool,
    found: &mut Vec<Translation>,
) -> io::Result<()> {
    let paddr = frame * PAGE;
    if pages == 1 {
        add(found, addr, addr + PAGE, PAGE, Some(paddr));
        return Ok(());
    }
    let end = addr + pages * PAGE;
    if is_large && (addr | paddr | end) & (LARGE - 1) == 0 {
        // A folio of a single large page ends at the end of this page.
        let is_gigantic =
            (addr | paddr | end) & (GIGANTIC - 1) == 0 && frames.is_tail(frame + LARGE / PAGE);
        add(found, addr, end, if is_gigantic { GIGANTIC } else { LARGE }, Some(paddr));
        return Ok(());
    }
    let mut bytes = vec![0; 8 * pages as usize];
    frames.flags.read_exact_at(&mut bytes, frame * 8)?;
    let flags: Vec<u64> =
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let mut at = 0;
    while at < flags.len() {
        let tails = flags[at + 1..].iter().take_while(|&&flags| flags & FRAME_TAIL != 0).count();
        let is_head = flags[at] & FRAME_HEAD != 0;
        // The folio may have more frames, which are not mapped here.
        let next = frame + (at + 1 + tails) as u64;
        let is_whole = is_head && (at + 1 + tails < flags.len() || !frames.is_tail(next));
        let count = if is_whole { 1 + tails } else { 1 };
        let mut size = count as u64 * PAGE;
        let (from, paddr) = (addr + at as u64 * PAGE, (frame + at as u64) * PAGE);
        if !size.is_power_of_two() || (from | paddr) & (size - 1) != 0 {
            size = PAGE;
        }
        // A folio of 2 MiB may be mapped by base pages.
        if size >= LARGE {
            size = PAGE;
        }
        add(found, from, from + count as u64 * PAGE, size, Some(paddr));
        at += count;
    }
    Ok(())
}

impl Frames {
    /// Whether the frame continues a folio.
    fn is_tail(&self, frame: u64) -> bool {
        let mut word = [0; 8];
        self.flags.read_exact_at(&mut word, frame * 8).is_ok()
            && u64::from_le_bytes(word) & FRAME_TAIL != 0
    }
}
