//! The two-dimensional walk against lists, over random addresses.

use addr::{Asid, Kind, PageSize, Rights, VirtAddr};
use pagetable::{Node, Reference, Translation};

use crate::{
    Machine,
    hardware::behind::{Refill, Walk},
    ram::Ram,
};

/// A unified translation cache of LRU: the most recent first.
struct List {
    entries: usize,
    held: Vec<(u64, Node)>,
}

impl List {
    /// How many of the references from the root are made.
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
        let machine = Machine::load("opteron-2008", &settings).unwrap();
        let mut ram = Ram::new(machine.description()).unwrap();
        let space = ram.space(0).unwrap();
        let mut walker = machine.walkers().unwrap().here;
        let mut guest = List { entries: guest, held: Vec::new() };
        let mut host = List { entries: host, held: Vec::new() };
        let mut tlb_pages: Vec<addr::Page> = Vec::new();
        let (mut expected, mut host_walks) = (0, 0);
        for _ in 0..400 {
            let va =
                VirtAddr::new(below(3) << 39 | below(4) << 30 | below(6) << 21 | below(8) << 12);
            if ram.mapping(space, va).is_none() {
                let page = va.page(PageSize::SIZE_4K);
                let frame = ram.allocate(page).unwrap();
                let page = Translation { page, frame, rights: Rights::ALL, global: false };
                let flush = ram.map(space, page).unwrap();
                ram.done(flush);
                ram.walk(space, va, Kind::Store, &mut Vec::new()).unwrap();
            }
            let mut references = Vec::new();
            let found = ram.walk(space, va, Kind::Store, &mut references);
            // Twice: the first time may set bits in the host's table.
            ram.place(va, Kind::Store, &references, found).unwrap().unwrap();
            ram.place(va, Kind::Store, &references, found).unwrap().unwrap();
            let way = ram.way(&references);
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
            let walk =
                Walk { va, asid: Asid(0), root: ram.root(space), found: true, nested_misses: 0 };
            walker.walk(&walk, way).unwrap();
            let refill =
                Refill { region: 0, cold: false, instead: false, dirtied: false, sized: false };
            walker.refilled(refill);
            let made = (walker.walks.references, walker.host.as_ref().unwrap().walks);
            assert_eq!(made, (expected as u64, host_walks), "seed {seed}: {settings:?}");
        }
    }
}
