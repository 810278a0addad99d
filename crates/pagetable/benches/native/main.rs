//! How fast page tables are on this host, in nanoseconds a page of 4 KiB.
//!
//! ```text
//!   cargo bench -p pagetable [-- [--smoke] [--shuffled] [NAME]]
//! ```
//!
//! Every contender does the same work in the same run: regions of 256 pages are mapped page by
//! page, walked in a shuffled order, made read-only and unmapped, and then once more a region at
//! a time. All have their tables in memory that is mapped in one piece, as in a kernel; loops are
//! compiled for each table, as its users would be, and what must be flushed goes into a black box.
//!
//! A line shows the least that an operation took in any round, for what else runs here only adds
//! to it. The last column is a sum of what the walks found: the same for all. With NAME, the tables
//! run whose name begins so; with `--shuffled`, single pages are mapped, protected and unmapped in
//! the order of the walks too, so that no page is a neighbour of the one before.
//!
//! The two tables of the registry are of x86-64's format too. They keep tables that have become
//! empty and look for no page in the way beyond the one that they map. For a walk they look a page
//! up: they give no references, and `page_table_multiarch` takes any address for a canonical one.

mod arena;
mod ours;
mod peers;
mod work;

use std::time::Duration;

use ours::Ours;
use pagetable::{
    CacheShape, Cached, ElasticCuckoo, Guarded, Hashed, HashedShape, Mpt, Split, X86_64,
};
use peers::{Multiarch, Offset};
use work::{Contender, OPERATIONS, Took, Work};

const ARENA_BYTES: u64 = 48 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` runs this without `--bench`, at a smoke size.
    let smoke =
        arguments.iter().any(|a| a == "--smoke") || !arguments.iter().any(|a| a == "--bench");
    let (regions, rounds) = if smoke { (2, 1) } else { (32, 20) };
    let work = Work::new(regions, arguments.iter().any(|a| a == "--shuffled"));
    let name = arguments.iter().find(|a| !a.starts_with('-')).map_or("", String::as_str);

    print!("{:<28}", "ns a page");
    OPERATIONS.iter().for_each(|operation| print!("{operation:>12}"));
    println!("  found");
    if "x86-64".starts_with(name) {
        compare(&run(&work, rounds, x86_64()));
    }
    for contender in others().filter(|contender| contender.name().starts_with(name)) {
        run(&work, rounds, vec![contender]);
    }
}

/// Prints how many times as long as the first the others took.
fn compare(least: &[(String, Took)]) {
    let (ours, rivals) = least.split_first().expect("ours is among them");
    for (name, theirs) in rivals {
        print!("{:<28}", format!("times {}", ours.0));
        for (theirs, ours) in theirs.iter().zip(&ours.1) {
            print!("{:>12.2}", theirs.as_secs_f64() / ours.as_secs_f64());
        }
        println!("  {name}");
    }
    println!();
}

/// Runs the contenders in turn, prints a line for each, and gives what each operation took.
fn run(work: &Work, rounds: u32, contenders: Vec<Box<dyn Contender>>) -> Vec<(String, Took)> {
    let mut contenders: Vec<_> =
        contenders.into_iter().map(|contender| (contender, [Duration::MAX; 7], 0)).collect();
    for _ in 0..rounds {
        for (contender, least, sum) in &mut contenders {
            let (took, found) = contender.round(work);
            least.iter_mut().zip(took).for_each(|(least, took)| *least = took.min(*least));
            *sum = found;
        }
    }
    let found = contenders[0].2;
    assert!(contenders.iter().all(|(.., sum)| *sum == found), "two tables found different frames");
    let line = |(contender, least, sum): (Box<dyn Contender>, Took, u64)| {
        let name = contender.name();
        print!("{name:<28}");
        for took in least {
            print!("{:>12.2}", took.as_secs_f64() * 1e9 / work.pages() as f64);
        }
        println!("  {sum:016x}");
        (name, least)
    };
    contenders.into_iter().map(line).collect()
}

/// Ours first.
fn x86_64() -> Vec<Box<dyn Contender>> {
    let ours = X86_64::<4, false>::new();
    vec![
        Ours::boxed("x86-64", ours, ARENA_BYTES),
        Offset::boxed(ARENA_BYTES),
        Multiarch::boxed(ARENA_BYTES),
    ]
}

/// Every other organisation, each made when the one before it is gone.
fn others() -> impl Iterator<Item = Box<dyn Contender>> {
    fn table<P: pagetable::PageTable + 'static>(
        name: &'static str,
        table: P,
    ) -> Box<dyn Contender> {
        Ours::boxed(name, table, ARENA_BYTES)
    }
    fn guarded(entries: u64) -> Guarded {
        Guarded::new(entries).expect("such nodes can be")
    }
    fn hashed(shape: HashedShape) -> Hashed {
        Hashed::new(shape).expect("such a table can be")
    }
    let makers: [fn() -> Box<dyn Contender>; 13] = [
        || table("x86-64, 5 levels", X86_64::<5, false>::new()),
        || table("flattened", Split::flattened().expect("two levels can be")),
        || table("linear", Split::linear().expect("six levels can be")),
        || table("mpt", Mpt::new()),
        || table("guarded, 2", guarded(2)),
        || table("guarded, 16", guarded(16)),
        || table("guarded-adaptive", Guarded::adaptive()),
        || table("hashed, 8K", hashed(HashedShape::H8K)),
        || table("hashed, 128K", hashed(HashedShape::H128K)),
        || table("clustered, 128K", hashed(HashedShape::C128K)),
        || table("inverted", hashed(HashedShape::inverted(ARENA_BYTES, 1))),
        || {
            let cache = Cached::new(CacheShape::S128K, guarded(16));
            table("software TLB, 128K, of 16", cache.expect("such a cache can be"))
        },
        || table("elastic-cuckoo", ElasticCuckoo::new(3, 16 << 10).expect("three ways can be")),
    ];
    makers.into_iter().map(|make| make())
}
