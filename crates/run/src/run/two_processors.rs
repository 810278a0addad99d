//! Compares two processors, each with one TLB, with a simple model that uses lists.
//!
//! ```text
//!   page table   pages of each space, with their rights
//!   TLB 0, 1     (space, page, rights), the most recent first; a shootdown takes from both
//! ```

use std::{collections::BTreeMap, ops::Range};

use addr::{Kind, Rights};
use description::{Clock, FlushBy, Flushes};
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
broadcast_cycles = 40
broadcast_wait_cycles = 300
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
    flushes: Flushes,
    /// The spaces that are flushed by broadcasts.
    broadcast: Vec<u32>,
    /// The flushes that each processor makes at its next sweep: a space, and its first and last
    /// page.
    left: [Vec<(u32, u64, u64, u64)>; 2],
}

impl Model {
    fn new(tagged: bool, spaces: u32, flushes: Flushes) -> Model {
        let pages = (0..spaces).flat_map(|space| (0..PAGES).map(move |page| (space, page)));
        let mappings = pages.map(|key| (key, Rights::from_bits(3))).collect();
        let mut model = Model { tagged, mappings, flushes, ..Model::default() };
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
    fn shoot_down(&mut self, sender: usize, space: u32, pages: &[u64], may_wait: bool) {
        let (Some(&first), Some(&last)) = (pages.first(), pages.last()) else { return };
        let is_wide = self.flushes.ceiling.is_some_and(|most| last - first + 1 > most);
        let flush_cycles = if is_wide { 25 } else { (10 * pages.len() as u64).min(25) };
        let (first, last) = if is_wide { (0, PAGES) } else { (first, last) };
        let other = 1 - sender;
        let is_shared = self.may_hold(other, space);
        let defers = self.flushes.deferred && may_wait;
        let is_broadcast = !defers
            && match self.flushes.by {
                FlushBy::Interrupts => false,
                FlushBy::Tlbi => true,
                FlushBy::Invlpgb => self.broadcast.contains(&space),
            };
        if !defers && is_shared && self.flushes.by == FlushBy::Invlpgb && !is_broadcast {
            self.broadcast.push(space);
        }
        self.made[sender] += 1;
        self.take(sender, space, first, last);
        if is_broadcast {
            let pages = if is_wide { 1 } else { last - first + 1 };
            self.sender_cycles[sender] += pages * 40 + 300;
            self.take(other, space, first, last);
            return;
        }
        self.sender_cycles[sender] += flush_cycles;
        if is_shared && defers {
            self.left[other].push((space, first, last, flush_cycles));
        } else if is_shared {
            self.take(other, space, first, last);
            self.received[other] += 1;
            self.receiver_cycles[other] += 1000 + flush_cycles;
            self.sender_cycles[sender] += 100 + 1000 + flush_cycles;
        }
    }

    /// Drops entries of a processor, if it may have any of the space.
    fn take(&mut self, processor: usize, space: u32, first: u64, last: u64) {
        if self.may_hold(processor, space) {
            let tlb = &mut self.tlbs[processor];
            let before = tlb.len();
            tlb.retain(|entry| entry.0 != space || !(first..=last).contains(&entry.1));
            self.entries[processor] += (before - tlb.len()) as u64;
        }
    }

    fn sweep(&mut self, processor: usize) {
        for (space, first, last, cycles) in std::mem::take(&mut self.left[processor]) {
            self.take(processor, space, first, last);
            self.receiver_cycles[processor] += cycles;
        }
    }

    /// Called before a page is mapped. All pages of a space are in the same 2M, so any deferred
    /// flush of the space causes a sweep.
    fn sweep_for(&mut self, space: u32) {
        if self.left.iter().flatten().any(|left| left.0 == space) {
            (0..2).for_each(|processor| self.sweep(processor));
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
        if !self.table.get(&(space, page)).is_some_and(|rights| rights.allows(kind)) {
            self.sweep_for(space);
        }
        let tlb = &mut self.tlbs[processor];
        let mapping = self.mappings.get(&(space, page)).copied().unwrap_or(Rights::ALL);
        let rights = self.table.entry((space, page)).or_insert(expressible(mapping | needed));
        // Additional rights need no flush: no access becomes forbidden.
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
        self.shoot_down(sender, space, &less, false);
    }

    fn unmap(&mut self, sender: usize, space: u32, pages: Range<u64>) {
        self.runs(sender, space);
        let mut gone = Vec::new();
        for page in pages {
            self.mappings.remove(&(space, page));
            gone.extend(self.table.remove(&(space, page)).map(|_| page));
        }
        // If the space's last page is removed, flushes are not deferred.
        let stays = self.table.keys().any(|key| key.0 == space);
        self.shoot_down(sender, space, &gone, stays);
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
    // With deferred flushes, a program may access a page that another thread has just unmapped.
    let done = match run.defers() {
        true => run.batch::<false>(&batch, walkers),
        false => run.batch::<true>(&batch, walkers),
    };
    done.unwrap_or_else(|error| panic!("{error}"));
}

/// Runs a random program of two threads that map, protect, unmap, load and store, and compares with
/// the model.
fn compare(seed: u64, settings: &[&str], scheduled: bool) {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let machine = Machine::parse(MACHINE, "two.toml", &settings).unwrap();
    let mut run = machine.start(true, Clock::Full).unwrap();
    let mut walkers = machine.walkers().unwrap();
    let description = machine.description();
    let flushes = description.os.flush.clone().unwrap_or_default();
    let mut model = Model::new(description.core.asid_bits > 0, SPACES, flushes);
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
    let is_told = model.flushes.by == FlushBy::Interrupts && !model.flushes.deferred;
    let received = if is_told { model.received } else { model.entries };
    assert!(received.iter().all(|&received| received > 20), "seed {seed}: too few");
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

#[test]
fn flushes_that_are_wide_or_broadcast_agree_with_lists() {
    let flushes: [&[&str]; 3] = [
        &["os.flush.ceiling=2"],
        &["os.flush.by=tlbi"],
        &["os.flush.by=invlpgb", "os.flush.broadcast_from=2", "os.flush.ceiling=3"],
    ];
    for seed in 1..=6 {
        for policy in ["core.contexts=lru", "core.contexts=generation"] {
            for flush in flushes {
                for scheduled in [false, true] {
                    let settings = [&[policy, "core.asid_bits=4"], flush].concat();
                    compare(seed, &settings, scheduled);
                }
            }
        }
    }
}

/// Two processors touch a page, and the first unmaps it: the second processor keeps its entry until
/// its tick.
#[test]
fn a_deferred_flush_comes_at_the_tick() {
    let settings = ["os.flush.deferred=true", "os.flush.sweep_cycles=5000", "core.asid_bits=4"];
    let settings = settings.map(str::to_owned);
    let machine = Machine::parse(MACHINE, "two.toml", &settings).unwrap();
    let mut run = machine.start(true, Clock::Full).unwrap();
    let mut walkers = machine.walkers().unwrap();
    let mut access = |run: &mut Run, thread: u32, page: u64, instructions: u32| {
        step(run, &mut walkers, |batch| {
            batch.push(thread, BASE + page * PAGE, Meta::new(Kind::Load, 8, instructions));
        });
    };
    for (thread, page) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        access(&mut run, thread, page, 1);
    }
    let mut walker = machine.walkers().unwrap();
    let gone = Event::Munmap { addr: BASE + PAGE, bytes: PAGE, result: 0 };
    step(&mut run, &mut walker, |batch| batch.push_event(0, gone));
    let held = |run: &mut Run, processor: usize| entries(run, processor).len();
    assert_eq!([held(&mut run, 0), held(&mut run, 1)], [1, 2]);
    // The deadline is compared with the clock of the processor that is running.
    for _ in 0..8 {
        access(&mut run, 0, 2, 1000);
    }
    assert_eq!([held(&mut run, 0), held(&mut run, 1)], [1, 1]);
    let counts: Vec<_> = run.processors.each().map(|one| one.counts.shootdowns).collect();
    assert_eq!((counts[0].deferred, counts[1].swept, counts[1].received), (1, 1, 0));
}
