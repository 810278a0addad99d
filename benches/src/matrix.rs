//! A hash of the results of many machines, policies and page-table formats over short streams: two
//! builds that count alike print the same.

use std::io::{self, Write as _};

use machine::{BUILTIN, Machine, RunOptions};
use sha2::{Digest, Sha256};
use trace::generate;

use crate::Failure;

/// What most of a TLB's code depends on: geometry, policies, page sizes, pairs.
const POLICIES: [&str; 10] = [
    "lru",
    "fifo",
    "random",
    "tree-plru",
    "nru",
    "lfu",
    "srrip",
    "greedy-dual",
    "fixed-insertion",
    "vi-lru",
];
const FORMATS: [&str; 12] = [
    "x86-64",
    "flattened",
    "mpt",
    "linear",
    "guarded",
    "guarded-adaptive",
    "hashed",
    "clustered",
    "inverted",
    "tsb",
    "powerpc",
    "elastic-cuckoo",
];
const MMU_CACHES: [&str; 5] = ["uptc", "sptc", "utc", "stc", "tpc"];
const STREAMS: [&str; 4] = [
    "uniform,size=8M,accesses=60000",
    "uniform,size=4G,accesses=30000",
    "zipf,size=64M,accesses=60000",
    "join,table=16M,accesses=60000",
];

/// Machines with their settings.
fn machines() -> Vec<(&'static str, Vec<String>)> {
    let mut all = Vec::new();
    let mut add = |name: &'static str, settings: &[&str]| {
        all.push((name, settings.iter().map(|one| (*one).to_owned()).collect()));
    };
    BUILTIN.iter().for_each(|builtin| add(builtin.name, &[]));
    for policy in POLICIES {
        let of = |key: &str| format!("{key}.replacement={policy}");
        add("opteron-2008", &[&of("tlb.l1d"), &of("tlb.l2d"), &of("cache.l2")]);
        add("epyc-9005", &[&of("tlb.l1d"), &of("tlb.l2d"), &of("cache.l1d"), &of("mmu_cache")]);
        add("tlb-only", &[&of("tlb.l1d"), &of("tlb.l2"), "tlb.l1d.entries=48", "tlb.l1d.ways=3"]);
        add("r4700", &[&of("tlb.l1")]);
    }
    for format in FORMATS {
        let format = format!("page_table.format={format}");
        add("opteron-2008", &[&format, "memory.size=16G"]);
        add("r4700", &[&format, "memory.size=16G"]);
    }
    for design in MMU_CACHES {
        let (own, of_host) =
            (format!("mmu_cache.design={design}"), format!("nested.mmu_cache.design={design}"));
        add("opteron-2008", &[&own, "mmu_cache.entries=12"]);
        let nested = ["nested.mmu_cache.entries=12", "nested.tlb.entries=32"];
        add("opteron-2008", &[&own, "mmu_cache.entries=12", &of_host, nested[0], nested[1]]);
    }
    for settings in [
        &["os.page_size=2M"][..],
        &["os.page_size=2M", "os.uniform=true"],
        &["core.count=2"],
        &["walker.tracks_dirty=true"],
        &["os.populated=true"],
        &["memory.placement=3"],
        &["tlb.l1d.paired=true"],
        &["os.clock=instructions"],
    ] {
        add("opteron-2008", settings);
        add("epyc-9005", settings);
        add("tlb-only", settings);
    }
    all
}

/// Prints a line for each machine and stream.
pub(crate) fn print() -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for (name, settings) in machines() {
        let machine = match Machine::load(name, &settings) {
            Ok(machine) => machine,
            // Some combinations cannot be built; that too is to stay.
            Err(refused) => {
                writeln!(
                    out,
                    "{:016x} {name} {settings:?}",
                    short(refused.to_string().as_bytes())
                )?;
                continue;
            }
        };
        for spec in STREAMS {
            let options = RunOptions { check: false, progress: &mut |_| true };
            let run = machine.run(generate::parse(spec)?.as_mut(), options);
            let text = match run {
                Ok(results) => serde_json::to_vec(&results)?,
                Err(error) => error.to_string().into_bytes(),
            };
            writeln!(out, "{:016x} {name} {settings:?} {spec}", short(&text))?;
        }
    }
    Ok(())
}

fn short(bytes: &[u8]) -> u64 {
    Sha256::digest(bytes)[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
