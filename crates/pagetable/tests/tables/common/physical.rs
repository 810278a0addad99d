use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use addr::{Frames, Memory, OutOfFrames, PageSize, PhysAddr};
use pagetable::SparseMemory;

use crate::heap;

const BYTES: u64 = 1 << 40;
const POISON: u64 = 0xdead_beef_dead_beef;

/// Physical memory for one page table. Every access must be inside a frame that the table has
/// allocated. A new frame is filled with arbitrary values.
#[derive(Clone)]
pub(crate) struct Physical(Rc<RefCell<State>>);

struct State {
    memory: SparseMemory,
    out: BTreeMap<u64, PageSize>,
    next: u64,
    frames_max: usize,
}

impl Physical {
    pub(crate) fn new() -> Physical {
        Physical(Rc::new(RefCell::new(State {
            memory: SparseMemory::new(BYTES),
            out: BTreeMap::new(),
            next: 1 << 20,
            frames_max: usize::MAX,
        })))
    }

    /// From now on, at most `frames_max` frames can be allocated at the same time.
    pub(crate) fn limit(&self, frames_max: usize) {
        self.0.borrow_mut().frames_max = frames_max;
    }

    /// From now on, frames are allocated from `start` up.
    pub(crate) fn start_at(&self, start: u64) {
        self.0.borrow_mut().next = start;
    }

    /// The number of allocated frames.
    pub(crate) fn frames_out(&self) -> usize {
        self.0.borrow().out.len()
    }

    /// The number of bytes in allocated frames.
    pub(crate) fn bytes_out(&self) -> u64 {
        self.0.borrow().out.values().map(|size| size.bytes()).sum()
    }

    /// Checks that the `bytes` bytes from `addr` lie in an allocated frame.
    pub(crate) fn check(&self, addr: PhysAddr, bytes: u64) {
        let state = self.0.borrow();
        let inside = state
            .out
            .range(..=addr.get())
            .next_back()
            .is_some_and(|(&start, size)| addr.get() + bytes <= start + size.bytes());
        assert!(inside, "{bytes} bytes at {addr} are not the page table's");
    }

    fn checked(&self, addr: PhysAddr, bytes: u64) -> Ref<'_, State> {
        self.check(addr, bytes);
        self.0.borrow()
    }
}

impl Memory for Physical {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.checked(addr, 8).memory.read_u64(addr)
    }

    fn read_u32(&self, addr: PhysAddr) -> u32 {
        self.checked(addr, 4).memory.read_u32(addr)
    }

    fn read_u8(&self, addr: PhysAddr) -> u8 {
        self.checked(addr, 1).memory.read_u8(addr)
    }

    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.check(addr, 8);
        heap::unrefused(|| self.0.borrow_mut().memory.write_u64(addr, value));
    }

    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.check(addr, 4);
        heap::unrefused(|| self.0.borrow_mut().memory.write_u32(addr, value));
    }

    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        self.check(addr, 1);
        heap::unrefused(|| self.0.borrow_mut().memory.write_u8(addr, value));
    }

    addr::exchanges_of_one_user!();

    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        self.check(start, bytes);
        heap::unrefused(|| self.0.borrow_mut().memory.zero(start, bytes));
    }
}

impl Frames for Physical {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        let mut state = self.0.borrow_mut();
        if state.out.len() >= state.frames_max {
            return Err(OutOfFrames { size, free_bytes: 0 });
        }
        // A frame is never allocated twice, so that the use of a freed frame is detected.
        let start = state.next.next_multiple_of(size.bytes());
        state.next = start + size.bytes();
        heap::unrefused(|| {
            state.out.insert(start, size);
            for offset in (0..size.bytes()).step_by(8) {
                state.memory.write_u64(PhysAddr::new(start + offset), POISON);
            }
        });
        Ok(PhysAddr::new(start))
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        let was = self.0.borrow_mut().out.remove(&frame.get());
        assert_eq!(was, Some(size), "the frame at {frame} is freed at {size}");
    }
}
