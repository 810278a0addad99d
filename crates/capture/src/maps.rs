//! The kernel's list of QEMU's mappings, which contains the guest's.

use std::path::Path;

use crate::elf;

/// A mask of the bits of an address within a page of the host.
const PAGE_MASK: u64 = 4095;

/// The segments of the guest's program and loader among `lines`. The lines also contain QEMU's own
/// segments. Pages with the guest's code are readable and not executable in QEMU.
pub(crate) fn images(lines: &[Line<'_>], base: u64) -> Vec<(u64, u64, u64)> {
    let mut regions = Vec::new();
    for head in lines.iter().filter(|line| line.offset == 0 && line.path.starts_with('/')) {
        let Ok(elf) = elf::read(Path::new(head.path)) else { continue };
        let Some(first) = elf.segments.first() else { continue };
        let shift = head.start.wrapping_sub(base).wrapping_sub(first.start & !PAGE_MASK);
        let segments = elf.segments.iter().map(|segment| {
            let end = segment.end.saturating_add(PAGE_MASK) & !PAGE_MASK;
            let start = shift.wrapping_add(segment.start & !PAGE_MASK);
            (start, shift.wrapping_add(end), u64::from(segment.rights))
        });
        let segments: Vec<_> = segments.filter(|segment| segment.0 < segment.1).collect();
        let within = |line: &&Line<'_>| {
            let at = line.start.wrapping_sub(base);
            line.path == head.path && segments.iter().any(|part| (part.0..part.1).contains(&at))
        };
        if lines.iter().filter(within).all(|line| !line.is_executable) {
            regions.extend(segments);
        }
    }
    regions.sort_unstable();
    // If two segments share a page, the page has the rights of the later segment.
    for index in 1..regions.len() {
        regions[index - 1].1 = regions[index - 1].1.min(regions[index].0);
    }
    regions
}

/// A line of `/proc/PID/maps`.
pub(crate) struct Line<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    is_executable: bool,
    pub(crate) is_writable: bool,
    /// The offset in the file at which the mapping begins.
    pub(crate) offset: u64,
    /// The file's device number in the format of `stat`, and its inode number.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) path: &'a str,
}

impl<'a> Line<'a> {
    /// Parses a line; `None` if it is invalid.
    pub(crate) fn parse(line: &'a str) -> Option<Line<'a>> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let offset = hex(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        Some(Line {
            start: hex(start)?,
            end: hex(end)?,
            is_executable: rights.contains('x'),
            is_writable: rights.contains('w'),
            offset,
            device: libc::makedev(hex(major)? as u32, hex(minor)? as u32),
            inode: fields.next()?.parse().ok()?,
            path: fields.next().unwrap_or("").trim_start(),
        })
    }

    /// Whether `address` is in the mapping.
    pub(crate) fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mappings of this test's program at an address, in the kernel's format.
    fn maps(path: &str, at: u64, segments: &[elf::Segment], rights: &str) -> String {
        let line = |segment: &elf::Segment| {
            let start = (at + segment.start) & !PAGE_MASK;
            let end = (at + segment.end + PAGE_MASK) & !PAGE_MASK;
            // Only the first of a file's segments begins where the file does.
            let offset = segment.start & !PAGE_MASK;
            format!("{start:x}-{end:x} {rights} {offset:08x} 08:01 7 {path}\n")
        };
        segments.iter().map(line).collect()
    }

    #[test]
    fn images_are_the_files_whose_code_is_only_read() {
        let own = std::env::current_exe().unwrap();
        let (path, segments) = (own.to_str().unwrap(), elf::read(&own).unwrap().segments);
        assert!(segments.iter().any(|segment| segment.rights == 5), "{segments:?}");
        let (at, base) = (0x5555_5555_4000, 0x1000_0000);
        let qemu = maps(path, 0x7f00_0000_0000, &segments, "r-xp");
        let guest = maps(path, at + base, &segments, "r--p");
        let text = format!("{qemu}{guest}7ffd0000-7ffd1000 rw-p 00000000 00:00 0 [stack]\nwrong\n");
        let lines: Vec<Line<'_>> = text.lines().filter_map(Line::parse).collect();
        let found = images(&lines, base);
        assert_eq!(found.len(), segments.len());
        for (region, segment) in found.iter().zip(&segments) {
            assert_eq!(region.0, (at + segment.start) & !PAGE_MASK);
            assert!(region.0 < region.1 && region.1 <= (at + segment.end + PAGE_MASK) & !PAGE_MASK);
            assert_eq!(region.2, u64::from(segment.rights));
        }
        assert!(found.is_sorted() && found.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        let without: Vec<Line<'_>> = qemu.lines().filter_map(Line::parse).collect();
        assert_eq!(images(&without, base), []);
    }
}
