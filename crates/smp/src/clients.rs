//! Clients of a server in small spaces, with more clients than slots: the cost of giving a slot to
//! another space (U02 section 5).
//!
//! ```text
//!   ring of clients    a -> server -> b -> server -> c -> server -> a ...     a call each
//!                      after some rounds, another ring at random
//! ```
//!
//! In each call, the client touches pages under several entries of its root, so that these entries
//! are copied into the loaded root. From time to time, one of several large programs runs, so that
//! there are several roots. The real code manages spaces, page table and copies; only the cycles
//! are modelled.

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
/// The bytes that an entry of a root covers.
const ENTRY: u64 = 4 << 20;
/// The address of the slot area in U02's kernel with the most slots: 2 GB below the kernel's 512
/// MB.
const AREA: u64 = 0x6000_0000;
const AREA_BYTES: u64 = 2 << 30;

/// The parameters of an experiment.
#[derive(Clone, Debug)]
pub struct ClientsPlan {
    /// The number of clients. The clients and the server are the spaces that can be small.
    pub clients: u32,
    /// The number of clients in a ring.
    pub ring: u32,
    /// The number of programs that are never small.
    pub large: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// The number of root entries under which each client has pages.
    pub entries: u32,
    /// The number of calls.
    pub calls: u32,
    /// The number of calls until another ring of clients runs. The actual number is random, between
    /// one and two times this number.
    pub stay: u32,
    /// How copies are revoked: `purge`, `versioned` or `groups`.
    pub revoke: String,
    /// Which space gets a slot: `first-come`, `lru` or `frequent`.
    pub schedule: String,
    /// The seed of the order of rings.
    pub seed: u64,
    /// The prices of a switch.
    pub prices: ClientsPrices,
}

/// Cycles of the operations of a switch, as in a machine's `[os.costs]`.
#[derive(Clone, Copy, Debug)]
pub struct ClientsPrices {
    /// Loading a root.
    pub root: u64,
    /// Loading the segment registers.
    pub segments: u64,
    /// Reading a line of a root that is searched for copies.
    pub line: u64,
    /// Emptying or comparing an entry whose line was already read.
    pub entry: u64,
}

const LINE_BYTES: u64 = 64;
const ENTRY_BYTES: u64 = 4;

/// The outcome of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct ClientsOutcome {
    /// The number of slots.
    pub slots: u16,
    /// The number of switches.
    pub switches: u64,
    /// The number of switches that loaded a root.
    pub root_loads: u64,
    /// The number of slots taken from a space and given to another.
    pub recycled: u64,
    /// The number of roots searched for copies.
    pub roots_purged: u64,
    /// The number of copies that were emptied.
    pub entries_purged: u64,
    /// The number of copies made, each at a fault.
    pub copies: u64,
    /// The number of switches to clients that had no slot and did not get one.
    pub stayed_large: u64,
    /// The mean cycles of a switch, with all work that had to be done before it.
    pub mean_cycles: f64,
    /// The largest number of cycles of a switch, with all work that had to be done before it.
    pub worst_cycles: u64,
}

/// Unlimited memory, and processors without TLBs.
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

/// Runs `plan`. The error describes a defect of the plan.
pub fn run_clients(plan: &ClientsPlan) -> Result<ClientsOutcome, String> {
    let revoke = match plan.revoke.as_str() {
        "purge" => Revoke::Purge,
        "versioned" => Revoke::Versioned,
        "groups" => Revoke::Groups,
        other => {
            return Err(format!(
                "`{other}` is not a way to revoke slots: choose from purge, versioned, groups"
            ));
        }
    };
    let schedule = match plan.schedule.as_str() {
        "first-come" => Schedule::FirstCome,
        "lru" => Schedule::Lru,
        "frequent" => Schedule::Frequent,
        other => {
            return Err(format!(
                "`{other}` is not a schedule of slots: choose from first-come, lru, frequent"
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
        return Err("write at least two clients, in rings of at least two".to_owned());
    }
    let calls = calls(plan);
    Scene::new(plan, layout, revoke, schedule, &calls)?.play(plan, &calls)
}

/// The order in which spaces run: clients have the numbers from 0, followed by the server and the
/// large programs.
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
    /// The spaces by the numbers that [`calls`] uses.
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
            // Pages of a large program are not needed here.
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

    /// Touches a page under each of the space's entries, through the loaded root.
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

    /// The cycles of a switch that changed the counts from `before` to `after`.
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
