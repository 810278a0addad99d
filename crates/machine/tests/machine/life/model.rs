//! A simple model of managed memory, which records where every page is, after
//! docs/machines/memory.md.
//!
//! ```text
//!   space: page -> region, own page, translation        contents: in memory, or in swap
//!                                |                          ^      lists: who leaves next
//!                                +--------------------------+
//! ```

use std::collections::{BTreeMap, VecDeque};

use super::lists::{Lists, Policy};

/// The identity of a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// A private page that was stored to. After a fork, several spaces have it until they store to
    /// it.
    Own(u32),
    /// A page of a file, by file and index.
    File(u64, u64),
    /// A page of shared memory, which a process and its forked children continue to share.
    Memory(u64, u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behind {
    Zeros,
    Private(u64, u64),
    Shared(u64, u64),
    Memory(u64, u64),
}

#[derive(Clone, Copy, Debug)]
struct Region {
    /// Whether the page may be read, and whether it may be stored to.
    rights: (bool, bool),
    behind: Behind,
    locked: bool,
}

/// A translation that is loaded into a page table.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    key: Key,
    may_store: bool,
    used: bool,
}

#[derive(Clone, Debug, Default)]
struct Space {
    regions: BTreeMap<u64, Region>,
    own: BTreeMap<u64, u32>,
    loaded: BTreeMap<u64, Loaded>,
    locked: BTreeMap<u64, Key>,
}

/// A page in memory or in swap.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    in_swap: bool,
    used: bool,
    dirty: bool,
    locks: u32,
    /// The number of spaces that have the page as a private page.
    users: u32,
}

/// The ways in which a fault is resolved. If several apply, the last of them counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum How {
    Minor,
    Write,
    Cache,
    Zero,
    Copy,
    Disk,
    Swap,
}

pub(crate) const HOW: [&str; 7] = ["minor", "write", "cache", "zero", "copy", "disk", "swap"];

/// Amounts of memory, in pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) frames: u64,
    pub(crate) swap: u64,
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) faults: [u64; 7],
    pub(crate) first_touch: u64,
    pub(crate) returned: u64,
    pub(crate) protection: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) zeroed: u64,
    pub(crate) copied: u64,
}

/// The properties of a machine that affect the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machinery<'a> {
    pub(crate) settings: &'a [&'a str],
    pub(crate) policy: Policy,
    /// Whether hardware sets reference bits. Otherwise a page whose use is examined is unloaded, so
    /// that its next use faults.
    pub(crate) has_bits: bool,
    pub(crate) tables: Tables,
}

/// The page-table format, as far as it determines the number of frames of page tables.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tables {
    /// A tree with this number of levels. The entries of all pages are in one table of the lowest
    /// level.
    Levels(u64),
    /// Any other format. Memory is so large that frames of page tables have no effect.
    Uncounted,
}

impl Tables {
    /// The largest number of frames of a space's page tables.
    pub(crate) fn frames_max(self) -> u64 {
        match self {
            Tables::Levels(levels) => levels,
            Tables::Uncounted => 0,
        }
    }
}

/// There is no free frame until pages have been evicted.
struct Full;

pub(crate) struct Model<'a> {
    sizes: Sizes,
    machinery: Machinery<'a>,
    spaces: BTreeMap<u32, Space>,
    children: VecDeque<Space>,
    contents: BTreeMap<Key, Content>,
    lists: Lists,
    owns: u32,
    scarce: bool,
    /// Whether memory ran out: a requested page could not be loaded, because all other pages are
    /// locked or cannot be written anywhere.
    pub(crate) is_out: bool,
    pub(crate) counts: Counts,
}

impl<'a> Model<'a> {
    pub(crate) fn new(sizes: Sizes, machinery: Machinery<'a>) -> Model<'a> {
        Model {
            sizes,
            machinery,
            spaces: BTreeMap::from([(0, Space::default())]),
            children: VecDeque::new(),
            contents: BTreeMap::new(),
            lists: Lists::new(machinery.policy, sizes.frames),
            owns: 0,
            scarce: false,
            is_out: false,
            counts: Counts::default(),
        }
    }

    /// The numbers of private pages, file pages and shared pages in memory, and of pages in swap.
    pub(crate) fn pages(&self) -> [u64; 4] {
        let mut pages = [0; 4];
        for (key, content) in &self.contents {
            let kind = match key {
                _ if content.in_swap => 3,
                Key::Own(_) => 0,
                Key::File(..) => 1,
                Key::Memory(..) => 2,
            };
            pages[kind] += 1;
        }
        pages
    }

    /// The number of frames of page tables: one root for each space and, while a page is loaded,
    /// one table of each lower level; 0 if they are not counted.
    pub(crate) fn tables(&self) -> u64 {
        let Tables::Levels(levels) = self.machinery.tables else { return 0 };
        let of = |space: &Space| if space.loaded.is_empty() { 1 } else { levels };
        self.spaces.values().chain(&self.children).map(of).sum()
    }

    fn free(&self) -> u64 {
        let [own, file, shared, _] = self.pages();
        self.sizes.frames - own - file - shared - self.tables()
    }

    fn space(&mut self, space: u32) -> &mut Space {
        self.spaces.get_mut(&space).unwrap()
    }

    /// Does the work of the daemon, which runs before the next step.
    pub(crate) fn before(&mut self) {
        if std::mem::take(&mut self.scarce) {
            self.leave(self.sizes.high.saturating_sub(self.free()));
        }
    }

    fn after(&mut self) {
        self.scarce = self.free() < self.sizes.low;
    }

    /// Evicts up to `wanted` pages. Returns the number of evicted pages.
    fn leave(&mut self, wanted: u64) -> u64 {
        let [_, files, _, in_swap] = self.pages();
        let mut places = self.sizes.swap - in_swap;
        // If every page needs a place in swap and no place is free, no page is examined.
        if files == 0 && places == 0 {
            return 0;
        }
        let (mut leaving, mut staying) = (Vec::new(), Vec::new());
        for _ in 0..=self.lists.len() {
            if leaving.len() as u64 >= wanted {
                break;
            }
            let Some(victim) = self.victim() else { break };
            let is_file = matches!(victim, Key::File(..));
            if !is_file && places == 0 {
                staying.push(victim);
                continue;
            }
            places -= u64::from(!is_file);
            leaving.push(victim);
        }
        staying.into_iter().for_each(|key| self.lists.enter(key));
        for key in &leaving {
            self.unload(*key);
            let content = self.contents.get_mut(key).unwrap();
            let is_file = matches!(key, Key::File(..));
            self.counts.writes += u64::from(content.dirty || !is_file);
            content.in_swap = true;
            if is_file {
                self.contents.remove(key);
            }
        }
        self.forget_files();
        leaving.len() as u64
    }

    fn victim(&mut self) -> Option<Key> {
        let none = Lists::new(self.machinery.policy, 0);
        let mut lists = std::mem::replace(&mut self.lists, none);
        let victim = lists.victim(|key| self.is_used(key));
        self.lists = lists;
        victim
    }

    /// Whether the page was used since the last call for this page.
    fn is_used(&mut self, key: Key) -> bool {
        let mut used = std::mem::take(&mut self.contents.get_mut(&key).unwrap().used);
        for space in self.spaces.values_mut().chain(&mut self.children) {
            for loaded in space.loaded.values_mut().filter(|loaded| loaded.key == key) {
                used |= std::mem::take(&mut loaded.used);
            }
        }
        if used && !self.machinery.has_bits {
            self.unload(key);
        }
        used
    }

    /// Drops files that no space maps and that have no page in memory.
    fn forget_files(&mut self) {
        let spaces = self.spaces.values().chain(&self.children);
        let regions = spaces.flat_map(|space| space.regions.values());
        let mapped: Vec<u64> = regions
            .filter_map(|region| match region.behind {
                Behind::Private(file, _) | Behind::Shared(file, _) => Some(file),
                Behind::Zeros | Behind::Memory(..) => None,
            })
            .collect();
        let has_page = |file: u64| {
            self.contents.range(Key::File(file, 0)..=Key::File(file, u64::MAX)).next().is_some()
        };
        self.lists.forget(|key| match key {
            Key::File(file, _) => !mapped.contains(&file) && !has_page(file),
            Key::Own(_) | Key::Memory(..) => false,
        });
    }

    /// Removes all translations of the page.
    fn unload(&mut self, key: Key) {
        for space in self.spaces.values_mut().chain(&mut self.children) {
            space.loaded.retain(|_, loaded| loaded.key != key);
        }
    }

    fn take(&self) -> Result<(), Full> {
        if self.free() > self.sizes.min { Ok(()) } else { Err(Full) }
    }

    /// Loads the page into memory.
    fn comes(&mut self, key: Key, dirty: bool) {
        let content = self.contents.entry(key).or_default();
        (content.in_swap, content.used, content.dirty) = (false, true, dirty);
        self.lists.enter(key);
    }

    pub(crate) fn access(&mut self, space: u32, page: u64, store: bool) {
        self.before();
        let has_bits = self.machinery.has_bits;
        let known = self.space(space).loaded.get(&page).copied();
        if known.is_none_or(|known| store && !known.may_store) {
            let (how, known) = self.bring(space, page, store);
            if self.is_out {
                return;
            }
            self.counts.faults[how as usize] += 1;
            match how {
                _ if known => self.counts.protection += 1,
                How::Minor | How::Write | How::Swap => self.counts.returned += 1,
                How::Cache | How::Zero | How::Copy | How::Disk => self.counts.first_touch += 1,
            }
            self.after();
        }
        self.space(space).loaded.get_mut(&page).unwrap().used = has_bits;
    }

    /// Whether the region of the page allows the access.
    pub(crate) fn allows(&self, space: u32, page: u64, store: bool) -> bool {
        let region = self.spaces[&space].regions.get(&page);
        region.is_some_and(|region| if store { region.rights.1 } else { region.rights.0 })
    }

    /// Loads the page into memory and its translation into the page table. Returns how the fault
    /// was resolved, and whether there was a translation before.
    fn bring(&mut self, space: u32, page: u64, store: bool) -> (How, bool) {
        let mut how = How::Minor;
        for _ in 0..64 {
            match self.attempt(space, page, store, &mut how) {
                Ok(known) => return (how, known),
                Err(Full) if self.leave(32) > 0 || self.take().is_ok() => {}
                Err(Full) => break,
            }
        }
        self.is_out = true;
        (how, false)
    }

    fn attempt(&mut self, space: u32, page: u64, store: bool, how: &mut How) -> Result<bool, Full> {
        let region = self.spaces[&space].regions[&page];
        let own = self.spaces[&space].own.get(&page).copied();
        let (key, may_store) = match (own, region.behind) {
            (Some(own), _) => {
                let key = Key::Own(own);
                if self.contents[&key].in_swap {
                    self.take()?;
                    self.counts.reads += 1;
                    *how = How::Swap;
                    self.comes(key, false);
                }
                if store && self.contents[&key].users > 1 {
                    let copy = self.copy(space, page, how)?;
                    self.contents.get_mut(&key).unwrap().users -= 1;
                    (copy, true)
                } else {
                    let content = self.contents.get_mut(&key).unwrap();
                    content.used = true;
                    (key, content.users == 1)
                }
            }
            (None, Behind::Zeros) => {
                self.take()?;
                self.counts.zeroed += 1;
                *how = (*how).max(How::Zero);
                (self.becomes_own(space, page), true)
            }
            (None, Behind::Private(file, index)) if store => {
                self.cached(Key::File(file, index), false, false, how)?;
                (self.copy(space, page, how)?, true)
            }
            (None, Behind::Private(file, index)) => {
                let key = Key::File(file, index);
                self.cached(key, true, false, how)?;
                (key, false)
            }
            (None, Behind::Shared(file, index)) => {
                let key = Key::File(file, index);
                (key, self.cached(key, true, store, how)?)
            }
            (None, Behind::Memory(memory, index)) => {
                let key = Key::Memory(memory, index);
                (key, self.cached(key, true, store, how)?)
            }
        };
        let may_store = may_store && region.rights.1;
        let known = self.space(space).loaded.get(&page).copied();
        match known {
            Some(known) if known.key == key => {
                if known.may_store != may_store {
                    *how = if *how == How::Cache { How::Write } else { (*how).max(How::Write) };
                }
                self.space(space).loaded.get_mut(&page).unwrap().may_store = may_store;
            }
            _ => {
                self.forget(space, page);
                let new = Loaded { key, may_store, used: false };
                self.space(space).loaded.insert(page, new);
            }
        }
        if region.locked {
            self.lock_page(space, page, key);
        }
        Ok(known.is_some())
    }

    /// Loads a page of a file or of shared memory. Returns whether the page was stored to.
    fn cached(&mut self, key: Key, uses: bool, store: bool, how: &mut How) -> Result<bool, Full> {
        let is_file = matches!(key, Key::File(..));
        match self.contents.get_mut(&key) {
            Some(content) if !content.in_swap => {
                content.used |= uses;
                content.dirty |= store;
                *how = (*how).max(if is_file { How::Cache } else { How::Minor });
            }
            known => {
                let was_there = known.is_some();
                self.take()?;
                let read = is_file || was_there;
                *how = (*how).max(match (is_file, was_there) {
                    (true, _) => How::Disk,
                    (false, true) => How::Swap,
                    (false, false) => How::Zero,
                });
                self.counts.reads += u64::from(read);
                self.counts.zeroed += u64::from(!read);
                self.comes(key, store);
            }
        }
        Ok(self.contents[&key].dirty)
    }

    fn becomes_own(&mut self, space: u32, page: u64) -> Key {
        self.owns += 1;
        let own = self.owns;
        self.space(space).own.insert(page, own);
        self.comes(Key::Own(own), false);
        self.contents.get_mut(&Key::Own(own)).unwrap().users = 1;
        Key::Own(own)
    }

    fn copy(&mut self, space: u32, page: u64, how: &mut How) -> Result<Key, Full> {
        self.take()?;
        self.counts.copied += 1;
        *how = (*how).max(How::Copy);
        Ok(self.becomes_own(space, page))
    }

    fn lock_page(&mut self, space: u32, page: u64, key: Key) {
        let before = self.space(space).locked.insert(page, key);
        if before == Some(key) {
            return;
        }
        self.contents.get_mut(&key).unwrap().locks += 1;
        self.lists.remove(key);
        before.into_iter().for_each(|key| self.unlock_page(key));
    }

    fn unlock_page(&mut self, key: Key) {
        let content = self.contents.get_mut(&key).unwrap();
        content.locks -= 1;
        if content.locks == 0 {
            self.lists.enter(key);
        }
    }

    pub(crate) fn map(&mut self, space: u32, pages: (u64, u64), store: bool, behind: Behind) {
        self.before();
        self.remove(space, pages);
        for page in pages.0..pages.0 + pages.1 {
            let into = page - pages.0;
            let behind = match behind {
                Behind::Zeros => behind,
                Behind::Private(file, first) => Behind::Private(file, first + into),
                Behind::Shared(file, first) => Behind::Shared(file, first + into),
                Behind::Memory(memory, first) => Behind::Memory(memory, first + into),
            };
            let region = Region { rights: (true, store), behind, locked: false };
            self.space(space).regions.insert(page, region);
        }
        self.after();
    }

    pub(crate) fn unmap(&mut self, space: u32, pages: (u64, u64)) {
        self.before();
        self.remove(space, pages);
        self.after();
    }

    fn remove(&mut self, space: u32, (first, count): (u64, u64)) {
        for page in first..first + count {
            let of = self.space(space);
            if of.regions.remove(&page).is_none() {
                continue;
            }
            self.forget(space, page);
            let of = self.space(space);
            let locked = of.locked.remove(&page);
            let own = of.own.remove(&page);
            locked.into_iter().for_each(|key| self.unlock_page(key));
            own.into_iter().for_each(|own| self.drop_own(own));
        }
        // Shared memory that no space maps is removed.
        let spaces: Vec<&Space> = self.spaces.values().chain(&self.children).collect();
        let is_mapped = |memory: u64| {
            let mut regions = spaces.iter().flat_map(|space| space.regions.values());
            regions.any(|region| matches!(region.behind, Behind::Memory(of, _) if of == memory))
        };
        let is_gone = |key: &Key| matches!(key, Key::Memory(memory, _) if !is_mapped(*memory));
        let gone: Vec<Key> = self.contents.keys().copied().filter(is_gone).collect();
        for key in gone {
            self.is_no_more(key);
        }
        self.forget_files();
    }

    /// Removes a translation, and records in the page's content if it was used.
    fn forget(&mut self, space: u32, page: u64) {
        if let Some(loaded) = self.space(space).loaded.remove(&page) {
            self.contents.get_mut(&loaded.key).unwrap().used |= loaded.used;
        }
    }

    fn drop_own(&mut self, own: u32) {
        let key = Key::Own(own);
        let content = self.contents.get_mut(&key).unwrap();
        content.users -= 1;
        if content.users == 0 {
            self.is_no_more(key);
        }
    }

    fn is_no_more(&mut self, key: Key) {
        self.contents.remove(&key);
        self.lists.remove(key);
        self.lists.forget(|left| left == key);
    }

    pub(crate) fn protect(&mut self, space: u32, pages: (u64, u64), rights: (bool, bool)) {
        self.before();
        for page in pages.0..pages.0 + pages.1 {
            let of = self.space(space);
            let Some(region) = of.regions.get_mut(&page) else { continue };
            // A region that already has these rights does not change.
            if region.rights == rights {
                continue;
            }
            region.rights = rights;
            if rights.0 {
                of.loaded.get_mut(&page).into_iter().for_each(|loaded| loaded.may_store = false);
            } else {
                self.forget(space, page);
            }
        }
        self.after();
    }

    pub(crate) fn discard(&mut self, space: u32, pages: (u64, u64)) {
        self.before();
        for page in pages.0..pages.0 + pages.1 {
            let of = self.space(space);
            if of.regions.get(&page).is_some_and(|region| !region.locked) {
                self.forget(space, page);
                let own = self.space(space).own.remove(&page);
                own.into_iter().for_each(|own| self.drop_own(own));
            }
        }
        self.after();
    }

    /// Moves the regions and pages of a range.
    pub(crate) fn remap(&mut self, space: u32, (from, count): (u64, u64), to: u64, new: u64) {
        self.before();
        // If the whole destination has a source, pages at the destination that correspond to a hole
        // in the source stay. If no region is known in the source, there are no holes.
        let is_told =
            (from..from + count).any(|page| self.space(space).regions.contains_key(&page));
        let has_sources = count >= new && is_told;
        for into in 0..new {
            let is_hole = !self.space(space).regions.contains_key(&(from + into));
            if !(has_sources && is_hole) {
                self.remove(space, (to + into, 1));
            }
        }
        for into in 0..count.min(new) {
            let of = self.space(space);
            let (page, there) = (from + into, to + into);
            of.regions.remove(&page).map(|region| of.regions.insert(there, region));
            of.own.remove(&page).map(|own| of.own.insert(there, own));
            of.loaded.remove(&page).map(|loaded| of.loaded.insert(there, loaded));
            of.locked.remove(&page).map(|key| of.locked.insert(there, key));
        }
        if count > new {
            self.remove(space, (from + new, count - new));
        }
        for page in to + count..to + new {
            let of = self.space(space);
            let Some(mut region) = of.regions.get(&(page - 1)).copied() else { break };
            match &mut region.behind {
                Behind::Zeros => {}
                Behind::Private(_, index) | Behind::Shared(_, index) | Behind::Memory(_, index) => {
                    *index += 1
                }
            }
            of.regions.insert(page, region);
        }
        let is_locked =
            |page: u64| self.spaces[&space].regions.get(&page).is_some_and(|of| of.locked);
        if count < new && is_locked(to + count) {
            self.bring_all(space, (to + count, new - count));
        }
        self.after();
    }

    pub(crate) fn lock(&mut self, space: u32, pages: (u64, u64)) {
        self.before();
        // Pages in memory are locked first. If one of them is then copied, the old page is unlocked
        // again.
        for page in pages.0..pages.0 + pages.1 {
            let of = self.space(space);
            let Some(region) = of.regions.get_mut(&page) else { continue };
            if std::mem::replace(&mut region.locked, true) {
                continue;
            }
            let own = of.own.get(&page).map(|own| Key::Own(*own));
            let key = of.loaded.get(&page).map(|loaded| loaded.key).or(own);
            if let Some(key) = key.filter(|key| !self.contents[key].in_swap) {
                self.lock_page(space, page, key);
            }
        }
        self.bring_all(space, pages);
        self.after();
    }

    fn bring_all(&mut self, space: u32, (first, count): (u64, u64)) {
        for page in first..first + count {
            let Some(region) = self.spaces[&space].regions.get(&page).copied() else { continue };
            let own = matches!(region.behind, Behind::Zeros | Behind::Private(..));
            if region.rights.0 && !self.is_out {
                self.bring(space, page, own && region.rights.1);
            }
        }
    }

    pub(crate) fn unlock(&mut self, space: u32, pages: (u64, u64)) {
        self.before();
        for page in pages.0..pages.0 + pages.1 {
            let of = self.space(space);
            of.regions.get_mut(&page).into_iter().for_each(|region| region.locked = false);
            let locked = of.locked.remove(&page);
            locked.into_iter().for_each(|key| self.unlock_page(key));
        }
        self.after();
    }

    pub(crate) fn fork(&mut self, parent: u32) {
        self.before();
        let parent = self.spaces.get_mut(&parent).unwrap();
        let mut child = parent.clone();
        child.locked.clear();
        child.regions.values_mut().for_each(|region| region.locked = false);
        let shares = |page: &u64| {
            let behind = parent.regions[page].behind;
            matches!(behind, Behind::Shared(..) | Behind::Memory(..))
        };
        child.loaded.retain(|page, _| !shares(page));
        for (page, loaded) in &mut child.loaded {
            (loaded.may_store, loaded.used) = (false, false);
            parent.loaded.get_mut(page).unwrap().may_store = false;
        }
        for own in child.own.values() {
            self.contents.get_mut(&Key::Own(*own)).unwrap().users += 1;
        }
        self.children.push_back(child);
        self.after();
    }

    /// Switches to the space. A new space has the contents of its parent, or is empty.
    pub(crate) fn enter(&mut self, space: u32) {
        self.before();
        if !self.spaces.contains_key(&space) {
            let child = self.children.pop_front().unwrap_or_default();
            self.spaces.insert(space, child);
        }
    }

    pub(crate) fn end(&mut self, space: u32) {
        self.before();
        let pages: Vec<u64> = self.space(space).regions.keys().copied().collect();
        pages.into_iter().for_each(|page| self.remove(space, (page, 1)));
        self.after();
    }

    /// A call reads a page of a file, or writes to it.
    pub(crate) fn transfer(&mut self, file: u64, index: u64, write: bool, whole: bool) {
        self.before();
        let key = Key::File(file, index);
        self.is_out = true;
        for _ in 0..64 {
            let done = if write && whole && !self.contents.contains_key(&key) {
                self.take().map(|()| self.comes(key, true))
            } else {
                self.cached(key, true, write, &mut How::Minor).map(|_| ())
            };
            match done {
                Ok(()) => {
                    self.is_out = false;
                    break;
                }
                Err(Full) if self.leave(32) > 0 || self.take().is_ok() => {}
                Err(Full) => break,
            }
        }
        self.after();
    }
}
