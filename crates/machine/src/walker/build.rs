//! From the description to the walker's parts.

use mmu::{AnyWalkCache, CacheParams, GeometryError, Hierarchy, HierarchyParams, Policy, Served};

use super::{Latencies, RegionWalks, WalkCensus, Walker};
use crate::{Description, describe, units::Bytes};

/// A key of the machine file, and what is wrong with it.
type Refusal = (String, String);

impl Walker {
    /// Builds what `description` says; an error comes with the key that is wrong.
    pub(crate) fn new(description: &Description) -> Result<Walker, Refusal> {
        Ok(Walker {
            mmu_cache: AnyWalkCache::default(),
            caches: hierarchy(description)?,
            latencies: latencies(description),
            walks: WalkCensus::default(),
            program_served: [0; Served::COUNT],
            under_way: RegionWalks::default(),
        })
    }
}

/// Cycles by what serves a reference, as far as the description gives them.
pub(crate) fn latencies(description: &Description) -> Latencies {
    let mut latencies = Latencies {
        known: true,
        refill_cycles: u64::from(description.walker.refill_cycles),
        ..Latencies::default()
    };
    let caches = description.cache.present().map(|(name, cache)| (name, cache.latency_cycles));
    for (name, cycles) in caches.chain([("memory", description.memory.latency_cycles)]) {
        latencies.known &= cycles.is_some();
        if let Some(place) = Served::ALL.into_iter().find(|place| place.name() == name) {
            latencies.served_cycles[place as usize] = u64::from(cycles.unwrap_or(0));
        }
    }
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
