//! A machine's page table alone, with the memory references of each operation on it.
//!
//! ```text
//!   map, hand, restrict, ... --> HAT layer --> page table --> Metered --> SparseMemory
//!                                    |                            |
//!                                    +--> mapping lists ----------+--> data caches --> misses, cycles
//! ```
//!
//! Pages are mapped from space to space, and their rights are restricted again, through the mapping
//! lists of the HAT layer, which are used as trees, as in L4's mapping database (E99 section 3.2).
//! The descriptor of a frame's list counts as a cache line of memory; nodes beyond the first of a
//! frame count only as instructions.
//!
//! E99 §4.2 measures operations in a kernel (tasks created and ended, regions protected) in time.
//! This module counts the work of such operations: the references to page tables, the bytes
//! initialised, the frames allocated, and the cycles that the references take in the machine's
//! caches if nothing overlaps. Instructions are counted in addition: those of the refill handler
//! for a walk, and otherwise those of the kernel's path ([`crate::kernel_path`]). Without the
//! meter, the same operations run at the speed of the host, and their time is measured.

use description::Refusal;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use addr::{Frames, Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hardware::walker::{Handler, hierarchy, latencies};
use hat::{Hat, HatSpace, Step};
use mmu::{Hierarchy, Requester};
use pagetable::{Flush, Footprint, Memory, Reference, Scope, Space, SparseMemory, Translation};
use physmem::State;
use ram::{FrameStore, frames, table};
use serde::Serialize;

use crate::{kernel_path, machine::Machine};

/// The work of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// References to tables that read.
    pub reads: u64,
    /// References to tables that write, except initialisation.
    pub writes: u64,
    /// Bytes of tables initialised; always a multiple of eight.
    pub initialised_bytes: u64,
    /// References of both kinds and of initialisation that missed in all caches.
    pub misses: u64,
    /// The cycles of all references; 0 if the machine does not define a latency.
    pub cycles: u64,
    /// Instructions of the refill handler or of the kernel's path, except those that make the
    /// references; 0 for walks by hardware.
    pub instructions: u64,
    /// Bytes of frames allocated for tables, minus those freed.
    pub table_bytes: i64,
    /// Time on this host, including that of the meter if there is one.
    pub nanoseconds: u64,
}

/// A page table with its meter.
pub struct PageTableBench {
    hat: Hat,
    frames: FrameStore,
    meter: Option<Arc<Mutex<Meter>>>,
    /// The refill handler, if the machine refills by software.
    handler: Option<Handler>,
    page_size: PageSize,
    memory_bytes: u64,
    spaces: Vec<Option<Tenant>>,
}

/// A space, and the frames of its pages.
struct Tenant {
    hat: HatSpace,
    space: Space,
    frames: BTreeSet<PhysAddr>,
}

impl PageTableBench {
    /// The page table of `machine`, empty; `metered` selects counts instead of speed.
    pub fn new(machine: &Machine, metered: bool) -> Result<PageTableBench, String> {
        let description = machine.description();
        let text = |Refusal { key, what }| format!("{key}: {what}");
        if description.page_table.is_none() {
            return Err(format!("the machine {} has no page table", machine.name()));
        }
        let (bytes, page_size) = (description.memory.size.0, description.os.page_size.0);
        let memory = SparseMemory::new(bytes);
        let (hat, meter) = if metered {
            let latencies = latencies(description);
            let meter = Arc::new(Mutex::new(Meter {
                work: Work::default(),
                counts: true,
                caches: hierarchy(description).map_err(text)?,
                served_cycles: latencies.served_cycles,
            }));
            let memory = Metered { memory, meter: Arc::clone(&meter) };
            (table::new(description, memory).map_err(text)?, Some(meter))
        } else {
            (table::new(description, memory).map_err(text)?, None)
        };
        let base = page_size.min(PageSize::SIZE_4K);
        let lists = &|_| frames::Lists::Buddy;
        let frames = frames::frames(
            &description.memory,
            base,
            lists,
            &[],
            frames::Wished::Nowhere,
            false,
            None,
        )?;
        let handler = Handler::new(description);
        let (memory_bytes, spaces) = (bytes, Vec::new());
        Ok(PageTableBench { hat, frames, meter, handler, page_size, memory_bytes, spaces })
    }

    /// Creates an empty space and returns its number.
    pub fn create(&mut self) -> Result<(usize, Work), String> {
        self.working(|bench| {
            bench.execute(kernel_path::SYSTEM_CALL);
            let (hat, mut kernel) = bench.kernel();
            let space = hat.create(&mut kernel).map_err(|e| e.to_string())?;
            let inner = hat.space(space).ok_or("the new space does not exist")?;
            bench.spaces.push(Some(Tenant { hat: space, space: inner, frames: BTreeSet::new() }));
            Ok(bench.spaces.len() - 1)
        })
    }

    /// Ends a space and frees the frames of its pages.
    pub fn destroy(&mut self, space: usize) -> Result<Work, String> {
        let number = self.tenant(space)?.hat;
        let ((), work) = self.working(|bench| {
            bench.execute(kernel_path::SYSTEM_CALL);
            let (hat, mut kernel) = bench.kernel();
            hat.destroy(number, &mut kernel);
            Ok(())
        })?;
        for frame in self.spaces[space].take().into_iter().flat_map(|tenant| tenant.frames) {
            self.frames.free(frame, self.page_size);
        }
        Ok(work)
    }

    /// Maps a page at each address, one by one, each to a frame of its own.
    pub fn map(&mut self, space: usize, addresses: &[u64]) -> Result<Work, String> {
        let number = self.tenant(space)?.hat;
        let size = self.page_size;
        let frames: Result<Vec<PhysAddr>, _> =
            addresses.iter().map(|_| self.frames.allocate_page(size, State::Movable)).collect();
        let frames = frames.map_err(|e| e.to_string())?;
        let ((), work) = self.working(|bench| {
            for (&addr, &frame) in addresses.iter().zip(&frames) {
                bench.execute(kernel_path::IPC);
                let page = VirtAddr::new(addr).page(size);
                let page = Translation::new(page, frame, Rights::ALL);
                let (hat, mut kernel) = bench.kernel();
                let mapped = hat.load(number, page, 1, &mut kernel);
                mapped.map_err(|e| format!("{addr:#x}: {e}"))?;
            }
            Ok(())
        })?;
        self.tenant(space)?.frames.extend(frames);
        Ok(work)
    }

    /// Maps the pages that the space `from` has at these addresses into the space `to`, at equal
    /// addresses, with one IPC per page.
    pub fn hand(
        &mut self,
        (from, to): (usize, usize),
        addresses: &[u64],
        rights: Rights,
    ) -> Result<Work, String> {
        let (giver, taker) = (self.tenant(from)?.hat, self.tenant(to)?.hat);
        let size = self.page_size.bytes();
        let ((), work) = self.working(|bench| {
            for &addr in addresses {
                bench.execute(kernel_path::IPC);
                let (hat, mut kernel) = bench.kernel();
                let (range, at) = (range(addr, size)?, VirtAddr::new(addr));
                let handed = hat.map_from(giver, range, taker, at, rights, &mut kernel);
                handed.map_err(|e| format!("{addr:#x}: {e}"))?;
            }
            Ok(())
        })?;
        Ok(work)
    }

    /// Restricts to `rights` all pages that were mapped from the pages of `space` in each range
    /// (address and bytes).
    pub fn restrict(
        &mut self,
        space: usize,
        ranges: &[(u64, u64)],
        rights: Rights,
    ) -> Result<Work, String> {
        let number = self.tenant(space)?.hat;
        self.in_ranges(ranges, |hat, range, kernel| {
            hat.restrict(number, range, rights, false, kernel).map_err(|e| e.to_string())
        })
    }

    /// Unmaps the pages in each range (address and bytes), and frees their frames.
    pub fn unmap(&mut self, space: usize, ranges: &[(u64, u64)]) -> Result<Work, String> {
        let number = self.tenant(space)?.hat;
        let mut gone = Vec::new();
        let work = self.in_ranges(ranges, |hat, range, kernel| {
            let each = &mut |mapping: pagetable::Mapping| gone.push(mapping.translation.frame);
            hat.unload(number, range, each, kernel).map_err(|e| e.to_string())
        })?;
        for frame in gone {
            if self.tenant(space)?.frames.remove(&frame) {
                self.frames.free(frame, self.page_size);
            }
        }
        Ok(work)
    }

    /// Sets the rights of the pages in each range (address and bytes), with one operation per
    /// range.
    pub fn protect(
        &mut self,
        space: usize,
        ranges: &[(u64, u64)],
        rights: Rights,
    ) -> Result<Work, String> {
        let number = self.tenant(space)?.hat;
        self.in_ranges(ranges, |hat, range, kernel| {
            hat.protect(number, range, rights, kernel).map_err(|e| e.to_string())
        })
    }

    /// Runs one system call per range.
    fn in_ranges(
        &mut self,
        ranges: &[(u64, u64)],
        mut call: impl FnMut(&Hat, VirtRange, &mut Kernel<'_>) -> Result<(), String>,
    ) -> Result<Work, String> {
        let ((), work) = self.working(|bench| {
            for &(addr, bytes) in ranges {
                bench.execute(kernel_path::SYSTEM_CALL + kernel_path::RANGE);
                let (hat, mut kernel) = bench.kernel();
                call(hat, range(addr, bytes)?, &mut kernel)
                    .map_err(|e| format!("{addr:#x}: {e}"))?;
            }
            Ok(())
        })?;
        Ok(work)
    }

    /// The HAT layer, and the kernel as its platform.
    fn kernel(&mut self) -> (&Hat, Kernel<'_>) {
        let lists = PhysAddr::new(self.memory_bytes);
        let kernel = Kernel { frames: &mut self.frames, meter: self.meter.as_deref(), lists };
        (&self.hat, kernel)
    }

    /// Walks the page table for a load of each address, as a TLB refill does.
    pub fn walk(&mut self, space: usize, addresses: &[u64]) -> Result<Work, String> {
        let number = self.tenant(space)?.space;
        let mut references = Vec::new();
        let ((), work) = self.working(|bench| {
            for &addr in addresses {
                references.clear();
                bench.count_memory(false);
                let found = bench.hat.table_mut().walk(
                    number,
                    VirtAddr::new(addr),
                    Kind::Load,
                    &mut references,
                );
                bench.count_memory(true);
                found.map_err(|fault| format!("{addr:#x}: {fault:?}"))?;
                if let Some(meter) = &bench.meter {
                    for reference in &references {
                        read(meter).walked(reference);
                    }
                }
                if let Some(handler) = bench.handler {
                    let path = handler.always(false) + handler.instructions(&references);
                    bench.execute(path.saturating_sub(references.len() as u64));
                }
            }
            Ok(())
        })?;
        Ok(work)
    }

    /// The memory that all spaces take.
    pub fn footprint(&self) -> Footprint {
        self.hat.table().footprint()
    }

    fn tenant(&mut self, number: usize) -> Result<&mut Tenant, String> {
        let known = self.spaces.get_mut(number).and_then(Option::as_mut);
        known.ok_or_else(|| format!("there is no space {number}"))
    }

    /// Counts instructions, if there is a meter.
    fn execute(&self, instructions: u64) {
        if let Some(meter) = &self.meter {
            read(meter).work.instructions += instructions;
        }
    }

    /// Sets whether memory accesses are counted. During a walk they are not counted. The references
    /// of the walk are counted instead; each may stand for several memory accesses.
    fn count_memory(&self, counts: bool) {
        if let Some(meter) = &self.meter {
            read(meter).counts = counts;
        }
    }

    /// Runs `work` and returns its result and its cost.
    fn working<T>(
        &mut self,
        work: impl FnOnce(&mut PageTableBench) -> Result<T, String>,
    ) -> Result<(T, Work), String> {
        if let Some(meter) = &self.meter {
            let mut meter = read(meter);
            (meter.work, meter.counts) = (Work::default(), true);
        }
        let before = self.footprint().frame_bytes;
        let start = Instant::now();
        let made = work(self)?;
        let nanoseconds = start.elapsed().as_nanos() as u64;
        let table_bytes = self.footprint().frame_bytes as i64 - before as i64;
        let counted = self.meter.as_ref().map_or(Work::default(), |meter| read(meter).work);
        Ok((made, Work { table_bytes, nanoseconds, ..counted }))
    }
}

fn range(addr: u64, bytes: u64) -> Result<VirtRange, String> {
    VirtRange::new(VirtAddr::new(addr), bytes).map_err(|e| format!("{addr:#x}: {e}"))
}

/// The platform of the HAT layer.
struct Kernel<'a> {
    frames: &'a mut FrameStore,
    meter: Option<&'a Mutex<Meter>>,
    /// The address of the page-frame descriptors, which lie after all memory that can be allocated.
    lists: PhysAddr,
}

/// Bytes of a page-frame descriptor with its first node.
const DESCRIPTOR_BYTES: u64 = 32;

impl hat::Platform for Kernel<'_> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        let Some(meter) = self.meter else { return };
        let pages = flushes.iter().map(|(_, flush)| match flush.scope() {
            Scope::Pages { pages, .. } => pages,
            Scope::Nothing | Scope::Space => 0,
        });
        read(meter).work.instructions += kernel_path::FORGET_PAGE * pages.sum::<u64>();
    }

    fn frames(&mut self) -> &mut dyn Frames {
        self.frames
    }

    fn work(&mut self, step: Step, count: u64) {
        let Some(meter) = self.meter else { return };
        match step {
            Step::Mapping => read(meter).work.instructions += kernel_path::NODE * count,
            // References are counted where they are made, and the cycles to enter the kernel are
            // counted with the system call.
            Step::Operation | Step::TableWrite | Step::TableRead | Step::Shootdown => {}
        }
    }

    fn touch(&mut self, frame: u64, is_changed: bool) {
        let Some(meter) = self.meter else { return };
        let at = self.lists.wrapping_add(frame * DESCRIPTOR_BYTES);
        let mut meter = read(meter);
        meter.access(at, 8, false);
        if is_changed {
            meter.access(at, 8, true);
        }
    }
}

/// Counts references, instructions and cycles.
struct Meter {
    work: Work,
    counts: bool,
    caches: Option<Hierarchy>,
    served_cycles: [u64; mmu::Served::COUNT],
}

impl Meter {
    fn reference(&mut self, addr: PhysAddr, bytes: u32, write: bool) {
        let kind = if write { Kind::Store } else { Kind::Load };
        let served = match &mut self.caches {
            Some(caches) => caches.access(addr, bytes, write, Requester::Program(kind)),
            None => mmu::Served::Memory,
        };
        self.work.misses += u64::from(served == mmu::Served::Memory);
        self.work.cycles += self.served_cycles[served as usize];
    }

    fn access(&mut self, addr: PhysAddr, bytes: u32, write: bool) {
        if self.counts {
            self.work.reads += u64::from(!write);
            self.work.writes += u64::from(write);
            self.work.instructions += if write { kernel_path::WRITE } else { kernel_path::READ };
            self.reference(addr, bytes, write);
        }
    }

    /// Counts a reference of a walk; the handler counts its instructions.
    fn walked(&mut self, reference: &Reference) {
        let instructions = self.work.instructions;
        self.access(reference.addr, u32::from(reference.bytes), reference.write);
        self.work.instructions = instructions;
    }
}

/// The meter, which one thread uses at a time: if a table moves to another thread, its meter moves
/// too.
fn read(meter: &Mutex<Meter>) -> MutexGuard<'_, Meter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that reports every reference to a meter.
struct Metered {
    memory: SparseMemory,
    meter: Arc<Mutex<Meter>>,
}

impl Memory for Metered {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        read(&self.meter).access(addr, 8, false);
        self.memory.read_u64(addr)
    }

    fn read_u32(&self, addr: PhysAddr) -> u32 {
        read(&self.meter).access(addr, 4, false);
        self.memory.read_u32(addr)
    }

    fn read_u8(&self, addr: PhysAddr) -> u8 {
        read(&self.meter).access(addr, 1, false);
        self.memory.read_u8(addr)
    }

    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        read(&self.meter).access(addr, 8, true);
        self.memory.write_u64(addr, value);
    }

    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        read(&self.meter).access(addr, 4, true);
        self.memory.write_u32(addr, value);
    }

    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        read(&self.meter).access(addr, 1, true);
        self.memory.write_u8(addr, value);
    }

    addr::exchanges_of_one_user!();

    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        let mut meter = read(&self.meter);
        meter.work.initialised_bytes += bytes;
        meter.work.instructions += kernel_path::initialise(bytes);
        for offset in (0..bytes).step_by(8) {
            meter.reference(start.wrapping_add(offset), 8, true);
        }
        drop(meter);
        self.memory.zero(start, bytes);
    }
}
