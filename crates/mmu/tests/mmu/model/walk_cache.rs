//! Models of the MMU caches, as lists that are searched in order.

use addr::{Asid, VirtAddr, VirtRange};
use mmu::{Design, Held, Random, WalkCacheParams};
use pagetable::{Leads, Node, Reference};

use super::policy::ModelPolicy;

/// A cached entry. It is identified by the address of a page-table entry, or by an address for
/// which its nodes are valid.
#[derive(Clone, Debug)]
struct Entry {
    entry: u64,
    va: u64,
    asid: Asid,
    nodes: Vec<Node>,
    since: u64,
}

struct Set {
    ways: Vec<Option<Entry>>,
    policy: ModelPolicy,
}

struct Array {
    level: u8,
    sets: Vec<Set>,
    random: Random,
}

pub(crate) struct ModelWalkCache {
    design: Design,
    arrays: Vec<Array>,
    params: WalkCacheParams,
    /// For the guest's walk and for the host's walk inside it, the nodes on the path so far; the
    /// next field has the cached path that served the walk.
    ways: [Vec<Node>; 2],
    served: [Option<(usize, usize, usize, u64)>; 2],
    /// The number of insertions so far. It distinguishes the entries that a way has held one after
    /// the other.
    time: u64,
    pub(crate) searches: u64,
}

fn covers(va: u64, node: &Node, other: u64) -> bool {
    va >> node.shift == other >> node.shift
}

impl ModelWalkCache {
    pub(crate) fn new(params: &WalkCacheParams) -> ModelWalkCache {
        let arrays = params.arrays.iter().map(|array| {
            let ways = array.ways as usize;
            let set = || Set {
                ways: vec![None; ways],
                policy: ModelPolicy::new(params.replacement, ways),
            };
            Array {
                level: array.level,
                sets: (0..array.entries / array.ways).map(|_| set()).collect(),
                random: Random::new(params.seed),
            }
        });
        ModelWalkCache {
            design: params.design,
            arrays: arrays.collect(),
            params: params.clone(),
            ways: Default::default(),
            served: Default::default(),
            time: 0,
            searches: 0,
        }
    }

    fn is_page_table_cache(&self) -> bool {
        matches!(self.design, Design::Uptc | Design::Sptc)
    }

    /// All nodes that a lookup could find, in any set, as (array, set, way, node).
    fn towards(&self, va: u64, asid: Asid) -> Vec<(usize, usize, usize, Node)> {
        let mut found = Vec::new();
        for (number, array) in self.arrays.iter().enumerate() {
            for (set, held) in array.sets.iter().enumerate() {
                for (way, entry) in held.ways.iter().enumerate() {
                    let nodes = entry.iter().filter(|e| e.asid == asid).flat_map(|e| {
                        e.nodes.iter().filter(|node| covers(e.va, node, va)).copied()
                    });
                    found.extend(nodes.map(|node| (number, set, way, node)));
                }
            }
        }
        found
    }

    pub(crate) fn start(&mut self, va: VirtAddr, asid: Asid, root: Node) -> Node {
        let who = usize::from(asid == Asid::HOST);
        self.ways[who].clear();
        self.served[who] = None;
        if self.is_page_table_cache() {
            return root;
        }
        let va = va.get();
        let path_set = self.path_set(va);
        let mut found = self.towards(va, asid);
        if self.design == Design::Tpc {
            found.retain(|(_, set, ..)| *set == path_set);
        }
        let best = found.into_iter().min_by_key(|(array, _, way, node)| (node.shift, *array, *way));
        let most = if self.design == Design::Stc {
            self.arrays.len() as u64
        } else if self.params.tree.spans.is_some() {
            u64::from(self.params.tree.levels) - 1
        } else {
            1
        };
        self.searches += u64::from(self.params.pages);
        let Some((array, set, way, node)) = best else {
            self.searches += most;
            return root;
        };
        self.searches += match self.design {
            Design::Stc => array as u64 + 1,
            _ => most.min(node.level.into()),
        };
        if self.design == Design::Tpc {
            let entry = self.arrays[array].sets[set].ways[way].clone().unwrap();
            let passed = entry.nodes.into_iter().take_while(|other| other.shift >= node.shift);
            self.ways[who] = passed.collect();
            self.served[who] = Some((set, way, self.ways[who].len(), entry.since));
        } else {
            self.arrays[array].sets[set].policy.touched(way);
        }
        node
    }

    pub(crate) fn read(&mut self, va: VirtAddr, asid: Asid, reference: &Reference) -> Held {
        if self.design == Design::Tpc {
            self.ways[usize::from(asid == Asid::HOST)].extend(reference.next());
            return Held::Absent;
        }
        let level = match (self.design, reference.next()) {
            (Design::Uptc | Design::Utc, _) => 0,
            (Design::Stc, Some(node)) => node.level + 1,
            _ => reference.level,
        };
        let entry = reference.addr.get() >> self.params.tree.entry_shift;
        let Some(array) = self.arrays.iter_mut().find(|array| array.level == level) else {
            return Held::Absent;
        };
        let sets = array.sets.len() as u64;
        if matches!(self.design, Design::Uptc | Design::Sptc) {
            if reference.level < 2 {
                return Held::Absent;
            }
            self.searches += 1;
            let set = &mut array.sets[(entry % sets) as usize];
            let is_it = |held: &Option<Entry>| held.as_ref().is_some_and(|e| e.entry == entry);
            if let Some(way) = set.ways.iter().position(is_it) {
                set.policy.touched(way);
                let node = set.ways[way].as_ref().unwrap().nodes[0];
                let same = [Leads::To(node), Leads::Elsewhere(node)].contains(&reference.leads);
                return if same { Held::Here } else { Held::Stale(node) };
            }
        }
        if let Some(node) = reference.next() {
            let va = va.get();
            let key = if self.is_page_table_cache() { entry } else { va >> node.shift };
            let new = Entry { entry, va, asid, nodes: vec![node], since: 0 };
            self.insert(level, (key % sets) as usize, new, reference.level);
        }
        Held::Absent
    }

    pub(crate) fn finish(&mut self, va: VirtAddr, asid: Asid, found: bool) {
        if self.design != Design::Tpc || !found {
            return;
        }
        let who = usize::from(asid == Asid::HOST);
        match self.served[who] {
            Some((set, way, length, since)) if self.ways[who].len() == length => {
                let set = &mut self.arrays[0].sets[set];
                // The walk of the other dimension may have inserted its path there.
                if set.ways[way].as_ref().is_some_and(|entry| entry.since == since) {
                    set.policy.touched(way);
                }
            }
            _ if !self.ways[who].is_empty() => {
                let set = self.path_set(va.get());
                let nodes = self.ways[who].clone();
                let new = Entry { entry: 0, va: va.get(), asid, nodes, since: 0 };
                self.insert(0, set, new, 2);
            }
            _ => {}
        }
    }

    pub(crate) fn flush_range(&mut self, range: VirtRange, asid: Asid) {
        let (first, last) = (range.start().get(), range.last().get());
        let physical = self.is_page_table_cache();
        self.flush(|entry, node| {
            let start = entry.va >> node.shift << node.shift;
            let end = start + ((1u64 << node.shift) - 1);
            physical || entry.asid == asid && start <= last && first <= end
        });
    }

    pub(crate) fn flush_asid(&mut self, asid: Asid) {
        let physical = self.is_page_table_cache();
        self.flush(|entry, _| physical || entry.asid == asid);
    }

    pub(crate) fn flush_all(&mut self) {
        let physical = self.is_page_table_cache();
        self.flush(|entry, _| physical || entry.asid != Asid::HOST);
    }

    /// Inserts the page at which a walk ended, if the cache holds pages.
    pub(crate) fn page(&mut self, va: VirtAddr, asid: Asid, page: Node) {
        let key = va.get() >> page.shift;
        let sets = self.arrays[0].sets.len() as u64;
        let new = Entry { entry: 0, va: va.get(), asid, nodes: vec![page], since: 0 };
        self.insert(0, (key % sets) as usize, new, 1);
    }

    pub(crate) fn flush_pages(&mut self, range: VirtRange, asid: Asid) {
        let (first, last) = (range.start().get(), range.last().get());
        self.flush(|entry, node| {
            let start = entry.va >> node.shift << node.shift;
            let end = start + ((1u64 << node.shift) - 1);
            node.level == 0 && entry.asid == asid && start <= last && first <= end
        });
    }

    pub(crate) fn nodes(&self) -> Vec<Node> {
        let sets = self.arrays.iter().flat_map(|array| &array.sets);
        let entries = sets.flat_map(|set| set.ways.iter().flatten());
        entries.flat_map(|entry| entry.nodes.iter().copied()).collect()
    }

    fn path_set(&self, va: u64) -> usize {
        let spans = self.params.tree.spans.clone().unwrap_or_default();
        let shift = spans.get(1).or(spans.first()).copied().unwrap_or(63);
        (va >> shift) as usize % self.arrays[0].sets.len()
    }

    fn insert(&mut self, level: u8, set: usize, new: Entry, from: u8) {
        let array = self.arrays.iter_mut().find(|array| array.level == level).unwrap();
        let set = &mut array.sets[set];
        let empty = set.ways.iter().position(Option::is_none);
        let way = empty.unwrap_or_else(|| set.policy.victim(&mut array.random));
        let host = new.asid == Asid::HOST;
        self.time += 1;
        set.ways[way] = Some(Entry { since: self.time, ..new });
        set.policy.inserted(way, from, host);
    }

    fn flush(&mut self, goes: impl Fn(&Entry, &Node) -> bool) {
        for set in self.arrays.iter_mut().flat_map(|array| &mut array.sets) {
            for (way, held) in set.ways.iter_mut().enumerate() {
                let concerns = |entry: &Entry| entry.nodes.iter().any(|node| goes(entry, node));
                if held.as_ref().is_some_and(concerns) {
                    *held = None;
                    set.policy.removed(way);
                }
            }
        }
    }
}
