//! The layout of memory, and the kernel's half of every page table.

use core::ops::Range;

use addr::{Attributes, Frames, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr};
use pagetable::{PageTable, Translation};

use crate::{arch, direct::Direct, heap};

/// The size of the disk in bytes: swap of 2048 pages, and files.
const DISK: u64 = 10 << 20;
/// The size in bytes of the tables of the kernel's half.
const TABLES: u64 = 1 << 20;

/// The ranges of memory by use.
///
/// ```text
///   | kernel's image | heap: a quarter | tables | disk | frames of vm ... |
/// ```
pub struct Layout {
    heap: Range<u64>,
    tables: Range<u64>,
    /// The RAM disk.
    pub disk: Range<u64>,
    /// The frames for `vm`.
    pub frames: Range<u64>,
}

impl Layout {
    /// Divides the free memory; `None` if there is too little. `frames` is the most frames for `vm`.
    pub fn of(free: &Range<u64>, frames: Option<u64>) -> Option<Layout> {
        let start = free.start.next_multiple_of(4096);
        let heap = start..(start + free.end.checked_sub(start)? / 4).next_multiple_of(4096);
        let tables = heap.end..heap.end + TABLES;
        let disk = tables.end..tables.end + DISK;
        let most = frames.map_or(u64::MAX, |frames| disk.end.saturating_add(frames.saturating_mul(4096)));
        let end = free.end.min(most) & !4095;
        let frames = disk.end..end;
        (frames.end.checked_sub(frames.start)? >= 64 * 4096).then_some(Layout { heap, tables, disk, frames })
    }

    /// Sets up the heap.
    pub fn begin_heap(&self) {
        let [start, end] = [self.heap.start, self.heap.end].map(|at| (arch::DIRECT + at) as usize);
        // SAFETY: the layout gives these bytes to the heap alone.
        unsafe { heap::begin(start, end) };
    }

    /// Makes the kernel's half of page tables, with global pages of 2 MiB, and loads it.
    pub fn map_kernel(&self) {
        let mut frames = InTurn(self.tables.clone());
        let mut table = arch::whole_table();
        let space = table.create(&mut Direct, &mut frames).expect("there is room for a root");
        let size = PageSize::SIZE_2M;
        for (at, from, bytes, is_device) in arch::kernel_map(self.frames.end) {
            let page = VirtAddr::new(at).page(size);
            let mut first = Translation::new(page, PhysAddr::new(from), Rights::READ | Rights::WRITE | Rights::EXECUTE);
            first.global = true;
            if is_device {
                first.attributes = Attributes::of(arch::DEVICE);
            }
            let count = bytes.div_ceil(size.bytes());
            let mapped = table.map(space, first, count, &mut Direct, &mut frames);
            mapped.expect("there is room for the kernel's tables").done(&mut frames);
        }
        arch::use_kernel_root(space.root());
    }
}

/// Frames for tables that are never freed, handed out in order.
struct InTurn(Range<u64>);

impl Frames for InTurn {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        let start = self.0.start.next_multiple_of(size.bytes());
        let none = OutOfFrames { size, free_bytes: self.0.end - self.0.start };
        if start + size.bytes() > self.0.end {
            return Err(none);
        }
        self.0.start = start + size.bytes();
        Ok(PhysAddr::new(start))
    }

    fn free(&mut self, _: PhysAddr, _: PageSize) {}
}
