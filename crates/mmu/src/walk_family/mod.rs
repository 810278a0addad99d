//! A family of MMU caches that differ only in size, simulated as one structure for one stream of
//! walks.
//!
//! ```text
//!   member         2  1  0        entries 4, 2, 1: a bit a member
//!   walk: L4 node  1  1  0        who need not fetch the entry that leads to the node
//!         L3 node  1  1  0
//!         L2 node  0  1  1        (of translation caches: all above where they start)
//! ```
//!
//! Each member behaves exactly like an [`AnyWalkCache`](crate::AnyWalkCache) with its parameters.
//! The contents of a cache with LRU follow from the order of uses:
//!
//! * If a walk uses the same entries whatever the size of the cache, one stack serves all members
//!   (`stack`): page-table caches, path caches, and the lowest level of split translation caches.
//! * In a translation cache, entries that a walk skips do not count as used, and how many entries a
//!   walk skips depends on the cache's size. In this case each member has its own list, and each
//!   node records which members hold it (`lists`).
//!
//! Nodes are identified by small numbers. A table on the path to given addresses keeps its number
//! until it is flushed.

mod lists;
mod page_table;
mod path;
mod stack;
mod translation;

use crate::{Design, Policy, WalkCacheParams};
use page_table::PageTableCaches;
use path::PathCaches;
use translation::TranslationCaches;

/// An entry on the path of a walk that leads to a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The number of the table's node.
    pub node: u32,
    /// The level of the table that holds the entry.
    pub from: u8,
    /// The level of the table to which the entry leads.
    pub to: u8,
}

/// A family of MMU caches. All members have one design; each member is a bit of a word.
#[derive(Clone, Debug)]
pub struct WalkCacheFamily {
    caches: Caches,
}

#[derive(Clone, Debug)]
enum Caches {
    PageTable(PageTableCaches),
    Translation(TranslationCaches),
    Path(PathCaches),
}

impl WalkCacheFamily {
    /// The largest number of members, since each member is a bit of a word.
    pub const MEMBERS_MAX: usize = u64::BITS as usize;
    /// The largest number of entries of a member, since the number of a slot is one byte.
    pub const ENTRIES_MAX: u32 = 1 << u8::BITS;

    /// Whether a cache with these parameters can be a member, if all pages have one size or, with
    /// `mixed`, several sizes.
    pub fn takes(params: &WalkCacheParams, mixed: bool) -> bool {
        let small = |entries: u32| (1..=Self::ENTRIES_MAX).contains(&entries);
        // A stack cannot represent two cases. If prefixes can have any length, a table may be
        // replaced by another one without a flush. A path may also be a part of another path, as it
        // may be if walks end at several levels.
        (params.tree.spans.is_some() || params.design == Design::Utc)
            && (params.design != Design::Tpc || !mixed)
            && params.replacement == Policy::Lru
            && (params.design.is_split() || params.arrays.len() == 1)
            && params.arrays.iter().all(|array| small(array.entries) && array.ways == array.entries)
    }

    /// Empty caches for `members`; the first member has the lowest bit. For `mixed` see
    /// [`Self::takes`]. `None` if there are no members or too many, if their designs differ, or if
    /// one of them cannot be a member.
    pub fn new(members: &[&WalkCacheParams], mixed: bool) -> Option<WalkCacheFamily> {
        let first = members.first()?;
        let alike = |one: &&WalkCacheParams| {
            one.design == first.design && one.tree == first.tree && Self::takes(one, mixed)
        };
        if members.len() > Self::MEMBERS_MAX || !members.iter().all(alike) {
            return None;
        }
        let caches = match first.design {
            Design::Uptc | Design::Sptc => Caches::PageTable(PageTableCaches::new(members)),
            Design::Utc | Design::Stc => Caches::Translation(TranslationCaches::new(members)),
            Design::Tpc => Caches::Path(PathCaches::new(members)),
        };
        Some(WalkCacheFamily { caches })
    }

    /// Performs a walk along the path `way`, from the root down; `found` is true if the walk found
    /// a page. For each step, `held` receives the members that need not read its entry.
    #[inline]
    pub fn walk(&mut self, way: &[Step], found: bool, held: &mut [u64]) {
        match &mut self.caches {
            Caches::PageTable(caches) => caches.walk(way, held),
            Caches::Translation(caches) => caches.walk(way, held),
            Caches::Path(caches) => caches.walk(way, found, held),
        }
    }

    /// Flushes the entries that lead to `nodes`. These must be all nodes of a range of addresses,
    /// of a space or of all spaces, together with the nodes above them. Page-table caches, whose
    /// tags do not say which addresses an entry is for, remove all entries.
    pub fn forget(&mut self, nodes: &[u32]) {
        match &mut self.caches {
            Caches::PageTable(caches) => caches.clear(),
            Caches::Translation(caches) => caches.forget(nodes),
            Caches::Path(caches) => caches.forget(nodes),
        }
    }

    /// Whether some member holds `node`.
    pub fn holds(&self, node: u32) -> bool {
        match &self.caches {
            Caches::PageTable(caches) => caches.holds(node),
            Caches::Translation(caches) => caches.holds(node),
            Caches::Path(caches) => caches.holds(node),
        }
    }
}

/// For each level, the result of `build` for the members' numbers of entries at that level; 0 means
/// no array. Level 0 is used by unified arrays.
fn by_level<T>(
    members: &[&WalkCacheParams],
    build: impl Fn(usize, &[u32]) -> T,
) -> Box<[Option<T>]> {
    let of_level = |level: usize| {
        let entries = |member: &&WalkCacheParams| {
            let own = member.arrays.iter().find(|array| usize::from(array.level) == level);
            own.map_or(0, |array| array.entries)
        };
        let entries: Vec<u32> = members.iter().map(entries).collect();
        entries.iter().any(|entries| *entries > 0).then(|| build(level, &entries))
    };
    let levels = members.iter().map(|member| usize::from(member.tree.levels)).max().unwrap_or(0);
    (0..=levels).map(of_level).collect()
}

/// The element of `node` in `table`, which is extended if necessary.
#[inline]
fn entry_of<T: Clone>(table: &mut Vec<T>, node: u32, new: T) -> &mut T {
    let index = node as usize;
    if table.len() <= index {
        table.resize((index + 1).next_power_of_two(), new);
    }
    &mut table[index]
}
