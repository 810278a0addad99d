//! Memory managers, each with its settings, in memory that is plentiful, scarce, or was used before.

use std::collections::BTreeSet;

use super::{Line, programs::Shape};

/// A stream of one process with long mappings, so that daemons find large pages to make.
const ALONE: Shape = Shape {
    name: "alone",
    seed: 50_001,
    steps: 1400,
    processes: 1,
    cpus: 0,
    calls: 20,
    mapping_max: 7 << 20,
};
/// A stream of processes that fork and end.
const FAMILY: Shape = Shape {
    name: "family",
    seed: 50_002,
    steps: 1600,
    processes: 12,
    cpus: 0,
    calls: 30,
    mapping_max: 3 << 20,
};
/// A stream of programs on two processors with a schedule.
const SCHEDULED: Shape = Shape {
    name: "scheduled",
    seed: 50_003,
    steps: 1600,
    processes: 9,
    cpus: 2,
    calls: 30,
    mapping_max: 3 << 20,
};
/// A stream with few calls that reuses much of its memory.
const STEADY: Shape = Shape {
    name: "steady",
    seed: 50_004,
    steps: 1500,
    processes: 4,
    cpus: 0,
    calls: 8,
    mapping_max: 6 << 20,
};

/// All streams.
pub(super) const SHAPES: [Shape; 4] = [ALONE, FAMILY, SCHEDULED, STEADY];

/// Settings of every machine: two processors, and a clock that counts only instructions unless a way has another.
const ALL: [&str; 3] = ["core.count=2", "os.clock=instructions", "swap.size=512M"];
const PLENTY: &[&str] = &["memory.size=512M"];
const SCARCE: &[&str] = &["memory.size=26M", "swap.io_cycles=3000", "swap.page_cycles=100"];
const AGED: &[&str] = &["memory.size=96M", "memory.aged={free=0.5,wired=0.05,seed=3}"];

/// Pages of 64K, on a machine whose TLB maps pairs of pages.
const PAIRS: &str = "os.place=data=64K, heap=64K, mmap=64K";

/// States of memory, as settings, each with the index of its stream in [`SHAPES`].
const TOGETHER: [(&[&str], usize); 5] =
    [(PLENTY, 1), (SCARCE, 0), (SCARCE, 2), (AGED, 0), (AGED, 3)];

/// Settings that wake daemons often. The streams are short, so rare passes would not happen in them.
const SOON: [&str; 4] = [
    "os.linux.cycles_per_ms=2000",
    "os.linux.khugepaged.scan_sleep_millisecs=10",
    "os.linux.khugepaged.alloc_sleep_millisecs=20",
    "os.linux.khugepaged.pages_to_scan=2048",
];

/// The managers, each with several groups of settings. Those derived from `linux` have [`SOON`] as
/// well.
const MANAGERS: [(&str, &[&[&str]]); 10] = [
    ("first-touch", &[&[], &["os.page_size=2M"], &["os.place=heap=2M, site own.c:3=2M"]]),
    (
        "base",
        &[
            &[],
            &["os.replacement=lru"],
            &["os.replacement=2q"],
            &["os.eager_paging=true"],
            &["os.mosaic={}", "tlb.l2d.blocks={kind=\"mosaic\",pages=8}"],
            &["os.utopia={size=\"8M\"}", "restseg={}"],
            &["os.promotion={page_cycles=100}"],
            &["os.colors=16", "memory.numa={nodes=2}", "os.numa={migrate_after=30}"],
            &["os.numa={placement=\"in-turn\",rather=\"colored\"}", "memory.numa={nodes=2}"],
            &["os.devices={pages=64,faults=8,apart=true}"],
            &["os.populated=true"],
            &["memory.allocator=size-lists"],
            &["memory.placement=5"],
            &["os.at=[{time=20000,key=\"os.replacement\",value=\"2q\"},\
               {time=60000,key=\"swap.io_cycles\",value=7}]"],
        ],
    ),
    (
        "irix",
        &[
            &["os.place=data=2M"],
            &[
                "os.place=heap=2M wait 1ms, mmap=2M wait, site own.c:3=2M",
                "os.moves_per_us=0.5",
                "os.coalesced={period_cycles=40000,watermarks={2M=\"8M\"},mild_share=0.3,strong_after=3,\
                 moves=4000}",
            ],
            &[
                "os.coalesced={period_cycles=20000,watermarks={2M=\"64M\"},mild_share=0.5,strong_after=2,\
                 moves=9000,level=\"mild\"}",
                "memory.ordered=true",
            ],
            &["os.promotion={page_cycles=40}"],
            &["os.place=data=2M node 1 stay", "memory.numa={nodes=2}"],
            // Both pages of a pair have one size.
            &["tlb.l1d.paired=true", "os.place=heap=2M, mmap=2M"],
            // The daemon's passes take time, and put off the next.
            &[
                "os.clock=full",
                "os.coalesced={period_cycles=40000,watermarks={2M=\"64M\"},mild_share=0.3,strong_after=2,\
                 moves=4000}",
            ],
        ],
    ),
    (
        "freebsd",
        &[
            &[],
            &["os.reservations={sizes=[\"64K\",\"2M\"],eager=true}"],
            &[
                "os.reservations={marks=\"clear\"}",
                "spec_tlb={entries=24,ways=\"full\",replacement=\"lru\",fill=\"marks\"}",
            ],
            &[
                "os.reservations={marks=\"clear-devices\"}",
                "os.devices={pages=64,faults=8}",
                "os.replacement=lru",
            ],
            &["os.promotion={page_cycles=40}"],
        ],
    ),
    (
        "linux",
        &[
            &[],
            &["os.linux.enabled=never", "os.linux.hugepages-64kB.enabled=always"],
            &["os.linux.enabled=madvise", "os.linux.defrag=madvise"],
            &["os.linux.defrag=always", "os.linux.use_zero_page=0"],
            &["os.linux.defrag=defer", "os.linux.compaction_proactiveness=80"],
            &[
                "os.linux.hugepages-1048576kB.enabled=always",
                "os.linux.khugepaged.max_ptes_none=100",
            ],
            &["os.linux.enabled=never", "os.linux.fault_around_bytes=16384", "os.replacement=2q"],
            &["os.eager_paging=true"],
            &["os.utopia={size=\"8M\",large_size=\"8M\"}", "restseg={}"],
            &["os.place=heap=2M, site own.c:3=2M", "os.linux.enabled=madvise"],
            &["os.linux.khugepaged.max_ptes_shared=1", "os.linux.khugepaged.max_ptes_swap=0"],
            &["os.clock=full"],
            &[
                "os.linux.hugetlb.hugepages-2048kB={nr_hugepages=6,nr_overcommit_hugepages=4}",
                "os.linux.malloc={hugetlb=2,top_pad=\"1M\"}",
            ],
            &["os.linux.malloc={hugetlb=1,top_pad=\"8M\"}", "os.linux.enabled=madvise"],
            &[
                "os.linux.shmem_enabled=always",
                "os.linux.hugepages-64kB.shmem_enabled=within_size",
                "os.linux.version=v6.18",
            ],
            &["os.linux.version=v7.2", "os.linux.hugepages-64kB.enabled=always"],
            &["os.linux.version=v6.0", "os.linux.enabled=always"],
            &[
                "os.linux.zero_share=0.5",
                "os.linux.khugepaged.max_ptes_none=100",
                "os.linux.version=v6.12",
            ],
            &["os.linux.group=[{members=[\"*\"],memory_max=\"14M\",memory_high=\"12M\"}]"],
            &["os.linux.layout=kernel"],
            &["os.linux.layout=kernel", "os.linux.layout_seed=7"],
        ],
    ),
    (
        "ingens",
        &[
            &["os.ingens.scan_sleep_millisecs=10"],
            &[
                "os.ingens.scan_sleep_millisecs=5",
                "os.ingens.deferred_mode=2",
                "os.ingens.util_threshold=30",
                "os.ingens.aggressive_below=0.5",
            ],
        ],
    ),
    (
        "hawkeye",
        &[
            &[
                "os.hawkeye.faults=false",
                "os.hawkeye.sample_millisecs=5",
                "os.hawkeye.sleep_millisecs=5",
                "os.hawkeye.prezero_millisecs=5",
            ],
            &[
                "os.hawkeye.metric=mmu-overhead",
                "os.hawkeye.sample_millisecs=5",
                "os.hawkeye.sleep_millisecs=5",
                "os.hawkeye.prezero_millisecs=5",
                "os.hawkeye.recover_millisecs=10",
                "os.hawkeye.recover_below=0.6",
                "os.hawkeye.recover_until=0.8",
                "os.hawkeye.zero_share=0.4",
            ],
        ],
    ),
    ("ca", &[&[], &["os.ca.offsets_max=2", "os.linux.enabled=never"]]),
    (
        "translation-ranger",
        &[
            &["os.ranger.region_bytes_min=2M", "os.ranger.period_millisecs=10"],
            &[
                "os.ranger.region_bytes_min=64K",
                "os.ranger.period_millisecs=5",
                "os.ranger.moves=300",
                "os.linux.enabled=never",
            ],
        ],
    ),
    ("recorded", &[&[], &["os.page_size=2M"]]),
];

/// Whether the manager is derived from `linux` and has its settings.
fn is_linux(manager: &str) -> bool {
    matches!(manager, "linux" | "ingens" | "hawkeye" | "ca" | "translation-ranger")
}

/// All lines for managers.
pub(super) fn lines() -> Vec<Line> {
    let mut all = Vec::new();
    let mut add = |machine: &'static str, settings: &[&[&str]], shape: &'static Shape| {
        let settings = settings.iter().flat_map(|some| some.iter());
        let settings = settings.map(|setting| (*setting).to_owned()).collect();
        all.push(Line::life(machine, settings, shape));
    };
    for (manager, ways) in &MANAGERS {
        let named = [&*format!("os.manager={manager}")];
        let soon = if is_linux(manager) { &SOON[..] } else { &[] };
        for way in *ways {
            // Nothing leaves memory under these, so that less than all is no memory at all.
            let keeps = matches!(*manager, "first-touch" | "recorded");
            for (memory, shape) in TOGETHER {
                let memory = if keeps { PLENTY } else { memory };
                // One of its accesses reaches into a page that no row has a frame of.
                if *manager == "recorded" && shape == 0 {
                    continue;
                }
                let shape = &SHAPES[shape];
                let machine = if shape.cpus == 0 { "epyc-9005" } else { "opteron-2008" };
                add(machine, &[&ALL, &named, soon, way, memory], shape);
            }
        }
    }
    // Contexts that are fewer than spaces.
    for contexts in ["modulo", "lru", "generation", "per-processor"] {
        let contexts = format!("core.contexts={contexts}");
        let few = [&*contexts, "core.asid_bits=2"];
        for manager in ["os.manager=first-touch", "os.manager=base"] {
            add("epyc-9005", &[&ALL, &[manager], &few, PLENTY], &SHAPES[1]);
            add("opteron-2008", &[&ALL, &[manager], &few, PLENTY], &SHAPES[2]);
        }
    }
    // How flushes reach the processors.
    for flush in [
        &["os.flush.ceiling=3"][..],
        &["os.flush.by=tlbi", "os.flush.ceiling=33"],
        &["os.flush.by=invlpgb", "os.flush.broadcast_from=2"],
        &["os.flush.deferred=true", "os.flush.sweep_cycles=20000"],
    ] {
        let contexts = ["core.contexts=lru", "core.asid_bits=6"];
        for manager in ["os.manager=first-touch", "os.manager=base"] {
            add("epyc-9005", &[&ALL, &[manager], &contexts, flush, PLENTY], &SHAPES[1]);
            add("opteron-2008", &[&ALL, &[manager], &contexts, flush, PLENTY], &SHAPES[2]);
        }
    }
    // Spaces side by side in one, whose slots change hands.
    for small in [
        &["os.small.slot=256M"][..],
        &["os.small={slot=\"256M\",revoke=\"versioned\",schedule=\"frequent\"}"],
        &["os.small={slot=\"1G\",revoke=\"versioned\",schedule=\"lru\"}"],
        &["os.small={slot=\"1G\",revoke=\"purge\",schedule=\"lru\"}"],
        &["os.small={slot=\"256M\",schedule=\"first-come\"}"],
        &["os.small={revoke=\"groups\",groups=[[\"0\",\"1\"],[\"2\",\"3\"]],everywhere=[\"4\"]}"],
        &["core.virtual_caches=true"],
    ] {
        for manager in ["os.manager=first-touch", "os.manager=base"] {
            add("pentium4", &[&["swap.size=512M", "memory.size=512M", manager], small], &SHAPES[1]);
        }
    }
    // Where software refills the TLB a page in use is unloaded to see its next use.
    for manager in ["base", "irix", "freebsd", "linux"] {
        let named = [&*format!("os.manager={manager}")];
        let software = ["walker.kind=software", "walker.refill_cycles=20"];
        let soon = if is_linux(manager) { &SOON[..] } else { &[] };
        for memory in [PLENTY, SCARCE, AGED] {
            add("opteron-2008", &[&ALL, &named, &software, soon, memory], &SHAPES[1]);
        }
    }
    // Both pages of a pair are split if one of them is.
    let [size, pairs] = [["memory.size=10M", "swap.size=512M"], ["os.clock=instructions", PAIRS]];
    for shape in [0, 1, 3] {
        add("origin-2000", &[&size, &pairs], &SHAPES[shape]);
    }
    // Pages of 1 GiB. At first, no 1 GiB of free frames is adjacent.
    let giant = [
        "os.manager=linux",
        "os.linux.hugepages-1048576kB.enabled=always",
        "os.linux.defrag=always",
        "memory.size=8G",
        "memory.aged={free=0.6,wired=0.0,seed=3}",
    ];
    let giant = giant.map(str::to_owned).to_vec();
    all.push(Line::generated("epyc-9005", giant, "uniform,size=3G,accesses=2000"));
    // With all memory plenty, some of them are the same.
    let mut names = BTreeSet::new();
    all.retain(|line: &Line| names.insert(line.name.clone()));
    all
}
