//! Small address spaces: many spaces side by side in one address space, separated by segments, so
//! that a switch between them loads no root and flushes no entry (U02; Liedtke 1995).
//!
//! ```text
//!   addresses of the processor                          slot 2 of the area
//!   0                                area                    |                            4G
//!   | the large space whose root is loaded | slot 0 | slot 1 | slot 2 | ... |   kernel    |
//!                                                              ^    ^
//!   a small space's own addresses                            0 .. limit      base + address
//! ```
//!
//! A small space's segments have the base and the limit of its *slot*. Its addresses are relocated
//! before the TLB. The entries of different small spaces therefore have different addresses, and
//! can stay in the TLB as global pages, whichever space runs. Walks start at the loaded root. In
//! that root, the entries that cover a slot are copies of the small space's own root entries. Each
//! copy is made when a walk first finds the entry missing ([`SmallSpaces::fault`]).
//!
//! | switch to | root loaded | segments loaded |
//! |---|---|---|
//! | a small space | no | yes |
//! | the large space whose root is loaded | no | yes, from a small one |
//! | another large space | yes | yes, from a small one |
//!
//! There are few slots. [`Revoke`] determines how a slot is taken from one space for another;
//! [`Schedule`] determines which spaces have slots. An access beyond the limit makes a space large
//! ([`SmallSpaces::promote`]).
//!
//! This module makes the decisions; [`Directories`] carries them out. The module holds the whole
//! state of the mechanism and uses no page tables, processors or locks: a kernel calls it under the
//! lock of its scheduler.

mod groups;
mod slots;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::ops::{AddAssign, Sub};

use addr::{VirtAddr, VirtRange};
use pagetable::Lent;

pub use self::groups::{Grouping, Switches};
use self::slots::Slots;
use crate::HatSpace;

/// The addresses at which small spaces appear in every space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotLayout {
    area: VirtRange,
    slot_bytes: u64,
}

/// Why a layout is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// The slot size is not a power of two, or smaller than what one root entry covers.
    Slot {
        /// The requested bytes of a slot.
        bytes: u64,
        /// The bytes that one root entry covers.
        entry_bytes: u64,
    },
    /// The area does not begin and end at multiples of the slot size, or has more than 65,535
    /// slots.
    Area(VirtRange),
}

impl SlotLayout {
    /// A layout with slots of `slot_bytes` in `area`, for a page table whose root entries cover
    /// `entry_bytes` each.
    pub fn new(
        area: VirtRange,
        slot_bytes: u64,
        entry_bytes: u64,
    ) -> Result<SlotLayout, LayoutError> {
        if !slot_bytes.is_power_of_two() || slot_bytes < entry_bytes.max(1) {
            return Err(LayoutError::Slot { bytes: slot_bytes, entry_bytes });
        }
        let ends = area.start().get() | area.last().get().wrapping_add(1);
        let slots = (area.last().get() - area.start().get()) / slot_bytes;
        if !ends.is_multiple_of(slot_bytes) || slots >= u64::from(u16::MAX) {
            return Err(LayoutError::Area(area));
        }
        Ok(SlotLayout { area, slot_bytes })
    }

    /// The number of slots.
    pub fn slots(&self) -> u16 {
        ((self.area.last().get() - self.area.start().get()) / self.slot_bytes + 1) as u16
    }

    /// The bytes of a slot, which are also the limit of a small space.
    pub const fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// The addresses of all slots.
    pub const fn area(&self) -> VirtRange {
        self.area
    }

    /// The addresses of a slot.
    pub fn range(&self, slot: u16) -> VirtRange {
        let start = self.area.start().wrapping_add(u64::from(slot) * self.slot_bytes);
        VirtRange::new(start, self.slot_bytes).expect("slots lie in the area")
    }
}

/// How the copies of a space's entries are removed when it loses its slot (U02 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Revoke {
    /// All roots are searched for copies immediately.
    Purge,
    /// Loaded roots are searched for copies immediately. Every other root is searched when it is
    /// loaded next, if a slot has changed its owner since the root was last loaded. A switch then
    /// takes longer, at worst in proportion to the number of slots.
    Versioned,
    /// Spaces that communicate form a group with its own root and its own slots. Revoking a slot
    /// affects only the root of its group, and a switch to another group loads its root. Members of
    /// *all* groups have the same slot in each group, and their pages stay in the TLB (section
    /// 5.2).
    Groups,
}

/// Which spaces have slots if there are more spaces than slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// The spaces that came first keep their slots.
    FirstCome,
    /// The space that was switched to least recently loses its slot.
    Lru,
    /// The space that was recently switched to least often loses its slot, but only to a space that
    /// was switched to at least twice as often. All counts are halved after every 64 switches per
    /// slot.
    Frequent,
}

/// The changes that small spaces make to page tables and processors.
pub trait Directories {
    /// Copies the entry of `from`'s root that covers `addr` into the root of `to`, where `addr` is
    /// then visible at `at`: [`crate::Hat::lend`].
    fn lend(&mut self, from: HatSpace, addr: VirtAddr, to: HatSpace, at: VirtAddr) -> Lent;

    /// Empties the copies in the root of `of` that lie in `range`, and returns their number:
    /// [`crate::Hat::take_back`].
    fn take_back(&mut self, of: HatSpace, range: VirtRange) -> u64;

    /// Has every processor flush `range`, including global pages.
    fn forget(&mut self, range: VirtRange);

    /// Loads the root of `space` on a processor, which flushes all translations that are not
    /// global.
    fn load(&mut self, cpu: usize, space: HatSpace);
}

/// Defines a struct of counters from one list of their names, with subtraction.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of operations on small spaces, so that they can be priced.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, more: Counts) {
                $(self.$name += more.$name;)*
            }
        }

        impl Sub for Counts {
            type Output = Counts;

            /// The operations since `before`, earlier counts of the same spaces.
            fn sub(self, before: Counts) -> Counts {
                Counts { $($name: self.$name - before.$name,)* }
            }
        }
    };
}

counts! {
    /// Roots loaded.
    root_loads,
    /// Switches that loaded segments.
    segment_loads,
    /// The number of switches, without switches to the space that was already running.
    switches,
    /// Root entries copied, each after a fault.
    copies,
    /// Slots taken away from a space.
    revoked,
    /// Roots searched for copies.
    roots_purged,
    /// Copies emptied.
    entries_purged,
    /// Slots whose version was compared when a root was loaded.
    versions_compared,
    /// Small spaces that became large because they accessed an address beyond their limit.
    promoted,
}

/// The state of a processor after a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// The space whose root is loaded.
    pub root: HatSpace,
    /// The base that is added to addresses before the TLB.
    pub base: u64,
    /// The size of the address range in bytes; `None` for a large space, which has all addresses.
    pub limit: Option<u64>,
    /// Whether the space's pages are inserted into the TLB as global pages, so that they stay when
    /// a root is loaded.
    pub is_global: bool,
    /// Whether this switch loaded the root.
    pub loads_root: bool,
    /// Whether this switch loaded segments.
    pub loads_segments: bool,
}

/// The meaning of a fault of a small space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SmallFault {
    /// An entry was missing in the loaded root and has been copied. The access can be repeated.
    Copied,
    /// The space's own page table does not map the page either: this is an ordinary page fault at
    /// the space's own address.
    Own,
    /// The address is beyond the limit: the space can be [promoted](SmallSpaces::promote).
    Beyond,
}

/// Why a space did not become small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotSmall {
    /// The space does not exist.
    Unknown(HatSpace),
    /// Every slot is in use, and the schedule revokes no slot for this space.
    NoSlot,
    /// Under [`Revoke::Groups`]: the space is in no group, or it is a member of all groups but no
    /// group exists, so there are no slots for it.
    NoGroup,
}

/// Which copies a root may hold in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Copies of the space that has the slot, if there is such a space and it is visible in this
    /// root.
    Of(Option<HatSpace>),
    /// Possibly copies of a space that has lost the slot. No processor uses these copies: they are
    /// emptied before this root is loaded.
    Stale,
}

/// Whether a space is large, or small and in which slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    Large,
    Small(u16),
}

#[derive(Clone, Debug)]
struct Member {
    home: Home,
    /// The group of the space; `None` if the space is in no group or in all.
    group: Option<u16>,
    /// Whether the space is a member of all groups.
    is_global: bool,
    /// For each slot, the version of the slot at the time when the space's root was last updated;
    /// the root may hold copies from that version.
    seen: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    root: Option<HatSpace>,
    runs: Option<HatSpace>,
    base: u64,
}

/// All spaces, large and small, and the space that each processor runs.
#[derive(Clone, Debug)]
pub struct SmallSpaces {
    layout: SlotLayout,
    revoke: Revoke,
    spaces: BTreeMap<HatSpace, Member>,
    /// One set of slots for all spaces, or one for each group.
    slots: Vec<Slots>,
    /// For each group, the space whose root it uses.
    roots: Vec<HatSpace>,
    /// For each slot, a counter of its owners; only used with [`Revoke::Versioned`].
    versions: Vec<u64>,
    schedule: Schedule,
    cpus: Vec<Cpu>,
    counts: Counts,
}

impl SmallSpaces {
    /// A state without spaces, with `cpus` processors, none of which runs a space.
    pub fn new(layout: SlotLayout, revoke: Revoke, schedule: Schedule, cpus: usize) -> SmallSpaces {
        let slots = match revoke {
            Revoke::Groups => Vec::new(),
            Revoke::Purge | Revoke::Versioned => Vec::from([Slots::new(schedule, layout.slots())]),
        };
        SmallSpaces {
            layout,
            revoke,
            spaces: BTreeMap::new(),
            slots,
            roots: Vec::new(),
            versions: alloc::vec![0; usize::from(layout.slots())],
            schedule,
            cpus: alloc::vec![Cpu::default(); cpus],
            counts: Counts::default(),
        }
    }

    /// Counts of all operations so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Adds a new space, which is large.
    pub fn add(&mut self, space: HatSpace) {
        let seen = self.versions.clone();
        self.spaces
            .insert(space, Member { home: Home::Large, group: None, is_global: false, seen });
    }

    /// Adds a group that uses the root of `root`, a space that exists only to provide this root.
    /// Returns the group's number.
    pub fn add_group(&mut self, root: HatSpace) -> u16 {
        self.add(root);
        self.roots.push(root);
        let mut slots = Slots::new(self.schedule, self.layout.slots());
        // Members of all groups have their slots in the new group too.
        for (space, known) in &self.spaces {
            if let (true, Home::Small(slot)) = (known.is_global, known.home) {
                slots.put(slot, *space);
            }
        }
        self.slots.push(slots);
        self.slots.len() as u16 - 1
    }

    /// Makes `space` a member of one group, or of all groups (`None`). Returns false if the space
    /// is small: a small space must first become large.
    pub fn join(&mut self, space: HatSpace, group: Option<u16>) -> bool {
        let known = self.spaces.get_mut(&space).filter(|known| known.home == Home::Large);
        let Some(known) = known else { return false };
        (known.group, known.is_global) = (group, group.is_none());
        true
    }

    /// Gives `space` a slot, which it uses when it is next [entered](SmallSpaces::enter). The caller must
    /// know that the space has nothing mapped beyond the limit.
    pub fn make_small(
        &mut self,
        space: HatSpace,
        directories: &mut impl Directories,
    ) -> Result<u16, NotSmall> {
        let known = self.spaces.get(&space).ok_or(NotSmall::Unknown(space))?;
        if let Home::Small(slot) = known.home {
            return Ok(slot);
        }
        let (group, is_global) = (known.group, known.is_global);
        let running: BTreeSet<HatSpace> = self.cpus.iter().filter_map(|cpu| cpu.runs).collect();
        let stays = |of: HatSpace, spaces: &BTreeMap<HatSpace, Member>| {
            running.contains(&of) || (spaces[&of].is_global && !is_global)
        };
        let slot = match (self.revoke, group) {
            (Revoke::Groups, None) if is_global && !self.slots.is_empty() => {
                // A member of all groups has one slot number in every group, so the slot must be
                // free in each group.
                let free = |slot: &u16| self.slots.iter().all(|slots| slots.is_free(*slot));
                (0..self.layout.slots()).find(free).ok_or(NotSmall::NoSlot)?
            }
            (Revoke::Groups, None) => return Err(NotSmall::NoGroup),
            (Revoke::Groups, Some(group)) => {
                let slots = self.slots.get(usize::from(group)).ok_or(NotSmall::NoGroup)?;
                slots.choose(space, |of| stays(of, &self.spaces)).ok_or(NotSmall::NoSlot)?
            }
            (Revoke::Purge | Revoke::Versioned, _) => {
                let chosen = self.slots[0].choose(space, |of| stays(of, &self.spaces));
                chosen.ok_or(NotSmall::NoSlot)?
            }
        };
        let owner = self.slots_of(group).next().and_then(|slots| slots.owner(slot));
        if let Some(owner) = owner {
            self.counts.revoked += 1;
            self.take_slot(owner, directories);
        }
        for slots in self.slots_of_mut(group) {
            slots.put(slot, space);
        }
        if let Some(known) = self.spaces.get_mut(&space) {
            known.home = Home::Small(slot);
        }
        Ok(slot)
    }

    /// Makes `space` large again and frees its slot. A processor that runs `space` loads its root.
    pub fn promote(&mut self, space: HatSpace, directories: &mut impl Directories) {
        if matches!(self.spaces.get(&space), Some(Member { home: Home::Small(_), .. })) {
            self.counts.promoted += 1;
            self.take_slot(space, directories);
        }
    }

    /// Removes `space`, which no processor runs. A processor that still has the root of `space`
    /// loaded loads the root of the space that it runs.
    pub fn remove(&mut self, space: HatSpace, directories: &mut impl Directories) {
        self.take_slot(space, directories);
        for cpu in 0..self.cpus.len() {
            let Cpu { root, runs, .. } = self.cpus[cpu];
            if root == Some(space) {
                self.cpus[cpu].root = None;
                if let Some(runs) = runs.filter(|runs| *runs != space) {
                    self.load(cpu, runs, directories);
                }
            }
            if runs == Some(space) {
                self.cpus[cpu] = Cpu::default();
            }
        }
        self.spaces.remove(&space);
    }

    /// Runs `space` on a processor. `None` if it was not added.
    pub fn enter(
        &mut self,
        cpu: usize,
        space: HatSpace,
        directories: &mut impl Directories,
    ) -> Option<Entered> {
        let known = self.spaces.get(&space)?;
        let (home, group, is_global) = (known.home, known.group, known.is_global);
        let before = self.cpus[cpu];
        let root = match (home, self.revoke) {
            (Home::Large, _) => space,
            (Home::Small(_), Revoke::Groups) if !is_global => {
                group.map_or(space, |group| self.roots[usize::from(group)])
            }
            (Home::Small(_), Revoke::Groups) => {
                before.root.or(self.roots.first().copied()).unwrap_or(space)
            }
            (Home::Small(_), Revoke::Purge | Revoke::Versioned) => before.root.unwrap_or(space),
        };
        let base = match home {
            Home::Large => 0,
            Home::Small(slot) => self.layout.range(slot).start().get(),
        };
        let loads_root = before.root != Some(root);
        let loads_segments = before.runs.is_some() && before.base != base;
        if before.runs != Some(space) {
            self.counts.switches += 1;
            for slots in self.slots_of_mut(group) {
                slots.entered(space);
            }
        }
        self.cpus[cpu].runs = Some(space);
        self.cpus[cpu].base = base;
        self.counts.segment_loads += u64::from(loads_segments);
        if loads_root {
            self.load(cpu, root, directories);
        }
        let is_small = home != Home::Large;
        Some(Entered {
            root,
            base,
            limit: is_small.then_some(self.layout.slot_bytes),
            is_global: is_small && (is_global || self.revoke != Revoke::Groups),
            loads_root,
            loads_segments,
        })
    }

    /// The meaning of a fault of the small space that `cpu` runs; `addr` is an address as the space
    /// itself uses it.
    pub fn fault(
        &mut self,
        cpu: usize,
        addr: VirtAddr,
        directories: &mut impl Directories,
    ) -> SmallFault {
        let Cpu { root: Some(root), runs: Some(space), base } = self.cpus[cpu] else {
            return SmallFault::Own;
        };
        if base == 0 {
            return SmallFault::Own;
        }
        if addr.get() >= self.layout.slot_bytes {
            return SmallFault::Beyond;
        }
        match directories.lend(space, addr, root, addr.wrapping_add(base)) {
            Lent::Copied { .. } => {
                self.counts.copies += 1;
                SmallFault::Copied
            }
            Lent::There | Lent::Absent => SmallFault::Own,
        }
    }

    /// The slot of a space, if it has one.
    pub fn slot_of(&self, space: HatSpace) -> Option<u16> {
        match self.spaces.get(&space)?.home {
            Home::Large => None,
            Home::Small(slot) => Some(slot),
        }
    }

    /// The space whose root a processor has loaded, and the space that it runs.
    pub fn on(&self, cpu: usize) -> (Option<HatSpace>, Option<HatSpace>) {
        (self.cpus[cpu].root, self.cpus[cpu].runs)
    }

    /// Which copies the root of `of` may hold in a slot.
    pub fn holds(&self, of: HatSpace, slot: u16) -> Holds {
        let Some(known) = self.spaces.get(&of) else { return Holds::Of(None) };
        if known.seen[usize::from(slot)] != self.versions[usize::from(slot)] {
            return Holds::Stale;
        }
        let group = self.roots.iter().position(|root| *root == of);
        Holds::Of(match (self.revoke, group) {
            (Revoke::Purge | Revoke::Versioned, _) => self.slots[0].owner(slot),
            (Revoke::Groups, Some(group)) => self.slots[group].owner(slot),
            (Revoke::Groups, None) => {
                // The root of a large space can only have copies of spaces that are members of all
                // groups.
                let owner = self.slots.first().and_then(|slots| slots.owner(slot));
                owner.filter(|owner| self.spaces[owner].is_global)
            }
        })
    }

    /// Loads the root of `space`, after removing copies of spaces that have lost their slots.
    fn load(&mut self, cpu: usize, space: HatSpace, directories: &mut impl Directories) {
        self.counts.root_loads += 1;
        self.cpus[cpu].root = Some(space);
        if self.revoke == Revoke::Versioned {
            self.bring_up_to_date(space, directories);
        }
        directories.load(cpu, space);
    }

    fn bring_up_to_date(&mut self, root: HatSpace, directories: &mut impl Directories) {
        let Some(known) = self.spaces.get_mut(&root) else { return };
        let mut stale = false;
        for (slot, seen) in known.seen.iter_mut().enumerate() {
            self.counts.versions_compared += 1;
            if *seen != self.versions[slot] {
                *seen = self.versions[slot];
                stale = true;
                let range = self.layout.range(slot as u16);
                self.counts.entries_purged += directories.take_back(root, range);
            }
        }
        self.counts.roots_purged += u64::from(stale);
    }

    /// Takes the slot of `space` away, if it has one, with every copy of its entries.
    fn take_slot(&mut self, space: HatSpace, directories: &mut impl Directories) {
        let Some(known) = self.spaces.get_mut(&space) else { return };
        let Home::Small(slot) = core::mem::replace(&mut known.home, Home::Large) else { return };
        let (group, is_global) = (known.group, known.is_global);
        let range = self.layout.range(slot);
        for slots in self.slots_of_mut(group) {
            slots.free(slot);
        }
        let roots: Vec<HatSpace> = match self.revoke {
            Revoke::Purge => self.spaces.keys().copied().collect(),
            Revoke::Groups if is_global => self.spaces.keys().copied().collect(),
            Revoke::Groups => group.iter().map(|group| self.roots[usize::from(*group)]).collect(),
            Revoke::Versioned => {
                self.versions[usize::from(slot)] += 1;
                let loaded: BTreeSet<_> = self.cpus.iter().filter_map(|cpu| cpu.root).collect();
                loaded.into_iter().collect()
            }
        };
        for root in roots {
            self.counts.roots_purged += 1;
            self.counts.entries_purged += directories.take_back(root, range);
            if let Some(known) = self.spaces.get_mut(&root) {
                known.seen[usize::from(slot)] = self.versions[usize::from(slot)];
            }
        }
        directories.forget(range);
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].runs == Some(space) {
                // The space continues as a large space.
                self.cpus[cpu].base = 0;
                if self.cpus[cpu].root != Some(space) {
                    self.load(cpu, space, directories);
                }
            }
        }
    }

    /// The slots that a space of `group` can have: those of its group, or of all groups.
    fn slots_of(&self, group: Option<u16>) -> impl Iterator<Item = &Slots> {
        let one = self.one_of(group);
        let all = self.slots.iter().enumerate();
        all.filter(move |(at, _)| one.is_none_or(|one| one == *at)).map(|(_, slots)| slots)
    }

    fn slots_of_mut(&mut self, group: Option<u16>) -> impl Iterator<Item = &mut Slots> {
        let one = self.one_of(group);
        let all = self.slots.iter_mut().enumerate();
        all.filter(move |(at, _)| one.is_none_or(|one| one == *at)).map(|(_, slots)| slots)
    }

    fn one_of(&self, group: Option<u16>) -> Option<usize> {
        match self.revoke {
            Revoke::Groups => group.map(usize::from),
            Revoke::Purge | Revoke::Versioned => Some(0),
        }
    }
}
