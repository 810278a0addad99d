//! From the description to the walker's parts.

use mmu::{
    AnyWalkCache, CacheParams, Design, GeometryError, Hierarchy, HierarchyParams, Policy, Served,
    WalkArray, WalkCacheParams,
};
use pagetable::TreeShape;

use super::{Handler, Latencies, RegionWalks, WalkCensus, Walker};
use crate::{
    Description, describe,
    units::{Bytes, Ways},
};

/// A key of the machine file, and what is wrong with it.
type Refusal = (String, String);

impl Walker {
    /// Builds what `description` says; an error comes with the key that is wrong.
    pub(crate) fn new(
        description: &Description,
        tree: Option<TreeShape>,
    ) -> Result<Walker, Refusal> {
        let mmu_cache_params = mmu_cache_params(description, tree)?;
        Ok(Walker {
            mmu_cache: match &mmu_cache_params {
                Some(params) => AnyWalkCache::new(params).map_err(|(array, error)| {
                    let wrong_ways = matches!(error, GeometryError::Ways { .. });
                    let key = if wrong_ways && !is_full(description) {
                        "ways".to_owned()
                    } else {
                        entries_key(description, array)
                    };
                    (format!("mmu_cache.{key}"), error.to_string())
                })?,
                None => AnyWalkCache::None,
            },
            mmu_cache_params,
            searches_timed: 0,
            handler: Handler::new(description),
            caches: hierarchy(description)?,
            latencies: latencies(description),
            walks: WalkCensus::default(),
            program_served: [0; Served::COUNT],
            under_way: RegionWalks::default(),
        })
    }
}

fn is_full(description: &Description) -> bool {
    description.mmu_cache.as_ref().is_some_and(|cache| cache.ways == Ways::Full)
}

/// The key that gave the entries of `array`.
fn entries_key(description: &Description, array: WalkArray) -> String {
    let by_level = description.mmu_cache.iter().flat_map(describe::MmuCache::by_level);
    let own = by_level.filter(|(level, ..)| *level == array.level).map(|(_, key, _)| key).next();
    own.unwrap_or("entries").to_owned()
}

/// The MMU cache that `description` has, if any, for walks of `tree`.
fn mmu_cache_params(
    description: &Description,
    tree: Option<TreeShape>,
) -> Result<Option<WalkCacheParams>, Refusal> {
    let Some(cache) = description.mmu_cache.as_ref().filter(|cache| cache.design != "none") else {
        return Ok(None);
    };
    let refuse = |key: &str, what: String| Err((format!("mmu_cache.{key}"), what));
    let design: Design = match cache.design.parse() {
        Ok(design) => design,
        Err(error) => return refuse("design", format!("{error}")),
    };
    let Some(table) = &description.page_table else {
        return refuse("design", "the machine has no page table, so there are no walks".to_owned());
    };
    if description.walker.kind == describe::WalkerKind::Software {
        let what = "software refills the TLB, so no walker has an MMU cache: \
                    set walker.kind=hardware, or mmu_cache.design=none";
        return refuse("design", what.to_owned());
    }
    if table.format == "linear" {
        let what = "the TLB itself holds the tables of a linear page table: \
                    set mmu_cache.design=none";
        return refuse("design", what.to_owned());
    }
    let Some(tree) = tree.filter(|tree| tree.levels > 1) else {
        let format = &table.format;
        return refuse(
            "design",
            match table.software_tlb {
                Some(_) => "walks look into the software TLB first, which has no upper levels: \
                            leave out page_table.software_tlb, or set mmu_cache.design=none"
                    .to_owned(),
                None => format!(
                    "a page table of format {format} has no upper levels that it could hold: \
                     set mmu_cache.design=none"
                ),
            },
        );
    };
    if tree.spans.is_none() && design.is_split() {
        let what = format!(
            "a page table of format {} has no fixed levels to split by: choose uptc, utc or tpc",
            table.format
        );
        return refuse("design", what);
    }
    if tree.spans.is_none() && design == Design::Tpc && cache.ways != Ways::Full {
        let what = "paths of any length must be searched for in one set: write \"full\"";
        return refuse("ways", what.to_owned());
    }
    for (level, key, _) in cache.by_level() {
        if !design.is_split() {
            let what = format!("{} has one array for all levels: give entries", design.name());
            return refuse(key, what);
        }
        if level > tree.levels {
            return refuse(key, format!("the page table has {} levels", tree.levels));
        }
    }
    let levels = if design.is_split() { 2..=tree.levels } else { 0..=0 };
    let mut arrays = Vec::new();
    for level in levels {
        let own = cache.by_level().find(|(of, ..)| *of == level).map(|(.., entries)| entries);
        let Some(entries) = own.or(cache.entries) else {
            return refuse("entries", "how many entries it has is missing".to_owned());
        };
        // 0 entries of its own: the level is not cached.
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
    Ok(Some(WalkCacheParams { design, arrays, replacement, seed: cache.seed, tree }))
}

/// Cycles by what serves a reference, as far as the description gives them.
pub(crate) fn latencies(description: &Description) -> Latencies {
    let mut latencies = Latencies {
        known: true,
        refill_cycles: u64::from(description.walker.refill_cycles),
        search_cycles: description.mmu_cache.as_ref().map_or(0, |c| c.latency_cycles.into()),
        ..Latencies::default()
    };
    let caches = description.cache.present().map(|(name, cache)| (name, cache.latency_cycles));
    for (name, cycles) in caches.chain([("memory", description.memory.latency_cycles)]) {
        latencies.known &= cycles.is_some();
        if let Some(place) = Served::ALL.into_iter().find(|place| place.name() == name) {
            latencies.served_cycles[place as usize] = u64::from(cycles.unwrap_or(0));
        }
    }
    let nearest = description.cache.present().find_map(|(_, cache)| cache.latency_cycles);
    let in_instruction = match description.walker.kind {
        describe::WalkerKind::Hardware => 0,
        describe::WalkerKind::Software => nearest.map_or(0, u64::from),
    };
    latencies.reference_cycles =
        latencies.served_cycles.map(|cycles| cycles.saturating_sub(in_instruction));
    latencies
}

/// The data caches that `description` has, if any.
pub(crate) fn hierarchy(description: &Description) -> Result<Option<Hierarchy>, Refusal> {
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
        (key, error.to_string())
    };
    Hierarchy::new(&params).map(Some).map_err(wrong)
}

fn walker_enters(cache: &str) -> Result<Served, Refusal> {
    Served::ALL.into_iter().find(|place| place.name() == cache).ok_or_else(|| {
        let known: Vec<&str> = Served::ALL.iter().map(|place| place.name()).collect();
        let what = format!("there is no cache `{cache}`: choose one of {}", known.join(", "));
        ("walker.enters".to_owned(), what)
    })
}

fn cache_params(name: &str, cache: &describe::Cache) -> Result<CacheParams, Refusal> {
    let key = |part: &str| format!("cache.{name}.{part}");
    let (Bytes(size_bytes), Bytes(line)) = (cache.size, cache.line);
    let line_bytes = u32::try_from(line)
        .map_err(|_| (key("line"), format!("a line of {} is too long", cache.line)))?;
    let lines = size_bytes.checked_div(line).and_then(|lines| u32::try_from(lines).ok());
    let lines = lines.ok_or_else(|| {
        (key("size"), format!("{} is no sensible number of lines of {}", cache.size, cache.line))
    })?;
    let replacement: Policy =
        cache.replacement.parse().map_err(|error| (key("replacement"), format!("{error}")))?;
    Ok(CacheParams { size_bytes, line_bytes, ways: cache.ways.of(lines), replacement, seed: 1 })
}
