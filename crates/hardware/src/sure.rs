//! Which pages are guaranteed to hit in the first-level TLBs, so that a recorder need not report
//! accesses to them.
//!
//! ```text
//!   LRU, sets of n entries    of each set the n pages that were used last
//!   FIFO, random              those that the machine names when it is asked, and from then on those that have come
//!                             in, without those that have made room
//! ```
//!
//! This requires that each TLB entry is for one page of 4K, because the recorder counts pages of
//! this size. It also requires that only accesses change these TLBs between two events of a
//! program. An access that the recorder only counts is not reported to any other part of the
//! machine, so no part behind the TLBs may depend on hits. Counting therefore works for TLBs, page
//! tables and walkers, with pages that keep their frames once they have been touched. It does not
//! work with data caches, which need each access, nor with a page table that is itself translated
//! by the TLBs.
//!
//! With FIFO and random replacement, the recorder must know every entry that is removed. With a
//! page table, an entry is also removed if it forbids an access that the operating system then
//! grants. Machines with FIFO or random replacement therefore must not have a page table.

use std::ops::RangeInclusive;

use addr::{Kind, PageSize};
use description::Description;
use trace::{Replaces, SurePages};

/// The supported numbers of entries. With fewer entries or ways, most basic blocks could access
/// more pages than fit in a set. The recorder tracks at most this number of entries
/// (`SURE_PAGES_MAX` of crate `ring`).
const ENTRIES: RangeInclusive<u32> = 16..=128;
const WAYS_MIN: u32 = 4;

/// The tables of a machine file whose hardware does not depend on hits. With any other table, no
/// hit is guaranteed.
const TABLES: [&str; 12] = [
    "title",
    "source",
    "core",
    "tlb",
    "page_table",
    "walker",
    "mmu_cache",
    "nested",
    "cache",
    "memory",
    "os",
    "calibrated",
];
const CORE: [&str; 7] = [
    "fetches",
    "asid_bits",
    "global_pages",
    "contexts",
    "cycles_per_instruction",
    "misses_in_flight",
    "source",
];
const OS: [&str; 5] = ["base_page", "page_size", "uniform", "costs", "source"];

/// Which pages are guaranteed to hit in the first-level TLBs of `description`, or why no page is.
pub fn pages(description: &Description) -> Result<SurePages, String> {
    if let Some(wrong) = more_than_tlbs(description) {
        return Err(format!(
            "the machine has {wrong}, so that a hit changes more state than that of the TLBs"
        ));
    }
    let (base, large) = description.tlb_page_sizes();
    if base != PageSize::SIZE_4K || large.is_some() {
        let size = large.unwrap_or(base);
        return Err(format!(
            "the machine has pages of {size}, but hits can be counted only for pages of 4K"
        ));
    }
    let serving = |kind| {
        let name = description.tlb.serving(1, kind);
        description.tlb.present().find(|&(present, ..)| Some(present) == name)
    };
    let entries = |kind| {
        let (name, _, tlb) = serving(kind).ok_or("a kind of access has no TLB")?;
        let entries = tlb.entries.filter(|_| !tlb.paired && tlb.blocks.is_none());
        let entries = entries.ok_or_else(|| {
            format!("tlb.{name} has several arrays, or entries for several pages")
        })?;
        let replaces = match tlb.replacement.as_str() {
            "lru" => Replaces::Lru,
            "fifo" => Replaces::Fifo,
            "random" => Replaces::Random,
            other => {
                return Err(format!("tlb.{name} replaces by {other}, not lru, fifo or random"));
            }
        };
        if replaces != Replaces::Lru && description.page_table.is_some() {
            return Err(format!(
                "tlb.{name} replaces by {}, and in a machine with a page table a TLB entry may also \
                 be dropped because its rights forbid an access",
                tlb.replacement
            ));
        }
        let ways = tlb.ways.of(entries);
        if ways < WAYS_MIN {
            return Err(format!("tlb.{name} has sets of fewer than {WAYS_MIN} entries"));
        }
        if !ENTRIES.contains(&entries) {
            let (least, most) = (ENTRIES.start(), ENTRIES.end());
            return Err(format!(
                "tlb.{name} has {entries} entries, but must have {least} to {most}"
            ));
        }
        Ok((name, entries, entries / ways, replaces))
    };
    let [code, loads, stores] =
        [entries(Kind::Fetch)?, entries(Kind::Load)?, entries(Kind::Store)?];
    if loads != stores {
        return Err("loads and stores have separate TLBs".to_owned());
    }
    if (code.3 == Replaces::Lru) != (loads.3 == Replaces::Lru) {
        let (code, loads) = (code.0, loads.0);
        return Err(format!(
            "one of tlb.{code} and tlb.{loads} replaces by lru, but the other does not"
        ));
    }
    let (pages, sets) = ([code.1, loads.1], [code.2, loads.2]);
    Ok(SurePages { pages, sets, replaces: [code.3, loads.3], together: code == loads })
}

/// A part of the machine that depends on hits, or changes TLBs by itself, if there is one.
fn more_than_tlbs(description: &Description) -> Option<String> {
    let described = serde_json::to_value(description).ok();
    let Some(described) = described.as_ref().and_then(serde_json::Value::as_object) else {
        return Some("no description".to_owned());
    };
    let odd = |table: &str, known: &[&str]| {
        let keys = described.get(table)?.as_object()?.keys();
        let odd = keys.into_iter().find(|key| !known.contains(&key.as_str()))?;
        Some(format!("{table}.{odd}"))
    };
    let table = described.keys().find(|key| !TABLES.contains(&key.as_str()));
    let is_walked_there = description.page_table.as_ref().is_some_and(ram::is_linear);
    let linear =
        is_walked_there.then(|| "a linear page table, which is read through the TLB".to_owned());
    let fetches = (!description.core.fetches).then(|| "core.fetches = false".to_owned());
    table
        .cloned()
        .or_else(|| odd("core", &CORE))
        .or(fetches)
        .or(linear)
        .or_else(|| odd("cache", &[]))
        .or_else(|| odd("os", &OS))
}
