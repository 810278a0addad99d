//! The TLBs of a machine, built from its description.

use addr::{Asid, Kind, PageSize, VirtAddr, VirtRange};
use description::{
    self, BITS_MAX, DEFAULT_SIZES, Description, Refusal, managers::reservations, units::Ways,
};
use mmu::{
    ArrayParams, BlockKind, BlockParams, Evicted, GeometryError, Hit, Miss, NOTHING, Policy, Tlb,
    TlbParams,
};
use pagetable::{Flush, LinearArray, Scope};
use ram::table::Format;
use results::count::census::{Census, TlbCensus};

use super::{
    contexts::{Contexts, PROCESSORS_MAX},
    range_unit::RangeUnit,
    restseg::RestSegUnit,
};

/// The index that means: no TLB serves this kind of access.
pub const NONE: usize = usize::MAX;

/// The largest number of first-level TLBs: one each for fetches, loads and stores. The first-level
/// TLBs are the first elements of `units`.
pub const FIRST_LEVEL_MAX: usize = 3;

/// A TLB and its data for the run.
pub struct Unit {
    pub name: &'static str,
    pub level: u8,
    pub latency_cycles: u64,
    pub params: TlbParams,
    pub tlb: Tlb,
    pub counts: TlbCensus,
}

impl Unit {
    /// Flushes entries by calling `flush`, which must call its second argument for each entry that
    /// it removes and return their number. The hits of removed entries are added to `census`.
    /// Returns the number of removed entries.
    pub fn flush(
        &mut self,
        census: &mut Census,
        flush: impl FnOnce(&mut Tlb, &mut dyn FnMut(Evicted)) -> u64,
    ) -> u64 {
        let Unit { level, tlb, counts, .. } = self;
        let flushed = flush(tlb, &mut |gone| census.collect(counts, *level == 1, &gone));
        counts.flushed += flushed;
        flushed
    }

    /// Looks up a page of the page table, for a load of the page-table entry at `entry`.
    pub fn lookup_table(&mut self, entry: VirtAddr, asid: Asid) -> Option<Hit> {
        self.counts.table_lookups += 1;
        let found = self.tlb.lookup(entry, asid, Kind::Load);
        self.counts.table_invalid += u64::from(found == Err(Miss::Invalid));
        found.ok()
    }
}

/// The TLBs.
pub struct TlbUnits {
    pub units: Vec<Unit>,
    /// For each kind, the index in `units` of its first-level TLB, or [`NONE`].
    pub first: [usize; Kind::COUNT],
    /// For each kind, the index in `units` of its second-level TLB, or [`NONE`].
    pub second: [usize; Kind::COUNT],
    /// The range TLB, which is looked up together with the second level.
    pub ranges: Option<RangeUnit>,
    /// The restrictive segments, which are searched before the page table.
    pub restseg: Option<RestSegUnit>,
}

impl TlbUnits {
    /// The TLBs in `description`. The error has the key that is wrong.
    pub fn new(description: &Description) -> Result<TlbUnits, Refusal> {
        let bits = description.core.asid_bits;
        let format = description.page_table.as_ref().and_then(|table| Format::named(&table.format));
        let bits_max = format.as_ref().map_or(BITS_MAX, |format| format.context_bits);
        if bits > bits_max {
            let of = format
                .as_ref()
                .map_or(String::new(), |format| format!(" of format {}", format.name));
            let write = if bits_max == 0 { "0".to_owned() } else { format!("0 to {bits_max}") };
            let what = format!(
                "a page table{of} cannot have contexts (ASIDs) of {bits} bits: write {write}"
            );
            return Err(Refusal::new("core.asid_bits", what));
        }
        let count = description.core.count;
        if !(1..=PROCESSORS_MAX).contains(&count) {
            let what = format!("a machine has 1 to {PROCESSORS_MAX} processors, not {count}");
            return Err(Refusal::new("core.count", what));
        }
        let contexts = Contexts::new(description.core.contexts, bits, count as usize);
        if bits > 0 && contexts.are_shared() && 1 << bits < count {
            let least = count.next_power_of_two().ilog2();
            let what = format!(
                "{count} processors share {} contexts, and the space on each processor needs a \
                 context of its own: write {least} bits or more, write 0, or set \
                 core.contexts=per-processor",
                1 << bits
            );
            return Err(Refusal::new("core.asid_bits", what));
        }
        let default_sizes = match &description.page_table {
            Some(_) => DEFAULT_SIZES.to_vec(),
            None => {
                let os = &description.os;
                let reserved = reservations(os).map_or(Vec::new(), |asked| asked.sizes);
                let larger = os.large().into_iter().chain(reserved.iter().map(|size| size.0));
                let mut sizes: Vec<PageSize> = [os.base()].into_iter().chain(larger).collect();
                sizes.sort_unstable();
                sizes.dedup();
                sizes
            }
        };
        let (small, large) = description.tlb_page_sizes();
        let granules = description.granules();
        let mut units = Vec::new();
        for (name, level, tlb) in description.tlb.present() {
            let params = tlb_params(name, tlb, &default_sizes)?;
            let build = if level == 1 { Tlb::new } else { Tlb::behind_another };
            let mut built = build(&params).map_err(|error| {
                Refusal::new(geometry_key(name, tlb, &error), error.to_string())
            })?;
            built.favour(granules.0, granules.1);
            let latency_cycles = u64::from(tlb.latency_cycles);
            let counts = TlbCensus::default();
            units.push(Unit { name, level, latency_cycles, params, tlb: built, counts });
        }
        let serving = |level: u8| {
            Kind::ALL.map(|kind| {
                let name = description.tlb.serving(level, kind);
                units.iter().position(|unit| Some(unit.name) == name).unwrap_or(NONE)
            })
        };
        let (mut first, mut second) = (serving(1), serving(2));
        if !description.core.fetches {
            first[Kind::Fetch as usize] = NONE;
            second[Kind::Fetch as usize] = NONE;
        }
        for kind in Kind::ALL {
            if first[kind as usize] == NONE && (kind != Kind::Fetch || description.core.fetches) {
                let what = format!(
                    "no first-level TLB serves {}: add the table [tlb.l1], or [tlb.l1i] and \
                     [tlb.l1d]{}",
                    match kind {
                        Kind::Fetch => "fetches",
                        Kind::Load => "loads",
                        Kind::Store => "stores",
                    },
                    if kind == Kind::Fetch { ", or set core.fetches = false" } else { "" }
                );
                return Err(Refusal::new("tlb", what));
            }
        }
        for unit in &units {
            let index = units.iter().position(|other| other.name == unit.name).unwrap_or(NONE);
            if !first.contains(&index) && !second.contains(&index) {
                return Err(Refusal::new(format!("tlb.{}", unit.name), unused(unit, description)));
            }
        }
        for unit in units.iter().filter(|unit| unit.level == 1) {
            for size in [small].into_iter().chain(large) {
                if !unit.tlb.holds(size) {
                    return Err(not_held(unit, size, description));
                }
            }
        }
        let (ranges, restseg) = (RangeUnit::of(description)?, RestSegUnit::of(description)?);
        Ok(TlbUnits { units, first, second, ranges, restseg })
    }

    /// The first-level TLBs.
    pub fn first_level_mut(&mut self) -> &mut [Unit] {
        let count = self.units.iter().take_while(|unit| unit.level == 1).count();
        &mut self.units[..count]
    }

    /// How much the replacement policies of the first-level TLBs learn from hits: the maximum over
    /// these TLBs.
    pub fn first_level_learns(&self) -> u8 {
        let first_level = self.units.iter().filter(|unit| unit.level == 1);
        first_level.map(|unit| unit.tlb.learns()).max().unwrap_or(NOTHING)
    }

    /// The largest number of pages per block for which a first-level TLB has entries, or 0.
    pub fn block_pages(&self) -> usize {
        let pages = self.units.iter().filter_map(|unit| unit.tlb.blocks());
        pages.map(|blocks| blocks.pages as usize).max().unwrap_or(0)
    }

    /// Flushes the entries that `flush` names and returns their number. Here and in the following
    /// functions, the hits of removed entries are added to `census`.
    pub fn flush(&mut self, flush: &Flush, asid: Asid, census: &mut Census) -> u64 {
        let of_ranges = |ranges: &mut RangeUnit| match flush.scope() {
            Scope::Nothing => 0,
            Scope::Pages { range, .. } => ranges.tlb.flush_range(range, asid),
            Scope::Space => ranges.tlb.flush_asid(asid),
        };
        self.ranges.as_mut().map_or(0, of_ranges)
            + self.flush_each(census, |tlb, mut gone| match flush.scope() {
                Scope::Nothing => 0,
                Scope::Pages { range, .. } => tlb.flush_range(range, asid, &mut gone),
                Scope::Space => tlb.flush_asid(asid, &mut gone),
            })
    }

    /// Flushes all entries that are not global, as a switch without ASIDs does.
    pub fn flush_non_global(&mut self, census: &mut Census) -> u64 {
        self.ranges.as_mut().map_or(0, |ranges| ranges.tlb.flush_all())
            + self.flush_each(census, |tlb, mut gone| tlb.flush_non_global(&mut gone))
    }

    /// Flushes all entries of one ASID, before another space gets this ASID.
    pub fn flush_asid(&mut self, asid: Asid, census: &mut Census) -> u64 {
        self.ranges.as_mut().map_or(0, |ranges| ranges.tlb.flush_asid(asid))
            + self.flush_each(census, |tlb, mut gone| tlb.flush_asid(asid, &mut gone))
    }

    /// Flushes all entries for addresses in `range`, on a machine without ASIDs.
    pub fn flush_range(&mut self, range: VirtRange, census: &mut Census) -> u64 {
        self.flush_each(census, |tlb, mut gone| tlb.flush_range(range, Asid(0), &mut gone))
    }

    /// Flushes each TLB by calling `flush` and returns the number of removed entries.
    pub fn flush_each(
        &mut self,
        census: &mut Census,
        mut flush: impl FnMut(&mut Tlb, &mut dyn FnMut(Evicted)) -> u64,
    ) -> u64 {
        self.units.iter_mut().map(|unit| unit.flush(census, &mut flush)).sum()
    }

    /// Adds the hits of all entries to `census`; the entries stay.
    pub fn drain(&mut self, census: &mut Census) {
        for Unit { level, tlb, counts, .. } in &mut self.units {
            tlb.drain(&mut |evicted| census.collect(counts, *level == 1, &evicted));
        }
    }

    /// Resets the counts to zero; the entries stay.
    pub fn forget_counts(&mut self, census: &mut Census) {
        self.drain(census);
        let TlbUnits { units, first: _, second: _, ranges, restseg } = self;
        for unit in units {
            let Unit { name: _, level: _, latency_cycles: _, params: _, tlb, counts } = unit;
            tlb.forget_counts();
            *counts = TlbCensus::default();
        }
        if let Some(ranges) = ranges {
            ranges.forget_counts();
        }
        if let Some(restseg) = restseg {
            restseg.forget_counts();
        }
    }

    /// Flushes the pages of the linear page table's array that held the tables for `range`.
    pub fn flush_tables(&mut self, range: VirtRange, asid: Asid, census: &mut Census) -> u64 {
        let mut flushed = 0;
        for level in 1..=LinearArray::LEVELS {
            let pages = LinearArray.pages_for(range, level);
            flushed +=
                self.flush_each(census, |tlb, mut gone| tlb.flush_range(pages, asid, &mut gone));
        }
        flushed
    }
}

/// The error for a TLB that no access uses. It names the TLBs that accesses of this level look up.
fn unused(unit: &Unit, description: &Description) -> String {
    let serving = |kind| description.tlb.serving(unit.level, kind);
    if !description.core.fetches && serving(Kind::Fetch) == Some(unit.name) {
        return "no access uses this TLB, because core.fetches = false leaves fetches out: set \
                core.fetches = true, or leave the TLB out"
            .to_owned();
    }
    let served = |kind| Some(format!("tlb.{} for a {}", serving(kind)?, Kind::name(kind)));
    let served: Vec<String> = Kind::ALL.into_iter().filter_map(served).collect();
    format!(
        "no access uses this TLB, because level {} of this machine is split: describe {} instead",
        unit.level,
        served.join(", ")
    )
}

/// The error that a first-level TLB is to be filled with pages of `size`, which it does not hold.
fn not_held(unit: &Unit, size: PageSize, description: &Description) -> Refusal {
    let sizes = unit.params.arrays.iter().flat_map(|array| &array.page_sizes);
    let mut sizes: Vec<PageSize> = sizes.copied().collect();
    sizes.sort_unstable();
    let sizes: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
    let (name, sizes) = (unit.name, sizes.join(", "));
    let guest = description.os.page_size.0;
    let key = if size < description.os.base() { "nested.page_size" } else { "os.page_size" };
    let why = if size == guest || key == "nested.page_size" {
        String::new()
    } else {
        format!(" (the pages where a region has no room for {guest})")
    };
    let what = format!(
        "tlb.{name} holds pages of {sizes}, but not of {size}{why}: add \"{size}\" to \
         tlb.{name}.page_sizes, or map only pages that it holds"
    );
    Refusal::new(key, what)
}

pub fn tlb_params(
    name: &str,
    tlb: &description::Tlb,
    default_sizes: &[PageSize],
) -> Result<TlbParams, Refusal> {
    let arrays = tlb.arrays();
    if arrays.is_empty() {
        let what = "the number of entries is missing: write entries = N".to_owned();
        return Err(Refusal::new(format!("tlb.{name}.entries"), what));
    }
    if tlb.entries.is_some() && !tlb.array.is_empty() {
        let what = "give entries for one array, or a list of arrays, not both".to_owned();
        return Err(Refusal::new(format!("tlb.{name}.array"), what));
    }
    let params = |array: &description::Array| -> Result<ArrayParams, Refusal> {
        let replacement = array.replacement.as_deref().unwrap_or(&tlb.replacement);
        let replacement: Policy = replacement
            .parse()
            .map_err(|error| Refusal::new(format!("tlb.{name}.replacement"), format!("{error}")))?;
        let page_sizes = match array.page_sizes.as_ref().or(tlb.page_sizes.as_ref()) {
            Some(sizes) => sizes.iter().map(|size| size.0).collect(),
            None => default_sizes.to_vec(),
        };
        let ways = array.ways.of(array.entries);
        Ok(ArrayParams { page_sizes, entries: array.entries, ways, replacement, seed: tlb.seed })
    };
    let arrays = arrays.iter().map(params).collect::<Result<_, _>>()?;
    let blocks = tlb.blocks.as_ref().map(|blocks| block_params(name, blocks)).transpose()?;
    Ok(TlbParams { arrays, paired: tlb.paired, blocks })
}

fn block_params(name: &str, blocks: &description::Blocks) -> Result<BlockParams, Refusal> {
    let refuse =
        |key: &str, what: String| Err(Refusal::new(format!("tlb.{name}.blocks.{key}"), what));
    let Some(kind) = BlockKind::ALL.into_iter().find(|kind| kind.name() == blocks.kind) else {
        let known = BlockKind::ALL.map(BlockKind::name).join(", ");
        return refuse("kind", format!("there is no `{}`: choose one of {known}", blocks.kind));
    };
    let one_by_one = matches!(kind, BlockKind::CompleteSubblock | BlockKind::PartialSubblock);
    if !blocks.prefetch && !one_by_one {
        let what = format!(
            "an entry of kind {} always loads its pages together: leave blocks.prefetch out",
            kind.name()
        );
        return refuse("prefetch", what);
    }
    Ok(BlockParams { pages: blocks.pages, kind, prefetch: blocks.prefetch })
}

/// The key to which a geometry error refers.
pub fn geometry_key(name: &str, tlb: &description::Tlb, error: &GeometryError) -> String {
    let key = match error {
        GeometryError::BlockPages { .. } => "blocks.pages",
        GeometryError::PairsAndBlocks => "blocks",
        _ if tlb.entries.is_none() => "array",
        GeometryError::Ways { .. } if tlb.ways != Ways::Full => "ways",
        GeometryError::NoPageSizes | GeometryError::PageSizeTwice(_) => "page_sizes",
        _ => "entries",
    };
    format!("tlb.{name}.{key}")
}
