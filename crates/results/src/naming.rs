//! Names the code, the allocation sites and the regions in results, at the end of a run.
//!
//! ```text
//!   code    file + offset, instruction   --find-->  function, line      places with equal names are merged
//!   sites   return addresses             --find-->  stack --> name      sites with equal stacks are merged
//!   regions made for one allocation      ------------------> the name of its site
//! ```

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use trace::{RegionInfo, SiteCall};

use super::{
    Results,
    origins::{CodePlace, SiteCounts},
};

/// Folders with headers of compilers and libraries. Inlined functions from these headers allocate
/// memory for the program that calls them.
const OTHERS_SOURCES: [&str; 4] = ["/usr/include/", "/usr/lib/", "/rustc/", "/include/c++/"];
/// Folders with the system's libraries. Debug files may give source lines for these libraries.
const OTHERS_OBJECTS: [&str; 4] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"];

impl Results {
    /// Names the code that missed, the allocation sites, and the regions that were mapped for one
    /// allocation; then merges entries with equal names.
    ///
    /// `find` returns the functions at a place: first those that are inlined there, innermost first,
    /// and last the function itself. Its second argument says whether the place is a return address.
    /// Places for which it returns nothing stay without a name.
    pub fn name_origins(&mut self, find: &mut dyn FnMut(&CodePlace, bool) -> Vec<FrameName>) {
        let Some(origins) = &mut self.origins else { return };
        for place in &mut origins.code {
            let mut frames = find(place, false);
            let innermost = frames.first().cloned().unwrap_or_default();
            (place.file, place.line) = (innermost.file, innermost.line);
            place.function = frames.pop().and_then(|frame| frame.function);
            place.inlined = frames.into_iter().rev().filter_map(|frame| frame.function).collect();
        }
        for site in &mut origins.sites {
            let calls = std::mem::take(&mut site.stack).into_iter();
            site.stack = calls.flat_map(|call| expanded(&call, find(&call, true))).collect();
            site.name = site_name(&site.stack);
            site.own = own(&site.stack).map(|at| at as u32);
        }
        let code = join_code(&mut origins.code);
        let sites = join_sites(&mut origins.sites);
        let mut joined = FxHashMap::default();
        for &(at, region, site, thread, page, misses, cold) in &origins.misses {
            let at = at.map(|at| code[at as usize]);
            let site = site.map(|site| sites[site as usize]);
            let counts = joined.entry((at, region, site, thread, page)).or_insert((0, 0));
            counts.0 += misses;
            counts.1 += cold;
        }
        let rows = joined.into_iter();
        origins.misses = rows.map(|((a, b, c, d, e), (f, g))| (a, b, c, d, e, f, g)).collect();
        origins.misses.sort_unstable_by_key(|row| (Reverse(row.5), *row));
        let mut times = Times::default();
        for region in &mut self.regions {
            let Some(site) = &mut region.site else { continue };
            *site = sites[*site as usize];
            let site = &origins.sites[*site as usize];
            region.name = times.name(&site.name, &site.stack);
        }
        if let Some(manager) = &mut self.manager {
            manager.name_regions(&self.regions);
        }
    }
}

/// Gives the regions that were mapped for one allocation the names of their sites, as
/// [`Results::name_origins`] does.
pub fn name_regions(
    regions: &mut [RegionInfo],
    find: &mut dyn FnMut(&CodePlace, bool) -> Vec<FrameName>,
) {
    let mut times = Times::default();
    let mut by_address: Vec<&mut RegionInfo> = regions.iter_mut().collect();
    by_address.sort_by_key(|region| (region.space, region.start));
    for region in by_address {
        if region.site.is_empty() {
            continue;
        }
        let calls = region.site.iter().map(CodePlace::of_call);
        let stack: Vec<_> = calls.flat_map(|call| expanded(&call, find(&call, true))).collect();
        region.name = times.name(&site_name(&stack), &stack);
    }
}

/// For each site, the number of regions that have been named after it so far.
#[derive(Default)]
struct Times(FxHashMap<Vec<CodePlace>, u32>);

impl Times {
    /// The name of the next region of the site called `name`; `stack` is the site's stack of calls.
    fn name(&mut self, name: &str, stack: &[CodePlace]) -> String {
        let times = self.0.entry(stack.to_vec()).or_insert(0);
        *times += 1;
        if *times > 1 { format!("{name} {times}") } else { name.to_owned() }
    }
}

impl CodePlace {
    /// The place to which a call returns.
    fn of_call(call: &SiteCall) -> CodePlace {
        CodePlace {
            object: call.file.as_ref().map(|file| file.path.clone()),
            identity: call.file.as_ref().and_then(|file| file.identity.clone()),
            offset: call.offset,
            ..CodePlace::default()
        }
    }
}

/// A function at a place in code, with its source line.
#[derive(Clone, Debug, Default)]
pub struct FrameName {
    /// Name of the function.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line in the source file.
    pub line: Option<u32>,
}

/// A call as one place for each function that contains it, including inlined functions; the call
/// itself if no function is known.
fn expanded(call: &CodePlace, frames: Vec<FrameName>) -> Vec<CodePlace> {
    if frames.is_empty() {
        return vec![call.clone()];
    }
    let place =
        |FrameName { function, file, line }| CodePlace { function, file, line, ..call.clone() };
    frames.into_iter().map(place).collect()
}

/// Merges equal places. Returns the new index of each old place.
fn join_code(code: &mut Vec<CodePlace>) -> Vec<u32> {
    let mut known = FxHashMap::default();
    let mut joined: Vec<CodePlace> = Vec::new();
    let places = code.drain(..).map(|place| {
        let CodePlace { object, identity, function, inlined, file, line, .. } = &place;
        let of_no_file = object.is_none().then_some((place.offset, place.instruction));
        let shown = (object, identity, function, inlined, file, line, of_no_file);
        let key = format!("{shown:?}");
        *known
            .entry(key)
            .and_modify(|&mut at: &mut u32| {
                let first = &mut joined[at as usize];
                let lower =
                    (first.offset, first.instruction).min((place.offset, place.instruction));
                (first.offset, first.instruction) = lower;
            })
            .or_insert_with(|| {
                joined.push(place.clone());
                joined.len() as u32 - 1
            })
    });
    let places = places.collect();
    *code = joined;
    places
}

/// Merges sites with equal stacks, for instance the sites of several processes. Returns the new
/// index of each old site.
fn join_sites(sites: &mut Vec<SiteCounts>) -> Vec<u32> {
    let mut known = FxHashMap::default();
    let mut joined: Vec<SiteCounts> = Vec::new();
    let places: Vec<usize> = sites
        .drain(..)
        .map(|site| {
            let place = *known.entry(site.stack.clone()).or_insert(joined.len());
            match joined.get_mut(place) {
                None => joined.push(site),
                Some(sum) => {
                    sum.allocations += site.allocations;
                    sum.bytes += site.bytes;
                    sum.peak_bytes += site.peak_bytes;
                    sum.misses += site.misses;
                    sum.cold_misses += site.cold_misses;
                }
            }
            place
        })
        .collect();
    let mut order: Vec<usize> = (0..joined.len()).collect();
    order.sort_by_key(|&at| (Reverse(joined[at].misses), Reverse(joined[at].peak_bytes), at));
    let mut ranks = vec![0; order.len()];
    (0..).zip(&order).for_each(|(rank, &at)| ranks[at] = rank);
    *sites = order.into_iter().map(|at| joined[at].clone()).collect();
    places.into_iter().map(|place| ranks[place]).collect()
}

/// Index in `stack` of the innermost call in the program's own sources.
fn own(stack: &[CodePlace]) -> Option<usize> {
    let is_header = |file: &str| OTHERS_SOURCES.iter().any(|others| file.contains(others));
    let is_of_others =
        |place: &CodePlace| is_library(place) || place.file.as_deref().is_none_or(is_header);
    stack.iter().position(|place| !is_of_others(place))
}

/// Whether a place is in one of the system's libraries.
fn is_library(place: &CodePlace) -> bool {
    let object = place.object.as_deref().unwrap_or("");
    object.contains(".so") && OTHERS_OBJECTS.iter().any(|others| object.starts_with(others))
}

/// The name of a site whose calls are `stack`, innermost first. If no line of the program's own
/// sources is known, a call in the program is preferred to a call in a library, even if the line in
/// the library is known.
fn site_name(stack: &[CodePlace]) -> String {
    let program = || stack.iter().filter(|place| !is_library(place));
    let place = own(stack)
        .map(|at| &stack[at])
        .or_else(|| program().find(|place| place.function.is_some()))
        .or_else(|| program().next())
        .or_else(|| stack.iter().find(|place| place.function.is_some()))
        .or(stack.first());
    place.map_or_else(|| "an unknown caller".to_owned(), code_name)
}

/// The name of a place in code.
fn code_name(place: &CodePlace) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let function = place.inlined.last().or(place.function.as_ref());
    let object = || place.object.as_deref().map_or_else(|| "code of no file".to_owned(), base);
    match (function, &place.file, place.line) {
        (Some(function), Some(file), Some(line)) => format!("{function} ({}:{line})", base(file)),
        (None, Some(file), Some(line)) => format!("{}:{line}", base(file)),
        (Some(function), ..) => format!("{function} ({})", object()),
        (None, ..) => format!("{}+{:#x}", object(), place.offset),
    }
}

#[cfg(test)]
mod tests;
