//! Tests a table that maps only user addresses: the upper half of its root belongs to a kernel, and
//! no operation changes it.

use addr::{Frames, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Error, PageTable, Riscv, SparseMemory, Translation, Unfit, X86_64};
use physmem::Physmem;

const K4: PageSize = PageSize::SIZE_4K;
const MEMORY: u64 = 1 << 30;

/// The words that a kernel has written into its half of a root with 512 entries. None of them leads
/// to a table of the space.
fn kernel_words() -> impl Iterator<Item = (u64, u64)> {
    (256..512).map(|entry| (entry * 8, 0x1234_5000 | entry << 40 | 0xff))
}

fn check<T: PageTable>(mut table: T, half: u64) {
    let mut memory = SparseMemory::new(MEMORY);
    let mut frames = Physmem::buddy(PhysAddr::new(0), 64 << 20, K4).unwrap();
    let before = frames.free_bytes();
    let space = table.create(&mut memory, &mut frames).unwrap();
    let root = space.root();
    kernel_words().for_each(|(at, word)| memory.write_u64(root.wrapping_add(at), word));
    let is_kept = |memory: &SparseMemory| {
        kernel_words().all(|(at, word)| memory.read_u64(root.wrapping_add(at)) == word)
    };

    let page = |at: u64| VirtAddr::new(at).page(K4);
    let rights = Rights::READ | Rights::WRITE | Rights::USER;
    let frame = PhysAddr::new(MEMORY / 2);
    // The first and the last page of the lower half.
    for at in [0, half - K4.bytes()] {
        let first = Translation::new(page(at), frame, rights);
        table.map(space, first, 1, &mut memory, &mut frames).unwrap().done(&mut frames);
    }
    for (at, count) in [(half.wrapping_neg(), 1), (half - 2 * K4.bytes(), 3)] {
        let first = Translation::new(page(at), frame, rights);
        let refused = table.map(space, first, count, &mut memory, &mut frames);
        assert!(matches!(refused, Err(Error::Unfit(Unfit::Virtual(_)))), "{refused:?}");
    }
    let mut seen = Vec::new();
    table.visit(space, VirtRange::ALL, &memory, &mut |found| {
        seen.push(found.translation.page.start().get());
    });
    assert_eq!(seen, [0, half - K4.bytes()]);
    let all = VirtRange::ALL;
    let changed = table.protect(space, all, Rights::READ | Rights::USER, &mut memory, &mut |_| ());
    changed.unwrap().done(&mut frames);
    let mut gone = 0;
    table.unmap(space, all, &mut memory, &mut |_| gone += 1).unwrap().done(&mut frames);
    assert_eq!(gone, 2);
    assert!(is_kept(&memory), "the kernel's half of the root is as it was");
    table.destroy(space, &mut memory).unwrap().done(&mut frames);
    assert_eq!(Frames::allocate(&mut frames, K4).map(|_| ()), Ok(()));
    assert_eq!(frames.free_bytes() + K4.bytes(), before, "only tables of the space were freed");
}

#[test]
fn the_upper_half_is_the_kernels() {
    check(X86_64::<4, true, 1>::new(), 1 << 47);
    check(X86_64::<5, true, 1>::new(), 1 << 56);
    check(Riscv::<3, true, 1>::new(), 1 << 38);
    check(Riscv::<4, true, 1>::new(), 1 << 47);
}
