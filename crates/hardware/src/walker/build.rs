//! Creates the walker's parts from the description.

use addr::{Asid, Kind, PageSize, VirtAddr};
use description::{
    self, Description, Refusal, Shared,
    units::{Bytes, Ways},
};
use mmu::{
    AnyWalkCache, CacheParams, Design, GeometryError, Hierarchy, HierarchyParams, Policy,
    Requester, Served, Tlb, WalkArray, WalkCacheParams,
};
use pagetable::TreeShape;
use ram::{
    table::{Format, Walked},
    walk::HostTable,
};

use super::{
    DeviceFrames, Dimension, Handler, HostSide, Latencies, Port, RegionWalks, Speculator,
    WalkCensus, Walker,
};
use crate::{
    contexts::VIRTUAL_CACHE_BITS,
    nodes::References,
    tlbs::{geometry_key, tlb_params},
};

impl Walker {
    /// A walker as in `description`. The error has the key that is wrong.
    pub fn new(
        description: &Description,
        processor: usize,
        sizes: &[PageSize],
        tree: Option<TreeShape>,
        host_table: Option<HostTable>,
    ) -> Result<Walker, Refusal> {
        let tree_bits = tree.as_ref().map(|tree| tree.address_bits);
        let nested = description.nested.as_ref();
        let shared = nested.map_or(Shared::None, |nested| nested.shared);
        let (host_tree, host_sizes) = match host_table {
            Some(table) => (table.tree, table.sizes),
            None => (None, Vec::new()),
        };
        let mut host = None;
        let mut tree = tree;
        if let Some(nested) = nested {
            if !shared.is_none() {
                check_shared(description, nested, host_tree.as_ref())?;
                tree = tree.zip(host_tree.clone()).map(|(guest, host)| of_both(guest, host));
            }
            host = Some(host_side(nested, host_tree, &host_sizes)?);
        }
        let cached = description.mmu_cache.as_ref().is_some_and(|cache| cache.design != "none");
        let is_hardware = description.walker.kind == description::WalkerKind::Hardware;
        if cached && !is_hardware {
            let what = "software refills the TLB, so no walker has an MMU cache: \
                        set walker.kind=hardware, or mmu_cache.design=none";
            return Err(Refusal::new("mmu_cache.design", what.to_owned()));
        }
        let lowest_only = description.walker.lowest_only;
        if lowest_only && (cached || host.is_some() || !is_hardware) {
            let what = "walker.lowest_only excludes [mmu_cache], [nested] and \
                        walker.kind=software: leave those out, or leave walker.lowest_only out";
            return Err(Refusal::new("walker.lowest_only", what.to_owned()));
        }
        let page_table = description.page_table.as_ref();
        let holds_pages = shared >= Shared::NestedTlb;
        let own = description.mmu_cache.as_ref();
        let dimension = dimension("mmu_cache", own, page_table, tree, holds_pages)?;
        if let Some(side) = host.as_mut().filter(|_| !shared.is_none()) {
            side.dimension.params = dimension.params.clone();
        }
        let caches = hierarchy(description)?;
        if description.core.virtual_caches {
            check_virtual(description, tree_bits.map(u32::from))?;
        }
        let entrance = caches.as_ref().map(|caches| caches.entrance(Requester::Walker));
        Ok(Walker {
            dimension,
            host,
            port: Port {
                caches,
                is_virtual: description.core.virtual_caches,
                latencies: latencies(description),
                nodes: References::of(description, processor)?,
                line_shift: entrance.map_or(0, |entrance| entrance.line_shift),
                further_lines: 0,
                repeats: [0; 2],
                under_way: RegionWalks::default(),
                made: None,
            },
            speculators: Speculator::of(description, sizes)?.into_iter().collect(),
            devices: DeviceFrames::new(description.os.frame()),
            walked: (VirtAddr::new(0), Asid(0)),
            lowest_only,
            handler: Handler::new(description),
            walks: WalkCensus::default(),
            program_served: Default::default(),
            repeats: [0; Kind::COUNT],
        })
    }
}

fn host_side(
    nested: &description::Nested,
    tree: Option<TreeShape>,
    table_sizes: &[PageSize],
) -> Result<HostSide, Refusal> {
    let sizes = vec![nested.page_size.0];
    let (key, page_table) = ("nested.mmu_cache", nested.page_table());
    Ok(HostSide {
        tlb: match &nested.tlb {
            Some(tlb) => {
                let own = |Refusal { key, what }| {
                    Refusal::new(key.replacen("tlb.nested", "nested", 1), what)
                };
                let params = tlb_params("nested.tlb", tlb, &sizes).map_err(own)?;
                let refuse = |error: GeometryError| {
                    own(Refusal::new(geometry_key("nested.tlb", tlb, &error), error.to_string()))
                };
                Some(Tlb::behind_another(&params).map_err(refuse)?)
            }
            None => None,
        },
        lookup_cycles: nested.tlb.as_ref().map_or(0, |tlb| tlb.latency_cycles.into()),
        dimension: dimension(key, nested.mmu_cache.as_ref(), Some(&page_table), tree, false)?,
        shared: nested.shared,
        speculator: Speculator::of_host(nested, table_sizes)?,
        critical: 0,
        walks: 0,
    })
}

/// Checks that guest and host can share the MMU cache.
fn check_shared(
    description: &Description,
    nested: &description::Nested,
    host_tree: Option<&TreeShape>,
) -> Result<(), Refusal> {
    let refuse = |key: &str, what: &str| Err(Refusal::new(key, what.to_owned()));
    let cache = description.mmu_cache.as_ref().filter(|cache| cache.design != "none");
    let Some(cache) = cache else {
        return refuse(
            "nested.shared",
            "the machine has no MMU cache that could be shared: set mmu_cache.design",
        );
    };
    let has_own = |cache: &description::MmuCache| cache.design != "none";
    if nested.mmu_cache.as_ref().is_some_and(has_own) {
        let what = "the host walks with [mmu_cache], which it shares: leave out \
                    nested.mmu_cache or nested.shared";
        return refuse("nested.mmu_cache", what);
    }
    if host_tree.is_none_or(|tree| tree.levels <= 1) {
        let what = "the host's page table has no upper levels that the MMU cache could hold: \
                    choose another format, or leave nested.shared out";
        return refuse("nested.format", what);
    }
    if description.core.asid_bits == 16 {
        let what = "with contexts of 16 bits, no context is left for the host, which shares the \
                    guest's MMU cache (nested.shared): write 0 to 15";
        return refuse("core.asid_bits", what);
    }
    if nested.shared >= Shared::NestedTlb {
        if nested.tlb.is_some() {
            let what = "[mmu_cache] holds the host's pages instead of nested.tlb: leave nested.tlb \
                        out, or write nested.shared=mmu-cache";
            return refuse("nested.tlb", what);
        }
        if cache.design != Design::Utc.name() {
            let what = "only a cache of design utc, whose entries have prefixes of any length, \
                        can hold pages too: write \
                        mmu_cache.design=utc, or nested.shared=mmu-cache";
            return refuse("mmu_cache.design", what);
        }
    }
    Ok(())
}

/// Checks that caches can be virtually addressed, with a page table for `address_bits` bits.
fn check_virtual(description: &Description, address_bits: Option<u32>) -> Result<(), Refusal> {
    let refuse = |what: &str| Err(Refusal::new("core.virtual_caches", what.to_owned()));
    if address_bits != Some(VIRTUAL_CACHE_BITS) {
        return refuse(
            "virtual caches need a page table for addresses of 32 bits: choose another \
             page_table.format, or write false",
        );
    }
    if description.cache.l2.is_some() || description.cache.l3.is_some() {
        return refuse(
            "a second level behind virtual caches is not modelled: leave cache.l2 and cache.l3 out",
        );
    }
    if description.cache.l1d.is_none() {
        return refuse("there is no cache.l1d that could be virtual: describe it, or write false");
    }
    if description.walker.enters.as_deref() != Some(Served::Memory.name()) {
        return refuse(
            "page walks use physical addresses, so they cannot begin in a virtual cache: \
                        write walker.enters = \"memory\"",
        );
    }
    let has = [
        (description.nested.is_some(), "[nested]"),
        (description.spec_tlb.is_some(), "[spec_tlb]"),
        (description.restseg.is_some(), "[restseg]"),
        (description.memory.numa.is_some(), "[memory.numa]"),
    ];
    match has.into_iter().find(|(has, _)| *has) {
        Some((_, what)) => refuse(&format!(
            "virtual caches identify lines by virtual addresses, and {what} needs lines that are \
             identified by their frames: leave it out, or set core.virtual_caches = false"
        )),
        None => Ok(()),
    }
}

/// A tree shape that covers both trees, for an MMU cache that the guest and the host share.
fn of_both(guest: TreeShape, host: TreeShape) -> TreeShape {
    let entry_shift = guest.entry_shift.min(host.entry_shift);
    let table_shift = guest.table_shift.min(host.table_shift);
    let address_bits = guest.address_bits.max(host.address_bits);
    let (more, fewer) = if host.levels > guest.levels { (host, guest) } else { (guest, host) };
    // A level has a single prefix length only if both trees agree on it.
    let agree = more
        .spans
        .as_ref()
        .zip(fewer.spans.as_ref())
        .is_some_and(|(more, fewer)| more.starts_with(fewer));
    let spans = more.spans.filter(|_| agree);
    TreeShape { levels: more.levels, address_bits, entry_shift, table_shift, spans }
}

/// The dimension whose MMU cache, if any, is described by `cache` under the key `key`.
fn dimension(
    key: &str,
    cache: Option<&description::MmuCache>,
    page_table: Option<&description::PageTable>,
    tree: Option<TreeShape>,
    pages: bool,
) -> Result<Dimension, Refusal> {
    let none = Dimension::new(AnyWalkCache::None, None, 0);
    let Some(described) = cache.filter(|cache| cache.design != "none") else { return Ok(none) };
    let own = |Refusal { key: part, what }| Refusal::new(format!("{key}.{part}"), what);
    let tree = match upper_levels(page_table, tree) {
        Ok(tree) => tree,
        Err(_) if described.optional => return Ok(none),
        Err(why) => return Err(own(Refusal::new("design", why))),
    };
    let params = mmu_cache_params(described, page_table, tree).map_err(own)?;
    let params = WalkCacheParams { pages, ..params };
    let cache = AnyWalkCache::new(&params).map_err(|(array, error)| {
        let part = match error {
            GeometryError::Ways { .. } if described.ways != Ways::Full => "ways",
            _ => entries_key(described, array),
        };
        own(Refusal::new(part, error.to_string()))
    })?;
    Ok(Dimension::new(cache, Some(params), described.latency_cycles.into()))
}

/// The key of a machine file that gives the number of entries of `array`.
fn entries_key(cache: &description::MmuCache, array: WalkArray) -> &'static str {
    let own = cache.by_level().find(|(level, ..)| *level == array.level);
    own.map_or("entries", |(_, key, _)| key)
}

/// The shape of the tree whose upper levels an MMU cache could hold, or why there are none.
fn upper_levels(
    page_table: Option<&description::PageTable>,
    tree: Option<TreeShape>,
) -> Result<TreeShape, String> {
    let Some(table) = page_table else {
        return Err("the machine has no page table, so that there are no walks".to_owned());
    };
    let format = Format::named(&table.format);
    if format.is_some_and(|format| format.walked == Walked::ThroughTlb) {
        return Err(
            "the TLB itself holds the tables of a linear page table: set mmu_cache.design=none"
                .to_owned(),
        );
    }
    tree.filter(|tree| tree.levels > 1).ok_or_else(|| match table.software_tlb {
        Some(_) => "walks look into the software TLB first, which has no upper levels: leave out \
                    page_table.software_tlb, or set mmu_cache.design=none"
            .to_owned(),
        None => format!(
            "a page table of format {} has no upper levels that an MMU cache could hold: set \
             mmu_cache.design=none",
            table.format
        ),
    })
}

/// The parameters of the MMU cache `cache`, for walks of `tree`.
fn mmu_cache_params(
    cache: &description::MmuCache,
    page_table: Option<&description::PageTable>,
    tree: TreeShape,
) -> Result<WalkCacheParams, Refusal> {
    let refuse = |key: &str, what: String| Err(Refusal::new(key, what));
    let design: Design = match cache.design.parse() {
        Ok(design) => design,
        Err(error) => return refuse("design", format!("{error}")),
    };
    if tree.spans.is_none() && design.is_split() {
        let format = page_table.map_or("", |table| &table.format);
        let what = format!(
            "a page table of format {format} has no fixed levels by which an MMU cache could be \
             split: choose uptc, utc or tpc"
        );
        return refuse("design", what);
    }
    if tree.spans.is_none() && design == Design::Tpc && cache.ways != Ways::Full {
        let what = "this page table has no fixed levels, so the paths in a tpc have any length \
                    and must all be in one set: write \"full\"";
        return refuse("ways", what.to_owned());
    }
    for (level, key, _) in cache.by_level() {
        if !design.is_split() {
            let what = format!("{} has one array for all levels: give entries", design.name());
            return refuse(key, what);
        }
        if level > tree.levels {
            return refuse(
                key,
                format!("the page table has only {} levels: leave this key out", tree.levels),
            );
        }
    }
    let levels = if design.is_split() { 2..=tree.levels } else { 0..=0 };
    let mut arrays = Vec::new();
    for level in levels {
        let own = cache.by_level().find(|(of, ..)| *of == level).map(|(.., entries)| entries);
        let Some(entries) = own.or(cache.entries) else {
            return refuse(
                "entries",
                "the number of entries is missing: write entries = N".to_owned(),
            );
        };
        // A level whose own number of entries is 0 is not cached.
        if own != Some(0) {
            arrays.push(WalkArray { level, entries, ways: cache.ways.of(entries) });
        }
    }
    let replacement: Policy = match cache.replacement.parse() {
        Ok(policy) => policy,
        Err(error) => return refuse("replacement", format!("{error}")),
    };
    if !(32..=64).contains(&cache.physical_bits) {
        return refuse("physical_bits", "write 32 to 64".to_owned());
    }
    Ok(WalkCacheParams { design, arrays, replacement, seed: cache.seed, pages: false, tree })
}

/// The cycles of a reference, by the cache or memory that serves it, as far as the description
/// gives them.
pub fn latencies(description: &Description) -> Latencies {
    let mut latencies = Latencies {
        known: true,
        refill_cycles: u64::from(description.walker.refill_cycles),
        data_refill_cycles: u64::from(
            description.walker.data_refill_cycles.unwrap_or(description.walker.refill_cycles),
        ),
        exception_cycles: exception_cycles(&description.walker),
        ..Latencies::default()
    };
    let caches = description.cache.present().map(|(name, cache)| (name, cache.latency_cycles));
    for (name, cycles) in caches.chain([("memory", description.memory.latency_cycles)]) {
        latencies.known &= cycles.is_some();
        if let Some(place) = Served::ALL.into_iter().find(|place| place.name() == name) {
            latencies.served_cycles[place as usize] = u64::from(cycles.unwrap_or(0));
        }
    }
    let in_instruction = match description.walker.kind {
        description::WalkerKind::Hardware => 0,
        description::WalkerKind::Software => description.cache.hit_cycles(Kind::Load),
    };
    latencies.reference_cycles =
        latencies.served_cycles.map(|cycles| cycles.saturating_sub(in_instruction));
    latencies
}

fn exception_cycles(walker: &description::Walker) -> u64 {
    let unless_given = match walker.kind {
        description::WalkerKind::Hardware => 0,
        description::WalkerKind::Software => walker.refill_cycles,
    };
    walker.exception_cycles.unwrap_or(unless_given).into()
}

/// The data caches in `description`, if there are any.
pub fn hierarchy(description: &Description) -> Result<Option<Hierarchy>, Refusal> {
    let mut params = HierarchyParams {
        walker_enters: description.walker.enters.as_deref().map(walker_enters).transpose()?,
        ..HierarchyParams::default()
    };
    let mut any = false;
    for (name, cache) in description.cache.present() {
        any = true;
        let place = match name {
            "l1i" => &mut params.l1i,
            "l1d" => &mut params.l1d,
            "l2" => &mut params.l2,
            _ => &mut params.l3,
        };
        *place = Some(cache_params(name, cache)?);
    }
    if !any && description.walker.enters.is_none() {
        return Ok(None);
    }
    let wrong = |(place, error): (Served, GeometryError)| {
        let key = match error {
            GeometryError::NoSuchCache(_) => "walker.enters".to_owned(),
            _ => format!("cache.{}", place.name()),
        };
        Refusal::new(key, error.to_string())
    };
    Hierarchy::new(&params).map(Some).map_err(wrong)
}

fn walker_enters(cache: &str) -> Result<Served, Refusal> {
    Served::ALL.into_iter().find(|place| place.name() == cache).ok_or_else(|| {
        let known: Vec<&str> = Served::ALL.iter().map(|place| place.name()).collect();
        let what = format!("there is no cache `{cache}`: choose one of {}", known.join(", "));
        Refusal::new("walker.enters", what)
    })
}

fn cache_params(name: &str, cache: &description::Cache) -> Result<CacheParams, Refusal> {
    let key = |part: &str| format!("cache.{name}.{part}");
    let (Bytes(size_bytes), Bytes(line)) = (cache.size, cache.line);
    let line_bytes = u32::try_from(line).map_err(|_| {
        Refusal::new(
            key("line"),
            format!("a line of {} is too long: write a line below 4G", cache.line),
        )
    })?;
    let lines = size_bytes.checked_div(line).and_then(|lines| u32::try_from(lines).ok());
    let lines = lines.ok_or_else(|| {
        Refusal::new(
            key("size"),
            format!(
                "{} cannot have lines of {}: write lines of 4 bytes or more, and fewer than \
                 2^32 of them",
                cache.size, cache.line
            ),
        )
    })?;
    let replacement: Policy = cache
        .replacement
        .parse()
        .map_err(|error| Refusal::new(key("replacement"), format!("{error}")))?;
    Ok(CacheParams { size_bytes, line_bytes, ways: cache.ways.of(lines), replacement, seed: 1 })
}
