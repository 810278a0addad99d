//! Small address spaces in a run: which spaces of the trace lie in which slots, and where the addresses
//! of the one that runs are for the TLBs (U02).
//!
//! ```text
//!   access at va --> view: va + base --> trace cache, TLBs --> walk from the root that is loaded
//!                     | beyond the limit                         | an entry of it is missing
//!                     v                                          v
//!                   the space becomes large                    copied from the space's own root
//! ```
//!
//! What is decided is [`hat::small`]'s, which knows neither TLBs nor traces. Here is what it does to the
//! processors of a run, what that takes, and which of a trace's spaces are to be small. A flat space has
//! the base 0, and nothing is asked an access for that.

use std::collections::{BTreeMap, BTreeSet};

use addr::{Asid, VirtAddr, VirtRange};
use hat::{
    HatSpace,
    small::{
        Counts, Directories, Layout, LayoutError, NotSmall, Revoke, Schedule, SmallFault,
        SmallSpaces,
    },
};
use pagetable::{Fault, Flush, Lent, Scope, Space, Translation};
use trace::Process;

use super::{Run, access::Place};
use crate::{
    Description, Error,
    count::{
        census::Census,
        results::{SmallSpaceCounts, SwitchCycles},
    },
    description,
    hardware::{
        behind::{Behind, Forget},
        in_turn::InTurn,
        processor::Processor,
    },
    ram::Ram,
};

/// Where the kernel's addresses begin, and the slots end.
const KERNEL: u64 = 0xe000_0000;
/// Bytes of a line, and of an entry of a root: where a root is looked through.
const LINE_BYTES: u64 = 64;

type Refusal = (String, String);

/// How addresses of the space that runs become those that the TLBs hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// What is added to them.
    pub(super) base: u64,
    /// Bytes of addresses that there are; of a flat space none is beyond.
    pub(super) limit: u64,
    /// Whose root walks start at.
    pub(super) root: Space,
    /// Whether its pages are entered as global ones.
    pub(super) is_global: bool,
}

impl View {
    pub(super) const fn flat(root: Space) -> View {
        View { base: 0, limit: u64::MAX, root, is_global: false }
    }
}

/// The addresses as TLBs see them, in `linear`, up to the first that is beyond the limit.
pub(super) fn relocate(addrs: &[u64], view: View, linear: &mut Vec<u64>) {
    linear.clear();
    let View { base, limit, .. } = view;
    // A limit is a power of two: one bit of all addresses together tells whether any is beyond.
    let mut all = 0;
    linear.extend(addrs.iter().map(|addr| {
        all |= addr;
        addr.wrapping_add(base)
    }));
    if all >= limit {
        let within = addrs.iter().position(|addr| *addr >= limit);
        linear.truncate(within.unwrap_or(addrs.len()));
    }
}

/// What a space of the trace is to be.
#[derive(Clone, Copy, Debug, Default)]
struct Wish {
    group: Option<u16>,
    everywhere: bool,
    /// Whether it was asked for by name or number.
    is_named: bool,
}

/// A space that has run.
#[derive(Clone, Copy, Debug)]
struct Known {
    hat: HatSpace,
    /// Whether something of it lies beyond a slot.
    is_too_large: bool,
    was_small: bool,
    has_run: bool,
    was_entered: bool,
}

/// Cycles of what a switch does.
#[derive(Clone, Copy, Debug)]
struct Prices {
    root: u64,
    segments: u64,
    /// A root that is looked through for a slot's entries.
    looked: u64,
    entry: u64,
}

/// Small spaces on the processors of a run.
pub(crate) struct Small {
    spaces: SmallSpaces,
    layout: Layout,
    described: description::Small,
    prices: Option<Prices>,
    /// By the trace's number; `None`: all spaces are to be small.
    wishes: Option<BTreeMap<u32, Wish>>,
    known: BTreeMap<u32, Known>,
    /// The spaces of groups' roots.
    roots: BTreeMap<HatSpace, Space>,
    /// What was done since counts began, but for what each processor ran first.
    counted: Counts,
    no_slot: u64,
    worst: u64,
    cycles: u64,
}

/// The area that `description` asks for: where its page table lets spaces see others' tables.
pub(crate) fn layout(description: &Description) -> Result<Option<Layout>, Refusal> {
    let Some(small) = &description.os.small else { return Ok(None) };
    let refuse = |key: &str, what: String| Err((format!("os.small{key}"), what));
    let table = description.page_table.as_ref().filter(|table| table.software_tlb.is_none());
    let entry_bytes = match table.map(|table| table.format.as_str()) {
        Some("x86-32") => 4 << 20,
        Some("x86-pae") => 1 << 30,
        _ => {
            let what = "segments are of processors of 32 bits: use page_table.format = \"x86-32\" or \
                        \"x86-pae\", without page_table.software_tlb";
            return refuse("", what.to_owned());
        }
    };
    let has = [
        (description.core.asid_bits > 0, "core.asid_bits above 0"),
        (description.nested.is_some(), "[nested]"),
        (description.spec_tlb.is_some(), "[spec_tlb]"),
        (description.os.promotion.is_some(), "[os.promotion]"),
        (!description.core.global_pages, "core.global_pages = false"),
        (description.range_tlb.is_some(), "[range_tlb]"),
        (description.restseg.is_some(), "[restseg]"),
        (description.memory.numa.is_some(), "[memory.numa]"),
        (description.tlb.present().any(|(_, _, tlb)| tlb.paired), "paired TLBs"),
        (description.tlb.present().any(|(_, _, tlb)| tlb.blocks.is_some()), "blocks of pages"),
    ];
    if let Some((_, what)) = has.into_iter().find(|(has, _)| *has) {
        return refuse("", format!("{what} and small spaces cannot be together: leave one out"));
    }
    let (area, slot) = (small.area.0, small.slot.0);
    let end = VirtAddr::new(KERNEL);
    let range = end.get().checked_sub(area).filter(|start| *start > 0 && area > 0);
    let range = range.and_then(|start| VirtRange::new(VirtAddr::new(start), area).ok());
    let Some(range) = range else {
        let what = format!("the area ends at {end}, so that of {} has no room", small.area);
        return refuse(".area", what);
    };
    match Layout::new(range, slot, entry_bytes) {
        Ok(layout) => Ok(Some(layout)),
        Err(LayoutError::Slot { .. }) => {
            let entry = description::units::Bytes(entry_bytes);
            let what = format!(
                "a slot of {} is none: write a power of two of {entry} or more, what an entry of a root \
                 of this table covers",
                small.slot
            );
            refuse(".slot", what)
        }
        Err(LayoutError::Area(_)) => {
            let what = format!(
                "an area of {} does not begin and end where slots of {} do: write a multiple of {} that \
                 ends at {end}",
                small.area, small.slot, small.slot
            );
            refuse(".area", what)
        }
    }
}

impl Small {
    /// As `description` asks for, if it does; an error comes with the key that is wrong.
    pub(crate) fn of(description: &Description) -> Result<Option<Small>, Refusal> {
        let Some(layout) = layout(description)? else { return Ok(None) };
        let Some(described) = description.os.small.clone() else { return Ok(None) };
        let refuse = |key: &str, what: &str| Err((format!("os.small.{key}"), what.to_owned()));
        let revoke = match described.revoke {
            description::Revoke::Purge => Revoke::Purge,
            description::Revoke::Versioned => Revoke::Versioned,
            description::Revoke::Groups => Revoke::Groups,
        };
        let has_groups = !described.groups.is_empty() || !described.everywhere.is_empty();
        match (revoke, has_groups) {
            (Revoke::Groups, false) => {
                return refuse(
                    "groups",
                    "who is in which group is missing: give os.small.groups, as in \
                     groups = [[\"cat\", \"wc\"]]; `pagewalk info --switches FILE` proposes some",
                );
            }
            (Revoke::Purge | Revoke::Versioned, true) => {
                return refuse("revoke", "groups and everywhere need os.small.revoke = \"groups\"");
            }
            (Revoke::Groups, true) | (Revoke::Purge | Revoke::Versioned, false) => {}
        }
        if described.everywhere.len() > usize::from(layout.slots()) {
            let what = format!(
                "{} spaces are to be in every group, and there are {} slots: name fewer, or make \
                 os.small.slot smaller",
                described.everywhere.len(),
                layout.slots()
            );
            return Err(("os.small.everywhere".to_owned(), what));
        }
        let schedule = match described.schedule {
            description::Schedule::FirstCome => Schedule::FirstCome,
            description::Schedule::Lru => Schedule::Lru,
            description::Schedule::Frequent => Schedule::Frequent,
        };
        let cpus = description.core.count as usize;
        let is_pae = description.page_table.as_ref().is_some_and(|table| table.format != "x86-32");
        let (entry_bytes, entry_covers) = if is_pae { (8, 1 << 30) } else { (4, 4 << 20) };
        let entries = layout.slot_bytes() / entry_covers;
        let prices = description.os.costs.as_ref().map(|costs| {
            let [root, segments, line, entry] = [
                costs.switch_cycles,
                costs.segment_cycles,
                costs.root_line_cycles,
                costs.root_entry_cycles,
            ]
            .map(u64::from);
            let lines = (entries * entry_bytes).div_ceil(LINE_BYTES);
            Prices { root, segments, looked: lines * line + entries * entry, entry }
        });
        Ok(Some(Small {
            spaces: SmallSpaces::new(layout, revoke, schedule, cpus),
            layout,
            described,
            prices,
            wishes: None,
            known: BTreeMap::new(),
            roots: BTreeMap::new(),
            counted: Counts::default(),
            no_slot: 0,
            worst: 0,
            cycles: 0,
        }))
    }

    /// A trace with these processes is about to run.
    pub(crate) fn begin(&mut self, processes: &[Process], ram: &mut Ram) -> Result<(), Error> {
        let mut wishes: BTreeMap<u32, Wish> = BTreeMap::new();
        let lists =
            [("members", &self.described.members), ("everywhere", &self.described.everywhere)];
        for (key, list) in lists {
            let everywhere = key == "everywhere";
            for name in list {
                for number in numbers(key, name, processes)? {
                    wishes.insert(number, Wish { group: None, everywhere, is_named: true });
                }
            }
        }
        for group in &self.described.groups {
            let (root, space) = ram.fresh().map_err(|_| Error::Place(out_of_frames()))?;
            let index = self.spaces.add_group(root);
            self.roots.insert(root, space);
            for name in group {
                for number in numbers("groups", name, processes)? {
                    let wish = Wish { group: Some(index), everywhere: false, is_named: true };
                    wishes.insert(number, wish);
                }
            }
        }
        self.wishes = (!wishes.is_empty()).then_some(wishes);
        Ok(())
    }

    /// A space that was to be small and never ran, once a trace without processes is over.
    pub(crate) fn unmet(&self) -> Option<String> {
        let has_run = |number: &u32| self.known.get(number).is_some_and(|known| known.was_entered);
        let missing =
            self.wishes.iter().flat_map(BTreeMap::keys).find(|number| !has_run(number))?;
        let known: Vec<String> = self.known.keys().map(u32::to_string).collect();
        Some(format!(
            "os.small: no space {missing} has run in this trace; it has {}",
            known.join(", ")
        ))
    }

    /// Whether `number` is to be small, and why not otherwise.
    fn wish(&self, number: u32) -> Option<Wish> {
        match &self.wishes {
            None => Some(Wish::default()),
            Some(wishes) => wishes.get(&number).copied(),
        }
    }

    /// Prices and counts what was done since `before`.
    fn note(&mut self, before: Counts, is_switch: bool) -> Done {
        let done = self.spaces.counts() - before;
        self.counted += done;
        let cycles = self.prices.map_or(0, |prices| {
            done.root_loads * prices.root
                + done.segment_loads * prices.segments
                + done.roots_purged * prices.looked
                + (done.entries_purged + done.versions_compared) * prices.entry
        });
        if is_switch {
            self.worst = self.worst.max(cycles);
            self.cycles += cycles;
        }
        Done { root_loads: done.root_loads, segment_loads: done.segment_loads, cycles }
    }

    /// Where entries of the space can be in the TLBs of `processor`: what is to be added to its
    /// addresses.
    pub(super) fn bases(&self, processor: usize, hat: HatSpace) -> [Option<u64>; 2] {
        let is_loaded = self.spaces.on(processor).0 == Some(hat);
        let slot = self.spaces.slot_of(hat).map(|slot| self.layout.range(slot).start().get());
        [is_loaded.then_some(0), slot]
    }

    /// Bytes of a slot.
    pub(super) fn slot_bytes(&self) -> u64 {
        self.layout.slot_bytes()
    }

    pub(crate) fn forget_counts(&mut self) {
        self.counted = Counts::default();
        (self.no_slot, self.worst, self.cycles) = (0, 0, 0);
    }

    /// What there is to say at the end.
    pub(crate) fn counts(&self) -> SmallSpaceCounts {
        let Counts {
            root_loads,
            segment_loads,
            switches,
            copies,
            revoked,
            roots_purged,
            entries_purged,
            versions_compared,
            promoted,
        } = self.counted;
        SmallSpaceCounts {
            slots: self.layout.slots().into(),
            slot_bytes: self.layout.slot_bytes(),
            spaces: self.known.len() as u64,
            small: self.known.values().filter(|known| known.was_small).count() as u64,
            switches,
            root_loads,
            segment_loads,
            copies,
            promoted,
            revoked,
            no_slot: self.no_slot,
            roots_purged,
            entries_purged,
            versions_compared,
            switch_cycles: self.prices.map(|_| SwitchCycles {
                mean: self.cycles as f64 / switches.max(1) as f64,
                worst: self.worst,
            }),
        }
    }
}

/// What a switch or a promotion did to the processor.
struct Done {
    root_loads: u64,
    segment_loads: u64,
    cycles: u64,
}

fn out_of_frames() -> String {
    "os.small.groups: no frame is left for the root of a group: give the machine a larger memory.size"
        .to_owned()
}

/// The spaces that `name`, in the list `key`, means.
fn numbers(key: &str, name: &str, processes: &[Process]) -> Result<Vec<u32>, Error> {
    let called = processes.iter().filter(|process| process.is_called(name));
    let mut found: Vec<u32> = called.map(|process| process.number).collect();
    let number = name.parse::<u32>().ok();
    let exists = |number: &u32| {
        processes.is_empty() || processes.iter().any(|process| process.number == *number)
    };
    if found.is_empty() {
        found.extend(number.filter(exists));
    }
    if found.is_empty() {
        let names: BTreeSet<&str> = processes.iter().map(Process::name).collect();
        let names: Vec<&str> = names.into_iter().take(12).collect();
        let has = if names.is_empty() {
            "this trace names no programs: write numbers of spaces, from 0".to_owned()
        } else {
            format!("it has {}", names.join(", "))
        };
        return Err(Error::Place(format!(
            "os.small.{key}: no program `{name}` in this trace; {has}"
        )));
    }
    Ok(found)
}

/// What small spaces do to the page table and the processors of a run.
struct Hands<'a, B> {
    ram: &'a Ram,
    processors: &'a mut InTurn<Processor>,
    census: &'a mut Census,
    behind: &'a mut B,
    /// Whether the processor has run nothing yet, and remembers nothing.
    is_first: bool,
}

impl<B: Behind> Directories for Hands<'_, B> {
    fn lend(&mut self, from: HatSpace, addr: VirtAddr, to: HatSpace, at: VirtAddr) -> Lent {
        // What cannot be lent is not there: the fault is then the system's.
        self.ram.parts().0.lend(from, addr, to, at).unwrap_or(Lent::Absent)
    }

    fn take_back(&mut self, of: HatSpace, range: VirtRange) -> u64 {
        self.ram.parts().0.take_back(of, range)
    }

    fn forget(&mut self, range: VirtRange) {
        for number in 0..self.processors.count() {
            let processor = self.processors.of(number);
            processor.hardware.flush_range(range, self.census);
            if let Some(cache) = &mut processor.trace_cache {
                cache.clear();
            }
            self.behind.forget(number, Forget::Range(range, Asid(0)));
        }
    }

    fn load(&mut self, cpu: usize, _: HatSpace) {
        if self.is_first {
            return;
        }
        let processor = self.processors.of(cpu);
        processor.hardware.flush_non_global(self.census);
        if let Some(cache) = &mut processor.trace_cache {
            cache.clear();
        }
        self.behind.forget(cpu, Forget::All);
    }
}

impl Run {
    /// The space `number` runs on `processor` from here on, small or large.
    pub(super) fn enter_small(
        &mut self,
        processor: usize,
        number: u32,
        is_first: bool,
        behind: &mut impl Behind,
    ) {
        let Run { small, ram, processors, census, .. } = self;
        let (Some(small), Some(hat)) = (small.as_mut(), ram.hat_space(number)) else { return };
        let before = small.spaces.counts();
        let wish = small.wish(number);
        let known = small.known.entry(number).or_insert_with(|| {
            small.spaces.add(hat);
            if let Some(Wish { group, everywhere, .. }) = wish
                && (everywhere || group.is_some())
            {
                small.spaces.join(hat, group);
            }
            Known { hat, is_too_large: false, was_small: false, has_run: false, was_entered: false }
        });
        known.was_entered = true;
        let is_wanted = wish.is_some() && !known.is_too_large;
        let mut hands = Hands { ram: &*ram, processors, census, behind, is_first };
        if is_wanted {
            match small.spaces.make_small(hat, &mut hands) {
                Ok(_) => known.was_small = true,
                Err(NotSmall::NoSlot | NotSmall::NoGroup | NotSmall::Unknown(_)) => {
                    small.no_slot += 1;
                }
            }
        }
        small.spaces.enter(processor, hat, &mut hands);
        if is_first {
            return;
        }
        let Done { root_loads, segment_loads, cycles } = small.note(before, true);
        let counts = &mut processors.of(processor).counts;
        counts.root_loads += root_loads;
        counts.emptying_switches += u64::from(root_loads > 0);
        counts.segment_loads += segment_loads;
        counts.switch_cycles += cycles;
    }

    /// Whether there are small spaces, and `processor` has run none yet, small or large.
    pub(super) fn has_not_begun(&self, processor: usize) -> bool {
        self.small.as_ref().is_some_and(|small| small.spaces.on(processor).1.is_none())
    }

    /// How the space that runs on `processor` is seen.
    pub(super) fn view_of(&self, processor: usize) -> View {
        let flat = View::flat(self.who.space);
        let Some(small) = &self.small else { return flat };
        let (Some(root), Some(hat)) = small.spaces.on(processor) else { return flat };
        let root = small.roots.get(&root).copied().or_else(|| self.ram.parts().0.space(root));
        let Some(slot) = small.spaces.slot_of(hat) else { return flat };
        let is_global = small.described.revoke != description::Revoke::Groups
            || small.wish(self.who.number).is_some_and(|wish| wish.everywhere);
        View {
            base: small.layout.range(slot).start().get(),
            limit: small.layout.slot_bytes(),
            root: root.unwrap_or(self.who.space),
            is_global,
        }
    }

    /// An access at `addr` is beyond the limit: the space that runs becomes large.
    #[cold]
    pub(super) fn outgrows(
        &mut self,
        addr: u64,
        access: u64,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let (processor, number) = (self.processors.on(), self.who.number);
        let Run { small, ram, processors, census, .. } = self;
        let Some(small) = small.as_mut() else { return Ok(()) };
        let before = small.spaces.counts();
        let is_named = small.wish(number).is_some_and(|wish| wish.is_named);
        let slot = small.described.slot;
        let Some(known) = small.known.get_mut(&number) else { return Ok(()) };
        if is_named && !known.has_run {
            let what = format!(
                "space {number} begins at {}, beyond its slot of {slot}: make os.small.slot larger, \
                 record it with `--small`, or leave it out of os.small.members",
                VirtAddr::new(addr)
            );
            return Err(Error::Access { access, what });
        }
        known.is_too_large = true;
        let hat = known.hat;
        let mut hands = Hands { ram: &*ram, processors, census, behind, is_first: false };
        small.spaces.promote(hat, &mut hands);
        let Done { root_loads, segment_loads, cycles } = small.note(before, false);
        let counts = &mut processors.of(processor).counts;
        counts.root_loads += root_loads;
        counts.segment_loads += segment_loads;
        counts.switch_cycles += cycles;
        self.view = self.view_of(processor);
        Ok(())
    }

    /// Whether a walk that has faulted did so because the root that is loaded had no copy of an entry;
    /// it has one now.
    #[cold]
    pub(super) fn copies(&mut self, place: Place<'_>, behind: &mut impl Behind) -> bool {
        let processor = self.processors.on();
        let Run { small, ram, processors, census, prices, .. } = self;
        let Some(small) = small.as_mut() else { return false };
        let before = small.spaces.counts();
        let mut hands = Hands { ram: &*ram, processors, census, behind, is_first: false };
        let is_copied = small.spaces.fault(processor, place.addr, &mut hands) == SmallFault::Copied;
        small.note(before, false);
        if is_copied {
            let counts = &mut processors.here.counts;
            let costs = prices.costs();
            let cycles = costs.map_or(0, |costs| u64::from(costs.copy_cycles));
            counts.copies += 1;
            counts.work_cycles += cycles;
        }
        is_copied
    }

    /// Stops at a walk through a copied entry that does not end where one from the space's own root does.
    pub(super) fn is_own(
        &self,
        place: Place<'_>,
        found: Result<Translation, Fault>,
    ) -> Result<(), Error> {
        let Ok(found) = found else { return Ok(()) };
        let own = self.ram.query(self.who.space, place.addr).map(|own| own.apply(place.addr));
        let phys = found.apply(place.addr.wrapping_add(self.view.base));
        if own == Some(phys) {
            return Ok(());
        }
        Err(Error::Check(format!(
            "access {}: the root that is loaded leads {} of space {} to {phys}, its own to {}",
            place.access,
            place.addr,
            self.who.number,
            own.map_or_else(|| "nothing".to_owned(), |own| own.to_string())
        )))
    }

    /// The space that runs has run an access: where it begins is known.
    pub(super) fn has_run(&mut self) {
        if let Some(small) = &mut self.small
            && let Some(known) = small.known.get_mut(&self.who.number)
        {
            known.has_run = true;
        }
    }
}

/// What of `flush` is to be forgotten at addresses `base` further up: in a slot of so many bytes, if it
/// is of a small space.
pub(super) fn moved(flush: &Flush, base: u64, slot_bytes: u64) -> Option<VirtRange> {
    match flush.scope() {
        Scope::Nothing => None,
        Scope::Pages { range, .. } => {
            let start = range.start().wrapping_add(base);
            let room = if base == 0 { range.bytes() } else { slot_bytes.min(range.bytes()) };
            VirtRange::new(start, room).ok()
        }
        Scope::Space if base == 0 => Some(VirtRange::ALL),
        Scope::Space => VirtRange::new(VirtAddr::new(base), slot_bytes).ok(),
    }
}
