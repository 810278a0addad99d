//! The physical addresses of pages, as the tracer recorded them.
//!
//! There are two sources: markers in the trace, when pages are first accessed, and `v2p.textproto`,
//! a list for the whole run in the trace's folder, with groups of pages of one size:
//!
//! ```text
//!   address_mapping_group {
//!     page_size: 0x200000
//!     address_mapping { virtual_address: 0x7f0012200000 physical_address: 0x2a400000 }
//!     information { page_count: 1 bytes_mapped: 0x200000 }
//!   }
//! ```
//!
//! The first version of these lists had no groups, only one page size and its mappings. If two
//! groups contain an address, the group with the smaller pages is used.
//!
//! Source: DynamoRIO, `clients/drcachesim/reader/v2p_reader.cpp` and the lists of its tests
//! (`clients/drcachesim/tests/v2p_example.textproto`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::input::Input;
use super::super::tags::Tags;
use crate::Error;

/// The physical addresses of a program's pages.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    /// The address bits that translation ignores.
    tags: Tags,
    /// The groups of the list, by ascending page size; all files of the trace share them.
    listed: Arc<[Group]>,
    /// The offset mask of the page size used by the file's own markers.
    mask: u64,
    /// The pages from markers of the file; `None` if the marker says that the frame is unknown.
    marked: FxHashMap<u64, Option<u64>>,
    last: Page,
}

/// Pages of one size.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Group {
    mask: u64,
    frames: FxHashMap<u64, u64>,
}

/// The page that was found last.
#[derive(Clone, Copy, Debug)]
struct Page {
    mask: u64,
    start: u64,
    frame: u64,
}

impl Page {
    /// A page that contains no address.
    const NONE: Page = Page { mask: 0, start: 1, frame: 0 };

    fn is_of(self, virt: u64) -> bool {
        virt & !self.mask == self.start && self.mask != 0
    }
}

/// The largest number of pages of a list, 128 GiB of 4K pages: the list is kept in memory.
const PAGES_MAX: usize = 1 << 25;
/// The largest number of page sizes of a list: more than any processor has.
const GROUPS_MAX: usize = 64;

impl Pages {
    /// No known pages. Pages that markers give will have `page_bytes` bytes, a power of two.
    pub(crate) fn new(page_bytes: u64) -> Pages {
        Pages {
            tags: Tags::default(),
            listed: Arc::new([]),
            mask: page_bytes - 1,
            marked: FxHashMap::default(),
            last: Page::NONE,
        }
    }

    /// Sets which address bits are ignored, and the page size of markers, a power of two.
    pub(crate) fn set_rules(&mut self, tags: Tags, page_bytes: u64) {
        (self.tags, self.mask, self.last) = (tags, page_bytes - 1, Page::NONE);
    }

    /// Records that the page of `virt` is at the frame of `phys`, or that its frame is unknown.
    pub(crate) fn set(&mut self, virt: u64, phys: Option<u64>) {
        let page = self.tags.strip(virt) & !self.mask;
        self.last = Page::NONE;
        self.marked.insert(page, phys.map(|phys| phys & !self.mask));
    }

    /// The physical address of `virt`; 0 if it is unknown.
    #[inline]
    pub(crate) fn translate(&mut self, virt: u64) -> u64 {
        let virt = self.tags.strip(virt);
        if !self.last.is_of(virt) {
            match self.find(virt) {
                Some(page) => self.last = page,
                None => return 0,
            }
        }
        self.last.frame | virt & self.last.mask
    }

    /// The page of `virt`, if it is known.
    fn find(&self, virt: u64) -> Option<Page> {
        let start = virt & !self.mask;
        if let Some(frame) = self.marked.get(&start) {
            return frame.map(|frame| Page { mask: self.mask, start, frame });
        }
        self.listed.iter().find_map(|group| {
            let start = virt & !group.mask;
            let frame = *group.frames.get(&start)?;
            // Markers, and groups of smaller pages, may describe a part of a large page
            // differently. So the returned part of the page is no larger than the smallest of these
            // pages.
            let marked = if self.marked.is_empty() { u64::MAX } else { self.mask };
            let smallest = self.listed.first().map_or(u64::MAX, |group| group.mask);
            let mask = group.mask & smallest & marked;
            let start = virt & !mask;
            Some(Page { mask, start, frame: frame | start & group.mask })
        })
    }

    /// Reads a `v2p.textproto`.
    pub(crate) fn read(path: &Path) -> Result<Pages, Error> {
        let mut input = Input::open(path, Input::WINDOW_BYTES)?;
        let mut parser = Parser::default();
        loop {
            input.fill();
            if let Some(error) = input.failure() {
                return Err(error);
            }
            let window = input.window();
            if window.is_empty() {
                break;
            }
            let end = match memchr::memrchr(b'\n', window) {
                Some(end) => end + 1,
                None if input.ended() => window.len(),
                None => return Err(input.corrupt(0, "a line that is too long")),
            };
            let text = &window[..end];
            let mut at = 0;
            for line in text.split_inclusive(|&byte| byte == b'\n') {
                parser.line(line).map_err(|what| input.corrupt(at, what))?;
                at += line.len();
            }
            input.consume(end);
        }
        parser.finish().map_err(|what| input.corrupt(0, what))
    }
}

/// The state of reading the file.
#[derive(Default)]
struct Parser {
    /// The open blocks, the outermost first.
    within: Vec<Block>,
    virt: u64,
    phys: Option<u64>,
    /// The page size of the group or of the list. The next field has the pages with their physical
    /// addresses.
    page_bytes: Option<u64>,
    pairs: Vec<(u64, u64)>,
    groups: BTreeMap<u64, FxHashMap<u64, u64>>,
    pages: usize,
}

/// A block of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    Group,
    Mapping,
    Information,
}

impl Block {
    const ALL: [(&'static str, Block); 3] = [
        ("address_mapping_group", Block::Group),
        ("address_mapping", Block::Mapping),
        ("information", Block::Information),
    ];

    fn name(self) -> &'static str {
        Block::ALL.iter().find(|(_, block)| *block == self).map_or("", |(name, _)| name)
    }
}

impl Parser {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|_| "not text".to_owned())?;
        let line = line.split('#').next().unwrap_or_default();
        let spaced = line.replace('{', " { ").replace('}', " } ").replace(':', " : ");
        let mut words = spaced.split_whitespace();
        while let Some(word) = words.next() {
            let block = Block::ALL.iter().find(|(name, _)| *name == word);
            match (word, block) {
                (_, Some(&(_, block))) => match words.find(|word| *word != ":") {
                    Some("{") => self.open(block)?,
                    _ => return Err(format!("`{word}` without its brace")),
                },
                ("}", None) => self.close()?,
                (key, None) => {
                    let text = (words.next() == Some(":")).then(|| words.next()).flatten();
                    let value = text
                        .and_then(number)
                        .ok_or_else(|| format!("`{}` without a number", key.escape_debug()))?;
                    self.set(key, value)?;
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, block: Block) -> Result<(), String> {
        let fits = match (block, self.within.last()) {
            (Block::Group, outer) => outer.is_none(),
            (Block::Mapping | Block::Information, outer) => {
                matches!(outer, None | Some(Block::Group))
            }
        };
        if !fits {
            return Err(format!("`{}` within another block", block.name()));
        }
        match block {
            // A list of mappings without a group may come before the first group.
            Block::Group => self.end_group()?,
            Block::Mapping => (self.virt, self.phys) = (0, None),
            Block::Information => {}
        }
        self.within.push(block);
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        match self.within.pop().ok_or("a brace that closes nothing")? {
            Block::Group => self.end_group()?,
            Block::Mapping => {
                // Protocol buffers leave a value of 0 out.
                self.pairs.push((self.virt, self.phys.unwrap_or(0)));
                self.pages += 1;
                if self.pages > PAGES_MAX {
                    return Err(format!("more than {PAGES_MAX} pages"));
                }
            }
            Block::Information => {}
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: u64) -> Result<(), String> {
        match (key, self.within.last()) {
            ("virtual_address", Some(Block::Mapping)) => self.virt = value,
            ("physical_address", Some(Block::Mapping)) => self.phys = Some(value),
            ("page_size", None | Some(Block::Group)) if !value.is_power_of_two() => {
                return Err(format!("page_size {value} is no power of two"));
            }
            ("page_size", None | Some(Block::Group)) => self.page_bytes = Some(value),
            ("page_count" | "bytes_mapped", None | Some(Block::Information)) => {}
            _ => return Err(format!("unknown key `{}`", key.escape_debug())),
        }
        Ok(())
    }

    /// Completes a group: all pages since the last group have the size of this group.
    fn end_group(&mut self) -> Result<(), String> {
        let pairs = std::mem::take(&mut self.pairs);
        let mask = match self.page_bytes.take() {
            Some(page_bytes) => page_bytes - 1,
            None if pairs.is_empty() => return Ok(()),
            None => return Err("no page_size for the pages".to_owned()),
        };
        let pages = self.groups.entry(mask).or_default();
        pages.extend(pairs.iter().map(|(virt, phys)| (virt & !mask, phys & !mask)));
        if self.groups.len() > GROUPS_MAX {
            return Err(format!("more than {GROUPS_MAX} sizes of pages"));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Pages, String> {
        if let Some(block) = self.within.last() {
            return Err(format!("the file ends within an {}: it is truncated", block.name()));
        }
        if self.page_bytes.is_none() && self.groups.is_empty() {
            return Err("no page_size in the file".to_owned());
        }
        self.end_group()?;
        let groups = self.groups.into_iter().map(|(mask, frames)| Group { mask, frames });
        Ok(Pages { listed: groups.collect(), ..Pages::new(BASE_BYTES) })
    }
}

/// The page size of markers until a marker defines it.
const BASE_BYTES: u64 = 4096;

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
