//! Where pages were in physical memory, as a tracer saw it.
//!
//! Two sources: markers in the trace, as the pages are met, and `v2p.textproto`, a list for
//! the whole run that lies beside the trace:
//!
//! ```text
//!   page_size: 0x1000
//!   address_mapping { virtual_address: 0x7f0012340000 physical_address: 0x2a4f000 }
//! ```
//!
//! Source: DynamoRIO, `clients/drcachesim/common/v2p.proto` and `reader/v2p_reader.cpp`.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::input::Input;
use crate::Error;

/// The pages of a program, all of one size.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    mask: u64,
    /// Those of the list, which all files of the trace share.
    listed: Arc<FxHashMap<u64, u64>>,
    /// What the file's own markers said since; no frame where they said that none is known.
    marked: FxHashMap<u64, Option<u64>>,
    last: (u64, u64),
}

/// The most pages of a list, 128 GiB of 4K pages: it is held in memory.
const PAGES_MAX: usize = 1 << 25;
/// No page starts here.
const NO_PAGE: u64 = u64::MAX;

impl Pages {
    /// No page is known; pages have `page_bytes`, a power of two.
    pub(crate) fn new(page_bytes: u64) -> Pages {
        let (listed, marked) = (Arc::default(), FxHashMap::default());
        Pages { mask: page_bytes - 1, listed, marked, last: (NO_PAGE, 0) }
    }

    /// The page of `virt` is at that of `phys`, or nowhere.
    pub(crate) fn set(&mut self, virt: u64, phys: Option<u64>) {
        let page = virt & !self.mask;
        self.last = (NO_PAGE, 0);
        self.marked.insert(page, phys.map(|phys| phys & !self.mask));
    }

    /// Where `virt` is; 0 if that is not known.
    #[inline]
    pub(crate) fn translate(&mut self, virt: u64) -> u64 {
        let page = virt & !self.mask;
        if self.last.0 == page {
            return self.last.1 | virt & self.mask;
        }
        let listed = || self.listed.get(&page).copied();
        match self.marked.get(&page).copied().unwrap_or_else(listed) {
            Some(frame) => {
                self.last = (page, frame);
                frame | virt & self.mask
            }
            None => 0,
        }
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
                None => return Err(input.corrupt(0, "a line without end")),
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

/// What has been read of the file.
#[derive(Default)]
struct Parser {
    page_bytes: Option<u64>,
    within: bool,
    virt: u64,
    phys: Option<u64>,
    pairs: Vec<(u64, u64)>,
}

impl Parser {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|_| "not text".to_owned())?;
        let line = line.split('#').next().unwrap_or_default();
        let spaced = line.replace('{', " { ").replace('}', " } ").replace(':', " : ");
        let mut words = spaced.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "address_mapping" => match (self.within, words.find(|word| *word != ":")) {
                    (false, Some("{")) => (self.within, self.virt, self.phys) = (true, 0, None),
                    _ => return Err("`address_mapping` without its brace".to_owned()),
                },
                "}" if self.within => {
                    // Protocol buffers leave a value of 0 out.
                    self.pairs.push((self.virt, self.phys.unwrap_or(0)));
                    self.within = false;
                    if self.pairs.len() > PAGES_MAX {
                        return Err(format!("more than {PAGES_MAX} pages"));
                    }
                }
                key => {
                    let text = (words.next() == Some(":")).then(|| words.next()).flatten();
                    let value = text
                        .and_then(number)
                        .ok_or_else(|| format!("`{}` without a number", key.escape_debug()))?;
                    match key {
                        "virtual_address" if self.within => self.virt = value,
                        "physical_address" if self.within => self.phys = Some(value),
                        "page_size" if !value.is_power_of_two() => {
                            return Err(format!("page_size {value} is no power of two"));
                        }
                        "page_size" => self.page_bytes = Some(value),
                        "page_count" | "bytes_mapped" => {}
                        _ => return Err(format!("unknown key `{}`", key.escape_debug())),
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Pages, String> {
        if self.within {
            return Err("the file ends within an address_mapping: it was cut".to_owned());
        }
        let page_bytes = self.page_bytes.ok_or("no page_size in the file")?;
        let mask = page_bytes - 1;
        let listed = self.pairs.iter().map(|(virt, phys)| (virt & !mask, phys & !mask)).collect();
        Ok(Pages { listed: Arc::new(listed), ..Pages::new(page_bytes) })
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
