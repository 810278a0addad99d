//! Tests small spaces with real page tables and with TLBs that drop an entry only when it is
//! flushed. The reference model has the pages of each space separately.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use addr::{Frames, Kind, Memory, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    Hat, HatSpace, Platform,
    small::{
        Counts, Directories, Grouping, Holds, LayoutError, NotSmall, Revoke, Schedule, SlotLayout,
        SmallFault, SmallSpaces, Switches,
    },
};
use pagetable::{Flush, Lent, Mount, Scope, SparseMemory, Translation, Usage, X86_32};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const K4: PageSize = PageSize::SIZE_4K;
const M4: PageSize = PageSize::from_shift(22).unwrap();
const AREA: u64 = 0xc000_0000;
const SLOT: u64 = 16 << 20;
const SLOTS: u16 = 4;
const CPUS: usize = 2;
const TABLES: u64 = 1 << 30;
const STEPS: u32 = 1500;
/// Large enough that each of the three groups has more spaces than slots.
const SPACES: usize = 24;

/// Memory that the page table uses and that the test also reads directly.
#[derive(Clone)]
struct Shared(Arc<Mutex<SparseMemory>>);

impl Memory for Shared {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.0.lock().unwrap().read_u64(addr)
    }
    fn read_u32(&self, addr: PhysAddr) -> u32 {
        self.0.lock().unwrap().read_u32(addr)
    }
    fn read_u8(&self, addr: PhysAddr) -> u8 {
        self.0.lock().unwrap().read_u8(addr)
    }
    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.0.lock().unwrap().write_u64(addr, value);
    }
    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.0.lock().unwrap().write_u32(addr, value);
    }
    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        self.0.lock().unwrap().write_u8(addr, value);
    }

    addr::exchanges_of_one_user!();
}

/// The entries of a processor's TLB, by linear address.
type Tlb = BTreeMap<u64, TlbEntry>;

#[derive(Clone, Copy)]
struct TlbEntry {
    bytes: u64,
    frame: u64,
    is_global: bool,
    is_dirty: bool,
}

/// Processors, and frames for page tables.
struct Machine {
    tlbs: [Tlb; CPUS],
    bases: BTreeMap<HatSpace, u64>,
    next: u64,
    free: Vec<PhysAddr>,
}

impl Machine {
    fn forget(&mut self, range: VirtRange) {
        let (first, last) = (range.start().get(), range.last().get());
        for tlb in &mut self.tlbs {
            tlb.retain(|&start, entry| start > last || start + entry.bytes - 1 < first);
        }
    }
}

impl Frames for Machine {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        assert_eq!(size, K4);
        self.next += K4.bytes();
        Ok(self.free.pop().unwrap_or(PhysAddr::new(TABLES + self.next)))
    }
    fn free(&mut self, frame: PhysAddr, _: PageSize) {
        self.free.push(frame);
    }
}

impl Platform for Machine {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        for (space, flush) in flushes {
            let base = self.bases.get(space).copied().unwrap_or(0);
            match flush.scope() {
                Scope::Nothing => {}
                Scope::Pages { range, .. } => {
                    self.forget(range);
                    let start = range.start().wrapping_add(base);
                    self.forget(VirtRange::new(start, range.bytes()).unwrap());
                }
                Scope::Space => self.forget(VirtRange::ALL),
            }
        }
    }
    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

/// Performs the changes that small spaces request of the HAT layer and the processors.
struct On<'a>(&'a Hat, &'a mut Machine);

impl Directories for On<'_> {
    fn lend(&mut self, from: HatSpace, addr: VirtAddr, to: HatSpace, at: VirtAddr) -> Lent {
        self.0.lend(from, addr, to, at).unwrap()
    }
    fn take_back(&mut self, of: HatSpace, range: VirtRange) -> u64 {
        self.0.take_back(of, range)
    }
    fn forget(&mut self, range: VirtRange) {
        self.1.forget(range);
    }
    fn load(&mut self, cpu: usize, _: HatSpace) {
        self.1.tlbs[cpu].retain(|_, entry| entry.is_global);
    }
}

/// The expected pages of a space: for each base page, its frame and whether it was stored to.
type Pages = BTreeMap<u64, (u64, bool)>;

struct World {
    hat: Hat,
    memory: Shared,
    machine: Machine,
    small: SmallSpaces,
    spaces: BTreeMap<HatSpace, Pages>,
    roots: Vec<HatSpace>,
    running: [Option<HatSpace>; CPUS],
    rng: Xoshiro256PlusPlus,
    next_frame: u64,
}

impl World {
    fn new(revoke: Revoke, schedule: Schedule, seed: u64) -> World {
        let area = VirtRange::new(VirtAddr::new(AREA), SLOT * u64::from(SLOTS)).unwrap();
        let memory = Shared(Arc::new(Mutex::new(SparseMemory::new(1 << 32))));
        let table = X86_32::<false>::with_area(area).unwrap();
        let layout = SlotLayout::new(area, SLOT, M4.bytes()).unwrap();
        assert_eq!(layout.slots(), SLOTS);
        let mut world = World {
            hat: Hat::new(Box::new(Mount::tree(table, memory.clone()))),
            memory,
            machine: Machine {
                tlbs: Default::default(),
                bases: BTreeMap::new(),
                next: 0,
                free: Vec::new(),
            },
            small: SmallSpaces::new(layout, revoke, schedule, CPUS),
            spaces: BTreeMap::new(),
            roots: Vec::new(),
            running: [None; CPUS],
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            next_frame: 0,
        };
        if revoke == Revoke::Groups {
            for _ in 0..3 {
                let root = world.hat.create(&mut world.machine).unwrap();
                world.small.add_group(root);
                world.roots.push(root);
            }
        }
        world
    }

    fn create(&mut self) -> HatSpace {
        let space = self.hat.create(&mut self.machine).unwrap();
        self.small.add(space);
        self.spaces.insert(space, Pages::new());
        if !self.roots.is_empty() {
            let group = self.rng.random_range(0..4);
            assert!(self.small.join(space, (group < 3).then_some(group)));
        }
        space
    }

    fn any(&mut self) -> Option<HatSpace> {
        let count = self.spaces.len();
        let at = (count > 0).then(|| self.rng.random_range(0..count))?;
        self.spaces.keys().nth(at).copied()
    }

    fn is_running(&self, space: HatSpace) -> bool {
        self.running.contains(&Some(space))
    }

    fn map(&mut self, space: HatSpace, addr: u64, size: PageSize) {
        let pages = &self.spaces[&space];
        let base_pages = (addr..addr + size.bytes()).step_by(1 << 12);
        if base_pages.clone().any(|page| pages.contains_key(&page)) {
            return;
        }
        self.next_frame = (self.next_frame + 2 * size.bytes()) & !size.mask();
        let frame = self.next_frame % TABLES;
        let page = VirtAddr::new(addr).page(size);
        let first = Translation::new(page, PhysAddr::new(frame), Rights::ALL);
        if self.hat.load(space, first, 1, &mut self.machine).is_ok() {
            let pages = self.spaces.get_mut(&space).unwrap();
            pages.extend(base_pages.map(|page| (page, (frame + (page - addr), false))));
        }
    }

    /// Unmaps the 4 MiB around `addr` that one root entry covers (`whole`), or the base page of
    /// `addr`.
    fn unmap(&mut self, space: HatSpace, addr: u64, whole: bool) {
        let bytes = if whole { M4.bytes() } else { K4.bytes() };
        let range = VirtRange::new(VirtAddr::new(addr & !(bytes - 1)), bytes).unwrap();
        let mut gone = Vec::new();
        let unloaded =
            self.hat.unload(space, range, &mut |mapping| gone.push(mapping), &mut self.machine);
        if unloaded.is_err() {
            // The base page is a part of a large page, which cannot be unmapped in part.
            return;
        }
        let pages = self.spaces.get_mut(&space).unwrap();
        for mapping in gone {
            let page = mapping.translation.page;
            let (first, bytes) = (page.start().get(), page.size().bytes());
            let mut is_dirty = false;
            for addr in (first..first + bytes).step_by(1 << 12) {
                let (frame, dirty) = pages.remove(&addr).unwrap();
                assert_eq!(frame, mapping.translation.frame.get() + (addr - first));
                is_dirty |= dirty;
            }
            assert_eq!(mapping.usage.dirty, is_dirty, "a store was lost, or made up");
        }
        assert!(pages.range(range.start().get()..=range.last().get()).next().is_none());
    }

    fn enter(&mut self, cpu: usize, space: HatSpace) {
        if self.is_running(space) && self.running[cpu] != Some(space) {
            return;
        }
        let before = (self.small.on(cpu).0, self.small.counts().root_loads);
        let entered = self.small.enter(cpu, space, &mut On(&self.hat, &mut self.machine)).unwrap();
        let loads = self.small.counts().root_loads - before.1;
        assert_eq!(
            loads,
            u64::from(before.0 != Some(entered.root)),
            "a root is loaded once, or not"
        );
        assert_eq!(entered.loads_root, loads == 1);
        self.running[cpu] = Some(space);
    }

    /// Makes an access. Returns whether the page was mapped.
    fn access(&mut self, cpu: usize, addr: u64, kind: Kind) -> bool {
        let Some(space) = self.running[cpu] else { return false };
        let slot = self.small.slot_of(space);
        if slot.is_some() && addr >= SLOT {
            // The segment limit forbids the access, whatever the TLB holds.
            let at = VirtAddr::new(addr);
            let fault = self.small.fault(cpu, at, &mut On(&self.hat, &mut self.machine));
            assert_eq!(fault, SmallFault::Beyond);
            self.small.promote(space, &mut On(&self.hat, &mut self.machine));
            assert_eq!(self.small.on(cpu), (Some(space), Some(space)));
        }
        let slot = self.small.slot_of(space);
        let base = slot.map_or(0, |slot| AREA + u64::from(slot) * SLOT);
        let linear = base + addr;
        let expected =
            self.spaces[&space].get(&(addr & !0xfff)).map(|page| page.0 + (addr & 0xfff));
        for turn in 0..2 {
            if let Some((frame, _)) = self.hit(cpu, linear, kind) {
                assert_eq!(Some(frame), expected, "{space:?} at {addr:#x} on {cpu}");
                if kind == Kind::Store {
                    let page = self.spaces.get_mut(&space).unwrap().get_mut(&(addr & !0xfff));
                    page.unwrap().1 = true;
                }
                return true;
            }
            let (Some(root), _) = self.small.on(cpu) else { unreachable!() };
            let inner = self.hat.space(root).unwrap();
            let at = VirtAddr::new(linear);
            let walked = self.hat.table_mut().walk(inner, at, kind, &mut Vec::new());
            match walked {
                Ok(found) => {
                    let (start, bytes) = (found.page.start().get(), found.page.size().bytes());
                    let is_global = slot.is_some_and(|_| self.roots.is_empty());
                    let (frame, is_dirty) = (found.frame.get(), kind == Kind::Store);
                    self.machine.tlbs[cpu]
                        .insert(start, TlbEntry { bytes, frame, is_global, is_dirty });
                }
                Err(_) => {
                    let at = VirtAddr::new(addr);
                    let fault = self.small.fault(cpu, at, &mut On(&self.hat, &mut self.machine));
                    match fault {
                        SmallFault::Copied => assert_eq!(turn, 0, "copied twice"),
                        SmallFault::Own => {
                            assert_eq!(expected, None, "{space:?} at {addr:#x} faults");
                            return false;
                        }
                        SmallFault::Beyond => unreachable!(),
                    }
                }
            }
        }
        let found = self.hit(cpu, linear, kind);
        match found {
            Some((frame, _)) => {
                assert_eq!(Some(frame), expected);
                if kind == Kind::Store {
                    let page = self.spaces.get_mut(&space).unwrap().get_mut(&(addr & !0xfff));
                    page.unwrap().1 = true;
                }
                true
            }
            None => {
                // The entry was copied, but the walk that followed faulted too.
                let (root, _) = self.small.on(cpu);
                let inner = self.hat.space(root.unwrap()).unwrap();
                let at = VirtAddr::new(linear);
                match self.hat.table_mut().walk(inner, at, kind, &mut Vec::new()) {
                    Ok(found) => {
                        let frame = found.frame.get() + (linear - found.page.start().get());
                        assert_eq!(Some(frame), expected);
                        if kind == Kind::Store {
                            let pages = self.spaces.get_mut(&space).unwrap();
                            pages.get_mut(&(addr & !0xfff)).unwrap().1 = true;
                        }
                        true
                    }
                    Err(_) => {
                        assert_eq!(expected, None);
                        false
                    }
                }
            }
        }
    }

    fn hit(&mut self, cpu: usize, linear: u64, kind: Kind) -> Option<(u64, bool)> {
        let (start, entry) = self.machine.tlbs[cpu].range(..=linear).next_back()?;
        let inside = linear - start < entry.bytes;
        // A store through a TLB entry that is not dirty walks again, to set the dirty bit.
        let usable = inside && (kind != Kind::Store || entry.is_dirty);
        usable.then(|| (entry.frame + (linear - start), entry.is_dirty))
    }

    /// Checks that every entry in the area of every root is a copy of the current entry of the
    /// slot's owner.
    fn check(&mut self) {
        let everyone: Vec<HatSpace> = self.spaces.keys().chain(&self.roots).copied().collect();
        for of in everyone {
            let root = self.hat.space(of).unwrap().root().get();
            let is_loaded = (0..CPUS).any(|cpu| self.small.on(cpu).0 == Some(of));
            for slot in 0..SLOTS {
                let entries = SLOT / M4.bytes();
                for index in 0..entries {
                    let place = (AREA >> 22) + u64::from(slot) * entries + index;
                    let copy = self.memory.read_u32(PhysAddr::new(root + 4 * place));
                    if copy == 0 {
                        continue;
                    }
                    match self.small.holds(of, slot) {
                        Holds::Stale => assert!(!is_loaded, "{of:?} is loaded and stale"),
                        Holds::Of(None) => panic!("{of:?} has an entry in slot {slot} of nobody"),
                        Holds::Of(Some(owner)) => {
                            let from = self.hat.space(owner).unwrap().root().get();
                            let entry = self.memory.read_u32(PhysAddr::new(from + 4 * index));
                            // Walkers may have set accessed and dirty bits in either entry.
                            assert_eq!(copy & !0x60, entry & !0x60, "{of:?} of {owner:?}");
                        }
                    }
                }
            }
        }
        assert_eq!(self.hat.check(), Ok(()));
    }

    fn step(&mut self) {
        let choice = self.rng.random_range(0..100);
        let choice = if self.spaces.len() < SPACES / 2 { 0 } else { choice };
        let cpu = self.rng.random_range(0..CPUS);
        let addr = (self.rng.random_range(0..SLOT + (2 << 20)) >> 21 << 21)
            + self.rng.random_range(0..6) * 0x1000;
        let Some(space) = self.any().filter(|_| choice >= 3) else {
            if self.spaces.len() < SPACES {
                self.create();
            }
            return;
        };
        match choice {
            3..5 if !self.is_running(space) => {
                self.small.remove(space, &mut On(&self.hat, &mut self.machine));
                self.hat.destroy(space, &mut self.machine);
                self.spaces.remove(&space);
                self.machine.bases.remove(&space);
            }
            5..15 => self.map(space, addr, K4),
            15..18 => self.map(space, addr & !M4.mask(), M4),
            18..24 => self.unmap(space, addr, false),
            24..27 => self.unmap(space, addr, true),
            27..35 => {
                let beyond = self.spaces[&space].range(SLOT..).next().is_some();
                if !beyond {
                    let on = &mut On(&self.hat, &mut self.machine);
                    match self.small.make_small(space, on) {
                        Ok(_) | Err(NotSmall::NoSlot) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                    // The space is small only after the next switch to it.
                    for cpu in 0..CPUS {
                        if self.running[cpu] == Some(space) {
                            self.running[cpu] = None;
                            self.enter(cpu, space);
                        }
                    }
                }
            }
            35..37 => self.small.promote(space, &mut On(&self.hat, &mut self.machine)),
            37..40 => {
                // Usage bits are queried and cleared while a root entry that maps a page is lent:
                // no bit must be lost.
                let page = self.spaces[&space].iter().next().map(|(addr, page)| (*addr, page.0));
                if let Some((_, frame)) = page {
                    let frame = PhysAddr::new(frame);
                    let _ = self.hat.usage(frame, K4, Usage::default(), &mut self.machine);
                }
            }
            40..60 => self.enter(cpu, space),
            _ => {
                let kind = if choice % 2 == 0 { Kind::Store } else { Kind::Load };
                self.access(cpu, addr, kind);
            }
        }
        for &space in self.spaces.keys() {
            let slot = self.small.slot_of(space);
            let base = slot.map_or(0, |slot| AREA + u64::from(slot) * SLOT);
            self.machine.bases.insert(space, base);
        }
    }
}

/// The test is long enough that each schedule revokes slots, each policy has stale copies, and
/// spaces end while their roots are still loaded on processors that run other spaces.
#[test]
fn no_space_sees_what_is_not_its_own() {
    let mut promoted = 0;
    for revoke in [Revoke::Purge, Revoke::Versioned, Revoke::Groups] {
        for schedule in [Schedule::FirstCome, Schedule::Lru, Schedule::Frequent] {
            let mut all = Counts::default();
            for seed in 0..2 {
                println!("{revoke:?}, {schedule:?}, seed {seed}");
                let mut world = World::new(revoke, schedule, seed);
                for step in 0..STEPS {
                    world.step();
                    if step % 10 == 0 {
                        world.check();
                    }
                }
                let counts = world.small.counts();
                all.copies += counts.copies;
                all.revoked += counts.revoked;
                all.entries_purged += counts.entries_purged;
                promoted += counts.promoted;
            }
            assert!(all.copies > 20 && all.entries_purged > 10, "{all:?}");
            assert!(schedule != Schedule::Lru || all.revoked > 0, "{all:?}");
        }
    }
    assert!(promoted > 100);
}

fn world(revoke: Revoke) -> World {
    World::new(revoke, Schedule::Lru, 1)
}

fn small(world: &mut World, space: HatSpace) -> Result<u16, NotSmall> {
    world.small.make_small(space, &mut On(&world.hat, &mut world.machine))
}

/// A switch from a small space to the large space whose root is already loaded does not load the
/// root again, although the original kernel with small spaces did.
#[test]
fn the_root_that_is_loaded_is_not_loaded_again() {
    let mut world = world(Revoke::Purge);
    let spaces = [world.create(), world.create(), world.create()];
    small(&mut world, spaces[1]).unwrap();
    small(&mut world, spaces[2]).unwrap();
    for space in [0, 1, 2, 1, 0, 2, 0] {
        world.enter(0, spaces[space]);
    }
    let counts = world.small.counts();
    assert_eq!((counts.root_loads, counts.segment_loads, counts.switches), (1, 6, 7));
}

/// If a space cannot become small, the attempt fails immediately and changes nothing.
#[test]
fn who_gets_no_slot_changes_nothing() {
    let mut world = World::new(Revoke::Purge, Schedule::FirstCome, 1);
    let spaces: Vec<HatSpace> = (0..6).map(|_| world.create()).collect();
    for &space in &spaces[..4] {
        small(&mut world, space).unwrap();
    }
    let before = world.small.counts();
    assert_eq!(small(&mut world, spaces[4]), Err(NotSmall::NoSlot));
    assert_eq!(world.small.counts(), before);
    let slots: Vec<_> = spaces.iter().map(|space| world.small.slot_of(*space)).collect();
    assert_eq!(slots, [Some(0), Some(1), Some(2), Some(3), None, None]);
    let nobody = HatSpace(77);
    assert_eq!(small(&mut world, nobody), Err(NotSmall::Unknown(nobody)));
}

/// A member of all groups gets no slot while there are no groups, since other members could get
/// that slot too.
#[test]
fn a_member_of_all_groups_needs_one() {
    let mut world = world(Revoke::Purge);
    let area = VirtRange::new(VirtAddr::new(AREA), SLOT * u64::from(SLOTS)).unwrap();
    let layout = SlotLayout::new(area, SLOT, M4.bytes()).unwrap();
    let mut small = SmallSpaces::new(layout, Revoke::Groups, Schedule::Lru, 1);
    let [root, one, other] = [world.create(), world.create(), world.create()];
    let mut on = On(&world.hat, &mut world.machine);
    for space in [one, other] {
        small.add(space);
        assert!(small.join(space, None));
        assert_eq!(small.make_small(space, &mut on), Err(NotSmall::NoGroup));
    }
    small.add_group(root);
    assert_eq!(small.make_small(one, &mut on), Ok(0));
    assert_eq!(small.make_small(other, &mut on), Ok(1));
}

/// When a large page is unmapped, the copy of its entry is emptied, and the usage bits that walks
/// set in the copy are transferred.
#[test]
fn no_copy_of_a_large_page_is_left_behind() {
    for revoke in [Revoke::Purge, Revoke::Versioned] {
        let mut world = world(revoke);
        let (large, guest) = (world.create(), world.create());
        world.map(guest, 0, M4);
        let slot = small(&mut world, guest).unwrap();
        world.machine.bases.insert(guest, AREA + u64::from(slot) * SLOT);
        world.enter(0, large);
        world.enter(0, guest);
        assert!(world.access(0, 0x1234, Kind::Store));
        assert_eq!(world.small.counts().copies, 1);
        // Only the copy's entry has the dirty bit of the store; the unmapped page must be reported
        // as dirty.
        world.unmap(guest, 0, true);
        world.check();
        assert!(!world.access(0, 0x1234, Kind::Load));
    }
}

/// The cost of revoking a slot when there are many spaces. One policy searches every root, one
/// searches a root only when it is loaded again, and with groups only the root of the group is
/// concerned.
#[test]
fn what_a_slot_that_changes_hands_costs() {
    let spaces = 40;
    let cost = |revoke| {
        let mut world = World::new(revoke, Schedule::Lru, 3);
        let guests: Vec<HatSpace> = (0..spaces)
            .map(|_| {
                let space = world.hat.create(&mut world.machine).unwrap();
                world.small.add(space);
                if revoke == Revoke::Groups {
                    world.small.join(space, Some(0));
                }
                world.spaces.insert(space, Pages::new());
                space
            })
            .collect();
        for &guest in &guests {
            world.map(guest, 0x1000, K4);
            let slot = small(&mut world, guest).unwrap();
            world.machine.bases.insert(guest, AREA + u64::from(slot) * SLOT);
            world.enter(0, guest);
            assert!(world.access(0, 0x1000, Kind::Load));
        }
        world.check();
        world.small.counts()
    };
    let revoked = u64::from(spaces - u32::from(SLOTS));
    let purge = cost(Revoke::Purge);
    assert_eq!((purge.revoked, purge.roots_purged), (revoked, revoked * u64::from(spaces)));
    let versioned = cost(Revoke::Versioned);
    assert_eq!((versioned.revoked, versioned.roots_purged), (revoked, revoked));
    let groups = cost(Revoke::Groups);
    assert_eq!((groups.revoked, groups.roots_purged), (revoked, revoked));
    assert!([purge, versioned, groups].iter().all(|counts| counts.root_loads == 1));
}

#[test]
fn groups_are_who_talks_to_whom() {
    let spaces: Vec<HatSpace> = (0..8).map(HatSpace).collect();
    let mut switches = Switches::default();
    // Space 0 is a server: two rings of three spaces communicate through it, and one more space
    // communicates only with it.
    for (ring, times) in [([1, 2, 3], 100), ([4, 5, 6], 50), ([7, 7, 7], 1)] {
        for at in (0..3 * times).map(|at| ring[at % 3]) {
            switches.to(spaces[at]);
            switches.to(spaces[0]);
            switches.to(spaces[0]);
        }
    }
    assert_eq!(switches.pairs().map(|(_, count)| count).sum::<u64>(), 2 * 453 - 1);
    let found = Grouping::of(&switches, 4, 900);
    assert_eq!(found.global, [spaces[0]]);
    let ring = |of: [usize; 3]| of.map(|at| spaces[at]).to_vec();
    assert_eq!(found.groups, [ring([1, 2, 3]), ring([4, 5, 6]), vec![spaces[7]]]);
    // If a group has room for two spaces besides the server, the pairs with the most switches stay
    // together.
    let found = Grouping::of(&switches, 3, 900);
    assert!(found.groups.iter().all(|group| group.len() <= 2));
    assert_eq!(found.groups.iter().map(Vec::len).sum::<usize>(), 7);
    assert_eq!(Grouping::of(&Switches::default(), 4, 900), Grouping::default());
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    let area = |start, bytes| VirtRange::new(VirtAddr::new(start), bytes).unwrap();
    let slot = |bytes| Err(LayoutError::Slot { bytes, entry_bytes: 4 << 20 });
    let good = area(AREA, 1 << 29);
    assert_eq!(SlotLayout::new(good, 256 << 20, 4 << 20).unwrap().slots(), 2);
    assert_eq!(SlotLayout::new(good, 2 << 20, 4 << 20), slot(2 << 20));
    assert_eq!(SlotLayout::new(good, 12 << 20, 4 << 20), slot(12 << 20));
    let crooked = area(AREA + (4 << 20), 1 << 28);
    assert_eq!(SlotLayout::new(crooked, 256 << 20, 4 << 20), Err(LayoutError::Area(crooked)));
}
