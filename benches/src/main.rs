//! Measures how fast Pagewalk is, in accesses per second.
//!
//! ```text
//!   bench [--smoke] [--only TEXT] [TRACE.pwt ...]
//!   bench --hashes FILE [--write | --first] [--only TEXT]
//! ```
//!
//! `--smoke` runs one round of few accesses, `--only` the lines that contain one of the texts that `|`
//! separates.
//!
//! For each stored trace, the benchmark measures decoding alone, running it through a two-level TLB and
//! through the complete machines `opteron-2008` and `epyc-9005`, decoding included, and counting its
//! LRU curve for five page sizes. Uniform random accesses over 8 MiB and 4 GiB and a hash join are
//! generated in advance and replayed from memory, so that only the machine is timed; a naive loop that
//! counts two levels of TLBs and nothing else is timed for comparison. A stream in which every second
//! access misses the first level is stored and decoded, and compared with the same loop, which has
//! nothing to decode. Designs of a sweep that cannot form a family are swept over the join.
//!
//! The first rate of a line is of one core: accesses per second of user CPU time, in one thread, as the
//! median and the spread of the rounds. The second rate is per second of wall-clock time: the median of
//! rounds in which a second core decodes ahead, as in `pagewalk run`. It is only informative, as it depends
//! on what else runs on the host. The hash is of the counts: two builds with the same counts print the same
//! hash.
//!
//! Each line says how a change is to be judged by it ([`Judge`]).
//!
//! `--hashes FILE` measures nothing: it compares hashes of counts with those in FILE ([`hashes`]), with
//! `--first` only up to the first difference, or writes the file.

mod hashes;
mod naive;
mod replay;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use addr::PageSize;
use machine::{
    Machine, Results, RunOptions,
    curve::{CurveOptions, Lookups, curve},
    sweep::{SweepOptions, sweep},
};
use naive::Shape;
use replay::Replay;
use sha2::{Digest, Sha256};
use trace::{Batch, Options, Reader, Source, Writer, generate};

/// The two-level TLB that other simulators are compared with: a fully associative first level of 64
/// entries and a second level of 1536 entries in 12 ways, all with LRU.
const TWO_LEVEL: [&str; 4] =
    ["tlb.l1i.entries=64", "tlb.l1d.entries=64", "tlb.l2.entries=1536", "tlb.l2.ways=12"];

/// Pages of 2 MiB where regions allow them: two page sizes are in use at once.
const LARGE_PAGES: [&str; 1] = ["os.page_size=2M"];

/// The manager `base`, with base pages: the rate must be at least 95 % of that without it.
const MANAGED: [&str; 1] = ["os.manager=base"];

/// Transparent large pages, and daemons that wake by the clock: the rate must be at least 85 % of that
/// of the manager `base`.
const LINUX: [&str; 1] = ["os.manager=linux"];

/// The MMU cache that B10 recommends: the rate with it must be at least 90 % of that without
/// it.
const MMU_CACHE: [&str; 3] =
    ["mmu_cache.design=utc", "mmu_cache.entries=24", "mmu_cache.replacement=vi-lru"];

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Result<(), Failure> {
    let mut smoke = false;
    let mut bench = Bench { rounds: 5, only: None };
    let (mut traces, mut file, mut write, mut first) = (Vec::new(), None, false, false);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--smoke") => (smoke, bench.rounds) = (true, 1),
            Some("--only") => {
                let only = arguments.next().and_then(|only| only.into_string().ok());
                bench.only = Some(only.ok_or("--only needs a text")?);
            }
            Some("--hashes") => {
                file = Some(PathBuf::from(arguments.next().ok_or("--hashes needs a file")?));
            }
            Some("--write") => write = true,
            Some("--first") => first = true,
            _ => traces.push(PathBuf::from(argument)),
        }
    }
    if let Some(file) = &file {
        return hashes::run(&hashes::Asked { file, write, first, only: bench.only.as_deref() });
    }
    let accesses: u64 = if smoke { 200_000 } else { 10_000_000 };
    let two_level = Machine::load("tlb-only", &TWO_LEVEL.map(str::to_owned))?;
    let opteron = Machine::load("opteron-2008", &[])?;
    let cached = Machine::load("opteron-2008", &MMU_CACHE.map(str::to_owned))?;
    let large = Machine::load("opteron-2008", &LARGE_PAGES.map(str::to_owned))?;
    let managed = Machine::load("opteron-2008", &MANAGED.map(str::to_owned))?;
    let linux = Machine::load("opteron-2008", &LINUX.map(str::to_owned))?;
    let epyc = Machine::load("epyc-9005", &[])?;
    let machines = [
        ("two-level TLB", &two_level),
        ("opteron-2008", &opteron),
        ("and an MMU cache", &cached),
        ("and pages of 2M", &large),
        ("and managed memory", &managed),
        ("and linux", &linux),
        ("epyc-9005", &epyc),
    ];

    writeln!(
        io::stdout(),
        "user CPU: median of rounds in which both builds take turns; instructions: benches/profile.py; \
         wall time: for information\n\
         {:<34} {:>12} {:>10} {:>17} {:>10}  {:<16}  judge by",
        "",
        "accesses",
        "M/s user",
        "min .. max",
        "(M/s wall)",
        "counts"
    )?;
    recorded(&bench, &machines, &traces)?;
    for (span, judge) in [("8M", Judge::Instructions), ("4G", Judge::UserCpu)] {
        let spec = format!("uniform,size={span},accesses={accesses}");
        let shapes = ((64, 64), (1536, 12));
        replayed(&bench, (&format!("uniform over {span}"), &spec, judge), &machines, shapes)?;
    }
    let tlb_only = Machine::load("tlb-only", &[])?;
    let machines = [("tlb-only", &tlb_only), ("opteron-2008", &opteron), ("epyc-9005", &epyc)];
    let join = format!("join,table=256M,accesses={accesses}");
    replayed(&bench, ("join over 256M", &join, Judge::UserCpu), &machines, ((32, 32), (1024, 4)))?;
    mixed(&bench, accesses)?;
    swept(&bench, accesses / 5)
}

/// What is measured, and how many times.
struct Bench {
    rounds: usize,
    /// The lines to measure: those that contain one of these texts, separated by `|`.
    only: Option<String>,
}

/// The number of a line by which a change is judged.
#[derive(Clone, Copy)]
enum Judge {
    /// User CPU time: the host waits for memory, which a count of instructions does not show.
    UserCpu,
    /// Instructions, which do not depend on what else the host does: the data that is used is in the
    /// host's caches.
    Instructions,
}

impl Judge {
    const fn name(self) -> &'static str {
        match self {
            Judge::UserCpu => "user CPU",
            Judge::Instructions => "instructions",
        }
    }
}

/// A machine with its name in lines.
type Named<'a> = (&'a str, &'a Machine);

/// Measures stored traces, decoding included.
fn recorded(bench: &Bench, machines: &[Named<'_>], traces: &[PathBuf]) -> Result<(), Failure> {
    for path in traces {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        bench.measure(&format!("{name}: decode"), Judge::Instructions, &mut |cores| {
            decode(&mut cores.open(path)?)
        })?;
        for (what, machine) in machines {
            let line = format!("{name}: {what}");
            let judge = Judge::Instructions;
            bench.measure(&line, judge, &mut |cores| run(machine, &mut cores.open(path)?))?;
        }
        for lookups in [Lookups::Data, Lookups::All] {
            let line = format!("{name}: curve of {}", lookups.name());
            let judge = Judge::Instructions;
            bench.measure(&line, judge, &mut |cores| curves(lookups, &mut cores.open(path)?))?;
        }
    }
    Ok(())
}

/// Measures the accesses of a generator, replayed from memory.
fn replayed(
    bench: &Bench,
    (name, spec, judge): (&str, &str, Judge),
    machines: &[Named<'_>],
    (first, second): (Shape, Shape),
) -> Result<(), Failure> {
    let line = |what: &str| format!("{name}: {what}");
    let naive = line("naive");
    if !machines.iter().any(|(what, _)| bench.takes(&line(what))) && !bench.takes(&naive) {
        return Ok(());
    }
    let mut replay = Replay::new(generate::parse(spec)?.as_mut())?;
    for (what, machine) in machines {
        bench.measure(&line(what), judge, &mut |_| {
            replay.rewind();
            run(machine, &mut replay)
        })?;
    }
    bench.measure(&naive, judge, &mut |_| Ok(naively(&replay, first, second)))
}

/// A round of the naive loop over the addresses of `made`.
fn naively(made: &Replay, first: Shape, second: Shape) -> Round {
    let accesses = made.addrs().map(|addrs| addrs.len() as u64).sum();
    let counts = naive::two_levels(made.addrs(), first, second);
    (accesses, format!("{} {}", counts.l1_misses, counts.l2_misses))
}

/// Measures two shapes of TLBs that miss in half of a stream, and a naive loop over the same
/// addresses.
fn mixed(bench: &Bench, accesses: u64) -> Result<(), Failure> {
    let spec = format!("zipf,size=16M,exponent=1.15,accesses={accesses}");
    let path = std::env::temp_dir().join(format!("pagewalk-bench-{}.pwt", std::process::id()));
    let shapes = [((64, 64), (512, 4)), ((64, 4), (1536, 12))];
    let line = |((l1, l1_ways), (l2, l2_ways)): (Shape, Shape)| {
        let ways = if l1_ways == l1 { "full".to_owned() } else { format!("{l1_ways}-way") };
        format!("misses: {l1} {ways}, {l2} {l2_ways}-way")
    };
    if !shapes.iter().any(|shape| bench.takes(&line(*shape))) {
        return Ok(());
    }
    let mut source = generate::parse(&spec)?;
    let mut writer = Writer::create(&path, source.header().clone(), Options::default())?;
    trace::copy(source.as_mut(), &mut writer, &mut |_| true)?;
    writer.finish()?;
    let made = Replay::new(&mut Reader::open(&path)?.in_place())?;
    let all = || -> Result<(), Failure> {
        for (first, second) in shapes {
            let settings = [
                format!("tlb.l1d.entries={}", first.0),
                format!("tlb.l1d.ways={}", first.1),
                format!("tlb.l2.entries={}", second.0),
                format!("tlb.l2.ways={}", second.1),
            ];
            let machine = Machine::load("tlb-only", &settings)?;
            let line = line((first, second));
            let judge = Judge::Instructions;
            bench.measure(&line, judge, &mut |cores| run(&machine, &mut cores.open(&path)?))?;
            let naive = format!("{line}, naive");
            bench.measure(&naive, judge, &mut |_| Ok(naively(&made, first, second)))?;
        }
        Ok(())
    };
    let done = all();
    std::fs::remove_file(&path)?;
    done
}

/// Measures designs that a sweep simulates one by one, over a join; a line counts the accesses of
/// all designs.
fn swept(bench: &Bench, accesses: u64) -> Result<(), Failure> {
    let designs = [
        ["mmu_cache.design=uptc", "mmu_cache.entries=24", "mmu_cache.replacement=fifo"],
        ["mmu_cache.design=utc", "mmu_cache.entries=24", "mmu_cache.replacement=greedy-dual"],
        ["mmu_cache.design=utc", "mmu_cache.entries=24", "mmu_cache.replacement=vi-lru"],
        ["mmu_cache.design=tpc", "mmu_cache.entries=24", "mmu_cache.replacement=random"],
        ["mmu_cache.design=uptc", "mmu_cache.entries=24", "mmu_cache.ways=4"],
        ["mmu_cache.design=stc", "mmu_cache.entries=16", "mmu_cache.ways=4"],
        ["mmu_cache.design=utc", "mmu_cache.entries=24", "cache.l2.size=2M"],
        ["mmu_cache.design=utc", "mmu_cache.entries=24", "nested.page_size=4K"],
    ];
    let line = "sweep: outside families";
    if !bench.takes(line) {
        return Ok(());
    }
    let machines = designs.map(|design| Machine::load("opteron-2008", &design.map(str::to_owned)));
    let machines: Vec<Machine> = machines.into_iter().collect::<Result<_, _>>()?;
    let spec = format!("join,table=256M,accesses={accesses}");
    bench.measure(line, Judge::UserCpu, &mut |_| {
        let mut source = generate::parse(&spec)?;
        let options = SweepOptions { threads: 1, progress: &mut |_| true };
        let outcomes = sweep(&machines, source.as_mut(), options)?;
        let counts: Vec<_> = outcomes.into_iter().collect::<Result<Vec<Results>, _>>()?;
        let counts: Vec<_> =
            counts.iter().map(|one| (&one.tlbs, &one.walks, &one.caches)).collect();
        Ok((accesses * machines.len() as u64, hash(&serde_json::to_vec(&counts)?)))
    })
}

/// The cores that a round may use.
#[derive(Clone, Copy)]
enum Cores {
    One,
    All,
}

impl Cores {
    fn open(self, path: &Path) -> Result<Reader, trace::Error> {
        let reader = Reader::open(path)?;
        Ok(match self {
            Cores::One => reader.in_place(),
            Cores::All => reader,
        })
    }
}

/// The number of accesses of a round, and a hash of its counts.
type Round = (u64, String);

impl Bench {
    /// Whether the line called `name` is to be measured.
    fn takes(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.split('|').any(|one| name.contains(one)))
    }

    /// Times rounds on one core, and about half as many on all, and prints a line for them.
    fn measure(
        &self,
        name: &str,
        judge: Judge,
        round: &mut dyn FnMut(Cores) -> Result<Round, Failure>,
    ) -> Result<(), Failure> {
        if !self.takes(name) {
            return Ok(());
        }
        let (mut user_rates, mut wall_rates) = (Vec::new(), Vec::new());
        let mut outcome: Option<Round> = None;
        for number in 0..self.rounds {
            for cores in [Cores::One, Cores::All].into_iter().take(2 - number % 2) {
                let (user, wall) = (user_seconds(), Instant::now());
                let this = round(cores)?;
                let (rates, seconds) = match cores {
                    Cores::One => (&mut user_rates, user_seconds() - user),
                    Cores::All => (&mut wall_rates, wall.elapsed().as_secs_f64()),
                };
                rates.push(this.0 as f64 / seconds.max(1e-9) / 1e6);
                if outcome.as_ref().is_some_and(|first| *first != this) {
                    return Err(format!("{name}: two rounds counted differently").into());
                }
                outcome = Some(this);
            }
        }
        let [[user, min, max], [wall, ..]] = [user_rates, wall_rates].map(spread);
        let Some((accesses, counts)) = outcome else { return Ok(()) };
        writeln!(
            io::stdout(),
            "{name:<34} {accesses:>12} {user:>10.1} {min:>7.1} .. {max:<6.1} {:>10}  {counts:<16}  {}",
            format!("({wall:.1})"),
            judge.name()
        )?;
        Ok(())
    }
}

/// The median, the least and the greatest of `rates`, which must not be empty.
fn spread(mut rates: Vec<f64>) -> [f64; 3] {
    rates.sort_by(f64::total_cmp);
    [rates[rates.len() / 2], rates[0], rates[rates.len() - 1]]
}

/// Decodes all of `source` and hashes the contents.
fn decode(source: &mut dyn Source) -> Result<Round, Failure> {
    let mut batch = Batch::default();
    let (mut accesses, mut sum) = (0, 0u64);
    while source.next(&mut batch)? {
        accesses += batch.len() as u64;
        sum = batch.addr.iter().fold(sum, |sum, addr| sum.wrapping_add(*addr));
    }
    Ok((accesses, format!("{:016x}", sum ^ accesses)))
}

/// Runs all of `source` on `machine` and hashes the counts.
fn run(machine: &Machine, source: &mut dyn Source) -> Result<Round, Failure> {
    let options = RunOptions { check: false, progress: &mut |_| true };
    let results = machine.run(source, options)?;
    let counts = (&results.tlbs, &results.walks, &results.caches, &results.accesses);
    let hash = hash(&serde_json::to_vec(&counts)?);
    // Only what ran is counted: a machine that leaves fetches out still decodes them.
    let accesses = results.accesses;
    Ok((accesses.fetch + accesses.load + accesses.store, hash))
}

/// Counts the curves of all of `source` for 4K to 1G and hashes them.
fn curves(lookups: Lookups, source: &mut dyn Source) -> Result<Round, Failure> {
    let page_sizes = [12, 14, 16, 21, 30].into_iter().filter_map(PageSize::from_shift).collect();
    let options = CurveOptions { lookups: vec![lookups], page_sizes, entries_max: 1 << 16 };
    let mut accesses = 0;
    let curves = curve(source, &options, &mut |progress| {
        accesses = progress.accesses;
        true
    })?;
    let hits: Vec<u64> = curves.into_iter().flat_map(|curve| curve.hits).collect();
    Ok((accesses, hash(&serde_json::to_vec(&hits)?)))
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The user CPU time of the process so far, in seconds.
fn user_seconds() -> f64 {
    // SAFETY: all fields of rusage are integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a rusage that lives until the call returns.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    usage.ru_utime.tv_sec as f64 + usage.ru_utime.tv_usec as f64 / 1e6
}
