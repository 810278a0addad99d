//! The page tables of a recorded system, reconstructed from its trace: the memory in which they
//! lie, and their entries.

use rustc_hash::FxHashMap;

pub(super) const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// At the levels 2 and 3: the entry maps a large page.
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NEVER_RUNS: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const ENTRIES: usize = 512;
/// log2 of the bytes of a base page.
const BASE: u8 = 12;

/// A page as a walk finds it, or as a TLB has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Page {
    /// The first address, and the physical address of the same byte.
    pub(super) addr: u64,
    pub(super) paddr: u64,
    pub(super) size_log: u8,
    pub(super) write: bool,
    pub(super) execute: bool,
    pub(super) user: bool,
    pub(super) global: bool,
    pub(super) dirty: bool,
}

impl Page {
    /// The physical address of `addr`, which lies in the page.
    pub(super) fn at(&self, addr: u64) -> u64 {
        self.paddr.wrapping_add(addr.wrapping_sub(self.addr))
    }
}

/// The physical addresses of the entries that a walk read, from the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Path {
    entries: [u64; 5],
    count: u8,
}

impl Path {
    pub(super) fn entries(&self) -> &[u64] {
        &self.entries[..usize::from(self.count)]
    }

    fn push(&mut self, entry: u64) {
        self.entries[usize::from(self.count)] = entry;
        self.count += 1;
    }
}

/// The result of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Walk {
    Page(Page, Path),
    /// The last entry of the path is not present.
    Absent(Path),
    /// The trace does not contain a table that the walk needs.
    Unknown,
}

/// What a store to an entry did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    /// Nothing, or the entry is still not present.
    Nothing,
    /// The entry was not present, and is now: no TLB can have it.
    Appeared,
    /// The accessed bit changed, or bits that only software uses, or the dirty bit was set.
    Marked,
    /// Rights were added: a processor that has fewer takes a fault, which drops its translation.
    Grown,
    /// A TLB may have what the entry was before, and needs a flush.
    Changed,
    /// The page of this entry is in no page table that the trace has recorded.
    Unknown,
}

struct Table {
    level: u8,
    entries: Box<[u64; ENTRIES]>,
}

/// All tables by the physical address of their page.
#[derive(Default)]
pub(super) struct Tables(FxHashMap<u64, Table>);

impl Tables {
    /// A page becomes a table, or with level 0 is one no more.
    pub(super) fn table(&mut self, paddr: u64, level: u8) {
        if level == 0 {
            self.0.remove(&paddr);
        } else {
            self.0.insert(paddr, Table { level, entries: Box::new([0; ENTRIES]) });
        }
    }

    /// An entry that a table has from its beginning.
    pub(super) fn found(&mut self, entry: u64, value: u64) {
        if let Some(table) = self.0.get_mut(&(entry & !0xfff)) {
            table.entries[index(entry)] = value;
        }
    }

    /// An entry is stored to. Returns what this means, and the frame of a base page that the entry maps now and did not
    /// map before.
    pub(super) fn store(&mut self, entry: u64, value: u64) -> (Stored, Option<u64>) {
        let Some(table) = self.0.get_mut(&(entry & !0xfff)) else { return (Stored::Unknown, None) };
        let old = std::mem::replace(&mut table.entries[index(entry)], value);
        let leaf = |value: u64| table.level == 1 || table.level < 4 && value & LARGE != 0;
        let is_same = old & PRESENT != 0 && (old ^ value) & ADDRESS == 0;
        let maps = value & PRESENT != 0 && table.level == 1 && !is_same;
        let frame = maps.then_some(value & ADDRESS);
        (compared(old, value, leaf(old), leaf(value)), frame)
    }

    /// Walks the table with this root.
    pub(super) fn walk(&self, root: u64, addr: u64) -> Walk {
        let (mut page, mut path) = (root, Path::default());
        let (mut write, mut user, mut execute) = (true, true, true);
        let Some(mut level) = self.0.get(&root).map(|table| table.level) else {
            return Walk::Unknown;
        };
        loop {
            let Some(table) = self.0.get(&page) else { return Walk::Unknown };
            let shift = BASE + 9 * (level - 1);
            let place = (addr >> shift) as usize % ENTRIES;
            path.push(page + 8 * place as u64);
            let value = table.entries[place];
            if value & PRESENT == 0 {
                return Walk::Absent(path);
            }
            write &= value & WRITE != 0;
            user &= value & USER != 0;
            execute &= value & NEVER_RUNS == 0;
            if level == 1 || level < 4 && value & LARGE != 0 {
                let mask = (1u64 << shift) - 1;
                let (global, dirty) = (value & GLOBAL != 0, value & DIRTY != 0);
                let (addr, paddr) = (addr & !mask, value & ADDRESS & !mask);
                let size_log = shift;
                let page = Page { addr, paddr, size_log, write, execute, user, global, dirty };
                return Walk::Page(page, path);
            }
            (page, level) = (value & ADDRESS, level - 1);
        }
    }

    /// A processor has stored to the page of this path.
    pub(super) fn set_dirty(&mut self, path: &Path) {
        if let Some(&entry) = path.entries().last() {
            let value = self.0.get(&(entry & !0xfff)).map(|table| table.entries[index(entry)]);
            self.found(entry, value.unwrap_or_default() | ACCESSED | DIRTY);
        }
    }
}

fn index(entry: u64) -> usize {
    entry as usize % 4096 / 8
}

/// What the change of an entry from `old` to `new` means. `was_leaf` and `is_leaf` say whether it maps a page.
fn compared(old: u64, new: u64, was_leaf: bool, is_leaf: bool) -> Stored {
    const TRANSLATION: u64 = ADDRESS | LARGE;
    if old & PRESENT == 0 {
        return if new & PRESENT == 0 { Stored::Nothing } else { Stored::Appeared };
    }
    let lost = old & !new & (WRITE | USER | PRESENT) | new & !old & NEVER_RUNS;
    let gained = new & !old & (WRITE | USER) | old & !new & NEVER_RUNS;
    let cleaned = was_leaf && old & !new & DIRTY != 0;
    if (old ^ new) & TRANSLATION != 0 || was_leaf != is_leaf || lost != 0 || cleaned {
        Stored::Changed
    } else if gained != 0 {
        Stored::Grown
    } else if old == new {
        Stored::Nothing
    } else {
        Stored::Marked
    }
}
