//! Measures operations of the HAT layer on this host, in nanoseconds per page of 4 KiB.
//!
//! ```text
//!   cargo bench -p smp [-- --smoke]
//! ```
//!
//! Each thread has its own space and frames. It loads its pages one by one, protects them, requests
//! their usage and unloads them. Then it repeats these operations with ranges of 64 pages. Four
//! implementations are compared: the layer without locks (`single`), the layer with one lock, the
//! layer with a lock for each descriptor, and a simple implementation ([`rival`]), which has a
//! mutex around a page table of another crate and a hash map from frames to pages. All
//! implementations have their page tables in memory that is mapped in one piece, as in a kernel.
//! Shootdowns take no time.
//!
//! On two threads, a number is the mean of both threads. It is only valid if two cores are free for
//! the threads. To show this, the last line has the time of the same work on two threads that share
//! nothing, divided by the time on one thread.
//!
//! The implementations take turns in each round. A number is the median over the rounds.

#[path = "../../../pagetable/benches/native/arena.rs"]
#[allow(dead_code)]
mod arena;
mod ours;
mod rival;

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use hat::{
    Pool,
    locking::{Embedded, Fine, Global, ListLocks, Single},
};
use ours::Ours;
use rival::Rival;
use smp::Native;

/// The number of pages of a thread.
const PAGES: u64 = 2048;
/// The number of pages of a range.
const RANGE: u64 = 64;
const PAGE_BYTES: u64 = 4096;
const OPERATIONS: [&str; 7] =
    ["load", "protect", "usage", "unload", "load 64", "protect 64", "unload 64"];
const THREADS_MAX: usize = 2;

/// An implementation that is compared: it keeps translations of several spaces, and the mappings of
/// each frame.
trait Contender {
    /// The data of a thread.
    type Thread: Send;

    /// Makes the data of the thread `number`, with a space.
    fn thread(&self, number: usize) -> Self::Thread;
    /// Maps pages to adjacent frames.
    fn load(&self, thread: &mut Self::Thread, start: u64, frame: u64, pages: u64);
    /// Makes pages read-only.
    fn protect(&self, thread: &mut Self::Thread, start: u64, pages: u64);
    /// Whether a frame was accessed through any of its mappings.
    fn usage(&self, thread: &mut Self::Thread, frame: u64) -> bool;
    fn unload(&self, thread: &mut Self::Thread, start: u64, pages: u64);
}

/// The address of a thread's page `number`. The pages of a thread are in several tables.
fn page(number: u64) -> u64 {
    (1 << 32) + number * PAGE_BYTES
}

/// The address of the page's frame.
fn frame(thread: usize, number: u64) -> u64 {
    (1 << 32) + (thread as u64 * PAGES + number) * PAGE_BYTES
}

/// Nanoseconds per page of each operation of one thread.
fn work<C: Contender>(all: &C, number: usize, at: &mut C::Thread) -> [f64; OPERATIONS.len()] {
    let timed = |f: &mut dyn FnMut()| {
        let began = Instant::now();
        f();
        began.elapsed().as_secs_f64() * 1e9 / PAGES as f64
    };
    let mut used = 0;
    let took = [
        timed(&mut || (0..PAGES).for_each(|of| all.load(at, page(of), frame(number, of), 1))),
        timed(&mut || (0..PAGES).for_each(|of| all.protect(at, page(of), 1))),
        timed(&mut || {
            used += (0..PAGES).filter(|&of| all.usage(at, frame(number, of))).count();
        }),
        timed(&mut || (0..PAGES).for_each(|of| all.unload(at, page(of), 1))),
        timed(&mut || {
            let ranges = (0..PAGES).step_by(RANGE as usize);
            ranges.for_each(|of| all.load(at, page(of), frame(number, of), RANGE));
        }),
        timed(&mut || {
            (0..PAGES).step_by(RANGE as usize).for_each(|of| all.protect(at, page(of), RANGE));
        }),
        timed(&mut || {
            (0..PAGES).step_by(RANGE as usize).for_each(|of| all.unload(at, page(of), RANGE));
        }),
    ];
    assert_eq!(used, 0, "no walker has set a bit");
    took
}

/// One round of threads, one thread for each implementation in `of`. Returns the mean times of each
/// operation.
fn round<C: Contender + Sync>(of: &[&C]) -> [f64; OPERATIONS.len()] {
    let start = Barrier::new(of.len());
    let took: Vec<[f64; OPERATIONS.len()]> = thread::scope(|scope| {
        let start = &start;
        let threads: Vec<_> = of
            .iter()
            .enumerate()
            .map(|(number, contender)| {
                scope.spawn(move || {
                    let mut thread = contender.thread(number);
                    start.wait();
                    // The first time is not measured: tables are made, and cache lines are not in
                    // near caches.
                    work(*contender, number, &mut thread);
                    start.wait();
                    work(*contender, number, &mut thread)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread works")).collect()
    });
    std::array::from_fn(|place| took.iter().map(|one| one[place]).sum::<f64>() / of.len() as f64)
}

fn median(rounds: &[[f64; OPERATIONS.len()]]) -> [f64; OPERATIONS.len()] {
    std::array::from_fn(|place| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round[place]).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let smoke = arguments.iter().any(|a| a == "--smoke");
    let rounds = if smoke { 1 } else { 41 };

    let single = Ours::new(Global::<_, Single>::new(Pool::unlimited()));
    let global = Ours::new(Global::<_, Native>::new(Pool::unlimited()));
    let embedded =
        || Ours::new(Fine::<_, Native, _>::new(&Embedded, Pool::unlimited(), ListLocks::One));
    let (embedded, control) = (embedded(), [embedded(), embedded()]);
    let rival = Rival::new();
    let mut took: [Vec<_>; 8] = Default::default();
    for _ in 0..rounds {
        took[0].push(single.alone());
        took[1].push(round(&[&global]));
        took[2].push(round(&[&embedded]));
        took[3].push(round(&[&rival]));
        took[4].push(round(&[&global, &global]));
        took[5].push(round(&[&embedded, &embedded]));
        took[6].push(round(&[&rival, &rival]));
        took[7].push(round(&[&control[0], &control[1]]));
    }
    let took = took.map(|rounds| median(&rounds));
    print!("{:<34}", "ns per page");
    OPERATIONS.iter().for_each(|operation| print!("{operation:>12}"));
    println!();
    let line = |name: &str, numbers: [f64; OPERATIONS.len()]| {
        print!("{name:<34}");
        numbers.iter().for_each(|number| print!("{number:>12.2}"));
        println!();
    };
    let names = ["single", "global", "embedded", "rival"];
    names.iter().zip(&took).for_each(|(name, numbers)| line(name, *numbers));
    for (name, numbers) in names[1..].iter().zip(&took[4..7]) {
        line(&format!("{name}, two threads"), *numbers);
    }
    let over = |one: usize, other: usize| {
        std::array::from_fn(|place| took[one][place] / took[other][place])
    };
    line("embedded over single", over(2, 0));
    line("rival over embedded", over(3, 2));
    line("rival over embedded, two threads", over(6, 5));
    line("nothing shared: two threads over 1", over(7, 2));
}
