//! Two processors with one TLB each, against a simple model that uses lists.
//!
//! ```text
//!   page table   pages of each space, with their rights
//!   TLB 0, 1     (space, page, rights), the most recent first; a shootdown takes from both
//! ```

use std::{collections::BTreeMap, ops::Range};

use addr::{Kind, Rights};
use description::Clock;
use hardware::walker::Walkers;
use trace::{Batch, Event, Meta};

use super::Run;
use crate::{plain::Machine, runnable::Runnable};

const PAGE: u64 = 4096;
const PAGES: u64 = 12;
const ENTRIES: usize = 5;
const BASE: u64 = 0x40_0000;

const MACHINE: &str = r#"
title = "two processors"
source = "a test"
[core]
count = 2
fetches = false
[tlb.l1]
entries = 5
ways = "full"
replacement = "lru"
source = "a test"
[page_table]
format = "x86-64"
source = "a test"
[os.costs]
shootdown_send_cycles = 100
shootdown_receive_cycles = 1000
flush_page_cycles = 10
flush_space_cycles = 25
walk_cycles = 30
fault_cycles = 400
switch_cycles = 70
source = "a test"
"#;

/// An entry of the model: space, page, rights.
type Entry = (u32, u64, Rights);

/// The model.
#[derive(Default)]
struct Model {
    /// Whether entries are tagged with their space, so that a switch flushes nothing.
    tagged: bool,
    table: BTreeMap<(u32, u64), Rights>,
    mappings: BTreeMap<(u32, u64), Rights>,
    tlbs: [Vec<Entry>; 2],
    /// The space on each processor; the next field has the spaces that have run there.
    spaces: [Option<u32>; 2],
    ran: [Vec<u32>; 2],
    misses: [u64; 2],
    entries: [u64; 2],
    received: [u64; 2],
    made: [u64; 2],
    sender_cycles: [u64; 2],
    receiver_cycles: [u64; 2],
}

impl Model {
    fn new(tagged: bool, spaces: u32) -> Model {
        let pages = (0..spaces).flat_map(|space| (0..PAGES).map(move |page| (space, page)));
        let mappings = pages.map(|key| (key, Rights::from_bits(3))).collect();
        let mut model = Model { tagged, mappings, ..Model::default() };
        model.runs(0, 0);
        model
    }

    fn runs(&mut self, processor: usize, space: u32) {
        if self.spaces[processor] == Some(space) {
            return;
        }
        self.spaces[processor] = Some(space);
        self.ran[processor].push(space);
        if !self.tagged {
            self.tlbs[processor].clear();
        }
    }

    fn may_hold(&self, processor: usize, space: u32) -> bool {
        let tagged = self.tagged && self.ran[processor].contains(&space);
        tagged || self.spaces[processor] == Some(space)
    }

    /// Drops all pages from the first to the last of `pages` from both TLBs.
    fn shoot_down(&mut self, sender: usize, space: u32, pages: &[u64]) {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return };
        let flush_cycles = (10 * pages.len() as u64).min(25);
        self.made[sender] += 1;
        self.sender_cycles[sender] += flush_cycles;
        for processor in 0..2 {
            if !self.may_hold(processor, space) {
                continue;
            }
            let tlb = &mut self.tlbs[processor];
            let before = tlb.len();
            tlb.retain(|entry| entry.0 != space || !(first..=last).contains(&&entry.1));
            self.entries[processor] += (before - tlb.len()) as u64;
            if processor != sender {
                self.received[processor] += 1;
                self.receiver_cycles[processor] += 1000 + flush_cycles;
                self.sender_cycles[sender] += 100 + 1000 + flush_cycles;
            }
        }
    }

    fn access(&mut self, processor: usize, space: u32, page: u64, kind: Kind) {
        self.runs(processor, space);
        let tlb = &mut self.tlbs[processor];
        if let Some(at) = tlb.iter().position(|entry| (entry.0, entry.1) == (space, page)) {
            let entry = tlb.remove(at);
            if entry.2.allows(kind) {
                tlb.insert(0, entry);
                return;
            }
        }
        self.misses[processor] += 1;
        let needed = if kind == Kind::Store { Rights::WRITE } else { Rights::READ };
        let mapping = self.mappings.get(&(space, page)).copied().unwrap_or(Rights::ALL);
        let rights = self.table.entry((space, page)).or_insert(expressible(mapping | needed));
        // Rights that come take nothing from anybody.
        *rights = expressible(*rights | needed);
        tlb.insert(0, (space, page, *rights));
        tlb.truncate(ENTRIES);
    }

    fn protect(&mut self, sender: usize, space: u32, pages: Range<u64>, rights: Rights) {
        self.runs(sender, space);
        let mut less = Vec::new();
        for page in pages {
            self.mappings.entry((space, page)).and_modify(|mapping| *mapping = rights);
            if let Some(known) = self.table.get_mut(&(space, page)) {
                if !expressible(rights).contains(*known) {
                    less.push(page);
                }
                *known = expressible(rights);
            }
        }
        self.shoot_down(sender, space, &less);
    }

    fn unmap(&mut self, sender: usize, space: u32, pages: Range<u64>) {
        self.runs(sender, space);
        let mut gone = Vec::new();
        for page in pages {
            self.mappings.remove(&(space, page));
            gone.extend(self.table.remove(&(space, page)).map(|_| page));
        }
        self.shoot_down(sender, space, &gone);
    }
}

/// The rights that hardware can express for the given rights: if they allow any access, loads are
/// allowed too.
fn expressible(rights: Rights) -> Rights {
    if rights == Rights::NONE { rights } else { rights | Rights::READ | Rights::USER }
}

/// The entries of a processor's only TLB, in the order of space and page.
fn entries(run: &mut Run, processor: usize) -> Vec<Entry> {
    let owner = |asid, run: &Run| (0..SPACES).find(|&of| run.contexts.of(processor, of) == asid);
    let tlb: Vec<mmu::TlbEntry> =
        run.processors.of(processor).hardware.units[0].tlb.entries().map(|pair| pair.0).collect();
    let mut found: Vec<Entry> = tlb
        .iter()
        .map(|entry| {
            let space = owner(Some(entry.asid), run).expect("some space has the context");
            let page = (entry.page.start().get() - BASE) / PAGE;
            (space, page, entry.rights[0])
        })
        .collect();
    found.sort_by_key(|entry| (entry.0, entry.1));
    found
}

const SPACES: u32 = 3;

/// Runs one action of a thread as a batch of its own.
fn step(run: &mut Run, walkers: &mut Walkers, what: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::default();
    what(&mut batch);
    run.batch::<true>(&batch, walkers).unwrap_or_else(|error| panic!("{error}"));
}

/// Runs a random program of two threads that map, protect, unmap, load and store, and compares with
/// the model.
fn compare(seed: u64, settings: &[&str], scheduled: bool) {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let machine = Machine::parse(MACHINE, "two.toml", &settings).unwrap();
    let mut run = machine.start(true, Clock::Full).unwrap();
    let mut walkers = machine.walkers().unwrap();
    let mut model = Model::new(machine.description().core.asid_bits > 0, SPACES);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    // Each space is mapped by the first processor.
    for space in (0..SPACES).rev() {
        let cpu = scheduled.then_some(0);
        step(&mut run, &mut walkers, |batch| {
            batch.push_event(0, Event::Run { cpu, space });
            let (addr, bytes, result) = (BASE, PAGES * PAGE, BASE as i64);
            let (prot, flags, fd, offset) = (3, 0x22, -1, 0);
            let (path, file) = (None, None);
            let mmap = Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result };
            batch.push_event(0, mmap);
        });
        model.runs(0, space);
    }
    // Without a schedule all threads run in one space.
    let mut spaces = [0; 2];
    for number in 0..1200 {
        let thread = below(4) as u32;
        let processor = thread as usize % 2;
        if below(40) == 0 {
            spaces[processor] = below(u64::from(SPACES)) as u32;
            if !scheduled {
                spaces = [spaces[processor]; 2];
            }
        }
        let space = spaces[processor];
        let first = below(PAGES);
        let pages = first..first + 1 + below((PAGES - first).min(4));
        let (addr, bytes) = (BASE + pages.start * PAGE, (pages.end - pages.start) * PAGE);
        let (what, prot, kind) = (below(12), below(8), below(2));
        let kind = [Kind::Load, Kind::Store][kind as usize];
        step(&mut run, &mut walkers, |batch| {
            let cpu = scheduled.then_some(processor as u32);
            batch.push_event(thread, Event::Run { cpu, space });
            match what {
                0 => batch.push_event(thread, Event::Munmap { addr, bytes, result: 0 }),
                1 => {
                    let prot = prot as u32;
                    batch.push_event(thread, Event::Mprotect { addr, bytes, prot, result: 0 });
                }
                _ => batch.push(thread, addr, Meta::new(kind, 8, 1)),
            }
        });
        match what {
            0 => model.unmap(processor, space, pages),
            1 => model.protect(processor, space, pages, Rights::from_bits(prot as u8)),
            _ => model.access(processor, space, pages.start, kind),
        }
        let context = format!("seed {seed}, {settings:?}, scheduled: {scheduled}, step {number}");
        for processor in 0..2 {
            let mut expected = model.tlbs[processor].clone();
            expected.sort_by_key(|entry| (entry.0, entry.1));
            assert_eq!(entries(&mut run, processor), expected, "{context}: {processor}");
        }
        for (processor, one) in run.processors.each().enumerate() {
            let counts = one.counts.shootdowns;
            let found = [
                one.hardware.units[0].counts.misses.iter().sum(),
                counts.made,
                counts.received,
                counts.entries,
                counts.sender_cycles,
                counts.receiver_cycles,
            ];
            let model = [
                model.misses[processor],
                model.made[processor],
                model.received[processor],
                model.entries[processor],
                model.sender_cycles[processor],
                model.receiver_cycles[processor],
            ];
            assert_eq!(found, model, "{context}: {processor}");
        }
    }
    assert!(model.received.iter().all(|&received| received > 20), "seed {seed}: too few");
    assert!(model.misses.iter().all(|&misses| misses > 50), "seed {seed}: too few");
}

#[test]
fn both_tlbs_agree_with_lists() {
    for seed in 1..=6 {
        for policy in ["modulo", "lru", "generation", "per-processor"] {
            let policy = format!("core.contexts={policy}");
            for bits in ["core.asid_bits=0", "core.asid_bits=4"] {
                for scheduled in [false, true] {
                    compare(seed, &[&policy, bits], scheduled);
                }
            }
        }
    }
}
