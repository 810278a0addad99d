//! Compares the two-dimensional walk with models made of lists, over random addresses.

use addr::{Asid, Kind, PageSize, Rights, VirtAddr, VirtRange};
use description::Description;
use managers::host::stack;
use os::host::{Host, Stack};
use pagetable::{Node, Reference, Translation};
use ram::walk::{HostWalk, Walk};

use super::Walkers;
use crate::behind::{Forget, Refill};

fn walkers(described: &Description, stack: &Stack) -> Walkers {
    let (tree, host) = (stack.guest.tree_shape(), stack.host().map(Host::table));
    Walkers::build(described, stack.guest.page_sizes(), tree, host).unwrap()
}

/// A unified translation cache with LRU, the most recently used entry first.
struct List {
    entries: usize,
    held: Vec<(u64, Node)>,
}

impl List {
    /// The number of references, from the root, that are made.
    fn walk(&mut self, va: u64, references: &[Reference]) -> usize {
        let prefix = |node: &Node, va| node.prefix(VirtAddr::new(va));
        let fits = |(other, node): &(u64, Node)| prefix(node, va) == prefix(node, *other);
        let longest = self.held.iter().filter(|held| fits(held)).map(|(_, node)| node.shift).min();
        let mut made = references.len();
        if let Some(shift) = longest {
            let at = self.held.iter().position(|held| fits(held) && held.1.shift == shift).unwrap();
            let used = self.held.remove(at);
            let before = references.iter().position(|read| read.next() == Some(used.1)).unwrap();
            made -= before + 1;
            self.held.insert(0, used);
        }
        for node in references[references.len() - made..].iter().filter_map(|read| read.next()) {
            self.held.insert(0, (va, node));
        }
        self.held.truncate(self.entries);
        made
    }
}

#[test]
fn a_walk_in_two_dimensions_does_what_lists_do() {
    for seed in 1..=30u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % end
        };
        let [tlb, guest, host] = [0; 3].map(|_| 1 + below(20) as usize);
        let pages = ["4K", "2M"][below(2) as usize];
        let settings = [
            format!("nested.tlb.entries={tlb}"),
            format!("nested.mmu_cache.entries={host}"),
            format!("mmu_cache.entries={guest}"),
            "mmu_cache.design=utc".to_owned(),
            format!("nested.page_size={pages}"),
            "nested.memory=4T".to_owned(),
        ];
        let described = Description::load("opteron-2008", &settings).unwrap();
        let mut stack = stack(&described).unwrap();
        let space = stack.guest.space(0).unwrap();
        let mut walker = walkers(&described, &stack).here;
        let mut guest = List { entries: guest, held: Vec::new() };
        let mut host = List { entries: host, held: Vec::new() };
        let mut tlb_pages: Vec<addr::Page> = Vec::new();
        let (mut expected, mut host_walks) = (0, 0);
        for _ in 0..400 {
            let va =
                VirtAddr::new(below(3) << 39 | below(4) << 30 | below(6) << 21 | below(8) << 12);
            if stack.guest.mapping(space, va).is_none() {
                let page = va.page(PageSize::SIZE_4K);
                let frame = stack.guest.allocate(page).unwrap();
                let page = Translation::new(page, frame, Rights::ALL);
                let flush = stack.guest.map(space, page).unwrap();
                stack.guest.done(flush);
                stack.guest.walk(space, va, Kind::Store, &mut Vec::new()).unwrap();
            }
            let mut references = Vec::new();
            let found = stack.guest.walk(space, va, Kind::Store, &mut references);
            // The walk is done twice because the first one may set bits in the host's table.
            stack.place(va, Kind::Store, &references, found).unwrap().unwrap();
            stack.place(va, Kind::Store, &references, found).unwrap().unwrap();
            let way = stack.way(&references);
            let made = guest.walk(va.get(), &references);
            expected += made;
            let skipped = references.len() - made;
            let mut at = 0;
            for (index, walk) in way.host.iter().enumerate() {
                let own = &way.host_references[at..][..usize::from(walk.references)];
                at += own.len();
                if index < skipped {
                    continue;
                }
                match tlb_pages.iter().position(|page| *page == walk.page.page) {
                    Some(used) => {
                        let page = tlb_pages.remove(used);
                        tlb_pages.insert(0, page);
                    }
                    None => {
                        host_walks += 1;
                        expected += host.walk(walk.walk.va.get(), own);
                        tlb_pages.insert(0, walk.page.page);
                        tlb_pages.truncate(tlb);
                    }
                }
            }
            let walk = Walk {
                va,
                asid: Asid(0),
                root: stack.guest.root(space),
                found: true,
                size: PageSize::SIZE_4K,
                nested_misses: 0,
            };
            walker.walk(&walk, way).unwrap();
            let refill = Refill {
                region: 0,
                cold: false,
                data: true,
                instead: false,
                dirtied: false,
                sized: false,
            };
            walker.refilled(refill);
            let made = (walker.walks.references, walker.host.as_ref().unwrap().walks);
            assert_eq!(made, (expected as u64, host_walks), "seed {seed}: {settings:?}");
        }
    }
}

/// The cache that guest and host share, with LRU replacement, the most recently used entry first.
/// Each entry names the space whose walks use it.
struct SharedList {
    entries: usize,
    held: Vec<(Asid, u64, Node)>,
}

impl SharedList {
    /// The entry with the longest prefix of `va`. It becomes the most recently used entry.
    fn longest(&mut self, asid: Asid, va: u64) -> Option<Node> {
        let fits = |(of, other, node): &(Asid, u64, Node)| {
            *of == asid && node.prefix(VirtAddr::new(va)) == node.prefix(VirtAddr::new(*other))
        };
        let shift = self.held.iter().filter(|held| fits(held)).map(|held| held.2.shift).min()?;
        let at = self.held.iter().position(|held| fits(held) && held.2.shift == shift)?;
        let used = self.held.remove(at);
        self.held.insert(0, used);
        Some(used.2)
    }

    fn insert(&mut self, asid: Asid, va: u64, node: Node) {
        self.held.insert(0, (asid, va, node));
        self.held.truncate(self.entries);
    }

    /// Removes the page of 4 KB at `va`.
    fn drop_page(&mut self, asid: Asid, va: u64) {
        self.held.retain(|(of, other, node)| {
            !(node.level == 0 && *of == asid && other >> node.shift == va >> node.shift)
        });
    }
}

/// The number of references skipped by a walk that starts at `start`; `None` at a page.
fn skipped(start: Option<Node>, references: &[Reference]) -> Option<usize> {
    match start {
        None => Some(0),
        Some(Node { level: 0, .. }) => None,
        Some(node) => {
            let before = references.iter().position(|read| read.next() == Some(node)).unwrap();
            // An accessed bit of the entry that leads to the start is written together with the
            // read.
            let rest = &references[before + 1..];
            let marks = rest.iter().take_while(|reference| reference.level > node.level).count();
            Some(before + 1 + marks)
        }
    }
}

#[test]
fn a_shared_cache_does_in_two_dimensions_what_one_list_does() {
    for seed in 1..=12u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % end
        };
        let entries = 1 + below(40) as usize;
        let shared = ["mmu-cache", "nested-tlb", "tlb"][below(3) as usize];
        let host_size = ["4K", "2M"][below(2) as usize];
        let settings = [
            format!("mmu_cache.entries={entries}"),
            "mmu_cache.design=utc".to_owned(),
            format!("nested.shared={shared}"),
            format!("nested.page_size={host_size}"),
            format!("page_table.levels={}", 4 + below(2)),
            "nested.memory=4T".to_owned(),
        ];
        let described = Description::load("opteron-2008", &settings).unwrap();
        let mut stack = stack(&described).unwrap();
        let space = stack.guest.space(0).unwrap();
        let mut walker = walkers(&described, &stack).here;
        let mut list = SharedList { entries, held: Vec::new() };
        let (mut expected, mut host_walks) = (0, 0);
        for step in 0..400 {
            let va =
                VirtAddr::new(below(3) << 39 | below(4) << 30 | below(6) << 21 | below(8) << 12);
            if stack.guest.mapping(space, va).is_none() {
                let page = va.page(PageSize::SIZE_4K);
                let frame = stack.guest.allocate(page).unwrap();
                let page = Translation::new(page, frame, Rights::ALL);
                let flush = stack.guest.map(space, page).unwrap();
                stack.guest.done(flush);
            }
            if below(10) == 0 {
                // Flushes the page as if the operating system had restricted its rights.
                list.drop_page(Asid(3), va.get());
                let page = VirtRange::of_page(va.page(PageSize::SIZE_4K));
                walker.dimension.forget(Forget::Pages(page, Asid(3)));
            }
            let mut references = Vec::new();
            let found = stack.guest.walk(space, va, Kind::Store, &mut references);
            // The walk is done twice because the first one may set bits in the host's table.
            stack.place(va, Kind::Store, &references, found).unwrap().unwrap();
            stack.place(va, Kind::Store, &references, found).unwrap().unwrap();
            let way = stack.way(&references);
            if shared == "tlb" && references.iter().any(|reference| reference.write) {
                list.drop_page(Asid(3), va.get());
            }
            let page = |frame| Node { table: frame, level: 0, shift: 12, rights: Rights::ALL };
            if let Some(first) = skipped(list.longest(Asid(3), va.get()), &references) {
                let mut at = 0;
                for (index, host) in way.host.iter().enumerate() {
                    let own = &way.host_references[at..][..usize::from(host.references)];
                    at += own.len();
                    if index < first {
                        continue;
                    }
                    let gpa = host.walk.va.get();
                    let start = (!host.known).then(|| list.longest(Asid::HOST, gpa));
                    if let Some(first) = start.and_then(|start| skipped(start, own)) {
                        host_walks += 1;
                        for read in &own[first..] {
                            expected += 1;
                            read.next().iter().for_each(|node| list.insert(Asid::HOST, gpa, *node));
                        }
                        if shared != "mmu-cache" {
                            let shift = host.page.page.size().shift() as u8;
                            let node = Node { shift, ..page(host.page.frame) };
                            list.insert(Asid::HOST, gpa, node);
                        }
                    }
                    if let Some(read) = references.get(index) {
                        expected += 1;
                        read.next().iter().for_each(|node| list.insert(Asid(3), va.get(), *node));
                    }
                }
                if shared == "tlb" {
                    list.insert(Asid(3), va.get(), page(va_frame(way.host)));
                }
            }
            let walk = Walk {
                va,
                asid: Asid(3),
                root: stack.guest.root(space),
                found: true,
                size: PageSize::SIZE_4K,
                nested_misses: 0,
            };
            walker.walk(&walk, way).unwrap();
            let refill = Refill {
                region: 0,
                cold: false,
                data: true,
                instead: false,
                dirtied: false,
                sized: false,
            };
            walker.refilled(refill);
            let made = (walker.walks.references, walker.host.as_ref().unwrap().walks);
            assert_eq!(made, (expected, host_walks), "seed {seed}, step {step}: {settings:?}");
        }
    }
}

/// The address of the page at the end of a guest's walk.
fn va_frame(host: &[HostWalk]) -> addr::PhysAddr {
    let end = host.last().unwrap();
    end.page.apply(end.walk.va).align_down(PageSize::SIZE_4K)
}
