//! The translation-path cache (B10 §4.2.3): each entry holds all tables on the path of one walk.
//!
//! ```text
//!   L4  L3  L2  |  tables of L3  L2  L1      va (0b9, 00c, 0ae, ..) starts at 508,
//!   0b9 00c 0ae |          042  125  508     va (0b9, 00c, 0de, ..) at 125
//! ```
//!
//! A walk first looks for its whole path, then for shorter and shorter parts of the path. If a walk
//! finds its whole path, this counts as a use of the path; any other walk inserts its own path.
//! Therefore a cache of `n` entries holds the last `n` walked paths (B10 lemma A.1.1). A walk that
//! finds no page has no path: it neither uses nor inserts a path. A path that ends in a large page
//! is shorter, and is a part of a longer path if one is present. A path and all its parts are in
//! one set, which its last table but one selects, so that only one set is searched. A flush that
//! concerns any part of an entry removes the whole entry.

use addr::{Asid, VirtAddr, VirtRange};
use pagetable::{Node, Reference};

use super::{Held, WalkArray, WalkCache, WalkCacheParams};
use crate::{AnyReplacement, FromTable, GeometryError, SetArray};

/// A translation-path cache.
#[derive(Clone, Debug)]
pub struct Tpc {
    sets: SetArray,
    slots: Box<[Path]>,
    policy: AnyReplacement,
    /// log2 of the bytes of virtual memory whose paths are in one set.
    set_shift: u8,
    searches_max: u8,
    searches: u64,
    /// The current walk and, if guest and host share the cache, the host's walk inside it.
    under_way: [UnderWay; 2],
}

/// The state of a walk in progress.
#[derive(Clone, Debug, Default)]
struct UnderWay {
    nodes: Vec<Node>,
    /// The number of nodes that a cached path supplied. The next field has the slot of this path,
    /// as long as the path is present.
    served: usize,
    by: Option<usize>,
}

/// A path: the tables from below the root down, and an address for which they are valid.
#[derive(Clone, Debug)]
struct Path {
    va: VirtAddr,
    asid: Asid,
    /// The tables; empty if there is no path.
    nodes: Vec<Node>,
}

impl Tpc {
    /// An empty cache. The error has the array that cannot be built, and why.
    pub fn new(params: &WalkCacheParams) -> Result<Tpc, (WalkArray, GeometryError)> {
        let array = params.unified()?;
        let sets = SetArray::new(array.entries.into(), array.ways).map_err(|e| (array, e))?;
        let ways_of_sets = core::iter::repeat_n(sets.ways(), sets.sets());
        let spans = params.tree.spans.as_deref().unwrap_or_default();
        let empty = Path { va: VirtAddr::new(0), asid: Asid(0), nodes: Vec::new() };
        Ok(Tpc {
            slots: vec![empty; sets.entries()].into_boxed_slice(),
            policy: AnyReplacement::new(params.replacement, ways_of_sets, params.seed),
            sets,
            set_shift: spans.get(1).or(spans.first()).copied().unwrap_or(63),
            searches_max: params.searches_max(),
            searches: 0,
            under_way: Default::default(),
        })
    }

    /// The path with the longest part that leads towards `va`, and the length of that part.
    fn longest(&self, va: VirtAddr, asid: Asid) -> Option<(usize, usize)> {
        let mut best = None;
        let mut best_shift = u8::MAX;
        for slot in self.sets.slots(self.set(va)) {
            let path = &self.slots[slot];
            if path.asid != asid {
                continue;
            }
            let fits = |node: &Node| node.prefix(path.va) == node.prefix(va);
            if let Some(last) = path.nodes.iter().rposition(fits)
                && path.nodes[last].shift < best_shift
            {
                best_shift = path.nodes[last].shift;
                best = Some((slot, last + 1));
            }
        }
        best
    }

    fn set(&self, va: VirtAddr) -> usize {
        self.sets.set_of(va.get() >> self.set_shift)
    }

    /// Removes the paths that contain a node for which `goes` returns true.
    fn flush_where(&mut self, goes: impl Fn(&Path, &Node) -> bool) {
        for (slot, path) in self.slots.iter_mut().enumerate() {
            if path.nodes.iter().any(|node| goes(path, node)) {
                path.nodes.clear();
                self.sets.vacate(slot);
                self.policy.removed(slot);
            }
        }
    }
}

/// The index of the walk in progress for `asid`.
fn of(asid: Asid) -> usize {
    usize::from(asid == Asid::HOST)
}

impl WalkCache for Tpc {
    fn start(&mut self, va: VirtAddr, asid: Asid, root: Node) -> Node {
        let found = self.longest(va, asid);
        let walk = &mut self.under_way[of(asid)];
        walk.nodes.clear();
        (walk.by, walk.served) =
            (found.map(|(slot, _)| slot), found.map_or(0, |(_, length)| length));
        let Some((slot, length)) = found else {
            self.searches += u64::from(self.searches_max);
            return root;
        };
        walk.nodes.extend_from_slice(&self.slots[slot].nodes[..length]);
        let node = walk.nodes[length - 1];
        self.searches += u64::from(node.level.min(self.searches_max));
        node
    }

    #[inline]
    fn read(&mut self, _va: VirtAddr, asid: Asid, reference: &Reference) -> Held {
        self.under_way[of(asid)].nodes.extend(reference.next());
        Held::Absent
    }

    fn finish(&mut self, va: VirtAddr, asid: Asid, found: bool) {
        if !found {
            return;
        }
        let walk = &mut self.under_way[of(asid)];
        if walk.nodes.len() == walk.served {
            if let Some(slot) = walk.by {
                self.policy.touched(slot);
            }
            return;
        }
        let set = self.set(va);
        let slot = match self.sets.empty_slot(set) {
            Some(slot) => slot,
            None => self.policy.victim(self.sets.slots(set)),
        };
        let path = &mut self.slots[slot];
        (path.va, path.asid) = (va, asid);
        let walk = &mut self.under_way[of(asid)];
        core::mem::swap(&mut path.nodes, &mut walk.nodes);
        // The replaced path may have served the walk of the other dimension.
        for walk in &mut self.under_way {
            walk.by = walk.by.filter(|by| *by != slot);
        }
        self.sets.occupy(set, slot, 0);
        self.policy.inserted_at(slot, FromTable { level: 2, host: asid == Asid::HOST });
    }

    fn flush_range(&mut self, range: VirtRange, asid: Asid) {
        let (first, last) = (range.start(), range.last());
        self.flush_where(|path, node| {
            let prefixes = node.prefix(first)..=node.prefix(last);
            path.asid == asid && prefixes.contains(&node.prefix(path.va))
        });
    }

    fn flush_asid(&mut self, asid: Asid) {
        self.flush_where(|path, _| path.asid == asid);
    }

    fn flush_all(&mut self) {
        self.flush_where(|path, _| path.asid != Asid::HOST);
    }

    #[inline]
    fn searches(&self) -> u64 {
        self.searches
    }

    fn nodes(&self) -> Vec<Node> {
        self.slots.iter().flat_map(|path| path.nodes.iter().copied()).collect()
    }
}
