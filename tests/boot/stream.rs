//! A random stream of operations on regions, and accesses that they allow. After each it prints what the kernel has
//! done: `crates/machine/examples/beside.rs` makes a simulated machine do the same, and compares.
//!
//! ```text
//!   step store 40000000 1 0 | 0 0 0 0 1 0 0 0 | 100010001 0 0 0 | 3 | 7f3a61c09be25d14
//!        operation, address, pages, rights | faults of each kind | mapped, accessed, dirty pages of each group | frames
//!        | digest of the tables' bytes
//! ```

use crate::{
    abi::{Fact, Failure, Number, PROGRAM, READ, SOURCE_ZEROS, STACK_BYTES, STACK_END, WRITE},
    memory::PAGE,
    println,
    system::{fail, load, must, store},
};

/// Groups of pages, each in a GiB of its own, so that each has tables of its own.
const GROUPS: u64 = 4;
const PAGES: u64 = 16;
const KINDS: usize = 8;

unsafe extern "C" {
    /// The end of the program.
    static program_end: u8;
}

const fn address(group: u64, page: u64) -> u64 {
    (1 + group) * 0x4000_0000 + page * PAGE
}

/// The numbers that count from the beginning: faults of each kind, and frames in use.
fn counts() -> ([u64; KINDS], u64) {
    let faults = core::array::from_fn(|kind| must(Number::Fact, &[Fact::FaultsOfKind as u64, kind as u64]));
    (faults, must(Number::Fact, &[Fact::FreeFrames as u64]))
}

/// Runs the stream. If `is_spoilt`, a bit of an entry changes on purpose when half of the steps are made.
pub fn run(seed: u64, steps: u64, mut is_spoilt: bool) {
    let mut random = crate::attack::Random::new(seed);
    // The rights of each page, 0 also where no region is.
    let mut rights = [[0; PAGES as usize]; GROUPS as usize];
    // The program and its stack have their pages before anything counts.
    let end = &raw const program_end as u64;
    (PROGRAM..end).step_by(PAGE as usize).for_each(|at| _ = load(at));
    (STACK_END - STACK_BYTES..STACK_END - 4 * PAGE).step_by(PAGE as usize).for_each(|at| store(at, 0));
    step("load", address(0, 0), 0, 0, &([0; KINDS], 0));
    let begun = counts();
    println!("stream {seed} begins");
    for number in 0..steps {
        let (group, first) = (random.below(GROUPS), random.below(PAGES));
        let (at, count) = (address(group, first), 1 + random.below(PAGES - first));
        let of = &mut rights[group as usize][first as usize..][..count as usize];
        let wanted = if random.below(3) == 0 { READ } else { READ | WRITE };
        match random.below(16) {
            0 | 1 if of.iter().all(|rights| *rights == 0) => {
                must(Number::Map, &[at, count * PAGE, wanted, SOURCE_ZEROS]);
                of.fill(wanted);
                step("map", at, count, wanted, &begun);
            }
            2 => {
                must(Number::Unmap, &[at, count * PAGE]);
                of.fill(0);
                step("unmap", at, count, 0, &begun);
            }
            3 if of.iter().all(|rights| *rights != 0) => {
                must(Number::Protect, &[at, count * PAGE, wanted]);
                of.fill(wanted);
                step("protect", at, count, wanted, &begun);
            }
            4 if of.iter().all(|rights| *rights != 0) => {
                must(Number::Discard, &[at, count * PAGE]);
                step("discard", at, count, 0, &begun);
            }
            5..=9 if of[0] & READ != 0 => {
                load(at);
                step("load", at, 1, 0, &begun);
            }
            10.. if of[0] & WRITE != 0 => {
                store(at, at);
                if is_spoilt && number >= steps / 2 {
                    fail(Failure::Entry, at);
                    is_spoilt = false;
                }
                step("store", at, 1, 0, &begun);
            }
            _ => {}
        }
    }
}

fn step(what: &str, at: u64, count: u64, rights: u64, begun: &([u64; KINDS], u64)) {
    let (faults, free) = counts();
    let [a, b, c, d, e, f, g, h]: [u64; KINDS] = core::array::from_fn(|kind| faults[kind] - begun.0[kind]);
    let usage = |group| must(Number::Fact, &[Fact::Usage as u64, address(group, 0)]);
    let [one, two, three, four] = [0, 1, 2, 3].map(usage);
    let frames = begun.1.wrapping_sub(free) as i64;
    let bytes = must(Number::Fact, &[Fact::Tables as u64, address(0, 0)]);
    println!(
        "step {what} {at:x} {count} {rights} | {a} {b} {c} {d} {e} {f} {g} {h} | {one:x} {two:x} {three:x} {four:x} | {frames} | {bytes:x}"
    );
}
