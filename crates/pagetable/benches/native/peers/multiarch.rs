use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use addr::{Frames, PageSize, PhysAddr};
use memory_addr::{MemoryAddr, PhysAddr as MultiarchPhys, VirtAddr as MultiarchVirt};
use page_table_multiarch::{
    GenericPTE, MappingFlags, PageSize as MultiarchSize, PageTable64, PagingHandler,
};

use super::entries::Entry;
use crate::{
    arena::{Arena, DirectMap},
    lost::Walked,
    work::{PAGE_BYTES, Table, unmapped},
};

/// The table of `page_table_multiarch`, with its operations on regions. Its cursors collect the
/// pages to flush and, in a kernel, flush them at the end; here they are passed to a black box.
pub(crate) struct Multiarch<P: Entry, const WALKERS: bool> {
    table: Option<PageTable64<P::Shape, P, Handler<WALKERS>>>,
}

/// An entry of the crate that is changed by locked instructions.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Exchanged<P>(P);

/// The handler that gives the crate its frames. There are two, without and with walkers, each with
/// its own arena.
struct Handler<const WALKERS: bool>;

thread_local! {
    static ARENAS: [RefCell<Option<Arena>>; 2] = const { [RefCell::new(None), RefCell::new(None)] };
    static STARTS: [Cell<usize>; 2] = const { [Cell::new(0), Cell::new(0)] };
}

impl<const WALKERS: bool> PagingHandler for Handler<WALKERS> {
    fn alloc_frames(num: usize, _align: usize) -> Option<MultiarchPhys> {
        assert_eq!(num, 1, "tables take one frame each");
        ARENAS.with(|arenas| {
            let mut arena = arenas[WALKERS as usize].borrow_mut();
            let frame = arena.as_mut()?.allocate(PageSize::SIZE_4K).ok()?;
            Some(MultiarchPhys::from(frame.get() as usize))
        })
    }

    fn dealloc_frames(paddr: MultiarchPhys, _num: usize) {
        ARENAS.with(|arenas| {
            if let Some(arena) = arenas[WALKERS as usize].borrow_mut().as_mut() {
                arena.free(PhysAddr::new(paddr.as_usize() as u64), PageSize::SIZE_4K);
            }
        });
    }

    #[inline]
    fn phys_to_virt(paddr: MultiarchPhys) -> MultiarchVirt {
        let start = STARTS.with(|starts| starts[WALKERS as usize].get());
        MultiarchVirt::from(start + paddr.as_usize())
    }
}

impl<P: Entry, const WALKERS: bool> Multiarch<P, WALKERS> {
    pub(crate) fn new(bytes: u64) -> Multiarch<P, WALKERS> {
        let arena = Arena::new(bytes);
        STARTS.with(|starts| starts[WALKERS as usize].set(arena.start() as usize));
        ARENAS.with(|arenas| *arenas[WALKERS as usize].borrow_mut() = Some(arena));
        Multiarch { table: None }
    }

    fn table(&mut self) -> &mut PageTable64<P::Shape, P, Handler<WALKERS>> {
        self.table.as_mut().expect("a round begins with a space")
    }
}

impl<P: Entry, const WALKERS: bool> Drop for Multiarch<P, WALKERS> {
    fn drop(&mut self) {
        self.table = None;
        ARENAS.with(|arenas| *arenas[WALKERS as usize].borrow_mut() = None);
    }
}

impl<P: Entry> Entry for Exchanged<P> {
    type Shape = P::Shape;
    const MARKS: u64 = P::MARKS;
}

impl<P: Entry> Exchanged<P> {
    #[inline]
    fn atomic(&mut self) -> &AtomicU64 {
        let entry: *mut Exchanged<P> = self;
        // SAFETY: an entry is eight aligned bytes.
        unsafe { AtomicU64::from_ptr(entry.cast()) }
    }
}

/// Operations that change an entry in place use the exchange; all others are the crate's.
impl<P: Entry> GenericPTE for Exchanged<P> {
    fn new_page(paddr: MultiarchPhys, flags: MappingFlags, is_huge: bool) -> Exchanged<P> {
        Exchanged(P::new_page(paddr, flags, is_huge))
    }

    fn new_table(paddr: MultiarchPhys) -> Exchanged<P> {
        Exchanged(P::new_table(paddr))
    }

    fn paddr(&self) -> MultiarchPhys {
        self.0.paddr()
    }

    fn flags(&self) -> MappingFlags {
        self.0.flags()
    }

    fn set_paddr(&mut self, paddr: MultiarchPhys) {
        self.0.set_paddr(paddr);
    }

    #[inline]
    fn set_flags(&mut self, flags: MappingFlags, is_huge: bool) {
        let plain = P::new_page(self.0.paddr(), flags, is_huge).bits() as u64;
        let mut found = self.0.bits() as u64;
        let entry = self.atomic();
        while let Err(now) =
            entry.compare_exchange(found, plain | found & P::MARKS, Relaxed, Relaxed)
        {
            found = now;
        }
    }

    fn bits(self) -> usize {
        self.0.bits()
    }

    fn is_unused(&self) -> bool {
        self.0.is_unused()
    }

    fn is_present(&self) -> bool {
        self.0.is_present()
    }

    fn is_huge(&self) -> bool {
        self.0.is_huge()
    }

    #[inline]
    fn clear(&mut self) {
        _ = black_box(self.atomic().swap(0, Relaxed));
    }
}

fn virt(addr: u64) -> MultiarchVirt {
    MultiarchVirt::from(addr as usize)
}

impl<P: Entry, const WALKERS: bool> Walked for Multiarch<P, WALKERS> {
    fn memory(&self) -> DirectMap<true> {
        ARENAS.with(|arenas| {
            let arena = arenas[WALKERS as usize].borrow();
            arena.as_ref().expect("it has one while it lives").memory()
        })
    }

    fn root(&self) -> PhysAddr {
        let table = self.table.as_ref().expect("there is a space");
        PhysAddr::new(table.root_paddr().as_usize() as u64)
    }
}

impl<P: Entry, const WALKERS: bool> Table for Multiarch<P, WALKERS> {
    fn create(&mut self) {
        self.table = Some(PageTable64::try_new().expect("the arena has room"));
    }

    fn destroy(&mut self) {
        self.table = None;
    }

    #[inline(always)]
    fn map(&mut self, start: u64, frame: u64, pages: u64) {
        let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
        let frame = MultiarchPhys::from(frame as usize);
        let mut cursor = self.table().cursor();
        let mapped = if pages == 1 {
            cursor.map(virt(start), frame, MultiarchSize::Size4K, flags)
        } else {
            let place = |addr: MultiarchVirt| frame.add(addr.as_usize() - start as usize);
            cursor.map_region(virt(start), place, (pages * PAGE_BYTES) as usize, flags, false)
        };
        mapped.expect("nothing is there yet");
    }

    #[inline(always)]
    fn walk(&mut self, addr: u64) -> u64 {
        let (frame, ..) = self.table().query(virt(addr)).unwrap_or_else(|_| unmapped());
        frame.as_usize() as u64
    }

    #[inline(always)]
    fn protect(&mut self, start: u64, pages: u64) {
        let flags = MappingFlags::READ | MappingFlags::USER;
        let mut cursor = self.table().cursor();
        let done = if pages == 1 {
            cursor.protect(virt(start), flags).map(|_| ())
        } else {
            cursor.protect_region(virt(start), (pages * PAGE_BYTES) as usize, flags)
        };
        done.expect("it is mapped");
        black_box(&mut cursor);
    }

    #[inline(always)]
    fn unmap(&mut self, start: u64, pages: u64) {
        let mut cursor = self.table().cursor();
        let done = if pages == 1 {
            cursor.unmap(virt(start)).map(|_| ())
        } else {
            cursor.unmap_region(virt(start), (pages * PAGE_BYTES) as usize)
        };
        done.expect("it is mapped");
        black_box(&mut cursor);
    }
}
