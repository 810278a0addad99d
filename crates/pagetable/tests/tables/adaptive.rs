//! Tests the purpose of adaptive nodes (E99 §5.3 and §6): in sparse spaces they take no more memory
//! than nodes of the best fixed size, and in the dense spaces of conventional programs walks make
//! no more references than with the table G16.

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr};
use pagetable::{Guarded, SparseMemory};
use physmem::Physmem;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::common::{Table, page};

const K4: PageSize = PageSize::SIZE_4K;
const ENTRIES: [u64; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
const MEMORY_BYTES: u64 = 1 << 30;

/// The bytes of a table with these pages, and the mean number of references of a walk to one of
/// them.
fn cost(mut table: Guarded, pages: &[u64]) -> (u64, f64) {
    let mut memory = SparseMemory::new(MEMORY_BYTES);
    let mut frames = Physmem::buddy(PhysAddr::new(0), MEMORY_BYTES, K4).unwrap();
    let space = table.create(&mut memory, &mut frames).unwrap();
    for &addr in pages {
        let first = page(addr, K4, 0, Rights::READ);
        table.map(space, first, 1, &mut memory, &mut frames).unwrap().done(&mut frames);
    }
    let mut references = 0;
    for &addr in pages {
        let each = &mut |_| references += 1;
        assert!(table.walk(space, VirtAddr::new(addr), Kind::Load, &mut memory, each).is_ok());
    }
    let bytes = table.footprint().table_bytes;
    table.destroy(space, &mut memory).unwrap().done(&mut frames);
    assert_eq!(frames.used_bytes(), 0);
    (bytes, references as f64 / pages.len() as f64)
}

/// The address space "uniform" of E99: single pages at random addresses.
fn uniform(pages: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<u64> {
    (0..pages).map(|_| rng.random::<u64>() & !K4.mask()).collect()
}

/// The address space "file" of E99: objects with the sizes of files, at random addresses. E99 did
/// not publish its distribution of sizes. This one is by Agrawal, Arpaci-Dusseau and Arpaci-Dusseau
/// (FAST 2009, table 2): the natural logarithm of the bytes has a normal distribution with mean
/// 9.48 and standard deviation 2.46. Their Pareto tail beyond 512 MiB is omitted.
fn file(pages: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::new();
    while all.len() < pages {
        let (radius, turn): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos();
        let bytes = (9.48 + 2.46 * normal).exp() as u64;
        let of_object = bytes.div_ceil(K4.bytes()).clamp(1, (pages - all.len()) as u64);
        // Objects start in the lower half of the space, so that none extends beyond the end.
        let start = rng.random::<u64>() >> 1 & !K4.mask();
        all.extend((0..of_object).map(|n| start + n * K4.bytes()));
    }
    all
}

/// Text, data, heap, libraries and stack, in the layout of a Unix process.
fn conventional(text: u64, heap: u64, library: u64) -> Vec<u64> {
    let segments = [
        (0x40_0000, text),
        (0x60_0000 + (text << 12), heap),
        (0x7fff_f000_0000, library),
        (0x7fff_f7a0_0000, library / 2 + 1),
        (0x7fff_ffff_e000 - (8 << 12), 8),
    ];
    segments
        .into_iter()
        .flat_map(|(start, pages)| (0..pages).map(move |n| start + (n << 12)))
        .collect()
}

#[test]
fn sparse_spaces_take_no_more_than_the_best_fixed_size() {
    for seed in 0..3 {
        println!("seed {seed}");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for pages in [64, 512, 4096] {
            for (name, addrs) in
                [("uniform", uniform(pages, &mut rng)), ("file", file(pages, &mut rng))]
            {
                let fixed = ENTRIES.map(|entries| cost(Guarded::new(entries).unwrap(), &addrs).0);
                let adaptive = cost(Guarded::adaptive(), &addrs).0;
                println!("{name} {pages}: adaptive {adaptive}, fixed {fixed:?}");
                let best = fixed.into_iter().min().unwrap();
                assert!(adaptive <= best, "{adaptive} bytes, {best} at best");
            }
        }
    }
}

/// The number of references represents the time of a refill, because an entry takes the same time
/// in both tables. The sizes are those of the programs go, c4 and compress in E99's table 1.
#[test]
fn conventional_programs_are_refilled_no_slower_than_by_g16() {
    for (text, heap, library) in [(20, 60, 100), (120, 1300, 400), (900, 10_000, 700)] {
        let addrs = conventional(text, heap, library);
        let (bytes, references) = cost(Guarded::adaptive(), &addrs);
        let (bytes_of_g16, references_of_g16) = cost(Guarded::new(16).unwrap(), &addrs);
        println!("{text} {heap} {library}: {references:.2}, {references_of_g16:.2} of G16");
        assert!(references <= references_of_g16, "{references}, not {references_of_g16}");
        assert!(bytes <= bytes_of_g16, "{bytes}, not {bytes_of_g16}");
    }
}
