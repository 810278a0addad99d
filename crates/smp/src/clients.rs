//! Clients of a server in small spaces, more of them than slots: what it costs that a slot changes hands
//! (U02 section 5).
//!
//! ```text
//!   ring of clients    a -> server -> b -> server -> c -> server -> a ...     a call each
//!                      after some rounds, another ring at random
//! ```
//!
//! Each call has the client touch pages under several entries of its root, so that they are copied into
//! whichever root is loaded; of some large programs one runs now and then, so that there are roots.
//! The spaces, the page table and its copies are real; cycles are put on what was done.

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    Hat, HatSpace, Platform,
    small::{
        Counts, Directories, Grouping, NotSmall, Revoke, Schedule, SlotLayout, SmallFault,
        SmallSpaces, Switches,
    },
};
use pagetable::{Flush, Lent, Mount, SparseMemory, Translation, X86_32};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

const K4: PageSize = PageSize::SIZE_4K;
/// What an entry of a root covers.
const ENTRY: u64 = 4 << 20;
/// The area of U02's kernel with the most slots: 2 GB below the kernel's 512 MB.
const AREA: u64 = 0x6000_0000;
const AREA_BYTES: u64 = 2 << 30;

/// What is run.
#[derive(Clone, Debug)]
pub struct ClientsPlan {
    /// Spaces that would be small, the server apart.
    pub clients: u32,
    /// How many talk to each other.
    pub ring: u32,
    /// Programs that are never small.
    pub large: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Entries of its root that a client has pages under.
    pub entries: u32,
    /// Calls.
    pub calls: u32,
    /// Calls until another ring goes on, at random between one and twice as many.
    pub stay: u32,
    /// What becomes of copies: `purge`, `versioned` or `groups`.
    pub revoke: String,
    /// Who has a slot: `first-come`, `lru` or `frequent`.
    pub schedule: String,
    /// Of the order of rings.
    pub seed: u64,
    /// What a switch takes.
    pub prices: ClientsPrices,
}

/// Cycles of what a switch may have to do, as a machine's `[os.costs]` has them.
#[derive(Clone, Copy, Debug)]
pub struct ClientsPrices {
    /// Loading a root.
    pub root: u64,
    /// Loading the segment registers.
    pub segments: u64,
    /// Reading a line of a root that is looked through for copies.
    pub line: u64,
    /// Emptying or comparing an entry, once its line is there.
    pub entry: u64,
}

const LINE_BYTES: u64 = 64;
const ENTRY_BYTES: u64 = 4;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct ClientsOutcome {
    /// Slots that there are.
    pub slots: u16,
    /// Switches, and those that loaded a root.
    pub switches: u64,
    /// Roots loaded.
    pub root_loads: u64,
    /// Slots taken from a space for another.
    pub recycled: u64,
    /// Roots looked through for copies.
    pub roots_purged: u64,
    /// Copies emptied.
    pub entries_purged: u64,
    /// Copies made, at a fault each.
    pub copies: u64,
    /// Switches to clients that had no slot and got none.
    pub stayed_large: u64,
    /// Cycles of a switch with all that it had to do first: the mean, and the most.
    pub mean_cycles: f64,
    /// See [`ClientsOutcome::mean_cycles`].
    pub worst_cycles: u64,
}

/// Memory without end, and processors that remember nothing.
#[derive(Default)]
struct Machine {
    frames: u64,
}

impl addr::Frames for Machine {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, addr::OutOfFrames> {
        self.frames += size.bytes();
        Ok(PhysAddr::new(self.frames))
    }

    fn free(&mut self, _: PhysAddr, _: PageSize) {}
}

impl Platform for Machine {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn frames(&mut self) -> &mut dyn addr::Frames {
        self
    }
}

struct Roots<'a>(&'a Hat);

impl Directories for Roots<'_> {
    fn lend(&mut self, from: HatSpace, addr: VirtAddr, to: HatSpace, at: VirtAddr) -> Lent {
        self.0.lend(from, addr, to, at).unwrap_or(Lent::Absent)
    }

    fn take_back(&mut self, of: HatSpace, range: VirtRange) -> u64 {
        self.0.take_back(of, range)
    }

    fn forget(&mut self, _: VirtRange) {}

    fn load(&mut self, _: usize, _: HatSpace) {}
}

/// Runs `plan`; or says what is wrong with it.
pub fn run_clients(plan: &ClientsPlan) -> Result<ClientsOutcome, String> {
    let revoke = match plan.revoke.as_str() {
        "purge" => Revoke::Purge,
        "versioned" => Revoke::Versioned,
        "groups" => Revoke::Groups,
        other => {
            return Err(format!(
                "no way to revoke is called {other}: choose from purge, versioned, groups"
            ));
        }
    };
    let schedule = match plan.schedule.as_str() {
        "first-come" => Schedule::FirstCome,
        "lru" => Schedule::Lru,
        "frequent" => Schedule::Frequent,
        other => {
            return Err(format!(
                "no schedule is called {other}: choose from first-come, lru, frequent"
            ));
        }
    };
    let area =
        VirtRange::new(VirtAddr::new(AREA), AREA_BYTES).map_err(|error| error.to_string())?;
    let layout = SlotLayout::new(area, plan.slot_bytes, ENTRY).map_err(|_| {
        format!("a slot of {} bytes: write a power of two from 4M to 1G", plan.slot_bytes)
    })?;
    if u64::from(plan.entries) * ENTRY > plan.slot_bytes {
        return Err(format!(
            "{} entries do not fit into a slot: it has {}",
            plan.entries,
            plan.slot_bytes / ENTRY
        ));
    }
    if plan.clients < 2 || plan.ring < 2 {
        return Err("there are at least two clients, in rings of at least two".to_owned());
    }
    let calls = calls(plan);
    Scene::new(plan, layout, revoke, schedule, &calls)?.play(plan, &calls)
}

/// Who runs, one after the other: client numbers from 0, then the server, then large programs.
fn calls(plan: &ClientsPlan) -> Vec<usize> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    let (clients, ring) = (plan.clients as usize, plan.ring as usize);
    let (server, rings) = (clients, clients.div_ceil(ring));
    let mut order = Vec::new();
    let mut left = 0;
    let (mut members, mut at) = (0..0, 0);
    for _ in 0..plan.calls {
        if left == 0 {
            let first = rng.random_range(0..rings) * ring;
            members = first..(first + ring).min(clients);
            at = 0;
            left = rng.random_range(plan.stay.max(1)..=2 * plan.stay.max(1));
            if plan.large > 0 {
                order.push(clients + 1 + rng.random_range(0..plan.large as usize));
            }
        }
        order.extend([members.start + at % members.len(), server]);
        at += 1;
        left -= 1;
    }
    order
}

struct Scene {
    hat: Hat,
    small: SmallSpaces,
    layout: SlotLayout,
    prices: ClientsPrices,
    /// By the numbers of [`calls`].
    spaces: Vec<HatSpace>,
}

impl Scene {
    fn new(
        plan: &ClientsPlan,
        layout: SlotLayout,
        revoke: Revoke,
        schedule: Schedule,
        calls: &[usize],
    ) -> Result<Scene, String> {
        let table = X86_32::<false>::with_area(layout.area()).map_err(|error| error.to_string())?;
        let hat: Hat = Hat::new(Box::new(Mount::tree(table, SparseMemory::new(1 << 32))));
        let mut machine = Machine::default();
        let mut small = SmallSpaces::new(layout, revoke, schedule, 1);
        let create = |machine: &mut Machine| hat.create(machine).map_err(|error| error.to_string());
        let mut spaces = Vec::new();
        for number in 0..plan.clients + 1 + plan.large {
            let space = create(&mut machine)?;
            small.add(space);
            // A large program needs none of its pages here.
            for entry in 0..if number <= plan.clients { plan.entries } else { 0 } {
                let page = VirtAddr::new(u64::from(entry) * ENTRY).page(K4);
                let frame = PhysAddr::new(1 << 31);
                let first = Translation::new(page, frame, Rights::ALL);
                let loaded = hat.load(space, first, 1, &mut machine);
                loaded.map_err(|error| error.to_string())?;
            }
            spaces.push(space);
        }
        if revoke == Revoke::Groups {
            let mut switches = Switches::default();
            calls.iter().for_each(|call| switches.to(spaces[*call]));
            let of_small = spaces[..=plan.clients as usize].to_vec();
            let found = Grouping::of(&switches, layout.slots(), 500);
            for group in &found.groups {
                let root = create(&mut machine)?;
                let number = small.add_group(root);
                for space in group.iter().filter(|space| of_small.contains(space)) {
                    small.join(*space, Some(number));
                }
            }
            found.global.iter().for_each(|space| {
                small.join(*space, None);
            });
        }
        Ok(Scene { hat, small, layout, prices: plan.prices, spaces })
    }

    fn play(mut self, plan: &ClientsPlan, calls: &[usize]) -> Result<ClientsOutcome, String> {
        let (mut total, mut worst, mut stayed_large) = (0, 0, 0);
        for &number in calls {
            let space = self.spaces[number];
            let before = self.small.counts();
            let is_large = number > plan.clients as usize;
            if !is_large {
                match self.small.make_small(space, &mut Roots(&self.hat)) {
                    Ok(_) => {}
                    Err(NotSmall::NoSlot | NotSmall::NoGroup) => stayed_large += 1,
                    Err(NotSmall::Unknown(_)) => return Err("a space was lost".to_owned()),
                }
            }
            self.small.enter(0, space, &mut Roots(&self.hat));
            let cycles = self.cycles(before, self.small.counts());
            total += cycles;
            worst = worst.max(cycles);
            if !is_large {
                self.touch(space, plan.entries)?;
            }
        }
        let counts = self.small.counts();
        Ok(ClientsOutcome {
            slots: self.layout.slots(),
            switches: counts.switches,
            root_loads: counts.root_loads,
            recycled: counts.revoked,
            roots_purged: counts.roots_purged,
            entries_purged: counts.entries_purged,
            copies: counts.copies,
            stayed_large,
            mean_cycles: total as f64 / calls.len().max(1) as f64,
            worst_cycles: worst,
        })
    }

    /// A page under each entry, through the root that is loaded.
    fn touch(&mut self, space: HatSpace, entries: u32) -> Result<(), String> {
        for entry in 0..entries {
            let addr = VirtAddr::new(u64::from(entry) * ENTRY);
            let (Some(root), _) = self.small.on(0) else { return Ok(()) };
            let base =
                self.small.slot_of(space).map_or(0, |slot| self.layout.range(slot).start().get());
            let inner = self.hat.space(root).ok_or("a root was lost")?;
            let walk = |hat: &mut Hat| {
                let at = addr.wrapping_add(base);
                hat.table_mut().walk(inner, at, Kind::Load, &mut Vec::new()).is_ok()
            };
            if !walk(&mut self.hat) {
                let fault = self.small.fault(0, addr, &mut Roots(&self.hat));
                if fault != SmallFault::Copied || !walk(&mut self.hat) {
                    return Err("a page that a client has was not found".to_owned());
                }
            }
        }
        Ok(())
    }

    /// What a switch took that did the difference of two counts.
    fn cycles(&self, before: Counts, after: Counts) -> u64 {
        let prices = self.prices;
        let lines = (self.layout.slot_bytes() / ENTRY * ENTRY_BYTES).div_ceil(LINE_BYTES);
        let looked = lines * (prices.line + LINE_BYTES / ENTRY_BYTES * prices.entry);
        (after.root_loads - before.root_loads) * prices.root
            + (after.segment_loads - before.segment_loads) * prices.segments
            + (after.roots_purged - before.roots_purged) * looked
            + (after.entries_purged - before.entries_purged) * prices.entry
            + (after.versions_compared - before.versions_compared) * prices.entry
    }
}
