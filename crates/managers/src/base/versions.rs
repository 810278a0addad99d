//! The effect of `os.linux.version`: rules and settings that exist since a version of Linux.
//!
//! | since | what |
//! |---|---|
//! | 6.1 | `MADV_COLLAPSE` |
//! | 6.7 | stacks of threads (`MAP_STACK`) have no large pages |
//! | 6.8 | blocks of anonymous memory below 2M (`hugepages-16kB` to `hugepages-1024kB`) |
//! | 6.11 | large blocks of shared memory by size (`hugepages-*kB.shmem_enabled`) |
//! | 6.12 | `shrink_underused` |
//! | 6.14 | discarding a whole block frees its page table (`CONFIG_PT_RECLAIM`) |
//! | 7.2 | `khugepaged` makes blocks below 2M |

use std::collections::BTreeMap;

use addr::PageSize;
use description::{Linux, Os, Refusal, Version, managers::linux};
use vm::{SizeStats, Thp};

const COLLAPSE: Version = Version(6, 1);
const STACKS: Version = Version(6, 7);
const SMALLER: Version = Version(6, 8);
const SHARED_BY_SIZE: Version = Version(6, 11);
const UNDERUSED: Version = Version(6, 12);
const TABLES: Version = Version(6, 14);
const SMALLER_COLLAPSED: Version = Version(7, 2);
/// The first and the last version whose rules are known here.
const KNOWN: [Version; 2] = [Version(5, 4), Version(7, 2)];

fn version(os: &Os) -> Version {
    linux(os).and_then(|asked| asked.version).unwrap_or(Version::MODELLED)
}

/// Whether the machine file names a version, in which case the results have the counters of that
/// version.
pub(super) fn is_named(os: &Os) -> bool {
    linux(os).is_some_and(|asked| asked.version.is_some())
}

pub(super) fn keeps_stacks(os: &Os) -> bool {
    version(os) >= STACKS
}

pub(super) fn can_collapse(os: &Os) -> bool {
    version(os) >= COLLAPSE
}

/// Sets in `thp` all that depends on the version, and refuses settings that the version does not
/// have.
pub(super) fn check(manager: &str, asked: &Linux, thp: &mut Thp) -> Result<(), Refusal> {
    let refuse = |key: &str, what: String| Err(Refusal::new(format!("os.linux.{key}"), what));
    let now = asked.version.unwrap_or(Version::MODELLED);
    let [first, last] = KNOWN;
    if !(first..=last).contains(&now) {
        let what =
            format!("the rules of Linux {now} are not modelled: write \"{first}\" to \"{last}\"");
        return refuse("version", what);
    }
    let is_smaller = |order: &u32| *order < 9;
    let smaller = asked
        .by_order()
        .find(|(order, knob)| is_smaller(order) && *knob != description::OrderEnabled::Never);
    let shared = asked
        .shmem_by_order()
        .find(|(order, knob)| is_smaller(order) && *knob != description::OrderShmem::Never);
    let name = |order: u32| format!("hugepages-{}kB", 4 << order);
    for (order, since, key) in [
        (smaller.map(|(order, _)| order), SMALLER, "enabled"),
        (shared.map(|(order, _)| order), SHARED_BY_SIZE, "shmem_enabled"),
    ] {
        if let Some(order) = order.filter(|_| now < since) {
            let what = format!(
                "Linux {now} has no such setting: leave it out, or choose Linux {since} or later"
            );
            return refuse(&format!("{}.{key}", name(order)), what);
        }
    }
    if asked.shrink_underused > 1 {
        let what = format!("the kernel refuses {}: write 0 or 1", asked.shrink_underused);
        return refuse("shrink_underused", what);
    }
    if !(0.0..=1.0).contains(&asked.zero_share) {
        let what = format!("{} is not a share of a large page: write 0 to 1", asked.zero_share);
        return refuse("zero_share", what);
    }
    if manager != "linux" && asked.version.is_some() {
        let what = format!(
            "the manager `{manager}` models only one version of the kernel: leave \
             os.linux.version out"
        );
        return refuse("version", what);
    }
    thp.frees_tables = now >= TABLES;
    thp.collapses_smaller = now >= SMALLER_COLLAPSED;
    if now >= UNDERUSED && asked.shrink_underused == 1 {
        thp.zero_permille = (asked.zero_share * 1000.0) as u64;
    }
    Ok(())
}

/// The counters by page size, under the kernel's names of the sizes.
pub(super) fn stats(
    by_size: Vec<(PageSize, SizeStats)>,
) -> BTreeMap<String, BTreeMap<String, u64>> {
    let named = |(size, stats): (PageSize, SizeStats)| {
        let counts = stats.each().map(|(name, count)| (name.to_owned(), count)).collect();
        (format!("hugepages-{}kB", size.bytes() >> 10), counts)
    };
    by_size.into_iter().map(named).collect()
}
