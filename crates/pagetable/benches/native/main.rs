//! Measures how fast page tables are on this host, in nanoseconds per page of 4 KiB.
//!
//! ```text
//!   cargo bench -p pagewalk-pagetable [-- [--smoke] [--shuffled] [NAME]]
//! ```
//!
//! All measured tables do the same work in one run: regions of 256 pages are mapped page by page,
//! walked in a shuffled order, made read-only and unmapped; then all of this is done again, with
//! one operation per region. All tables are in memory that is mapped in one piece, as in a kernel.
//! Loops are compiled for each table, as in code that uses it, and required flushes are passed to a
//! black box.
//!
//! Everything is measured in two ways: with plain loads and stores, which is correct if no walker
//! runs; and *with walkers*, where the accessed and dirty bits of a present entry may change at any
//! time and entries are therefore changed by a locked instruction. The column `locked` has the
//! additional cost of such an instruction over a plain store, on the entries of the same pages in
//! the same order.
//!
//! A line has the shortest time of each operation in all rounds, because other load on the host
//! only makes a round longer. The last column is a sum of the results of the walks, which must be
//! equal for all tables. With NAME, only tables whose names begin with NAME run. With `--shuffled`,
//! single pages are mapped, protected and unmapped in the order of the walks too, so that no page
//! is adjacent to the previous page.
//!
//! Page tables of two other crates are measured together with our tables of the same formats:
//! x86-64, and for `page_table_multiarch` also Sv39 and AArch64. Unmodified, they change entries by
//! plain stores and lose bits, as [`lost`] shows. For the measurement with walkers, a wrapper makes
//! them use the exchange that our tables use. They keep empty tables, and before they map a page
//! they check only the entry of this page, not whether pages of another size are mapped at its
//! addresses. In place of a walk they look up a page: they report no references, and
//! `page_table_multiarch` treats every address as canonical.

mod arena;
mod lock;
mod lost;
mod ours;
mod peers;
mod work;

use std::time::Duration;

use lock::Lock;
use ours::Ours;
use page_table_entry::x86_64::X64PTE;
use pagetable::{
    Aarch64, CacheShape, Cached, ElasticCuckoo, Guarded, Hashed, HashedShape, Mpt, PageTable,
    Split, Sv39, Sv48, Sv57, X86_64,
};
use peers::{A64, Coded, Entry, Exchanged, Multiarch, Offset, Rv64};
use work::{Contender, OPERATIONS, Order, Took};

const ARENA_BYTES: u64 = 48 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` runs this without `--bench`; then it is only a smoke test.
    let smoke =
        arguments.iter().any(|a| a == "--smoke") || !arguments.iter().any(|a| a == "--bench");
    let (regions, rounds) = if smoke { (2, 1) } else { (32, 20) };
    let order = Order::new(regions, arguments.iter().any(|a| a == "--shuffled"));
    let name = arguments.iter().find(|a| !a.starts_with('-')).map_or("", String::as_str);

    if "x86-64".starts_with(name) {
        lost::show();
    }
    print!("{:<34}", "ns per page");
    OPERATIONS.iter().for_each(|operation| print!("{operation:>12}"));
    println!("{:>8}  found", "locked");
    for contenders in all().filter(|contenders| contenders[0].0.starts_with(name)) {
        let measured = run(&order, rounds, contenders);
        compare(&measured);
    }
}

/// A page table to measure, with the name of its line in the output.
type Named = (String, Box<dyn Contender>);

/// The measured times of each operation of each table, and of a locked instruction.
struct Measured {
    took: Vec<(String, [f64; OPERATIONS.len()])>,
    locked: f64,
}

/// Runs the measured tables in turn, and prints a line for each. Returns the time of each
/// operation.
fn run(order: &Order, rounds: u32, contenders: Vec<Named>) -> Measured {
    let mut lock = Lock::new(order);
    let mut contenders: Vec<_> =
        contenders.into_iter().map(|contender| (contender, [Duration::MAX; 7], 0)).collect();
    for _ in 0..rounds {
        lock.round();
        for ((_, contender), least, sum) in &mut contenders {
            let (took, found) = contender.round(order);
            least.iter_mut().zip(took).for_each(|(least, took)| *least = took.min(*least));
            *sum = found;
        }
    }
    let found = contenders[0].2;
    assert!(contenders.iter().all(|(.., sum)| *sum == found), "two tables found different frames");
    let locked = lock.nanoseconds();
    let line = |((name, _), least, sum): (Named, Took, u64)| {
        print!("{name:<34}");
        for took in least {
            print!("{:>12.2}", per_page(took, order));
        }
        println!("{locked:>8.2}  {sum:016x}");
        (name, least.map(|took| per_page(took, order)))
    };
    Measured { took: contenders.into_iter().map(line).collect(), locked }
}

/// Compares our table with its peers, if it has any. Prints the ratio of their times to ours,
/// measured in the same way. Also prints the difference between our table with walkers and the
/// unmodified peer, in units of a locked instruction.
fn compare(Measured { took, locked }: &Measured) {
    let line = |what: &str, name: &str, ratio: &dyn Fn(usize) -> f64| {
        print!("{what:<34}");
        (0..OPERATIONS.len()).for_each(|operation| print!("{:>12.2}", ratio(operation)));
        println!("{:>8}  {name}", "");
    };
    let (as_they_are, with_walkers) = took.split_at(took.len() / 2);
    for way in [as_they_are, with_walkers] {
        for theirs in &way[1..] {
            line(&format!("times {}", way[0].0), &theirs.0, &|n| theirs.1[n] / way[0].1[n]);
        }
    }
    for theirs in &as_they_are[1..] {
        let more = |n: usize| (with_walkers[0].1[n] - theirs.1[n]) / locked;
        line("locked instructions more than", &theirs.0, &more);
    }
    if took.len() > 2 {
        println!();
    }
}

fn with_walkers(name: &str) -> String {
    format!("{name}, with walkers")
}

fn named(name: &str, contender: impl Contender + 'static) -> Named {
    (name.to_owned(), Box::new(contender))
}

/// Our table and its peers of the same format, each without and with walkers.
fn ours<P: PageTable + 'static>(
    name: &str,
    make: impl Fn() -> P,
    peers: [Vec<Named>; 2],
) -> Vec<Named> {
    let [as_they_are, walkers] = peers;
    let mut all = vec![named(name, Ours::<P, false>::new(make(), ARENA_BYTES))];
    all.extend(as_they_are);
    all.push(named(&with_walkers(name), Ours::<P, true>::new(make(), ARENA_BYTES)));
    all.extend(walkers);
    all
}

/// The table of `page_table_multiarch` with entries of type `E`, without and with walkers.
fn multiarch<E: Entry>() -> [Named; 2] {
    [
        named("crate page_table_multiarch", Multiarch::<E, false>::new(ARENA_BYTES)),
        named(
            &with_walkers("page_table_multiarch"),
            Multiarch::<Exchanged<E>, true>::new(ARENA_BYTES),
        ),
    ]
}

/// Every format, without and with walkers, together with its peers. Each group is created after the
/// previous groups were dropped.
fn all() -> impl Iterator<Item = Vec<Named>> {
    fn both<P: PageTable + 'static>(name: &str, make: impl Fn() -> P) -> Vec<Named> {
        ours(name, make, [vec![], vec![]])
    }
    fn beside<P: PageTable + 'static, E: Entry>(name: &str, make: impl Fn() -> P) -> Vec<Named> {
        ours(name, make, multiarch::<E>().map(|peer| vec![peer]))
    }
    fn x86_64() -> Vec<Named> {
        let [as_it_is, walkers] = multiarch::<X64PTE>();
        let offset = named("crate x86_64", Offset::<false>::new(ARENA_BYTES));
        let exchanged = named(&with_walkers("crate x86_64"), Offset::<true>::new(ARENA_BYTES));
        let peers = [vec![offset, as_it_is], vec![exchanged, walkers]];
        ours("x86-64", X86_64::<4, false>::new, peers)
    }
    fn guarded(entries: u64) -> Guarded {
        Guarded::new(entries).expect("such nodes can be")
    }
    fn hashed(shape: HashedShape) -> Hashed {
        Hashed::new(shape).expect("such a table can be")
    }
    fn cached() -> Cached<Guarded> {
        Cached::new(CacheShape::S128K, guarded(16)).expect("such a cache can be")
    }
    let makers: [fn() -> Vec<Named>; 19] = [
        x86_64,
        || both("x86-64, 5 levels", X86_64::<5, false>::new),
        || beside::<_, Coded<Rv64>>("sv39", Sv39::<false>::new),
        || both("sv48", Sv48::<false>::new),
        || both("sv57", Sv57::<false>::new),
        || beside::<_, Coded<A64>>("aarch64", Aarch64::<12, 48, false>::new),
        || both("aarch64, 52 bits", Aarch64::<12, 52, false>::new),
        || both("flattened", || Split::flattened().expect("two levels can be")),
        || both("linear", || Split::linear().expect("six levels can be")),
        || both("mpt", Mpt::new),
        || both("guarded, 2", || guarded(2)),
        || both("guarded, 16", || guarded(16)),
        || both("guarded-adaptive", Guarded::adaptive),
        || both("hashed, 8K", || hashed(HashedShape::H8K)),
        || both("hashed, 128K", || hashed(HashedShape::H128K)),
        || both("clustered, 128K", || hashed(HashedShape::C128K)),
        || both("inverted", || hashed(HashedShape::inverted(ARENA_BYTES, 1))),
        || both("software TLB, 128K, of 16", cached),
        || {
            let cuckoo = || ElasticCuckoo::new(3, 16 << 10).expect("three ways can be");
            both("elastic-cuckoo", cuckoo)
        },
    ];
    makers.into_iter().map(|make| make())
}

fn per_page(took: Duration, order: &Order) -> f64 {
    took.as_secs_f64() * 1e9 / order.pages().len() as f64
}
