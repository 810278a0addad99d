use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use addr::{Frames, PageSize, PhysAddr};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, OffsetPageTable, Page, PageTable, PageTableFlags, PhysFrame, Size4KiB,
    Translate,
};

use super::MARKS;
use crate::{
    arena::{Arena, DirectMap},
    lost::Walked,
    work::{PAGE_BYTES, Table, unmapped},
};

/// The table of `x86_64`, which has no operations on ranges and keeps empty tables.
pub(crate) struct Offset<const WALKERS: bool> {
    arena: Arena,
}

/// Allocates frames of an arena for the table.
struct Allocator<'a>(&'a mut Arena);

// SAFETY: the arena gives no frame out twice.
unsafe impl FrameAllocator<Size4KiB> for Allocator<'_> {
    #[inline]
    fn allocate_frame(&mut self) -> Option<PhysFrame<Size4KiB>> {
        let frame = self.0.allocate(PageSize::SIZE_4K).ok()?;
        Some(PhysFrame::containing_address(x86_64::PhysAddr::new(frame.get())))
    }
}

/// The root is the first frame that an arena hands out.
const ROOT: u64 = 4096;

impl<const WALKERS: bool> Offset<WALKERS> {
    pub(crate) fn new(bytes: u64) -> Offset<WALKERS> {
        Offset { arena: Arena::new(bytes) }
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

    /// The entry of a page. The wrapper searches for it, because the crate does not expose entries.
    #[inline(always)]
    fn entry(&mut self, page: Page<Size4KiB>) -> &AtomicU64 {
        let start = self.arena.start();
        let table = |frame: x86_64::PhysAddr| {
            let table = start.wrapping_add(frame.as_u64() as usize).cast::<PageTable>();
            // SAFETY: a table of the space; all of physical memory is mapped from `start` on.
            unsafe { &mut *table }
        };
        let next = |entry: x86_64::PhysAddr| table(entry);
        let p4 = table(x86_64::PhysAddr::new(ROOT));
        let frame = |entry: &x86_64::structures::paging::page_table::PageTableEntry| {
            entry.frame().unwrap_or_else(|_| unmapped()).start_address()
        };
        let p3 = next(frame(&p4[page.p4_index()]));
        let p2 = next(frame(&p3[page.p3_index()]));
        let p1 = next(frame(&p2[page.p2_index()]));
        let entry: *mut _ = &mut p1[page.p1_index()];
        // SAFETY: the entry is eight aligned bytes of the arena.
        unsafe { AtomicU64::from_ptr(entry.cast()) }
    }
}

fn page(addr: u64) -> Page<Size4KiB> {
    Page::containing_address(x86_64::VirtAddr::new(addr))
}

fn each(start: u64, pages: u64) -> impl Iterator<Item = u64> {
    (0..pages).map(move |n| start + n * PAGE_BYTES)
}

impl<const WALKERS: bool> Walked for Offset<WALKERS> {
    fn memory(&self) -> DirectMap<true> {
        self.arena.memory()
    }

    fn root(&self) -> PhysAddr {
        PhysAddr::new(ROOT)
    }
}

impl<const WALKERS: bool> Table for Offset<WALKERS> {
    fn create(&mut self) {
        let root = self.arena.allocate(PageSize::SIZE_4K).map(|frame| frame.get());
        assert_eq!(root, Ok(ROOT));
        // SAFETY: the frame lies in the arena, and nothing else uses it.
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
            // SAFETY: no code ever accesses the pages that are mapped.
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
        if WALKERS {
            for addr in each(start, pages) {
                let entry = self.entry(page(addr));
                let mut found = entry.load(Relaxed);
                loop {
                    assert!(found != 0, "it is mapped");
                    let frame = found & 0x000f_ffff_ffff_f000;
                    let new = frame | flags.bits() | found & MARKS;
                    match entry.compare_exchange(found, new, Relaxed, Relaxed) {
                        Ok(_) => break,
                        Err(now) => found = now,
                    }
                }
                _ = black_box(page(addr));
            }
            return;
        }
        let (mut table, _) = self.table();
        for addr in each(start, pages) {
            // SAFETY: no code ever accesses the pages that are mapped.
            let flush = unsafe { table.update_flags(page(addr), flags) };
            black_box(flush.expect("it is mapped")).ignore();
        }
    }

    #[inline(always)]
    fn unmap(&mut self, start: u64, pages: u64) {
        if WALKERS {
            for addr in each(start, pages) {
                let entry = self.entry(page(addr));
                assert!(entry.load(Relaxed) & 1 != 0, "it is mapped");
                _ = black_box((entry.swap(0, Relaxed), page(addr)));
            }
            return;
        }
        let (mut table, _) = self.table();
        for addr in each(start, pages) {
            black_box(table.unmap(page(addr)).expect("it is mapped").1).ignore();
        }
    }
}
