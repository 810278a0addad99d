//! Hardware, page tables and replacement policies, over generated accesses.

use machine::{BUILTIN, page_table_formats};
use mmu::{BlockKind, Design, Policy};

use super::Line;

const STREAMS: [&str; 4] = [
    "uniform,size=8M,accesses=60000",
    "uniform,size=4G,accesses=30000",
    "zipf,size=64M,accesses=60000",
    "join,table=16M,accesses=60000",
];
/// Streams like [`STREAMS`], within the addresses of a 32-bit program.
const NARROW: [&str; 4] = [
    "uniform,size=8M,bits=32,accesses=60000",
    "uniform,size=1G,bits=32,accesses=30000",
    "zipf,size=64M,bits=32,accesses=60000",
    "join,table=16M,bits=32,accesses=60000",
];
/// Page-table formats whose addresses are too short for [`STREAMS`].
const NARROW_FORMATS: [&str; 5] = ["x86-32", "x86-pae", "arm", "sparc-reference", "sv39"];
/// Streams of several processes that take turns, and a kernel.
const TURNS: [&str; 5] = [
    "pingpong,itlb=30,dtlb=40,ipc=266,idle=1,bits=32,accesses=40000",
    "pingpong,dtlb=20,linux=1,bits=32,accesses=40000",
    "pingpong,dtlb=20,linux=2,bits=32,accesses=40000",
    "syscall,bits=32,accesses=40000",
    "packet,bits=32,accesses=40000",
];

/// All lines for hardware.
pub(super) fn lines() -> Vec<Line> {
    let mut all = Vec::new();
    let mut add = |machine: &'static str, settings: &[&str], streams: &[&'static str]| {
        let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
        let lines = streams.iter().map(|spec| Line::generated(machine, settings.clone(), spec));
        all.extend(lines);
    };
    for builtin in BUILTIN {
        let is_narrow = matches!(builtin.name, "pentium4" | "strongarm-1110" | "sparccenter-2000");
        add(builtin.name, &[], if is_narrow { &NARROW } else { &STREAMS });
    }
    for policy in Policy::ALL.map(Policy::name) {
        let of = |key: &str| format!("{key}.replacement={policy}");
        let (opteron, epyc) = ("opteron-2008", "epyc-9005");
        add(opteron, &[&of("tlb.l1d"), &of("tlb.l2d"), &of("cache.l2")], &STREAMS);
        add(epyc, &[&of("tlb.l1d"), &of("tlb.l2d"), &of("cache.l1d")], &STREAMS);
        add(epyc, &[&of("mmu_cache")], &STREAMS);
        let three_ways = ["tlb.l1d.entries=48", "tlb.l1d.ways=3"];
        add("tlb-only", &[&of("tlb.l1d"), &of("tlb.l2"), three_ways[0], three_ways[1]], &STREAMS);
        add("r4700", &[&of("tlb.l1")], &STREAMS);
    }
    for format in page_table_formats() {
        let is_narrow = NARROW_FORMATS.contains(&format);
        let (memory, streams) =
            if is_narrow { ("memory.size=1G", &NARROW) } else { ("memory.size=16G", &STREAMS) };
        let format = format!("page_table.format={format}");
        add("opteron-2008", &[&format, memory], streams);
        add("r4700", &[&format, memory], streams);
    }
    for table in [
        &["page_table.address_bits=52"][..],
        &["os.base_page=16K", "os.page_size=16K"],
        &["os.base_page=64K", "os.page_size=64K"],
        &["os.page_size=64K"],
        &["os.page_size=2M"],
    ] {
        add("neoverse-n1", table, &STREAMS);
    }
    for table in [&["os.page_size=64K"][..], &["os.page_size=2M"]] {
        add("xiangshan-kunminghu", table, &STREAMS);
    }
    for table in [
        &["page_table.levels=5"][..],
        &["page_table.remembers_leaf=false"],
        &["page_table.software_tlb=8K"],
        &["page_table.format=mpt", "page_table.software_tlb=128K"],
        &["page_table.format=guarded", "page_table.nodes=2"],
        &["page_table.format=guarded", "page_table.nodes=64"],
        &["page_table.format=hashed", "page_table.replicated=true"],
        &["page_table.format=clustered", "page_table.partial_subblocks=true"],
        &["page_table.format=clustered", "page_table.entry_pages=4"],
        &["page_table.format=inverted", "page_table.entry_pages=4"],
        &["page_table.format=tsb", "page_table.table=8K"],
    ] {
        let of_16g = ["memory.size=16G"];
        add("opteron-2008", &[table, &of_16g].concat(), &STREAMS);
        let software = ["walker.kind=software", "walker.refill_cycles=20"];
        add("opteron-2008", &[table, &of_16g, &software].concat(), &STREAMS);
    }
    for design in Design::ALL.map(Design::name) {
        let own = format!("mmu_cache.design={design}");
        let of_host = format!("nested.mmu_cache.design={design}");
        let small = "mmu_cache.entries=12";
        add("opteron-2008", &[&own, small], &STREAMS);
        add("opteron-2008", &[&own, small, "mmu_cache.ways=4"], &STREAMS);
        let nested = ["nested.mmu_cache.entries=12", "nested.tlb.entries=32"];
        add("opteron-2008", &[&own, small, &of_host, nested[0], nested[1]], &STREAMS);
        for shared in ["mmu-cache", "nested-tlb", "tlb"] {
            let shared = format!("nested.shared={shared}");
            add("opteron-2008", &[&own, small, "nested.tlb.entries=32", &shared], &STREAMS);
        }
    }
    for kind in BlockKind::ALL.map(BlockKind::name) {
        for key in ["tlb.l1d", "tlb.l2d"] {
            let blocks = format!("{key}.blocks={{kind=\"{kind}\",pages=4}}");
            add("opteron-2008", &[&blocks], &STREAMS);
        }
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
        &["range_tlb={}"],
        &["spec_tlb={}"],
        &["spec_tlb={fill=\"offsets\"}"],
        &["nested={}"],
        &["nested={page_size=\"2M\"}", "nested.spec_tlb={}"],
    ] {
        add("opteron-2008", settings, &STREAMS);
        add("epyc-9005", settings, &STREAMS);
        add("tlb-only", settings, &STREAMS);
    }
    for settings in [
        &[][..],
        &["os.small.slot=256M"],
        &["os.small={slot=\"256M\",revoke=\"versioned\",schedule=\"frequent\"}"],
        &["os.small={slot=\"1G\",revoke=\"purge\",schedule=\"lru\"}"],
        &["os.small={revoke=\"groups\",groups=[[\"0\",\"1\"]]}"],
        &["core.asid_bits=4"],
        &["core.virtual_caches=true"],
    ] {
        add("pentium4", &[settings, &["memory.size=64M"]].concat(), &TURNS);
    }
    let arm = ["pingpong,dtlb=8,ipc=266,idle=1,bits=25,accesses=40000"];
    add("strongarm-1110", &[], &arm);
    add("strongarm-1110", &["os.small.slot=32M"], &arm);
    all
}
