//! A model TLB: a list of sets, each with its ways and their entries.

use addr::{Asid, Kind, Page, PageSize, PhysAddr, VirtAddr, VirtRange};
use mmu::{Evicted, Miss, Policy, Random, TlbCounts, TlbEntry, TlbParams};

use super::policy::ModelPolicy;

#[derive(Clone)]
struct Slot {
    entry: TlbEntry,
    label: u32,
    hits: [u64; 3],
}

struct Set {
    ways: Vec<Option<Slot>>,
    policy: ModelPolicy,
}

struct Array {
    page_sizes: Vec<PageSize>,
    sets: Vec<Set>,
    random: usize,
}

pub(crate) struct ModelTlb {
    paired: bool,
    arrays: Vec<Array>,
    /// One random sequence for all arrays if they have the same policy, otherwise one for each
    /// array.
    random: Vec<Random>,
    pub(crate) counts: TlbCounts,
}

impl ModelTlb {
    pub(crate) fn new(params: &TlbParams) -> ModelTlb {
        let policies: Vec<Policy> = params.arrays.iter().map(|array| array.replacement).collect();
        let shared = policies.iter().all(|policy| *policy == policies[0]);
        let arrays = params.arrays.iter().enumerate().map(|(number, array)| Array {
            page_sizes: array.page_sizes.clone(),
            sets: (0..array.entries / array.ways)
                .map(|_| Set {
                    ways: vec![None; array.ways as usize],
                    policy: ModelPolicy::new(array.replacement, array.ways as usize),
                })
                .collect(),
            random: if shared { 0 } else { number },
        });
        ModelTlb {
            paired: params.paired,
            arrays: arrays.collect(),
            random: params.arrays.iter().map(|array| Random::new(array.seed)).collect(),
            counts: TlbCounts::default(),
        }
    }

    /// The number of the page, or of the pair, that has one tag.
    fn number(&self, page: Page) -> u64 {
        if self.paired { page.number() / 2 } else { page.number() }
    }

    fn frame(&self, entry: &TlbEntry, page: Page) -> Option<PhysAddr> {
        entry.frames[if self.paired { (page.number() % 2) as usize } else { 0 }]
    }

    /// Looks up `va`. Returns the physical address and the label.
    pub(crate) fn lookup(
        &mut self,
        va: VirtAddr,
        asid: Asid,
        kind: Kind,
    ) -> Result<(PhysAddr, u32), Miss> {
        let mut found: Option<(PageSize, PhysAddr, usize, usize, usize)> = None;
        let mut has_tag = false;
        for (a, array) in self.arrays.iter().enumerate() {
            for (s, set) in array.sets.iter().enumerate() {
                for (w, slot) in set.ways.iter().enumerate() {
                    let Some(slot) = slot else { continue };
                    let size = slot.entry.page.size();
                    let page = va.page(size);
                    if self.number(page) != self.number(slot.entry.page)
                        || !(slot.entry.global || slot.entry.asid == asid)
                    {
                        continue;
                    }
                    has_tag = true;
                    let Some(frame) = self.frame(&slot.entry, page) else { continue };
                    assert_ne!(found.map(|found| found.0), Some(size), "two entries of one size");
                    if found.is_none_or(|found| size < found.0) {
                        let phys = frame.checked_add(va.offset_in(size)).unwrap();
                        found = Some((size, phys, a, s, w));
                    }
                }
            }
        }
        let Some((_, phys, a, s, w)) = found else {
            self.counts.misses[kind as usize] += 1;
            self.counts.invalid += u64::from(has_tag);
            return Err(if has_tag { Miss::Invalid } else { Miss::Absent });
        };
        let entry = &self.arrays[a].sets[s].ways[w].as_ref().unwrap().entry;
        let odd = self.paired && va.page(entry.page.size()).number() % 2 == 1;
        if !entry.rights[usize::from(odd)].allows(kind) {
            self.counts.misses[kind as usize] += 1;
            self.counts.denied += 1;
            return Err(Miss::Denied);
        }
        self.counts.hits[kind as usize] += 1;
        let set = &mut self.arrays[a].sets[s];
        set.policy.touched(w);
        let slot = set.ways[w].as_mut().unwrap();
        slot.hits[kind as usize] += 1;
        Ok((phys, slot.label))
    }

    pub(crate) fn fill(
        &mut self,
        entry: &TlbEntry,
        label: u32,
        evicted: &mut Vec<Evicted>,
    ) -> bool {
        let size = entry.page.size();
        let Some(a) = self.arrays.iter().position(|array| array.page_sizes.contains(&size)) else {
            return false;
        };
        if entry.frames[0].is_none() && (!self.paired || entry.frames[1].is_none()) {
            return false;
        }
        let number = self.number(entry.page);
        let same: Vec<bool> = {
            let sets = &self.arrays[a].sets;
            let set = &sets[(number % sets.len() as u64) as usize];
            let same = |slot: &Slot| {
                slot.entry.page.size() == size
                    && self.number(slot.entry.page) == number
                    && (slot.entry.asid == entry.asid || slot.entry.global || entry.global)
            };
            set.ways.iter().map(|slot| slot.as_ref().is_some_and(same)).collect()
        };
        let paired = self.paired;
        let array = &mut self.arrays[a];
        let sets = array.sets.len() as u64;
        let set = &mut array.sets[(number % sets) as usize];
        for (slot, _) in set.ways.iter_mut().zip(&same).filter(|(_, same)| **same) {
            evicted.push(gone(slot.take().unwrap(), paired));
        }
        let way = match same.iter().position(|same| *same) {
            Some(way) => way,
            None => match set.ways.iter().position(Option::is_none) {
                Some(way) => way,
                None => {
                    let way = set.policy.victim(&mut self.random[array.random]);
                    evicted.push(gone(set.ways[way].take().unwrap(), paired));
                    self.counts.evictions += 1;
                    way
                }
            },
        };
        set.ways[way] = Some(Slot { entry: *entry, label, hits: [0; 3] });
        set.policy.inserted(way, 0, false);
        self.counts.fills += 1;
        true
    }

    pub(crate) fn flush(
        &mut self,
        evicted: &mut Vec<Evicted>,
        goes: impl Fn(&TlbEntry) -> bool,
    ) -> u64 {
        let mut flushed = 0;
        for array in &mut self.arrays {
            for slot in array.sets.iter_mut().flat_map(|set| &mut set.ways) {
                if slot.as_ref().is_some_and(|slot| goes(&slot.entry)) {
                    evicted.push(gone(slot.take().unwrap(), self.paired));
                    flushed += 1;
                }
            }
        }
        self.counts.flushed += flushed;
        flushed
    }

    /// Whether the page of `entry`, or a page of its pair, overlaps `range`.
    pub(crate) fn touches(paired: bool, entry: &TlbEntry, range: VirtRange) -> bool {
        let size = entry.page.size();
        range.pages(size).any(|page| {
            if paired { page.number() / 2 == entry.page.number() / 2 } else { page == entry.page }
        })
    }

    pub(crate) fn drain(&mut self, evicted: &mut Vec<Evicted>) {
        for array in &mut self.arrays {
            for slot in array.sets.iter_mut().flat_map(|set| set.ways.iter_mut().flatten()) {
                if slot.hits != [0; 3] {
                    evicted.push(gone(slot.clone(), self.paired));
                    slot.hits = [0; 3];
                }
            }
        }
    }

    pub(crate) fn entries(&self) -> usize {
        let sets = self.arrays.iter().flat_map(|array| &array.sets);
        sets.map(|set| set.ways.iter().flatten().count()).sum()
    }
}

fn gone(slot: Slot, paired: bool) -> Evicted {
    let page = slot.entry.page;
    let even = VirtAddr::new(page.start().get() & !page.size().bytes()).page(page.size());
    Evicted {
        page: if paired { even } else { page },
        asid: slot.entry.asid,
        label: slot.label,
        hits: slot.hits,
    }
}
