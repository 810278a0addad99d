//! Which pages the first TLBs have, so that a recorder need not tell accesses to them.
//!
//! ```text
//!   LRU, sets of n entries    of each set the n pages that were used last
//!   FIFO, random              those that the machine names when it is asked, and from then on those that have come
//!                             in, without those that have made room
//! ```
//!
//! That holds where each entry is for one page of 4K, as the recorder counts them, and where nothing but
//! accesses changes these TLBs from one event of a program to the next. Who counts accesses tells nobody else of
//! them: so nothing behind the TLBs may be asked by a hit. It holds for TLBs, page tables and what walks these,
//! over pages that stay where they are once they are touched; not for caches, which hear of each access, and not
//! for a page table that lies in pages of which the TLB has translations too.
//!
//! Under FIFO and random replacement each entry that goes has to be known. With a page table, an entry also goes if it
//! forbids an access, or if the operating system then grants it. So these machines have none.

use std::ops::RangeInclusive;

use addr::{Kind, PageSize};
use description::Description;
use trace::{Replaces, SurePages};

/// With fewer entries, or ways, most blocks could bring in too many pages; of more the recorder does not keep
/// track (`SURE_PAGES_MAX` of crate `ring`).
const ENTRIES: RangeInclusive<u32> = 16..=128;
const WAYS_MIN: u32 = 4;

/// What a machine may say of which hits know nothing. The description of all else is left out if it is
/// not there.
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

/// Which pages are sure to be in the first TLBs of `description`, or why none is.
pub fn pages(description: &Description) -> Result<SurePages, String> {
    if let Some(wrong) = more_than_tlbs(description) {
        return Err(format!("the machine has {wrong}, where hits change more than the TLBs"));
    }
    let (base, large) = description.tlb_page_sizes();
    if base != PageSize::SIZE_4K || large.is_some() {
        let size = large.unwrap_or(base);
        return Err(format!("the machine has pages of {size}, and pages are counted by 4K"));
    }
    let serving = |kind| {
        let name = description.tlb.serving(1, kind);
        description.tlb.present().find(|&(present, ..)| Some(present) == name)
    };
    let entries = |kind| {
        let (name, _, tlb) = serving(kind).ok_or("a kind of access has no TLB")?;
        let entries = tlb.entries.filter(|_| !tlb.paired && tlb.blocks.is_none());
        let entries = entries.ok_or_else(|| format!("tlb.{name} is not one array of pages"))?;
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
                "tlb.{name} replaces by {}, and with a page table entries may also be dropped \
                 because they forbid an access",
                tlb.replacement
            ));
        }
        let ways = tlb.ways.of(entries);
        if ways < WAYS_MIN {
            return Err(format!("tlb.{name} has sets of less than {WAYS_MIN} entries"));
        }
        if !ENTRIES.contains(&entries) {
            let (least, most) = (ENTRIES.start(), ENTRIES.end());
            return Err(format!("tlb.{name} has {entries} entries, and not {least} to {most}"));
        }
        Ok((name, entries, entries / ways, replaces))
    };
    let [code, loads, stores] =
        [entries(Kind::Fetch)?, entries(Kind::Load)?, entries(Kind::Store)?];
    if loads != stores {
        return Err("loads and stores have TLBs of their own".to_owned());
    }
    if (code.3 == Replaces::Lru) != (loads.3 == Replaces::Lru) {
        let (code, loads) = (code.0, loads.0);
        return Err(format!(
            "one of tlb.{code} and tlb.{loads} replaces by lru, and the other not"
        ));
    }
    let (pages, sets) = ([code.1, loads.1], [code.2, loads.2]);
    Ok(SurePages { pages, sets, replaces: [code.3, loads.3], together: code == loads })
}

/// What the machine has that hears of hits, or changes TLBs by itself, if it has something.
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
    let linear = is_walked_there.then(|| "a page table that is found through the TLB".to_owned());
    let fetches = (!description.core.fetches).then(|| "core.fetches = false".to_owned());
    table
        .cloned()
        .or_else(|| odd("core", &CORE))
        .or(fetches)
        .or(linear)
        .or_else(|| odd("cache", &[]))
        .or_else(|| odd("os", &OS))
}
