//! Calls of processes that the memory manager answers and no machine makes: spaces that several processes use, as
//! after `vfork`, spaces that end, pages that are pinned for a device, and files that leave the page cache.
//!
//! ```text
//!   seed --> a process that runs --+--> touches of its regions
//!                                  +--> map, share, fork, exec, exit; pin, unpin
//!                                  +--> a tick of the clock; a disk is unmounted
//! ```

use std::collections::BTreeMap;

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::{Flush, Mount, Mounted, SparseMemory, X86_64};
use physmem::{Buddy, Physmem};
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use serde::Serialize;
use vm::{
    FileKey, How, Io, Kernel, Marks, POLICIES, Parts, Physical, Pin, Platform, Settings, Source, Vm,
};

use super::Line;
use crate::Failure;

const BASE: PageSize = PageSize::SIZE_4K;
/// Base pages of memory, which are fewer than what the processes store to.
const PAGES: u64 = 1500;
const SWAP_PAGES: u32 = 1 << 20;
const PROCESSES_MAX: usize = 8;
const STEPS: u64 = 20_000;
/// Regions that a space can have, and base pages between their beginnings.
const REGIONS: u64 = 12;
const REGION_PAGES: u64 = 64;
const FILES: u64 = 3;
const PINS_MAX: usize = 6;
/// Base pages that a pin has at most.
const PIN_PAGES: u64 = 8;

/// A line for each replacement policy.
pub(super) fn lines() -> Vec<Line> {
    POLICIES.iter().map(|(name, _)| Line::calls(name)).collect()
}

/// What was counted.
#[derive(Serialize)]
pub(super) struct Counted {
    work: BTreeMap<&'static str, u64>,
    faults: [u64; How::ALL.len()],
    /// Pages in memory that are anonymous, of files, and shared; and pages in swap.
    pages: [u64; 4],
    /// Spaces that ended with their last process.
    ended: u64,
    /// Bytes of page tables, now and when they were most.
    table_bytes: [u64; 2],
}

/// A platform on which shootdowns, disk requests, zeroing and copying do nothing and are not counted.
struct Quiet;

impl Platform for Quiet {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}
    fn zero(&mut self, _: PhysAddr, _: u64) {}
    fn copy(&mut self, _: PhysAddr, _: PhysAddr, _: u64) {}
    fn transfer(&mut self, _: Io) {}
}

/// Runs the calls with pages that leave memory by a policy.
pub(super) fn run(replacement: &'static str) -> Result<Counted, Failure> {
    let marks = Marks::of(PAGES, BASE);
    let settings = Settings { replacement, swap_pages: SWAP_PAGES, marks, ..Settings::default() };
    let bytes = PAGES * BASE.bytes();
    let vm: Vm = Vm::new(settings, PAGES)?;
    let hat: Hat = Hat::new(Box::new(Mount::tree(X86_64::<4>::new(), SparseMemory::new(bytes))));
    let memory = Physical::new(Physmem::buddy(PhysAddr::new(0), bytes, BASE)?);
    let mut quiet = Quiet;
    let mut calls = Calls {
        kernel: Kernel::new(&vm, &hat, &memory, &mut quiet),
        random: Xoshiro256PlusPlus::seed_from_u64(50_005),
        processes: Vec::new(),
        pins: Vec::new(),
        ended: 0,
    };
    for _ in 0..STEPS {
        calls.step()?;
    }
    let ended = calls.ended;
    // The kernel's counts are the manager's once the kernel is gone.
    drop(calls);
    let (resident, pool) = (vm.resident(), hat.pool());
    Ok(Counted {
        work: vm.work().each().collect(),
        faults: vm.faults(),
        pages: [resident.anon, resident.file, resident.shared, vm.swapped()],
        ended,
        table_bytes: [pool.used_bytes, pool.peak_bytes],
    })
}

struct Calls<'a> {
    kernel: Kernel<'a, Parts<dyn Mounted, Buddy, Quiet>>,
    random: Xoshiro256PlusPlus,
    /// The space of each process; those that share one have the same.
    processes: Vec<HatSpace>,
    /// Also those of spaces that have ended.
    pins: Vec<Pin>,
    ended: u64,
}

impl Calls<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn step(&mut self) -> Result<(), Failure> {
        if self.processes.is_empty() {
            let first = self.kernel.create()?;
            self.processes.push(first);
        }
        let process = self.below(self.processes.len() as u64) as usize;
        let space = self.processes[process];
        let has_room = self.processes.len() < PROCESSES_MAX;
        match self.below(100) {
            0..8 => self.map(space)?,
            8..11 if has_room => {
                self.kernel.share(space)?;
                self.processes.push(space);
            }
            11..14 if has_room => {
                let child = self.kernel.create()?;
                self.kernel.fork(space, child)?;
                self.processes.push(child);
            }
            14 => self.kernel.exec(space)?,
            15..19 => {
                self.ended += u64::from(self.kernel.exit(space)?);
                self.processes.swap_remove(process);
            }
            19 => drop(self.kernel.tick()),
            20 if self.below(20) == 0 => self.kernel.drop_caches(),
            21..23 if self.pins.len() < PINS_MAX => self.pin(space)?,
            23 if !self.pins.is_empty() => {
                let pin = self.below(self.pins.len() as u64) as usize;
                self.kernel.unpin(self.pins.swap_remove(pin));
            }
            _ => self.touch(space)?,
        }
        Ok(())
    }

    fn map(&mut self, space: HatSpace) -> Result<(), Failure> {
        let (region, pages) = (self.below(REGIONS), 1 + self.below(REGION_PAGES));
        let range = VirtRange::new(page(region, 0), pages * BASE.bytes())?;
        let (key, first) = (FileKey { device: 1, inode: self.below(FILES) }, self.below(40));
        let source = match self.below(6) {
            0 => Source::File { key, first, shared: false },
            1 => Source::File { key, first, shared: true },
            2 => Source::SharedMemory,
            _ => Source::Anonymous,
        };
        Ok(self.kernel.map(space, range, Rights::READ | Rights::WRITE, source, 0)?)
    }

    /// Pins some pages of a region, if they are there.
    fn pin(&mut self, space: HatSpace) -> Result<(), Failure> {
        let (region, first) = (self.below(REGIONS), self.below(REGION_PAGES - PIN_PAGES));
        let bytes = (1 + self.below(PIN_PAGES)) * BASE.bytes();
        let kind = if self.below(2) == 0 { Kind::Load } else { Kind::Store };
        match self.kernel.pin(space, VirtRange::new(page(region, first), bytes)?, kind) {
            Ok(pin) => self.pins.push(pin),
            Err(vm::Error::NoRegion(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Some pages of a region, if it is there.
    fn touch(&mut self, space: HatSpace) -> Result<(), Failure> {
        let region = self.below(REGIONS);
        for _ in 0..4 {
            let at = page(region, self.below(REGION_PAGES));
            let kind = if self.below(2) == 0 { Kind::Load } else { Kind::Store };
            match self.kernel.fault(space, at, kind) {
                Ok(_) | Err(vm::Error::NoRegion(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// An address of a page of a region.
fn page(region: u64, page: u64) -> VirtAddr {
    VirtAddr::new((1 << 30) + (region * REGION_PAGES + page) * BASE.bytes())
}
