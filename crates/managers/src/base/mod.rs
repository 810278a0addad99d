//! The managers `base`, `irix`, `freebsd` and `linux`, with the complete memory management of crate
//! `vm`. `base` has only base pages. `irix` has pages of several requested sizes, and a daemon that
//! coalesces free memory (G98). `freebsd` has base pages from reservations, which become large
//! pages when they are full (B10 section 6.1.1).
//!
//! ```text
//!   fault, event, tick --> Base --> vm::Kernel --> Ram: page table with mapping lists, frames
//!                           |           |
//!                           |           +--> Board: what hardware must forget, pages on the disk
//!                           +<-- Platform::shoot, when the operation is over
//! ```
//!
//! Frames are shared (files, forks), copied when they are stored to, and reclaimed when memory
//! becomes scarce. No program runs while an operation of the manager is in progress, so that
//! flushes are reported to hardware at the end of the operation.
//!
//! Every access in a trace really happened. If an access is to an address without a region, a
//! region is therefore created there; if the rights of its region forbid the access, they are
//! extended.

mod decisions;
mod devices;
mod end;
mod events;
mod files;
mod groups;
mod hugetlb;
mod linux;
mod malloc;
mod nodes;
mod prices;
mod reservations;
mod settings;
mod sizes;
mod versions;

use std::collections::{BTreeSet, VecDeque};

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use description::{Description, MarksOfBroken, Refusal, managers::reservations, units::Bytes};
use hat::HatSpace;
use os::{Answer, Ask, Platform, Spent, System, Who, at::Setting, names::Names, stale, unfit};
use pagetable::{Fault, Flush, Mounted, Space};
use physmem::Allocator;
use ram::{AnyAllocator, Failure, Ram, fetch, topology::Topology};
use results::{
    DaemonSample, EndOfProgram, KindBytes, ManagerCounts, MemorySample, count::labels::Layout,
};
use trace::{Event, Process};
use vm::{
    Decided, Decision, Error, How, Io, Kernel, Module, Parts, Refused, Settings, Source, Store, Vm,
};

use super::place::{self, Mapped, Rules};
use decisions::{Decisions, Made};
use devices::Devices;
use files::Files;
use groups::Groups;
use hugetlb::Pools;
use linux::{Daemons, HUGE, daemons, marks as linux_marks, thp};
use malloc::Heaps;
use prices::Prices;
use settings::settings;

/// The size of the region that an access creates in a trace without mappings.
const BLOCK: PageSize = PageSize::SIZE_2M;
/// The name in results of memory that no event has mapped.
const UNEXPLAINED: &str = "unexplained";
/// The largest number of samples of memory over time. When there are more, every second sample is
/// dropped.
const SAMPLES_MAX: usize = 512;

/// The manager.
pub(super) struct Base {
    vm: Vm,
    /// The nodes of memory; the next field has the placement for memory to which no rule applies.
    topology: Option<Topology>,
    module: Module,
    replacement: &'static str,
    swap: Bytes,
    prices: Prices,
    files: Files,
    decisions: Decisions,
    /// The space that was used last, if it still exists in the manager.
    known: Option<HatSpace>,
    /// The process identifiers of the trace's processes that a fork created.
    forked: BTreeSet<i64>,
    /// The spaces of forked children, from the fork until the trace uses them.
    children: VecDeque<HatSpace>,
    /// The numbers, in the trace, of spaces that began as a copy of their parent's space.
    inherited: BTreeSet<u32>,
    unexplained: u64,
    /// Whether pages should be evicted as soon as that is possible.
    scarce: bool,
    sizes: Sizes,
    /// What happens to marks of pages when their reservation is broken; `None` if pages are not
    /// marked.
    marks: Option<MarksOfBroken>,
    /// The number of frames whose marks were cleared when their reservation was broken.
    marks_cleared: u64,
    /// The frames lent to devices, if the machine has devices.
    devices: Option<Devices>,
    /// Whether new mappings get all their frames immediately (eager paging).
    eager: bool,
    /// When the daemons of Linux and related managers run.
    daemons: Daemons,
    /// Whether stacks of threads are kept free of large pages; the next field is true if the kernel
    /// can collapse pages on request.
    keeps_stacks: bool,
    can_collapse: bool,
    /// Whether the results have the kernel's counters by page size.
    stats: bool,
    /// Groups of processes with limits, if there are any.
    groups: Option<Box<Groups>>,
    /// The heaps, if the machine file has other settings of the allocator than the recording.
    heaps: Option<Box<Heaps>>,
    /// Reserved large pages, if there are pools of them.
    pools: Option<Box<Pools>>,
    /// The state of memory at the end of that program at whose end most memory was in use.
    end: Option<EndOfProgram>,
    samples: Vec<MemorySample>,
    /// The number of operations per sample; the next field has the number since the last sample.
    stride: u64,
    since: u64,
}

/// The source of pages larger than the base page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Larger {
    /// All pages are base pages.
    #[default]
    None,
    /// Programs and place rules request large pages.
    Wished,
    /// Reservations become large pages when they are full.
    Reserved,
    /// Pages that miss often in the TLB are promoted.
    Promoted,
    /// Faults and a daemon make them, as far as the settings allow.
    Transparent,
}

/// The state for pages of several sizes.
#[derive(Default)]
struct Sizes {
    rules: Rules,
    larger: Larger,
    /// The numbers of the spaces that have requested large pages.
    asked: BTreeSet<u32>,
    /// Whether a call of the trace has collapsed pages, which shows that the kernel of the
    /// recording supports `MADV_COLLAPSE`.
    knows_collapse: bool,
    moves_per_us: f64,
    /// The page sizes above the base page to which pages can be promoted. The next field says
    /// whether a TLB holds pages in pairs.
    promotes_to: Vec<PageSize>,
    is_paired: bool,
    daemon: Option<Daemon>,
}

/// When the coalescing daemon runs.
struct Daemon {
    period: u64,
    next: u64,
    moves: u64,
    passes: Vec<DaemonSample>,
    /// The number of passes per sample; the next field has the number since the last sample.
    stride: u64,
    since: DaemonSample,
    /// Whether the daemon ran in the last tick.
    ran: bool,
}

/// The manager's platform: processor and disk.
#[derive(Default)]
struct Board {
    forget: Vec<Flush>,
    /// The bytes of a base page. The next fields have the page that was transferred last, and the
    /// number of disk requests.
    page_bytes: u64,
    last: Option<Io>,
    requests: u64,
    decided: Vec<Made>,
}

impl vm::Platform for Board {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        self.forget.extend(flushes.iter().map(|(_, flush)| flush.without_frames()));
    }

    // Nothing is done, because the model's memory has no contents except page tables, and the cost
    // is computed from counts.
    fn zero(&mut self, _: PhysAddr, _: u64) {}
    fn copy(&mut self, _: PhysAddr, _: PhysAddr, _: u64) {}

    /// Transfers of pages that are adjacent in memory and on the disk count as one request (G98
    /// section 6.1).
    fn transfer(&mut self, io: Io) {
        let follows = |last: Io| {
            let on_disk = match (last.store, io.store) {
                (Store::File(file, page), Store::File(other, next)) => {
                    file == other && next == page + 1
                }
                (Store::Swap(slot), Store::Swap(next)) => next.0 == slot.0 + 1,
                (Store::File(..), Store::Swap(_)) | (Store::Swap(_), Store::File(..)) => false,
            };
            let in_memory = io.frame.get() == last.frame.get() + self.page_bytes;
            last.write == io.write && on_disk && in_memory
        };
        self.requests += u64::from(!self.last.is_some_and(follows));
        self.last = Some(io);
    }

    fn soon<T>(&self, place: &T) {
        fetch(place);
    }

    fn decided(&mut self, space: HatSpace, at: VirtAddr, decision: Decision, of: Decided) {
        let bytes = match of {
            Decided::Loaded(pages) => pages * decision.got.bytes(),
            Decided::Asked => decision.wanted.bytes(),
        };
        let made = VirtRange::new(at, bytes).map(|range| Made { space, range, decision, of });
        self.decided.extend(made);
    }
}

type Below<'a> = Kernel<'a, Parts<dyn Mounted, AnyAllocator, Board>>;

impl Base {
    /// The manager `base`, as a machine file describes it. The error has the key that is wrong.
    pub(super) fn build(description: &Description, ram: &Ram) -> Result<Box<dyn System>, Refusal> {
        let larger = match description.os.promotion {
            None => Larger::None,
            Some(_) => Larger::Promoted,
        };
        Ok(Box::new(Base::new(description, ram, larger)?))
    }

    /// The manager `irix`, with pages of several sizes, as a machine file describes it.
    pub(super) fn irix(description: &Description, ram: &Ram) -> Result<Box<dyn System>, Refusal> {
        Ok(Box::new(Base::new(description, ram, Larger::Wished)?))
    }

    /// The manager `freebsd`, with base pages from reservations, as a machine file describes it.
    pub(super) fn freebsd(
        description: &Description,
        ram: &Ram,
    ) -> Result<Box<dyn System>, Refusal> {
        Ok(Box::new(Base::new(description, ram, Larger::Reserved)?))
    }

    /// The manager `linux`, with transparent huge pages, as a machine file describes it.
    pub(super) fn linux(description: &Description, ram: &Ram) -> Result<Box<dyn System>, Refusal> {
        Ok(Box::new(Base::new(description, ram, Larger::Transparent)?))
    }

    fn new(description: &Description, ram: &Ram, larger: Larger) -> Result<Base, Refusal> {
        let refuse = |key: &str, what: String| Err(Refusal::new(key, what));
        let base = ram.page_sizes()[0];
        if description.page_table.is_none() {
            let what = "a machine without a page table has no frames to manage: choose \
                        \"first-touch\", or give it a page_table";
            return refuse("os.manager", what.to_owned());
        }
        if description.os.page_size.0 != base {
            let name = &description.os.manager;
            let what = format!(
                "the manager `{name}` has base pages of {base}{}: write \"{base}\"",
                match larger {
                    Larger::None => "",
                    Larger::Wished => ", and larger pages where os.place requests them",
                    Larger::Reserved => ", and larger pages where reservations become full",
                    Larger::Promoted => ", and larger pages where base pages have missed often",
                    Larger::Transparent => ", and larger pages where os.linux allows them",
                }
            );
            return refuse("os.page_size", what);
        }
        let pages = description.memory.size.0 >> base.shift();
        let reserved = reservations(&description.os).map_or(Vec::new(), |asked| asked.sizes);
        let is_held = |size: &&PageSize| {
            **size == base
                || match larger {
                    Larger::None => false,
                    Larger::Wished => true,
                    Larger::Reserved => reserved.iter().any(|reserved| reserved.0 == **size),
                    Larger::Promoted => sizes::is_held(description, **size),
                    Larger::Transparent => linux::is_held(&description.os, **size),
                }
        };
        let sizes: Vec<PageSize> = ram.page_sizes().iter().filter(is_held).copied().collect();
        let thp = thp(description, &sizes)?;
        let groups = groups::limits(&description.os, base)?;
        let mut settings = Settings { thp, groups: &groups, ..settings(description, ram, &sizes)? };
        if thp.is_some() && description.os.marks.is_none() {
            settings.marks = linux_marks(description, pages)?;
        }
        let Settings { replacement, .. } = settings;
        let vm = Vm::new(settings, pages);
        let vm = vm.map_err(|error| Refusal::new("os.marks", error.to_string()))?;
        let sizes = Sizes::new(description, &vm, &sizes, larger)?;
        let topology = Topology::of(description)?;
        Ok(Base {
            vm,
            module: nodes::module(&nodes::policy(description)),
            topology,
            swap: description.swap.as_ref().map_or(Bytes(0), |swap| swap.size),
            replacement,
            prices: Prices::new(description),
            files: Files::default(),
            decisions: Decisions::default(),
            known: None,
            forked: BTreeSet::new(),
            children: VecDeque::new(),
            inherited: BTreeSet::new(),
            unexplained: 0,
            scarce: false,
            sizes,
            marks: reservations::marks(description)?,
            marks_cleared: 0,
            devices: Devices::new(description)?,
            eager: description.os.eager_paging,
            keeps_stacks: thp.is_some() && versions::keeps_stacks(&description.os),
            can_collapse: versions::can_collapse(&description.os),
            groups: Groups::of(&description.os),
            heaps: Heaps::of(&description.os)?,
            stats: versions::is_named(&description.os),
            pools: Pools::of(&description.os),
            daemons: thp.map_or(Daemons::default(), |thp| daemons(description, &thp)),
            end: None,
            samples: Vec::new(),
            // With pages of several sizes, a sample is expensive because it counts all pages.
            stride: if larger == Larger::None { 1 } else { 64 },
            since: 0,
        })
    }

    /// Runs `work` on the manager, and then reports its flushes to hardware.
    fn with<T>(
        &mut self,
        platform: &mut dyn Platform,
        work: impl FnOnce(&mut Below<'_>) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let done = self.attempt(platform, work);
        done.map_err(|error| self.failure(error, platform))
    }

    /// Runs `work` on the manager, and then reports its flushes to hardware. The error is the error
    /// of the memory manager.
    fn attempt<T>(
        &mut self,
        platform: &mut dyn Platform,
        work: impl FnOnce(&mut Below<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let page_bytes = self.vm.base().bytes();
        let decided = std::mem::take(&mut self.decisions.made);
        let mut board = Board { page_bytes, decided, ..Board::default() };
        let node = self.topology.as_ref().map_or(0, |all| all.of_processor(platform.processor()));
        let (hat, memory) = platform.ram().parts();
        let mut kernel = Kernel::new(&self.vm, hat, memory, &mut board).on_node(node as u8);
        let done = work(&mut kernel);
        self.scarce = kernel.wants_memory();
        // Dropping the kernel adds its counts to those of the manager.
        drop(kernel);
        self.prices.requests += board.requests;
        self.decisions.made = board.decided;
        if !board.forget.is_empty() {
            board.forget.into_iter().for_each(|flush| platform.shoot(flush));
        }
        if matches!(done, Err(Error::NoRegion(_) | Error::Denied { .. })) {
            // The operation failed and changed nothing, so there is nothing to count.
            return done;
        }
        let ram = platform.ram();
        self.breaks(ram);
        let resident = self.vm.resident();
        let pages = resident.anon
            + resident.file
            + resident.shared
            + self.vm.folios().0
            + self.vm.zero_frames()
            + self.free_of_pools();
        ram.note(pages << self.vm.base().shift());
        self.since += 1;
        if self.since >= self.stride {
            self.since = 0;
            self.sample(platform);
        }
        done
    }

    /// The failure that ends the run because of an error of the manager.
    fn failure(&self, error: Error, platform: &mut dyn Platform) -> Failure {
        match error {
            Error::OutOfMemory { wired, .. } => {
                Failure::OutOfMemory(self.full(wired, platform.ram()))
            }
            Error::Table(error) => error.into(),
            Error::NoRegion(_)
            | Error::Denied { .. }
            | Error::NoSpace(_)
            | Error::TableMemory
            | Error::NoMemory
            | Error::Given(_)
            | Error::NotGiven(_)
            | Error::Attributes { .. }
            | Error::PinLimit(_)
            | Error::Io(_) => Failure::Table(error.to_string()),
        }
    }

    /// The HAT layer's space for the space that has the number `number` in the trace.
    fn space(&mut self, number: u32, platform: &mut dyn Platform) -> Result<HatSpace, Failure> {
        if self.pools.is_some() {
            self.fill_pools(platform)?;
        }
        if let Some(known) = platform.ram().hat_space(number) {
            if self.known != Some(known) {
                if !self.vm.has(known) {
                    let adopted = self.vm.adopt(known);
                    adopted.map_err(|error| Failure::Table(error.to_string()))?;
                    self.join_group(number, known, platform)?;
                }
                self.known = Some(known);
            }
            if self.sizes.larger != Larger::None && self.vm.has_large(known) {
                self.sizes.asked.insert(number);
            }
            return Ok(known);
        }
        let made = match self.children.pop_front() {
            Some(child) => {
                self.inherited.insert(number);
                child
            }
            None => self.with(platform, |kernel| kernel.create())?,
        };
        platform.ram().call(number, made)?;
        if self.groups.is_some() {
            self.join_group(number, made, platform)?;
        }
        Ok(made)
    }

    /// Creates a region at the address of the access `ask`, which no event has mapped.
    fn explain(
        &mut self,
        ask: &Ask,
        space: HatSpace,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let layout = platform.layout();
        let is_told = layout.is_told(ask.who.number);
        let regions = layout.regions(ask.who.number);
        let told = regions.and_then(|regions| regions.rights_at(ask.addr.get()));
        let size = if is_told { self.vm.base() } else { BLOCK.max(self.vm.base()) };
        let block = VirtRange::of_page(ask.addr.page(size));
        // Other mappings in the block are not replaced.
        let range = self.vm.hole_around(space, ask.addr, block).unwrap_or(block);
        let rights = told.unwrap_or(Rights::ALL) | needed(ask.kind);
        let label = self.files.label(UNEXPLAINED);
        self.unexplained += 1;
        self.with(platform, |kernel| kernel.map(space, range, rights, Source::Anonymous, label))?;
        let mapped = Mapped { range, kind: place::Kind::Mmap, name: UNEXPLAINED };
        self.place(ask.who.number, space, &mapped, platform)
    }

    /// Records a sample of the pages in memory.
    fn sample(&mut self, platform: &mut dyn Platform) {
        let access = platform.access();
        let ram = platform.ram();
        let bytes = self.kind_bytes(ram);
        if self.samples.last().is_some_and(|last| last.bytes == bytes) {
            return;
        }
        let pages = ram.mapped().into_iter().filter(|(_, pages)| *pages > 0);
        let pages_by_size = pages.map(|(size, pages)| (size.to_string(), pages)).collect();
        let reservations = self.reservation_sample(ram);
        self.samples.push(MemorySample { access, bytes, pages_by_size, reservations });
        if self.samples.len() > SAMPLES_MAX {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// Describes which pages fill memory when no page can be evicted; `wired` is the number of
    /// locked pages.
    fn full(&self, wired: u64, ram: &Ram) -> String {
        let KindBytes { anonymous, shared, tables, swapped, .. } = self.kind_bytes(ram);
        let wired = Bytes(wired << self.vm.base().shift());
        let swap = match self.swap {
            Bytes(0) => "there is no swap".to_owned(),
            size => format!("{} of {size} of swap (swap.size) are in use", Bytes(swapped)),
        };
        let aged = match ram.aged_bytes() {
            0 => String::new(),
            bytes => format!(", {} were used before the run (memory.aged)", Bytes(bytes)),
        };
        format!(
            "no page can be evicted. Of {} of memory, {} are anonymous pages, and {swap}; {wired} \
             are wired, {} are page tables{aged}",
            Bytes(ram.frame_bytes().0),
            Bytes(anonymous + shared),
            Bytes(tables),
        )
    }

    fn kind_bytes(&self, ram: &Ram) -> KindBytes {
        let resident = self.vm.resident();
        let bytes = |pages: u64| pages << self.vm.base().shift();
        let (all, used) = ram.frame_bytes();
        KindBytes {
            anonymous: bytes(resident.anon) + self.held_bytes(),
            file: bytes(resident.file),
            shared: bytes(resident.shared),
            tables: ram.footprint().frame_bytes,
            free: all - used - ram.reserved_bytes(),
            reserved: ram.reserved_bytes(),
            swapped: bytes(self.vm.swapped()),
        }
    }
}

impl System for Base {
    fn begin(&mut self, processes: &[Process]) {
        if let Some(groups) = &mut self.groups {
            groups.begin(processes);
        }
        let own = processes.iter().filter(|process| !process.shares_space);
        self.forked = own
            .filter(|process| process.parent.is_some())
            .map(|process| process.pid.into())
            .collect();
    }

    fn enter(&mut self, number: u32, platform: &mut dyn Platform) -> Result<Space, Failure> {
        self.space(number, platform)?;
        platform.ram().space(number)
    }

    fn fault(&mut self, ask: &Ask, platform: &mut dyn Platform) -> Result<Answer, Failure> {
        let Ask { who: Who { number, space: inner }, addr, kind, fault } = *ask;
        if fault == Fault::Unfit {
            return Err(unfit(addr, platform.ram()));
        }
        let space = self.space(number, platform)?;
        // If all pages have one size, the manager's own lookup in the page table is sufficient.
        let known = match self.sizes.larger {
            Larger::None => None,
            _ => platform.ram().mapping(inner, addr).map(|known| known.translation.rights),
        };
        let answer = |kernel: &mut Below<'_>| {
            let how = kernel.fault(space, addr, kind)?;
            Ok((how, known.or(kernel.allowed_before())))
        };
        let mut is_explained = false;
        let (how, known) = match self.attempt(platform, answer) {
            Err(Error::NoRegion(_)) => {
                self.explain(ask, space, platform)?;
                is_explained = true;
                // If mappings are locked, their pages were loaded together with the region.
                let (how, _) = self.with(platform, answer)?;
                (how, known)
            }
            Err(Error::Denied { rights, .. }) => {
                self.unexplained += 1;
                let page = VirtRange::of_page(addr.page(self.vm.base()));
                let rights = rights | needed(kind);
                // If hardware has a translation of the page, `protect` adds the right there too.
                let before = platform.ram().mapping(inner, addr);
                self.with(platform, |kernel| kernel.protect(space, page, rights))?;
                let (how, known) = self.with(platform, answer)?;
                (how, before.map(|before| before.translation.rights).or(known))
            }
            done => done.map_err(|error| self.failure(error, platform))?,
        };
        self.decisions.are_at(addr);
        if known.is_some_and(|known| known.allows(kind)) {
            return Err(stale(addr, fault));
        }
        self.mark(inner, addr, platform.ram())?;
        self.serve_devices(platform);
        Ok(match how {
            _ if known.is_some() => Answer::Granted,
            _ if is_explained => Answer::FirstTouch,
            How::Minor | How::Write | How::Swap => Answer::Returned,
            How::Cache | How::ZeroPage | How::Zero | How::Copy | How::Disk => Answer::FirstTouch,
        })
    }

    fn event(
        &mut self,
        who: Who,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        self.apply(who.number, event, platform)?;
        self.stack_of_a_thread(who.number, event, platform)?;
        self.reserved(who.number, event, platform)?;
        self.advised_memory(who.number, event, platform)?;
        self.brought(who.number, event, platform)?;
        self.allocated(who.number, event, platform)
    }

    fn enter_sizes(&self, places: &[u32], counts: &mut ManagerCounts) {
        self.decisions.enter(places, counts);
    }

    fn settle(&mut self, ram: &Ram, layout: &mut Layout) {
        self.decisions.settle(ram, layout);
    }

    fn find_by(&mut self, names: Names) {
        self.sizes.rules.find_by(names);
    }

    fn deadline(&self) -> Option<u64> {
        let daemon = self.sizes.daemon.as_ref().map(|daemon| daemon.next);
        let next = self.daemons.next();
        if self.scarce { Some(0) } else { daemon.into_iter().chain(next).min() }
    }

    fn tick(&mut self, now: u64, platform: &mut dyn Platform) -> Result<(), Failure> {
        if self.scarce {
            self.with(platform, |kernel| Ok(kernel.tick()))?;
        }
        // If nothing can be evicted, eviction is tried again only after more memory was allocated.
        let was_scarce = std::mem::take(&mut self.scarce);
        self.wake(now, platform)?;
        let Some(moves) = self.sizes.due(now) else { return Ok(()) };
        let before = self.vm.work();
        let made = self.with(platform, |kernel| Ok(kernel.coalesce(moves)))?;
        // The daemon freed all memory that it allocated.
        self.scarce &= !was_scarce;
        let after = self.vm.work();
        let moved = after.migrations - before.migrations;
        let flushes = after.shootdowns - before.shootdowns;
        let access = platform.access();
        self.sizes.passed(DaemonSample { access, passes: 1, made, moved, flushes });
        Ok(())
    }

    fn ticked(&mut self, cycles: u64) {
        self.daemons.put_off(cycles);
        self.sizes.put_off(cycles);
    }

    fn prices_its_work(&self) -> bool {
        self.prices.costs.is_some()
    }

    fn spent(&mut self) -> Spent {
        self.prices.spent(&self.vm.work())
    }

    fn changeable(&self) -> &'static [Setting] {
        &[Setting::Marks, Setting::Replacement, Setting::SwapSize, Setting::SwapIo]
    }

    fn change(
        &mut self,
        what: Setting,
        description: &Description,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let sizes = [self.vm.base()];
        let to = settings(description, platform.ram(), &sizes);
        let to = to.map_err(|refusal| Failure::Table(refusal.what))?;
        let (hat, memory) = platform.ram().parts();
        let mut board = Board::default();
        let mut kernel = Kernel::new(&self.vm, hat, memory, &mut board);
        let done = match what {
            Setting::Marks => kernel.set_marks(to.marks),
            Setting::Replacement => {
                self.replacement = to.replacement;
                kernel.set_replacement(to.replacement)
            }
            Setting::SwapSize => {
                self.swap = description.swap.as_ref().map_or(Bytes(0), |swap| swap.size);
                kernel.set_swap(to.swap_pages)
            }
            Setting::SwapIo => {
                self.prices.set_io(description);
                Ok(())
            }
        };
        self.scarce = kernel.wants_memory();
        done.map_err(|error| Failure::Table(error.to_string()))
    }

    fn promotes_to(&self) -> Vec<PageSize> {
        self.sizes.promotes_to.clone()
    }

    fn promotes_pairs(&self) -> bool {
        self.sizes.is_paired
    }

    fn promote(
        &mut self,
        who: Who,
        range: VirtRange,
        to: PageSize,
        platform: &mut dyn Platform,
    ) -> Result<u64, Failure> {
        let space = self.space(who.number, platform)?;
        let collapses = self.sizes.larger == Larger::Transparent;
        let made = self.with(platform, |kernel| match collapses {
            true => kernel.collapse(space, range, Refused::No),
            false => kernel.promote_range(space, range, to),
        })?;
        if made > 0 {
            self.sizes.asked.insert(who.number);
        }
        Ok(made)
    }

    fn moves_to_nodes(&self) -> bool {
        match self.sizes.larger {
            Larger::None | Larger::Wished | Larger::Promoted => true,
            // With these managers, frames are parts of reservations or folios, which cannot be
            // moved.
            Larger::Reserved | Larger::Transparent => false,
        }
    }

    fn migrates_after(&self, who: Who, addr: VirtAddr, ram: &Ram) -> Option<u32> {
        let space = ram.hat_space(who.number)?;
        self.vm.module(space, addr)?.migrate_after
    }

    fn move_to_node(
        &mut self,
        who: Who,
        addr: VirtAddr,
        node: u8,
        platform: &mut dyn Platform,
    ) -> Result<Result<u64, &'static str>, Failure> {
        let space = self.space(who.number, platform)?;
        let moved = self.with(platform, |kernel| kernel.move_to_node(space, addr, node))?;
        Ok(moved.map_err(|why| why.name()))
    }

    fn has_many_sizes(&self, number: u32) -> bool {
        self.sizes.asked.contains(&number)
    }

    fn unmet(&self) -> Option<String> {
        self.sizes.rules.unused()
    }

    fn forget_counts(&mut self, ram: &mut Ram) {
        let Base {
            vm,
            topology: _,
            module: _,
            replacement: _,
            swap: _,
            prices,
            files: _,
            decisions,
            known: _,
            forked: _,
            children: _,
            inherited: _,
            unexplained,
            scarce: _,
            sizes,
            marks: _,
            marks_cleared,
            devices,
            eager: _,
            daemons: _,
            keeps_stacks: _,
            can_collapse: _,
            groups: _,
            heaps: _,
            stats: _,
            pools: _,
            end,
            samples,
            stride: _,
            since: _,
        } = self;
        vm.forget_counts();
        decisions.forget_counts();
        if let Some(reserver) = ram.parts_mut().1.allocator_mut().0.reserver_mut() {
            reserver.forget_counts();
        }
        prices.forget_counts();
        if let Some(devices) = devices {
            devices.forget_counts();
        }
        (*unexplained, *marks_cleared) = (0, 0);
        samples.clear();
        *end = None;
        if let Some(daemon) = &mut sizes.daemon {
            daemon.passes.clear();
        }
    }

    fn counts(&self, ram: &Ram) -> Option<ManagerCounts> {
        let faults = self.vm.faults();
        let name = |how: How| (how.name().to_owned(), faults[how as usize]);
        let work = self.vm.work();
        Some(ManagerCounts {
            replacement: self.replacement.to_owned(),
            faults: How::ALL.map(name).into_iter().collect(),
            unexplained: self.unexplained,
            work: work.each().map(|(name, count)| (name.to_owned(), count)).collect(),
            cycles: self.prices.by_kind(&work),
            io_requests: self.prices.requests,
            io_cycles: self.prices.io_cycles,
            page_sizes: Vec::new(),
            sizes: Vec::new(),
            upgrades: Vec::new(),
            daemon: self.daemon_counts(),
            reservations: self.reservation_counts(ram),
            devices: self.devices.as_ref().map(Devices::counts),
            linux: self.linux_counts(ram),
            end: self.fullest_end(ram),
            bytes: self.kind_bytes(ram),
            over_time: self.samples.clone(),
        })
    }
}

/// The rights that an access of `kind` needs.
fn needed(kind: Kind) -> Rights {
    match kind {
        Kind::Fetch => Rights::EXECUTE,
        Kind::Load => Rights::READ,
        Kind::Store => Rights::WRITE,
    }
}
