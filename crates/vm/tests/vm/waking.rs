//! Tests when page replacement must be woken: when memory is scarce, but not if it has just found
//! no page that could be evicted.

use alloc::boxed::Box;

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::Hat;
use pagetable::{Mount, SparseMemory, X86_64};
use physmem::Physmem;
use vm::{FileKey, Kernel, Marks, Parts, Physical, Settings, Source, Vm};

use crate::board::Board;

const BASE: PageSize = PageSize::SIZE_4K;
const PAGES: u64 = 300;

/// There is no swap, so anonymous pages stay in memory, and the only page of a file is locked.
#[test]
fn replacement_is_woken_again_once_more_is_taken() {
    let marks = Marks { min: 10, low: 100, high: 120 };
    let vm: Vm = Vm::new(Settings { marks, ..Settings::default() }, PAGES).unwrap();
    let bytes = PAGES * BASE.bytes();
    let hat: Hat = Hat::new(Box::new(Mount::tree(X86_64::<4>::new(), SparseMemory::new(bytes))));
    let memory = Physical::new(Physmem::buddy(PhysAddr::new(0), bytes, BASE).unwrap());
    let mut board = Board::default();
    let mut kernel = Kernel::new(&vm, &hat, &memory, &mut board);
    let space = kernel.create().unwrap();
    let range = |page: u64, pages: u64| {
        VirtRange::new(VirtAddr::new(page << BASE.shift()), pages << BASE.shift()).unwrap()
    };
    let rights = Rights::READ | Rights::WRITE;
    let file = Source::File { key: FileKey { device: 1, inode: 1 }, first: 0, shared: true };
    kernel.map(space, range(0, 1), rights, file, 0).unwrap();
    kernel.lock(space, range(0, 1)).unwrap();
    kernel.map(space, range(1, PAGES), rights, Source::Anonymous, 0).unwrap();
    let mut page = 0;
    let mut take = |kernel: &mut Kernel<'_, Parts<_, _, _>>| {
        page += 1;
        kernel.fault(space, range(page, 1).start(), Kind::Store).unwrap();
    };
    while !kernel.wants_memory() {
        take(&mut kernel);
    }
    assert_eq!((kernel.tick(), kernel.wants_memory()), (0, false), "no page can leave");
    take(&mut kernel);
    assert!(kernel.wants_memory(), "fewer are free than then");
    assert_eq!((kernel.tick(), kernel.wants_memory()), (0, false));
    kernel.discard(space, range(1, 2)).unwrap();
    assert!(!kernel.wants_memory(), "some were given back");
    take(&mut kernel);
    assert!(kernel.wants_memory(), "one of these was taken");
    kernel.unlock(space, range(0, 1)).unwrap();
    assert_eq!((kernel.tick(), kernel.wants_memory()), (1, false), "the page of the file has left");
    take(&mut kernel);
    assert_eq!((kernel.wants_memory(), kernel.tick()), (true, 0));
    kernel.check().unwrap();
}
