//! The page sizes and frames that the kernel has given to recorded programs, as snapshots in the trace.
//!
//! ```text
//!   program      ---------+-----------+------------+------- exit: waits for the last snapshot
//!   this thread           interval    growth       interval       end
//!                         '-- PAGEMAP_SCAN of /proc/PID/pagemap, at a time t
//!   trace        -------------- all that was done before t, then the snapshot
//! ```
//!
//! A program continues to run while its page table is read, except at its end. Snapshots are taken
//! at intervals, when resident memory has grown by an eighth, and at the end. The size of resident
//! memory is checked every few milliseconds. So the peak is at most an eighth above the largest
//! snapshot. After a snapshot, the next one is taken at the earliest after fifty times the time
//! that the snapshot took.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trace::{KnownSizes, When};

use crate::Error;
use crate::maps::Line;
use crate::pagemap::{self, Frames};
use crate::process::Process;
use crate::session::now;
use crate::snapshot::Snapshot;

/// The time between two snapshots of a program whose memory does not grow.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time between two checks of the size of resident memory.
const LOOK: Duration = Duration::from_millis(4);
/// A snapshot is taken when memory has grown by at least this number of bytes, and by at least one
/// part in `GROWTH`.
const GROWTH_BYTES: u64 = 1 << 20;
const GROWTH: u64 = 8;
/// The pause after a snapshot is this number times the time that the snapshot took.
const REST: u32 = 50;
/// The end of the addresses of programs.
const ADDRESSES_END: u64 = 0x7fff_ffff_f000;

/// For one process: when snapshots were taken, and the files from which they are read.
#[derive(Debug)]
struct Sampled {
    pid: u32,
    generation: u32,
    pagemap: File,
    /// When the last snapshot was taken, and how long it took.
    last: Instant,
    took: Duration,
    /// Bytes of resident memory at that time.
    resident: u64,
}

/// Takes snapshots of all recorded processes.
#[derive(Debug)]
pub(crate) struct Sampler {
    frames: Option<Frames>,
    looked: Instant,
    sampled: Vec<Sampled>,
}

impl Sampler {
    /// A sampler, if snapshots are possible here.
    pub(crate) fn new() -> Result<Sampler, Error> {
        if !pagemap::is_supported() {
            return Err(Error::NoPagemapScan);
        }
        Ok(Sampler { frames: Frames::open(), looked: Instant::now(), sampled: Vec::new() })
    }

    /// A note for a trace's header: the page sizes and addresses that its snapshots can contain.
    pub(crate) fn note(&self) -> &'static str {
        match self.frames {
            Some(_) => {
                "snapshots of the kernel's page tables are recorded, with all page sizes and with \
                 frames"
            }
            None => {
                "snapshots of the kernel's page tables are recorded, and say which pages have 4K \
                 and which have 2M or more; only root can also record frames and the sizes between \
                 these two"
            }
        }
    }

    /// Whether it is time to check all processes again. Also drops the state of processes that have
    /// ended. `lives` returns whether the process with a given identifier and generation is alive.
    pub(crate) fn is_time(&mut self, lives: impl Fn(u32, u32) -> bool) -> bool {
        if self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        self.sampled.retain(|sampled| lives(sampled.pid, sampled.generation));
        true
    }

    /// Takes a snapshot of the process if it is time for one.
    pub(crate) fn look<S: trace::Sink>(&mut self, process: &mut Process<S>, is_time: bool) {
        let word = process.slot.last_pages.load(Ordering::Acquire);
        let (waits, has_ended) = (word == ring::LAST_PAGES_WANTED, word == ring::LAST_PAGES_TAKEN);
        if has_ended || !(waits || is_time) {
            return;
        }
        if process.output.kept().is_none_or(|window| window.is_over()) {
            return;
        }
        let key = (process.pid, process.generation);
        let known = |sampled: &Sampled| (sampled.pid, sampled.generation) == key;
        let at = match self.sampled.iter().position(known) {
            Some(at) => at,
            None => {
                let Some(sampled) = Sampled::begin(key) else { return };
                self.sampled.push(sampled);
                self.sampled.len() - 1
            }
        };
        let sampled = &mut self.sampled[at];
        let when = if waits { Some(When::End) } else { sampled.is_due() };
        if let Some(when) = when {
            let taken = sampled.take(when, self.frames.as_ref(), &process.slot.own.ranges());
            process.snapshots.extend(taken);
        }
        if waits {
            self.sampled.remove(at);
        }
    }
}

impl Sampled {
    fn begin((pid, generation): (u32, u32)) -> Option<Sampled> {
        let pagemap = File::open(format!("/proc/{pid}/pagemap")).ok()?;
        let (last, took) = (Instant::now(), Duration::ZERO);
        Some(Sampled { pid, generation, pagemap, last, took, resident: 0 })
    }

    /// The reason to take a snapshot now, if there is one.
    fn is_due(&self) -> Option<When> {
        let passed = self.last.elapsed();
        if passed < self.took * REST {
            return None;
        }
        let resident = resident(self.pid)?;
        let grown = resident.saturating_sub(self.resident);
        if grown >= GROWTH_BYTES.max(self.resident / GROWTH) {
            return Some(When::Growth);
        }
        (passed >= INTERVAL).then_some(When::Interval)
    }

    /// Takes a snapshot of memory outside of the ranges `own`, which are the engine's; `None` if the process has ended.
    /// Translated code, which is near the program's, has a name.
    fn take(
        &mut self,
        when: When,
        frames: Option<&Frames>,
        own: &[[u64; 2]; ring::OWN_RANGES_MAX],
    ) -> Option<Snapshot> {
        let (ns, began) = (now(), Instant::now());
        self.resident = resident(self.pid).unwrap_or(self.resident);
        let mut found = Vec::new();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        let mut at = 0;
        // The engine's mappings are left out; the rest are the program's.
        let is_engines = |line: &Line<'_>| {
            ring::own_holds(own, line.start) || line.path.starts_with("/memfd:pagewalk")
        };
        for own in maps.lines().filter_map(Line::parse).filter(is_engines) {
            pagemap::translations(&self.pagemap, frames, at, own.start, &mut found)?;
            at = own.end;
        }
        pagemap::translations(&self.pagemap, frames, at, ADDRESSES_END, &mut found)?;
        (self.last, self.took) = (Instant::now(), began.elapsed());
        let sizes = if frames.is_some() { KnownSizes::All } else { KnownSizes::Large };
        Some(Snapshot { ns, when, sizes, found })
    }
}

/// Bytes of a process that are resident.
fn resident(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
