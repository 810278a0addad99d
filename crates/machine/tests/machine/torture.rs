//! Runs random machines on random traces: every kind of TLB, page table, MMU cache, virtual machine
//! and context policy, with programs that map, move, protect, unmap and switch.
//!
//! Each machine is tested in three ways. A run that checks every translation must have the counts
//! of a run that does not; a sweep must have the counts of a run alone; and, if all pages have 4K,
//! the first touches must equal those of a set of touched pages. After each run the identities of
//! the counts are checked too ([`machine::Results`]).
//!
//! With `PAGEWALK_TORTURE_SECONDS` the test continues with other seeds for this time;
//! `PAGEWALK_TORTURE_SEED` is the first seed.

use std::{
    collections::BTreeSet,
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use addr::Kind;
use machine::{
    Machine, Results, RunOptions,
    sweep::{SweepOptions, sweep},
};
use trace::Event;

use crate::support::{Row, Rows, Stream};

const PAGE: u64 = 4096;
const REGION_PAGES: u64 = 24;
const CASES: u64 = 60;

fn one_of<'a>(stream: &mut Stream, of: &[&'a str]) -> &'a str {
    of[stream.below(of.len() as u64) as usize]
}

const POLICIES: [&str; 9] =
    ["lru", "fifo", "random", "tree-plru", "nru", "lfu", "srrip", "greedy-dual", "vi-lru"];

/// The table of a TLB in a machine file.
fn tlb(stream: &mut Stream, key: &str, sizes: &str) -> String {
    let ways = one_of(stream, &["1", "2", "4", "\"full\"", "\"full\""]);
    let sets = 1 << stream.below(4);
    let entries =
        if ways == "\"full\"" { 1 + stream.below(20) } else { ways.parse::<u64>().unwrap() * sets };
    let replacement = one_of(stream, &POLICIES);
    let latency = stream.below(3) * 3;
    format!(
        "[{key}]\nentries = {entries}\nways = {ways}\nreplacement = \"{replacement}\"\n\
         page_sizes = {sizes}\nlatency_cycles = {latency}\nsource = \"-\"\n"
    )
}

fn mmu_cache(stream: &mut Stream, key: &str, designs: &[&str]) -> String {
    let design = one_of(stream, designs);
    let (entries, replacement) = (1 + stream.below(8), one_of(stream, &POLICIES));
    let latency = stream.below(3);
    format!(
        "[{key}]\ndesign = \"{design}\"\nentries = {entries}\nreplacement = \"{replacement}\"\n\
         latency_cycles = {latency}\nsource = \"-\"\n"
    )
}

const DESIGNS: [&str; 6] = ["none", "uptc", "sptc", "utc", "stc", "tpc"];
const UNIFIED: [&str; 4] = ["none", "uptc", "utc", "tpc"];

/// The page tables: keys, number of address bits, and the MMU caches that are possible.
const TABLES: [(&str, u32, &[&str]); 22] = [
    ("format = \"x86-64\"", 47, &DESIGNS),
    ("format = \"x86-64\"\nlevels = 5", 56, &DESIGNS),
    ("format = \"x86-64\"\nremembers_leaf = false", 47, &DESIGNS),
    ("format = \"x86-64\"\nsoftware_tlb = \"8K\"", 47, &["none"]),
    ("format = \"flattened\"", 47, &DESIGNS),
    ("format = \"mpt\"", 63, &DESIGNS),
    ("format = \"mpt\"\nremembers_leaf = false", 63, &DESIGNS),
    ("format = \"mpt\"\nsoftware_tlb = \"128K\"", 63, &["none"]),
    ("format = \"guarded\"\nnodes = 2", 63, &UNIFIED),
    ("format = \"guarded\"\nnodes = 4", 63, &UNIFIED),
    ("format = \"guarded\"\nnodes = 64", 63, &UNIFIED),
    ("format = \"guarded-adaptive\"", 63, &UNIFIED),
    ("format = \"guarded\"\nsoftware_tlb = \"8K\"", 63, &["none"]),
    ("format = \"linear\"", 63, &["none"]),
    ("format = \"hashed\"\ntable = \"8K\"", 63, &["none"]),
    ("format = \"hashed\"\nentry_pages = 4\nreplicated = true", 63, &["none"]),
    ("format = \"clustered\"\npartial_subblocks = true", 63, &["none"]),
    ("format = \"clustered\"\nentry_pages = 16", 63, &["none"]),
    ("format = \"inverted\"", 63, &["none"]),
    ("format = \"tsb\"\ntable = \"8K\"", 63, &["none"]),
    ("format = \"powerpc\"", 47, &["none"]),
    ("format = \"elastic-cuckoo\"", 63, &["none"]),
];

/// A machine file, the number of address bits of its page table, and whether all pages have 4K.
fn description(stream: &mut Stream) -> (String, u32, bool) {
    let mut text = "title = \"a random machine\"\nsource = \"-\"\n".to_owned();
    let (table, bits, designs) = TABLES[stream.below(TABLES.len() as u64) as usize];
    let is_hardware = stream.below(3) > 0;
    let is_nested = is_hardware && stream.below(5) == 0;
    let is_paired = stream.below(5) == 0;
    let pages = if stream.below(8) == 0 { "2M" } else { "4K" };
    let is_small = pages == "4K";
    let sizes = match (is_paired, is_nested) {
        (true, false) => format!("[\"{pages}\"]"),
        _ => "[\"4K\", \"2M\"]".to_owned(),
    };
    let _ = write!(
        text,
        "[core]\nfetches = {}\nasid_bits = {}\ncontexts = \"{}\"\ncycles_per_instruction = 0.5\n\
         source = \"-\"\n",
        stream.below(4) > 0,
        [0, 0, 1, 2, 8][stream.below(5) as usize],
        one_of(stream, &["modulo", "lru", "generation", "per-processor"]),
    );
    let first: &[&str] =
        [&["l1"][..], &["l1i", "l1d"], &["l1i", "l1d", "l1s"]][stream.below(3) as usize];
    let second: &[&str] = [&[][..], &["l2"], &["l2i", "l2d"], &["l2d"]][stream.below(4) as usize];
    for name in first.iter().chain(second) {
        text += &tlb(stream, &format!("tlb.{name}"), &sizes);
        if is_paired && !is_nested {
            text += "paired = true\n";
        }
    }
    let _ = write!(text, "[page_table]\n{table}\nsource = \"-\"\n");
    let _ = write!(
        text,
        "[walker]\nkind = \"{}\"\ntracks_dirty = {}\nrefill_cycles = 7\nexception_cycles = 11\n\
         source = \"-\"\n",
        if is_hardware { "hardware" } else { "software" },
        stream.below(3) == 0,
    );
    if is_hardware {
        text += &mmu_cache(stream, "mmu_cache", designs);
    }
    if is_nested {
        let format = one_of(
            stream,
            &[
                "x86-64",
                "mpt",
                "flattened",
                "guarded",
                "guarded-adaptive",
                "hashed",
                "elastic-cuckoo",
            ],
        );
        let _ = write!(
            text,
            "[nested]\nformat = \"{format}\"\npage_size = \"{}\"\nsource = \"-\"\n",
            if format == "x86-64" && stream.below(2) == 0 { "2M" } else { "4K" }
        );
        let host_designs: &[&str] = match format {
            "x86-64" | "mpt" | "flattened" => &DESIGNS,
            "guarded" | "guarded-adaptive" => &UNIFIED,
            _ => &["none"],
        };
        text += &mmu_cache(stream, "nested.mmu_cache", host_designs);
    }
    for (name, size) in [("l1i", 4), ("l1d", 4), ("l2", 16), ("l3", 64)] {
        if stream.below(2) == 0 {
            let line = if name < "l2" { "32B" } else { "64B" };
            let replacement = one_of(stream, &["lru", "tree-plru"]);
            let _ = write!(
                text,
                "[cache.{name}]\nsize = \"{size}K\"\nline = \"{line}\"\nways = 4\n\
                 replacement = \"{replacement}\"\nlatency_cycles = 4\nsource = \"-\"\n"
            );
        }
    }
    let _ = write!(
        text,
        "[memory]\nsize = \"{}\"\nlatency_cycles = 100\nsource = \"-\"\n",
        if is_small { "256M" } else { "4G" },
    );
    let populated = stream.below(6) == 0;
    let _ =
        write!(text, "[os]\npage_size = \"{pages}\"\npopulated = {populated}\nsource = \"-\"\n");
    (text, bits, is_small)
}

/// A model of first touches: the set of touched pages.
#[derive(Default)]
struct Touched {
    pages: BTreeSet<(u32, u64)>,
    space: u32,
    first_touches: u64,
}

impl Touched {
    fn access(&mut self, addr: u64, bytes: u32) {
        for page in addr / PAGE..=(addr + u64::from(bytes) - 1) / PAGE {
            self.first_touches += u64::from(self.pages.insert((self.space, page)));
        }
    }

    fn unmap(&mut self, addr: u64, bytes: u64) {
        let (first, end) = (addr / PAGE, (addr + bytes).div_ceil(PAGE));
        self.pages.retain(|&(space, page)| space != self.space || page < first || page >= end);
    }

    fn remap(&mut self, old: u64, old_bytes: u64, new: u64, new_bytes: u64) {
        if new_bytes < old_bytes {
            self.unmap(old + new_bytes, old_bytes - new_bytes);
        }
        self.unmap(new, new_bytes);
        for page in 0..old_bytes.min(new_bytes) / PAGE {
            if self.pages.remove(&(self.space, old / PAGE + page)) {
                self.pages.insert((self.space, new / PAGE + page));
            }
        }
    }
}

/// A random program in regions anywhere below 2 to the power of `bits`. Returns its rows, and the
/// number of first touches since the end of the warm-up.
fn life(stream: &mut Stream, bits: u32, fetches: bool) -> (Vec<Row>, u64) {
    let region_bytes = REGION_PAGES.next_power_of_two() * PAGE;
    let mut regions: Vec<u64> = Vec::new();
    while regions.len() < 16 {
        let far = stream.next() >> (64 - bits + stream.below(20) as u32);
        let near = regions.last().map_or(far, |last| last ^ region_bytes << stream.below(8));
        let start = [far, near][stream.below(2) as usize] & !(region_bytes - 1);
        if start >= region_bytes && !regions.contains(&start) {
            regions.push(start);
        }
    }
    let mut rows = Vec::new();
    let mut touched = Touched::default();
    let steps = 400 + stream.below(1200);
    let warm = if stream.below(3) == 0 { stream.below(steps) } else { steps };
    let some_events = 12 + stream.below(200);
    for step in 0..steps {
        if step == warm {
            rows.push(Row::Event(Event::WarmupEnd));
            touched.first_touches = 0;
        }
        let region = regions[stream.below(16) as usize];
        let first = stream.below(REGION_PAGES);
        let count = 1 + stream.below((REGION_PAGES - first).min(9));
        let (addr, bytes) = (region + first * PAGE, count * PAGE);
        let to = regions[stream.below(16) as usize];
        match stream.below(some_events) {
            0 => {
                touched.unmap(addr, bytes);
                rows.push(Row::Event(Event::Munmap { addr, bytes, result: 0 }));
            }
            1 => {
                let prot = stream.below(8) as u32;
                rows.push(Row::Event(Event::Mprotect { addr, bytes, prot, result: 0 }));
            }
            2 if to != region => {
                let new_count = 1 + stream.below(REGION_PAGES);
                let new = to + stream.below(REGION_PAGES - new_count + 1) * PAGE;
                let new_bytes = new_count * PAGE;
                touched.remap(addr, bytes, new, new_bytes);
                rows.push(Row::Event(Event::Mremap {
                    addr,
                    old_bytes: bytes,
                    new_bytes,
                    flags: 3,
                    new_addr: new,
                    result: new as i64,
                }));
            }
            3 => {
                let space = stream.below(5) as u32;
                touched.space = space;
                rows.push(Row::Event(Event::Run { cpu: None, space }));
            }
            4 => {
                touched.unmap(addr, bytes);
                let prot = 1 + stream.below(7) as u32;
                rows.push(Row::Event(Event::Mmap {
                    addr,
                    bytes,
                    prot,
                    flags: 0x22,
                    fd: -1,
                    offset: 0,
                    path: None,
                    file: None,
                    result: addr as i64,
                }));
            }
            5 => {
                touched.unmap(addr, bytes);
                rows.push(Row::Event(Event::Madvise { addr, bytes, advice: 4, result: 0 }));
            }
            6 => rows.push(Row::Event(Event::Gap { accesses: 9, instructions: 90 })),
            _ => {
                let kind = Kind::ALL[stream.below(3) as usize];
                let size = [1, 4, 8, 8, 8, 64, 300][stream.below(7) as usize];
                let place = addr + stream.below(PAGE);
                if kind != Kind::Fetch || fetches {
                    touched.access(place, size);
                }
                rows.push(Row::Access(kind, place, size));
            }
        }
    }
    (rows, touched.first_touches)
}

fn alone(machine: &Machine, rows: &[Row], check: bool) -> Result<Results, String> {
    let options = RunOptions { check, progress: &mut |_| true };
    machine.run(&mut Rows::new(rows.to_vec()), options).map_err(|error| error.to_string())
}

/// Runs one random machine. Returns whether it could be built, or what was wrong.
fn case(seed: u64) -> Result<bool, String> {
    let mut stream = Stream(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..8).for_each(|_| _ = stream.next());
    let (text, bits, is_small) = description(&mut stream);
    let load = |settings: &[String]| Machine::parse("random", &text, "random", settings);
    let Ok(machine) = load(&[]) else { return Ok(false) };
    let core = &machine.description().core;
    let (rows, first_touches) = life(&mut stream, bits, core.fetches);
    let wrong = |what: &str| format!("seed {seed}: {what}\n{text}");
    let checked = alone(&machine, &rows, true);
    let fast = alone(&machine, &rows, false);
    let (fast, checked) = match (fast, checked) {
        (Ok(fast), Ok(checked)) => (fast, checked),
        // Memory may run out, or the part of it whose addresses fit into the format's entries.
        (Err(one), Err(other)) if one == other && one.contains("memory") => return Ok(true),
        (one, other) => {
            return Err(wrong(&format!("fast {:?}\nchecked {:?}", one.err(), other.err())));
        }
    };
    if (Results { checked: true, ..fast.clone() }) != checked {
        return Err(wrong("a run that checks counts otherwise"));
    }
    let populated = machine.description().os.populated;
    if is_small && !populated && fast.faults.first_touch != first_touches {
        let counted = fast.faults.first_touch;
        return Err(wrong(&format!("{counted} first touches, and {first_touches} by the model")));
    }
    let others = ["mmu_cache.entries=5", "memory.latency_cycles=200", "mmu_cache.design=none"];
    let designs = others.iter().filter_map(|setting| load(&[(*setting).to_owned()]).ok());
    let machines: Vec<Machine> = std::iter::once(machine).chain(designs).collect();
    let options = SweepOptions { threads: 1, progress: &mut |_| true };
    let swept = sweep(&machines, &mut Rows::new(rows.clone()), options);
    let swept = swept.map_err(|error| wrong(&error.to_string()))?;
    for (machine, swept) in machines.iter().zip(swept) {
        // A sweep does not report the origins of misses.
        let own = alone(machine, &rows, false).map(|own| Results { origins: None, ..own });
        if own.is_ok() != swept.is_ok() || own.is_ok() && own != swept {
            let both = [own.err(), swept.err()];
            return Err(wrong(&format!(
                "a sweep counts otherwise: {:?} {both:?}",
                machine.settings()
            )));
        }
    }
    Ok(true)
}

#[test]
fn random_machines_stay_right_under_random_traces() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("PAGEWALK_TORTURE_SECONDS").map(Duration::from_secs);
    let start = number("PAGEWALK_TORTURE_SEED").unwrap_or(1);
    let began = Instant::now();
    let (mut built, mut seed, mut wrongs) = (0, start, Vec::new());
    while seed < start + CASES || seconds.is_some_and(|seconds| began.elapsed() < seconds) {
        println!("seed {seed}");
        match catch_unwind(AssertUnwindSafe(|| case(seed))) {
            Ok(Ok(was_built)) => built += u64::from(was_built),
            Ok(Err(what)) => wrongs.push(what),
            Err(_) => wrongs.push(format!("seed {seed}: a panic")),
        }
        seed += 1;
    }
    println!("{built} of {} machines could be built", seed - start);
    assert!(wrongs.is_empty(), "{} of {}:\n{}", wrongs.len(), seed - start, wrongs.join("\n"));
    assert!(built * 4 > (seed - start) * 3, "{built} of {} could be built", seed - start);
}
