//! A small machine for tests of single operations, with page tables of x86-64, pages of 4K or of 4K
//! and 2M, and swap.

use alloc::boxed::Box;

use addr::{Kind, MemoryType, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::{Mount, Mounted, SparseMemory, Translation, X86_64};
use physmem::{Buddy, Physmem, State};
use vm::{Error, FileKey, Kernel, Marks, Parts, Physical, Settings, Source, Vm};

use crate::{board::Board, memory::Unrefused};

pub(crate) const BASE: PageSize = PageSize::SIZE_4K;
pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const PAGE: u64 = 4 * KIB;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const RW: Rights = Rights::from_bits(3);
pub(crate) const FILE: FileKey = FileKey { device: 1, inode: 7 };
/// The address at which tests map their regions.
pub(crate) const AT: u64 = 0x4000_0000;

pub(crate) struct Machine {
    pub(crate) vm: Vm,
    pub(crate) hat: Hat<dyn Mounted>,
    pub(crate) memory: Physical<Buddy>,
    pub(crate) board: Board,
}

pub(crate) fn range(start: u64, bytes: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), bytes).unwrap()
}

impl Machine {
    /// A machine with `bytes` bytes of memory, for pages of these sizes.
    pub(crate) fn with(bytes: u64, sizes: &[PageSize], swap_pages: u32) -> Machine {
        let marks = Marks { min: 2, low: 4, high: 6 };
        let settings = Settings { sizes, swap_pages, marks, ..Settings::default() };
        let table = Mount::tree(X86_64::<4>::new(), Unrefused(SparseMemory::new(1 << 40)));
        Machine {
            vm: Vm::new(settings, bytes / BASE.bytes()).unwrap(),
            hat: Hat::new(Box::new(table)),
            memory: Physical::new(Physmem::buddy(PhysAddr::new(0), bytes, BASE).unwrap()),
            board: Board::default(),
        }
    }

    pub(crate) fn new() -> Machine {
        Machine::with(MIB, &[BASE], 1000)
    }

    pub(crate) fn kernel(&mut self) -> Kernel<'_, Parts<dyn Mounted, Buddy, Board>> {
        let Machine { vm, hat, memory, board } = self;
        Kernel::new(vm, hat, memory, board)
    }

    pub(crate) fn space(&mut self) -> HatSpace {
        self.kernel().create().unwrap()
    }

    pub(crate) fn map(&mut self, space: HatSpace, range: VirtRange, source: Source) {
        self.kernel().map(space, range, RW, source, 0).unwrap();
        self.check();
    }

    pub(crate) fn held(&self, space: HatSpace, at: u64) -> Option<Translation> {
        self.hat.query(space, VirtAddr::new(at)).map(|held| held.translation)
    }

    /// Accesses the page at `at`, with a fault if it is not loaded with this right. Returns its
    /// frame.
    pub(crate) fn touch(
        &mut self,
        space: HatSpace,
        at: u64,
        kind: Kind,
    ) -> Result<PhysAddr, Error> {
        let addr = VirtAddr::new(at);
        let held = self.held(space, at);
        if !held.is_some_and(|held| held.rights.allows(kind)) {
            self.kernel().fault(space, addr, kind)?;
            self.check();
        }
        let held = self.held(space, at).unwrap();
        assert!(held.rights.allows(kind));
        Ok(PhysAddr::new(held.apply(addr).get() & !BASE.mask()))
    }

    /// Stores `stamp` to the page at `at`. Returns its frame.
    pub(crate) fn store(&mut self, space: HatSpace, at: u64, stamp: u64) -> PhysAddr {
        let frame = self.touch(space, at, Kind::Store).unwrap();
        self.board.contents.insert(frame, stamp);
        frame
    }

    pub(crate) fn load(&mut self, space: HatSpace, at: u64) -> u64 {
        let frame = self.touch(space, at, Kind::Load).unwrap();
        self.board.contents[&frame]
    }

    pub(crate) fn check(&mut self) {
        if let Err(wrong) = self.kernel().check() {
            panic!("{wrong}");
        }
    }

    /// Stores to so many other pages that every page that may be evicted is evicted.
    pub(crate) fn crowd(&mut self) {
        let space = self.space();
        let bytes = self.memory.get_mut().bytes() * 2;
        self.map(space, range(AT, bytes), Source::Anonymous);
        for at in (AT..AT + bytes).step_by(PAGE as usize) {
            self.store(space, at, 1);
        }
        assert_eq!(self.kernel().exit(space), Ok(true));
        self.check();
    }

    /// A frame for the kernel's own use.
    pub(crate) fn kernel_frame(&mut self) -> PhysAddr {
        self.memory.get_mut().allocate_page(BASE, State::Kernel).unwrap()
    }

    /// Frames from `first` on, as the source of a region.
    pub(crate) fn frames(first: u64, memory: MemoryType) -> Source {
        let attributes = addr::Attributes::of(memory);
        Source::Frames { first: PhysAddr::new(first), attributes }
    }

    /// Ends the spaces and drops the page cache, and checks that all frames except the kernel's own
    /// are free again.
    pub(crate) fn end(&mut self, spaces: &[HatSpace], own: u64) {
        for space in spaces {
            assert_eq!(self.kernel().exit(*space), Ok(true));
            self.check();
        }
        self.kernel().drop_caches();
        self.check();
        let tables = self.hat.pool().used_bytes;
        assert_eq!(self.memory.get_mut().used_bytes(), tables + own * PAGE);
        assert_eq!(self.vm.swapped(), 0);
    }
}
