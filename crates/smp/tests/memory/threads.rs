//! Tests two threads of this host that share one memory, which is too small for both. Each thread
//! uses its own spaces.
//!
//! ```text
//!   a first space ---- fork ----> thread 0's space     the same anons, copied on write by either
//!                 \--- fork ----> thread 1's space     one file, which both map
//!
//!   thread:  access --> its TLB, or a walk --> right, and the contents expected? --> frame
//!              | no                                                          fault, then again
//!            map, unmap, discard, fork a child and end it, read the file
//! ```
//!
//! An access is done under the lock of a TLB. When a shootdown returns, therefore no processor
//! still accesses an old page. The result of a walk is entered into the TLB only if there was no
//! shootdown since the walk began.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    Hat, HatSpace, Pool, Tables,
    locking::{Embedded, Fine, Global, ListLocks, Scheme},
};
use pagetable::{Flush, Mounted, Translation};
use physmem::{Buddy, Physmem};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use smp::{Native, Ranked};
use vm::{
    Error, FileKey, Io, Kernel, Marks, POLICIES, Parts, Physical, Platform, Settings, Source,
    Store, Vm,
};

use crate::{board::original, tables::TABLES};

/// The order of locks is asserted here too.
type L = Ranked<Native>;

const BASE: PageSize = PageSize::SIZE_4K;
const FRAMES: u64 = 130;
const THREADS: usize = 2;
const ROUNDS: u64 = 6;
const EVENTS: u32 = 250;
/// The number of the first page that is used.
const FIRST: u64 = 0x40000 - 32;
const PAGES: u64 = 64;
const FILE: FileKey = FileKey { device: 1, inode: 7 };
const RW: Rights = Rights::from_bits(Rights::READ.bits() | Rights::WRITE.bits());

/// The state that all processors share: the contents of memory and of disks, and the TLBs.
#[derive(Default)]
struct Machine {
    contents: Mutex<BTreeMap<PhysAddr, u64>>,
    disk: Mutex<BTreeMap<Store, u64>>,
    tlbs: [Mutex<Tlb>; THREADS],
}

#[derive(Default)]
struct Tlb {
    held: BTreeMap<(HatSpace, u64), Translation>,
    shootdowns: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The machine as the platform of the memory manager.
struct Processor<'a>(&'a Machine);

impl Platform for Processor<'_> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        for tlb in &self.0.tlbs {
            let mut tlb = locked(tlb);
            tlb.shootdowns += 1;
            for (space, flush) in flushes {
                tlb.held.retain(|&(of, _), held| of != *space || !flush.scope().covers(held.page));
            }
        }
    }

    fn zero(&mut self, frame: PhysAddr, _: u64) {
        locked(&self.0.contents).insert(frame, 0);
    }

    fn copy(&mut self, from: PhysAddr, to: PhysAddr, _: u64) {
        let mut contents = locked(&self.0.contents);
        let copied = contents[&from];
        contents.insert(to, copied);
    }

    fn transfer(&mut self, io: Io) {
        let mut disk = locked(&self.0.disk);
        if io.write {
            disk.insert(io.store, locked(&self.0.contents)[&io.frame]);
            return;
        }
        let stored = match io.store {
            Store::File(file, index) => original(file, index),
            Store::Swap(_) => disk.remove(&io.store).expect("what is read was written"),
        };
        locked(&self.0.contents).insert(io.frame, stored);
    }
}

/// The state that all threads share.
struct Shared<S> {
    vm: Vm<L>,
    hat: Hat<dyn Mounted, S>,
    memory: Physical<Buddy, L>,
    machine: Machine,
}

type Contents = BTreeMap<u64, u64>;

/// A thread that makes random accesses and calls.
struct Thread<'a, S> {
    number: usize,
    shared: &'a Shared<S>,
    random: Xoshiro256PlusPlus,
    stamp: u64,
}

impl<S: Scheme<Table = dyn Mounted>> Thread<'_, S> {
    fn kernel<R>(
        &mut self,
        f: impl FnOnce(&mut Kernel<'_, Parts<dyn Mounted, Buddy, Processor<'_>, L, S>>) -> R,
    ) -> R {
        let Shared { vm, hat, memory, machine } = self.shared;
        f(&mut Kernel::new(vm, hat, memory, &mut Processor(machine)))
    }

    fn event(&mut self, space: HatSpace, model: &mut Contents) {
        match self.random.random_range(0..100) {
            0..70 => (0..4).for_each(|_| self.access(space, model)),
            70..80 => {
                let (pages, range) = self.pages();
                let from_file = self.random.random_bool(0.5);
                let file = Source::File { key: FILE, first: pages.start - FIRST, shared: false };
                let source = if from_file { file } else { Source::Anonymous };
                self.kernel(|kernel| kernel.map(space, range, RW, source, 0)).unwrap();
                for page in pages {
                    let stored = if from_file { original(FILE, page - FIRST) } else { 0 };
                    model.insert(page, stored);
                }
            }
            80..86 => {
                let (pages, range) = self.pages();
                self.kernel(|kernel| kernel.unmap(space, range)).unwrap();
                model.retain(|page, _| !pages.contains(page));
            }
            86..90 => self.kernel(|kernel| {
                let mut seen = Vec::new();
                let each = &mut |processor: &mut Processor<'_>, frame: PhysAddr, index| {
                    seen.push((index, locked(&processor.0.contents)[&frame]));
                };
                kernel.transfer_file(FILE, 4096 * 3, 4096 * 8, false, each).unwrap();
                assert!(seen.iter().all(|&(index, found)| found == original(FILE, index)));
            }),
            90..97 => {
                let child = self.kernel(|kernel| {
                    let child = kernel.create().unwrap();
                    kernel.fork(space, child).unwrap();
                    child
                });
                let mut own = model.clone();
                for _ in 0..12 {
                    self.access(child, &mut own);
                    self.access(space, model);
                }
                assert_eq!(self.kernel(|kernel| kernel.exit(child)), Ok(true));
            }
            _ => {
                self.kernel(|kernel| kernel.tick());
            }
        }
    }

    fn pages(&mut self) -> (core::ops::Range<u64>, VirtRange) {
        let start = FIRST + self.random.random_range(0..PAGES);
        let end = (start + self.random.random_range(1..16)).min(FIRST + PAGES);
        let at = VirtAddr::new(start << BASE.shift());
        (start..end, VirtRange::new(at, (end - start) << BASE.shift()).unwrap())
    }

    fn access(&mut self, space: HatSpace, model: &mut Contents) {
        let page = FIRST + self.random.random_range(0..PAGES);
        let kind = if self.random.random_bool(0.5) { Kind::Store } else { Kind::Load };
        self.stamp += 1;
        let stamp = (self.number as u64 + 1) << 32 | self.stamp;
        let addr = VirtAddr::new(page << BASE.shift());
        for _ in 0..10_000 {
            if let Some(found) = self.done(space, page, kind, stamp) {
                let expected = model.get_mut(&page).expect("nothing is mapped there");
                if kind == Kind::Store {
                    *expected = stamp;
                } else {
                    assert_eq!(found, *expected, "{addr} of {space:?}, seen by {}", self.number);
                }
                return;
            }
            match self.kernel(|kernel| kernel.fault(space, addr, kind)) {
                Ok(_) => {}
                Err(Error::NoRegion(_)) if !model.contains_key(&page) => return,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("{addr} faults again and again");
    }

    /// Makes an access with the translation that the TLB holds or a walk finds. Returns the
    /// contents of the page, or `None` for a fault.
    fn done(&self, space: HatSpace, page: u64, kind: Kind, stamp: u64) -> Option<u64> {
        let Machine { tlbs, contents, .. } = &self.shared.machine;
        let addr = VirtAddr::new(page << BASE.shift());
        loop {
            let mut tlb = locked(&tlbs[self.number]);
            let held = tlb.held.get(&(space, page)).copied();
            if let Some(held) = held.filter(|held| held.rights.allows(kind)) {
                let frame = held.apply(addr).align_down(BASE);
                let mut contents = locked(contents);
                if kind == Kind::Store {
                    contents.insert(frame, stamp);
                }
                return Some(contents[&frame]);
            }
            tlb.held.remove(&(space, page));
            let before = tlb.shootdowns;
            drop(tlb);
            let found = self.shared.hat.query(space, addr)?.translation;
            if !found.rights.allows(kind) {
                return None;
            }
            let mut tlb = locked(&tlbs[self.number]);
            if tlb.shootdowns == before {
                tlb.held.insert((space, page), found);
            }
        }
    }
}

fn run<S: Scheme<Table = dyn Mounted> + Send + Sync>(scheme: S, policy: &'static str, seed: u64)
where
    Shared<S>: Sync,
{
    let table = TABLES.iter().find(|table| table.name == "x86-64, no bits").unwrap();
    let settings = Settings {
        sizes: &[BASE],
        sizing: "base",
        paired: false,
        replacement: policy,
        reference: table.reference,
        swap_pages: 2000,
        marks: Marks { min: 8, low: 16, high: 24 },
        reserving: None,
        nodes: 1,
        colors: 1,
        thp: None,
        groups: &[],
        hashed: None,
    };
    let memory = Physmem::buddy(PhysAddr::new(0), FRAMES * BASE.bytes(), BASE).unwrap();
    let mut shared = Shared {
        vm: Vm::with_locks(settings, FRAMES).unwrap(),
        hat: Hat::with(scheme, Tables::One((table.make)())),
        memory: Physical::with_locks(memory),
        machine: Machine::default(),
    };
    let thread = |shared, number| {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed << 8 | number as u64);
        Thread { number, shared, random, stamp: 0 }
    };
    let mut first = thread(&shared, 0);
    let parent = first.kernel(|kernel| kernel.create()).unwrap();
    let all = VirtRange::new(VirtAddr::new(FIRST << BASE.shift()), PAGES << BASE.shift()).unwrap();
    first.kernel(|kernel| kernel.map(parent, all, RW, Source::Anonymous, 0)).unwrap();
    let mut model: Contents = (FIRST..FIRST + PAGES).map(|page| (page, 0)).collect();
    (0..2 * PAGES).for_each(|_| first.access(parent, &mut model));
    let children: Vec<HatSpace> = (0..THREADS)
        .map(|_| {
            first.kernel(|kernel| {
                let child = kernel.create().unwrap();
                kernel.fork(parent, child).unwrap();
                child
            })
        })
        .collect();
    let mut threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let mut thread = thread(&shared, number);
            // These stamps differ from those that the parent has stored.
            thread.stamp = 1 << 20;
            (thread, children[number], model.clone())
        })
        .collect();
    for _ in 0..ROUNDS {
        thread::scope(|scope| {
            for (thread, space, model) in &mut threads {
                scope.spawn(move || (0..EVENTS).for_each(|_| thread.event(*space, model)));
            }
        });
        first.kernel(|kernel| kernel.check()).unwrap();
    }
    // Both threads end their spaces at the same time. The pages that the spaces still share are
    // freed with the last of them.
    thread::scope(|scope| {
        for (thread, space, _) in &mut threads {
            scope.spawn(move || {
                assert_eq!(thread.kernel(|kernel| kernel.exit(*space)), Ok(true));
            });
        }
    });
    (0..PAGES).for_each(|_| first.access(parent, &mut model));
    assert_eq!(first.kernel(|kernel| kernel.exit(parent)), Ok(true));
    first.kernel(|kernel| kernel.drop_caches());
    first.kernel(|kernel| kernel.check()).unwrap();
    let tables = shared.hat.pool().used_bytes;
    let (resident, work) = (shared.vm.resident(), shared.vm.work());
    assert_eq!(resident, vm::Resident::default());
    assert_eq!(shared.vm.swapped(), 0, "swap that nobody uses is free");
    assert_eq!(shared.memory.get_mut().used_bytes(), tables, "every frame is back");
    assert_eq!(work.frames_taken - work.frames_given, tables >> BASE.shift());
    assert!(work.writes > 50 && work.copied > 50, "pages left and were copied: {work:?}");
}

/// The HAT layer has one lock around it.
#[test]
fn two_threads_under_one_lock_of_the_hat() {
    for seed in 0..3 {
        println!("seed {seed}");
        run(Global::<dyn Mounted, L>::new(Pool::unlimited()), POLICIES[0].0, seed);
    }
}

/// Each descriptor of the HAT layer has a lock.
#[test]
fn two_threads_under_a_lock_per_descriptor() {
    for (seed, (policy, _)) in (0..).zip(POLICIES) {
        println!("seed {seed}, {policy}");
        let scheme = Fine::<dyn Mounted, L, _>::new(&Embedded, Pool::unlimited(), ListLocks::Each);
        run(scheme, policy, seed);
    }
}
