//! Tests of the kernel's paging: regions, copies, files, swap.

use crate::{
    abi::{Fact, Number, READ, SOURCE_FILE, SOURCE_FILE_SHARED, SOURCE_SHARED, SOURCE_ZEROS, WRITE},
    system::{fact, in_a_child, is_stopped, load, must, store},
};

/// The address of the tests' regions.
pub const AT: u64 = 0x1000_0000;
pub const PAGE: u64 = 4096;

/// Maps a region of `pages` pages at `at`.
pub fn map(at: u64, pages: u64, source: u64) {
    let file = [2, 0];
    must(Number::Map, &[at, pages * PAGE, READ | WRITE, source, file[0], file[1]]);
}

/// Unmaps a region.
pub fn unmap(at: u64, pages: u64) {
    must(Number::Unmap, &[at, pages * PAGE]);
}

fn each(pages: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..pages).map(|page| (page, AT + page * PAGE))
}

pub fn demand_paging() {
    const PAGES: u64 = 40;
    map(AT, PAGES, SOURCE_ZEROS);
    let before = fact(Fact::Faults);
    each(PAGES).for_each(|(_, at)| assert_eq!(load(at + 8), 0));
    each(PAGES).for_each(|(page, at)| store(at, page + 1));
    each(PAGES).for_each(|(page, at)| assert_eq!(load(at), page + 1));
    // One fault a page, and some for the program itself.
    let faults = fact(Fact::Faults) - before;
    assert!((PAGES..PAGES + 8).contains(&faults), "{faults} faults of {PAGES} pages");
    must(Number::Discard, &[AT, PAGES * PAGE]);
    each(PAGES).for_each(|(_, at)| assert_eq!(load(at), 0, "zeros again"));
    unmap(AT, PAGES);
    is_stopped("a load where no region is any more", || _ = load(AT));
}

pub fn rights() {
    map(AT, 2, SOURCE_ZEROS);
    store(AT, 7);
    must(Number::Protect, &[AT, PAGE, READ]);
    assert_eq!(load(AT), 7);
    is_stopped("a store to what may be read", || store(AT, 8));
    must(Number::Protect, &[AT, PAGE, 0]);
    is_stopped("a load of what allows nothing", || _ = load(AT));
    must(Number::Protect, &[AT, PAGE, READ | WRITE]);
    assert_eq!(load(AT), 7);
    store(AT, 9);
    unmap(AT, 2);
}

pub fn copy_on_write() {
    const PAGES: u64 = 8;
    map(AT, PAGES, SOURCE_ZEROS);
    each(PAGES).for_each(|(page, at)| store(at, 100 + page));
    let copies = fact(Fact::Copies);
    let sum = in_a_child(|| {
        each(PAGES).step_by(2).for_each(|(page, at)| store(at, 200 + page));
        each(PAGES).map(|(_, at)| load(at)).sum()
    });
    assert_eq!(sum, Some(100 * PAGES + 28 + 400));
    assert!(fact(Fact::Copies) >= copies + PAGES / 2, "a copy for each store of the child");
    each(PAGES).for_each(|(page, at)| assert_eq!(load(at), 100 + page, "what the child stored is its own"));
    each(PAGES).for_each(|(_, at)| store(at, 1));
    unmap(AT, PAGES);
}

pub fn fork_of_fork() {
    map(AT, 1, SOURCE_ZEROS);
    store(AT, 1);
    let code = in_a_child(|| {
        store(AT, load(AT) + 1);
        let below = in_a_child(|| {
            store(AT, load(AT) + 1);
            load(AT)
        });
        load(AT) * 10 + below.unwrap_or(0)
    });
    assert_eq!((code, load(AT)), (Some(23), 1));
    unmap(AT, 1);
}

pub fn shared_memory() {
    map(AT, 2, SOURCE_SHARED);
    store(AT, 5);
    let seen = in_a_child(|| {
        let seen = load(AT);
        store(AT + PAGE, 6);
        seen
    });
    assert_eq!((seen, load(AT + PAGE)), (Some(5), 6));
    unmap(AT, 2);
}

pub fn file() {
    const PAGES: u64 = 16;
    let other = AT + 0x100_0000;
    map(AT, PAGES, SOURCE_FILE);
    map(other, PAGES, SOURCE_FILE_SHARED);
    each(PAGES).for_each(|(page, at)| assert_eq!(load(at), page + 1, "page {page} of the file"));
    store(AT, 1000);
    store(other + PAGE, 2000);
    assert_eq!((load(other), load(AT + PAGE)), (1, 2000));
    unmap(AT, PAGES);
    map(AT, PAGES, SOURCE_FILE);
    assert_eq!((load(AT), load(AT + PAGE)), (1, 2000), "what was stored privately is gone");
    store(other + PAGE, 2);
    unmap(AT, PAGES);
    unmap(other, PAGES);
}

pub fn swap() {
    let pages = fact(Fact::FreeFrames) + 200;
    map(AT, pages, SOURCE_ZEROS);
    let value = |page: u64, round: u64| page.wrapping_mul(0x9e37_79b9_7f4a_7c15) + round;
    for round in 0..2 {
        if round > 0 {
            each(pages).for_each(|(page, at)| assert_eq!(load(at + 16), value(page, round - 1), "page {page}"));
        }
        each(pages).for_each(|(page, at)| store(at + 16, value(page, round)));
    }
    assert!(fact(Fact::Swapped) > 0 && fact(Fact::SwapReads) > 0);
    // A child has what is in swap too.
    let same =
        in_a_child(|| each(pages).step_by(37).filter(|&(page, at)| load(at + 16) == value(page, 1)).count() as u64);
    assert_eq!(same, Some(each(pages).step_by(37).count() as u64));
    unmap(AT, pages);
    assert_eq!(fact(Fact::Swapped), 0);
}
