//! Which memory of a whole machine its page tables are in, and what their entries are.
//!
//! ```text
//!   first fill with this root --> the root and all tables below it: read, and reported
//!   store to an entry ----------> reported; a table that the entry points to from now on: read, and reported
//!   no entry points to a table -> no longer watched
//! ```
//!
//! Each page is a table as long as entries of other tables point to it, or it is the root of a space. QEMU reports
//! stores to these pages only ([`Memory::watch`]). So a store costs nothing unless it goes to a page table, and every
//! change of an entry is seen from the first translation on that depends on it.
//!
//! Linux says when a space ends. Of another kernel this is known only later: when the page of a table becomes a table of
//! another level, the spaces that still lead to it have ended.

use std::collections::BTreeMap;

use ring::EventCode;

/// Entries of a table.
const ENTRIES: usize = 512;
/// Entries of one event at most.
const ENTRIES_OF_EVENT: usize = 128;
const PRESENT: u64 = 1;
/// At the levels 2 and 3: the entry maps a large page.
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// In place of a root that does not exist.
const NO_ROOT: u64 = 1;

/// The memory of the machine.
pub(crate) trait Memory {
    /// The contents of a page of memory; `None` if there is no memory.
    fn page(&mut self, page: u64) -> Option<[u64; ENTRIES]>;
    /// One entry.
    fn entry(&mut self, address: u64) -> Option<u64>;
    /// Begins or ends to watch a page for stores.
    fn watch(&mut self, page: u64, on: bool);
    /// Records an event.
    fn tell(&mut self, code: EventCode, words: &[u64]);
}

struct Table {
    level: u8,
    /// The number of entries that point to it, and one more for a root.
    links: u32,
    is_root: bool,
    known: Box<[u64; ENTRIES]>,
}

/// The tables of a machine, by the physical address of their page.
pub(crate) struct Tables {
    tables: BTreeMap<u64, Table>,
    /// The root of the last fill.
    last: u64,
}

impl Tables {
    pub(crate) const fn new() -> Tables {
        Tables { tables: BTreeMap::new(), last: NO_ROOT }
    }

    /// An address was translated by the table with this root.
    pub(crate) fn used(&mut self, root: u64, levels: u8, memory: &mut dyn Memory) {
        if root == self.last {
            return;
        }
        self.last = root;
        if self.tables.get(&root).is_none_or(|table| !table.is_root) {
            self.prepare(root, levels, memory);
            self.link(root, levels, memory);
            if let Some(table) = self.tables.get_mut(&root) {
                table.is_root = true;
            }
        }
    }

    /// The space with this root ends. Linux with page-table isolation has a second root beside it.
    pub(crate) fn ended(&mut self, root: u64, memory: &mut dyn Memory) {
        for root in [root, root | 1 << 12] {
            if let Some(table) = self.tables.get_mut(&root)
                && table.is_root
            {
                table.is_root = false;
                self.unlink(root, memory);
            }
        }
        self.last = NO_ROOT;
    }

    /// Bytes at this physical address were stored to.
    pub(crate) fn stored(&mut self, address: u64, bytes: u64, memory: &mut dyn Memory) {
        for entry in (address & !7..address + bytes).step_by(8) {
            let page = entry & !0xfff;
            let Some(level) = self.tables.get(&page).map(|table| table.level) else { continue };
            let Some(value) = memory.entry(entry) else { continue };
            if let Some(now) = below(value, level) {
                self.prepare(now, level - 1, memory);
            }
            // The space of the table itself may have ended.
            let Some(table) = self.tables.get_mut(&page) else { continue };
            let old = core::mem::replace(&mut table.known[entry as usize % 4096 / 8], value);
            // Entries whose value has not changed are reported too: a walk may have set the dirty
            // bit in between, which is not visible here.
            memory.tell(EventCode::Stored, &[entry, value]);
            let (before, now) = (below(old, level), below(value, level));
            if before != now {
                if let Some(now) = now {
                    self.link(now, level - 1, memory);
                }
                if let Some(before) = before {
                    self.unlink(before, memory);
                }
            }
        }
    }

    /// Whether the table at `from`, of this level, is the table `page` or leads to it.
    fn leads(&self, (from, level): (u64, u8), page: u64) -> bool {
        // The page of a table can be anything if its space has ended, and point to itself too.
        let table = self.tables.get(&from).filter(|table| table.level == level);
        let next = table.into_iter().flat_map(|table| table.known.iter());
        let mut next = next.filter_map(|&value| below(value, level));
        from == page || next.any(|next| self.leads((next, level - 1), page))
    }

    /// The page of a table becomes a table of another level. So the spaces that lead to it have ended,
    /// except the one that runs.
    fn end_those_with(&mut self, page: u64, memory: &mut dyn Memory) {
        let roots = self.tables.iter().filter(|&(&root, table)| table.is_root && root != self.last);
        let roots: Vec<(u64, u8)> = roots.map(|(&root, table)| (root, table.level)).collect();
        for root in roots {
            if self.leads(root, page)
                && let Some(table) = self.tables.get_mut(&root.0)
            {
                table.is_root = false;
                self.unlink(root.0, memory);
            }
        }
    }

    /// Before an entry points to a table of this level: ends spaces that still have its page, or the
    /// page of a table below it, at another level.
    fn prepare(&mut self, page: u64, level: u8, memory: &mut dyn Memory) {
        match self.tables.get(&page) {
            Some(table) if table.level == level => return,
            Some(_) => self.end_those_with(page, memory),
            None => {}
        }
        if self.tables.contains_key(&page) {
            return;
        }
        for value in memory.page(page).into_iter().flatten() {
            if let Some(next) = below(value, level) {
                self.prepare(next, level - 1, memory);
            }
        }
    }

    /// One more entry points to a table.
    fn link(&mut self, page: u64, level: u8, memory: &mut dyn Memory) {
        if let Some(table) = self.tables.get_mut(&page) {
            table.links += 1;
            return;
        }
        // The page is watched before it is read, so that no store is missed in between.
        let Some(known) = memory.page(page) else { return };
        memory.watch(page, true);
        memory.tell(EventCode::Table, &[page | u64::from(level)]);
        let mut at = 0;
        while at < ENTRIES {
            let values = known[at..].iter().take(ENTRIES_OF_EVENT);
            let count = values.take_while(|&&value| value != 0).count();
            if count > 0 {
                let mut words = [page + 8 * at as u64; 1 + ENTRIES_OF_EVENT];
                words[1..1 + count].copy_from_slice(&known[at..at + count]);
                memory.tell(EventCode::Entries, &words[..1 + count]);
            }
            at += count.max(1);
        }
        let table = Table { level, links: 1, is_root: false, known: Box::new(known) };
        self.tables.insert(page, table);
        for value in known {
            if let Some(next) = below(value, level) {
                self.link(next, level - 1, memory);
            }
        }
    }

    /// Called when an entry that pointed to the table at `page` no longer does, or when the table
    /// is no longer a root.
    fn unlink(&mut self, page: u64, memory: &mut dyn Memory) {
        let Some(table) = self.tables.get_mut(&page) else { return };
        table.links -= 1;
        if table.links > 0 {
            return;
        }
        if let Some(Table { level, known, .. }) = self.tables.remove(&page) {
            memory.watch(page, false);
            memory.tell(EventCode::Table, &[page]);
            for value in *known {
                if let Some(next) = below(value, level) {
                    self.unlink(next, memory);
                }
            }
        }
    }
}

/// The table that an entry of a table of this level points to.
fn below(value: u64, level: u8) -> Option<u64> {
    let is_table = value & PRESENT != 0 && level > 1 && (level > 3 || value & LARGE == 0);
    is_table.then_some(value & ADDRESS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Memory with few pages, and the tables that were reported, as a reader of the trace keeps them.
    #[derive(Default)]
    struct Ram {
        pages: BTreeMap<u64, [u64; ENTRIES]>,
        watched: BTreeSet<u64>,
        told: BTreeMap<u64, (u8, [u64; ENTRIES])>,
    }

    impl Memory for Ram {
        fn page(&mut self, page: u64) -> Option<[u64; ENTRIES]> {
            self.pages.get(&page).copied()
        }

        fn entry(&mut self, address: u64) -> Option<u64> {
            self.pages.get(&(address & !0xfff)).map(|page| page[address as usize % 4096 / 8])
        }

        fn watch(&mut self, page: u64, on: bool) {
            assert!(if on { self.watched.insert(page) } else { self.watched.remove(&page) });
        }

        fn tell(&mut self, code: EventCode, words: &[u64]) {
            match (code, words) {
                (EventCode::Table, &[word]) => {
                    let (page, level) = (word & !0xfff, word as u8);
                    if level == 0 {
                        assert!(self.told.remove(&page).is_some());
                    } else {
                        assert!(self.told.insert(page, (level, [0; ENTRIES])).is_none());
                    }
                }
                (EventCode::Entries | EventCode::Stored, &[first, ref values @ ..]) => {
                    for (at, &value) in values.iter().enumerate() {
                        let entry = first + 8 * at as u64;
                        let (_, known) = self.told.get_mut(&(entry & !0xfff)).unwrap();
                        known[entry as usize % 4096 / 8] = value;
                    }
                }
                _ => panic!("{code:?} {words:?}"),
            }
        }
    }

    /// All tables that can be reached from these roots, by walking.
    fn reached(ram: &Ram, roots: &[u64], levels: u8) -> BTreeMap<u64, u8> {
        let mut found = BTreeMap::new();
        let mut todo: Vec<(u64, u8)> = roots.iter().map(|&root| (root, levels)).collect();
        while let Some((page, level)) = todo.pop() {
            if let Some(entries) = ram.pages.get(&page)
                && found.insert(page, level).is_none()
            {
                let next = entries.iter().filter_map(|&value| below(value, level));
                todo.extend(next.map(|next| (next, level - 1)));
            }
        }
        found
    }

    /// Pages of memory, each with entries that point to these pages.
    fn ram(pages: &[(u64, &[u64])]) -> Ram {
        let mut ram = Ram::default();
        for &(page, entries) in pages {
            let mut known = [0; ENTRIES];
            for (to, &entry) in known.iter_mut().zip(entries) {
                *to = (entry << 12) | PRESENT;
            }
            ram.pages.insert(page << 12, known);
        }
        ram
    }

    /// Stores an entry that points to a page.
    fn store(ram: &mut Ram, tables: &mut Tables, page: u64, index: usize, to: u64) {
        ram.pages.get_mut(&(page << 12)).unwrap()[index] = (to << 12) | PRESENT;
        tables.stored((page << 12) | (8 * index as u64), 8, ram);
    }

    /// A kernel that does not say when a space ends uses its tables again, each at another level.
    #[test]
    fn a_space_ends_when_its_tables_are_others() {
        let mut tables = Tables::new();
        let mut ram = ram(&[(1, &[2]), (2, &[3]), (3, &[4]), (4, &[]), (5, &[2])]);
        tables.used(1 << 12, 4, &mut ram);
        assert_eq!(ram.told.keys().copied().collect::<Vec<_>>(), [0x1000, 0x2000, 0x3000, 0x4000]);
        // Page 5 is the root now, and page 1 is below page 2 in place of page 3.
        tables.used(5 << 12, 4, &mut ram);
        store(&mut ram, &mut tables, 1, 0, 4);
        store(&mut ram, &mut tables, 2, 0, 1);
        let levels: Vec<_> = ram.told.iter().map(|(&page, &(level, _))| (page, level)).collect();
        assert_eq!(levels, [(0x1000, 2), (0x2000, 3), (0x4000, 1), (0x5000, 4)]);
        assert!(ram.told.iter().all(|(page, (_, known))| *known == ram.pages[page]));
    }

    /// The page of a table of an ended space can contain any words, such as pointers to itself.
    #[test]
    fn a_table_that_points_to_itself_is_no_loop() {
        let mut tables = Tables::new();
        let mut ram = ram(&[(1, &[2]), (2, &[3]), (3, &[4]), (4, &[]), (5, &[6]), (6, &[])]);
        tables.used(1 << 12, 4, &mut ram);
        store(&mut ram, &mut tables, 3, 1, 3);
        tables.used(5 << 12, 4, &mut ram);
        // Page 6 is at level 3, so that spaces with it are looked for when it is at level 1.
        store(&mut ram, &mut tables, 3, 2, 6);
        assert!(ram.told.iter().all(|(page, (_, known))| *known == ram.pages[page]));
    }

    /// After every store, all tables that can be reached are reported with their contents, and no others.
    #[test]
    fn what_is_told_is_what_a_walk_finds() {
        let mut seed = 0x66_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..50 {
            let (mut ram, mut tables) = (Ram::default(), Tables::new());
            // Four pages for each level, so that no page is at two levels.
            for page in 0..16 {
                ram.pages.insert(page << 12, [0; ENTRIES]);
            }
            let mut roots: Vec<u64> = Vec::new();
            for _ in 0..200 {
                match random(12) {
                    0 => {
                        let root = (12 + random(4)) << 12;
                        tables.used(root, 4, &mut ram);
                        if !roots.contains(&root) {
                            roots.push(root);
                        }
                    }
                    1 if !roots.is_empty() => {
                        let root = roots.swap_remove(random(roots.len() as u64) as usize);
                        // The root must not be the neighbour of another root: Linux uses two
                        // adjacent pages as the roots of one space.
                        if root & 1 << 12 == 0 && roots.contains(&(root | 1 << 12)) {
                            roots.push(root);
                            continue;
                        }
                        tables.ended(root, &mut ram);
                    }
                    _ => {
                        let page = random(16);
                        let level = page / 4 + 1;
                        let value = match random(4) {
                            0 => 0,
                            1 if level < 4 => random(1 << 20) << 12 | PRESENT | LARGE,
                            _ if level == 1 => random(1 << 20) << 12 | PRESENT,
                            2 => (random(4) + 4 * (level - 2)) << 12,
                            // The last address is outside of memory.
                            _ => (random(4) + 4 * (level - 2)) << 12 | PRESENT | 0x20,
                        };
                        let entry = page << 12 | random(6) << 3;
                        ram.pages.get_mut(&(page << 12)).unwrap()[entry as usize % 4096 / 8] =
                            value;
                        if ram.watched.contains(&(page << 12)) {
                            tables.stored(entry + random(8), 1, &mut ram);
                        }
                    }
                }
                let expected = reached(&ram, &roots, 4);
                let levels: BTreeMap<u64, u8> =
                    ram.told.iter().map(|(&page, &(level, _))| (page, level)).collect();
                assert_eq!(levels, expected);
                assert!(ram.told.iter().all(|(page, (_, known))| *known == ram.pages[page]));
                assert!(ram.watched.iter().eq(expected.keys()));
            }
        }
    }
}
