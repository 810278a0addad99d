//! The page tables of the Rust registry: `x86_64`'s `OffsetPageTable`, and that of
//! `page_table_multiarch`. Both work in an [`Arena`] of their own, as ours do.

use std::{cell::RefCell, hint::black_box};

use addr::{Frames, PageSize};
use memory_addr::{MemoryAddr, PhysAddr as MultiarchPhys, VirtAddr as MultiarchVirt};
use page_table_multiarch::{
    MappingFlags, PageSize as MultiarchSize, PagingHandler, x86_64::X64PageTable,
};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, OffsetPageTable, Page, PageTable, PageTableFlags, PhysFrame, Size4KiB,
    Translate,
};

use crate::{
    arena::Arena,
    work::{Contender, PAGE_BYTES, Table, unmapped},
};

/// `x86_64`'s, which has no ranges and leaves empty tables where they are.
pub(crate) struct Offset {
    arena: Arena,
}

/// Gives frames of an arena to it.
struct Allocator<'a>(&'a mut Arena);

// SAFETY: the arena gives no frame out twice.
unsafe impl FrameAllocator<Size4KiB> for Allocator<'_> {
    #[inline]
    fn allocate_frame(&mut self) -> Option<PhysFrame<Size4KiB>> {
        let frame = self.0.allocate(PageSize::SIZE_4K).ok()?;
        Some(PhysFrame::containing_address(x86_64::PhysAddr::new(frame.get())))
    }
}

/// The root is the first frame that an arena gives out.
const ROOT: u64 = 4096;

impl Offset {
    pub(crate) fn boxed(bytes: u64) -> Box<dyn Contender> {
        Box::new(Offset { arena: Arena::new(bytes) })
    }

    #[inline]
    fn table(&mut self) -> (OffsetPageTable<'static>, Allocator<'_>) {
        let start = self.arena.start();
        let root = start.wrapping_add(ROOT as usize).cast::<PageTable>();
        // SAFETY: the root was zeroed when the space was made, it lies in the arena, which lives
        // as long as `self`, and all of physical memory is mapped from `start` on.
        let table = unsafe {
            OffsetPageTable::new(&mut *root, x86_64::VirtAddr::from_ptr(start.cast_const()))
        };
        (table, Allocator(&mut self.arena))
    }
}

fn page(addr: u64) -> Page<Size4KiB> {
    Page::containing_address(x86_64::VirtAddr::new(addr))
}

fn each(start: u64, pages: u64) -> impl Iterator<Item = u64> {
    (0..pages).map(move |n| start + n * PAGE_BYTES)
}

impl Table for Offset {
    fn name(&self) -> String {
        "crate x86_64".to_owned()
    }

    fn create(&mut self) {
        let root = self.arena.allocate(PageSize::SIZE_4K).map(|frame| frame.get());
        assert_eq!(root, Ok(ROOT));
        // SAFETY: the frame lies in the arena and is nobody else's.
        unsafe { self.arena.start().add(ROOT as usize).write_bytes(0, PAGE_BYTES as usize) };
    }

    fn destroy(&mut self) {
        self.arena.reset();
    }

    #[inline(always)]
    fn map(&mut self, start: u64, frame: u64, pages: u64) {
        let flags = PageTableFlags::PRESENT
            | PageTableFlags::WRITABLE
            | PageTableFlags::USER_ACCESSIBLE
            | PageTableFlags::NO_EXECUTE;
        let (mut table, mut allocator) = self.table();
        for addr in each(start, pages) {
            let frame = x86_64::PhysAddr::new(frame + (addr - start));
            let frame = PhysFrame::containing_address(frame);
            // SAFETY: nobody ever uses the pages that are mapped.
            let flush = unsafe { table.map_to(page(addr), frame, flags, &mut allocator) };
            flush.expect("nothing is there yet").ignore();
        }
    }

    #[inline(always)]
    fn walk(&mut self, addr: u64) -> u64 {
        let found = self.table().0.translate_addr(x86_64::VirtAddr::new(addr));
        found.unwrap_or_else(|| unmapped()).as_u64()
    }

    #[inline(always)]
    fn protect(&mut self, start: u64, pages: u64) {
        let flags =
            PageTableFlags::PRESENT | PageTableFlags::USER_ACCESSIBLE | PageTableFlags::NO_EXECUTE;
        let (mut table, _) = self.table();
        for addr in each(start, pages) {
            // SAFETY: nobody ever uses the pages that are mapped.
            let flush = unsafe { table.update_flags(page(addr), flags) };
            black_box(flush.expect("it is mapped")).ignore();
        }
    }

    #[inline(always)]
    fn unmap(&mut self, start: u64, pages: u64) {
        let (mut table, _) = self.table();
        for addr in each(start, pages) {
            black_box(table.unmap(page(addr)).expect("it is mapped").1).ignore();
        }
    }
}

/// `page_table_multiarch`'s, with its operations on regions. Its cursors note which pages must be
/// flushed and flush them in the end, but only in a kernel: a black box takes them instead.
pub(crate) struct Multiarch {
    table: Option<X64PageTable<Handler>>,
}

struct Handler;

thread_local! {
    static ARENA: RefCell<Option<Arena>> = const { RefCell::new(None) };
    static START: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl PagingHandler for Handler {
    fn alloc_frames(num: usize, _align: usize) -> Option<MultiarchPhys> {
        assert_eq!(num, 1, "tables take one frame each");
        ARENA.with_borrow_mut(|arena| {
            let frame = arena.as_mut()?.allocate(PageSize::SIZE_4K).ok()?;
            Some(MultiarchPhys::from(frame.get() as usize))
        })
    }

    fn dealloc_frames(paddr: MultiarchPhys, _num: usize) {
        ARENA.with_borrow_mut(|arena| {
            if let Some(arena) = arena {
                arena.free(addr::PhysAddr::new(paddr.as_usize() as u64), PageSize::SIZE_4K);
            }
        });
    }

    #[inline]
    fn phys_to_virt(paddr: MultiarchPhys) -> MultiarchVirt {
        MultiarchVirt::from(START.get() + paddr.as_usize())
    }
}

impl Multiarch {
    pub(crate) fn boxed(bytes: u64) -> Box<dyn Contender> {
        let arena = Arena::new(bytes);
        START.set(arena.start() as usize);
        ARENA.set(Some(arena));
        Box::new(Multiarch { table: None })
    }

    fn table(&mut self) -> &mut X64PageTable<Handler> {
        self.table.as_mut().expect("a round begins with a space")
    }
}

impl Drop for Multiarch {
    fn drop(&mut self) {
        self.table = None;
        ARENA.set(None);
    }
}

fn virt(addr: u64) -> MultiarchVirt {
    MultiarchVirt::from(addr as usize)
}

impl Table for Multiarch {
    fn name(&self) -> String {
        "crate page_table_multiarch".to_owned()
    }

    fn create(&mut self) {
        self.table = Some(X64PageTable::try_new().expect("the arena has room"));
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
