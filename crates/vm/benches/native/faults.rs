//! Measures faults through all parts of a memory manager.

use std::time::Instant;

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::{Flush, Mount, SparseMemory, X86_64};
use physmem::Physmem;
use vm::{Io, Kernel, Marks, Parts, Physical, Platform, Settings, Source, Vm};

const BASE: PageSize = PageSize::SIZE_4K;
const MEMORY: u64 = 4 << 30;

/// A platform whose processors and disks take no time.
struct Nothing;

impl Platform for Nothing {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}
    fn zero(&mut self, _: PhysAddr, _: u64) {}
    fn copy(&mut self, _: PhysAddr, _: PhysAddr, _: u64) {}
    fn transfer(&mut self, _: Io) {}
}

/// The number of intervals into which the pages of a round are divided: short enough that no other
/// process interrupts most of them.
const STRETCHES: u64 = 16;

/// Runs one round. Returns the nanoseconds per page of a first touch, of a missing translation, and
/// of unmapping, each in the fastest interval.
fn round(pages: u64) -> [f64; 3] {
    let settings =
        Settings { marks: Marks::of(MEMORY >> BASE.shift(), BASE), ..Settings::default() };
    let memory = Physmem::buddy(PhysAddr::new(0), MEMORY, BASE).expect("whole frames");
    let memory = Physical::new(memory);
    let vm = Vm::new(settings, MEMORY >> BASE.shift()).expect("the marks fit");
    let hat = Hat::new(Box::new(Mount::tree(X86_64::<4>::new(), SparseMemory::new(MEMORY))));
    let platform = &mut Nothing;
    let mut kernel = Kernel::new(&vm, &hat, &memory, platform);
    let space = kernel.create().expect("memory is free");
    let stretch = |number: u64| {
        let bytes = (pages / STRETCHES).max(1) << BASE.shift();
        let start = VirtAddr::new((1 << 32) + number * bytes);
        VirtRange::new(start, bytes).expect("it is short")
    };
    let range = stretch(0).hull(stretch(STRETCHES - 1));
    let rights = Rights::READ | Rights::WRITE;
    kernel.map(space, range, rights, Source::Anonymous, 0).expect("memory is free");
    let mut timed = |work: &mut dyn FnMut(&mut Kernel<'_, Parts<_, _, Nothing>>, VirtRange)| {
        let each = (0..STRETCHES).map(stretch).map(|range| {
            let began = Instant::now();
            work(&mut kernel, range);
            began.elapsed().as_secs_f64() * 1e9 / range.pages(BASE).count() as f64
        });
        each.fold(f64::INFINITY, f64::min)
    };
    let touch = &mut |kernel: &mut Kernel<'_, Parts<_, _, Nothing>>, range: VirtRange| {
        for page in range.pages(BASE) {
            kernel.fault(space, page.start(), Kind::Store).expect("memory is free");
        }
    };
    let first = timed(touch);
    // After this, each page gets its rights back by a fault of its own.
    timed(&mut |kernel, range| {
        kernel.protect(space, range, Rights::NONE).expect("it is mapped");
        kernel.protect(space, range, rights).expect("it is mapped");
    });
    let minor = timed(touch);
    let gone = timed(&mut |kernel, range| kernel.unmap(space, range).expect("it is mapped"));
    [first, minor, gone]
}

pub(super) fn compare(pages: u64, rounds: usize) {
    let mut least = [f64::INFINITY; 3];
    for _ in 0..rounds {
        for (least, took) in least.iter_mut().zip(round(pages)) {
            *least = least.min(took);
        }
    }
    println!("{:<28} {:>12}", "ns per page of 4K", "vm on x86-64");
    let names = ["first touch", "missing translation", "unmapping"];
    for (name, took) in names.into_iter().zip(least) {
        println!("{name:<28} {took:>12.1}");
    }
}
