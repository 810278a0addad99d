use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use addr::{Frames, Memory, OutOfFrames, PageSize, PhysAddr};

/// Physical memory as in a kernel: all of it is mapped in one piece, so that a physical address is
/// an offset. Reads and writes are not checked, as in a kernel. Frames for tables come from stacks,
/// one for each size.
pub(crate) struct Arena {
    start: *mut u8,
    bytes: u64,
    /// The address of the first frame that was never allocated. Frame 0 is never allocated, because
    /// the address 0 has no meaning in an entry.
    next: u64,
    free: Vec<Vec<PhysAddr>>,
}

/// A kernel's direct map of an [`Arena`], beside the allocator of its frames: the number to add to
/// a physical address. The sum is computed on integers, as in the tables of other crates with which
/// our tables are compared.
///
/// If no walker runs, all accesses are plain. With `WALKERS` they are atomic, and the exchanges are
/// locked instructions: bits that a walker sets are not lost.
#[derive(Clone, Copy)]
pub(crate) struct DirectMap<const WALKERS: bool>(usize);

const ALIGN: usize = 2 << 20;
const FIRST_FRAME: u64 = 4096;

impl Arena {
    /// A memory of `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Arena {
        let layout = Arena::layout(bytes);
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // The first access to each page causes a page fault of the host, which must not be timed.
        for offset in (0..bytes as usize).step_by(4096) {
            // SAFETY: the offset is inside the allocation.
            unsafe { start.add(offset).write_volatile(0) };
        }
        Arena { start, bytes, next: FIRST_FRAME, free: vec![Vec::new(); 64] }
    }

    fn layout(bytes: u64) -> Layout {
        Layout::from_size_align(bytes as usize, ALIGN).expect("a sensible size")
    }

    pub(crate) fn memory<const WALKERS: bool>(&self) -> DirectMap<WALKERS> {
        DirectMap(self.start.expose_provenance())
    }

    /// Frees all frames.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST_FRAME;
        self.free.iter_mut().for_each(Vec::clear);
    }

    /// The address in the host's memory at which the arena's physical address 0 lies.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and no references to it are left.
        unsafe { dealloc(self.start, Arena::layout(self.bytes)) };
    }
}

impl Frames for Arena {
    #[inline]
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        if let Some(frame) = self.free[size.shift() as usize].pop() {
            return Ok(frame);
        }
        let start = self.next.next_multiple_of(size.bytes());
        if start + size.bytes() > self.bytes {
            return Err(OutOfFrames { size, free_bytes: self.bytes - self.next });
        }
        self.next = start + size.bytes();
        Ok(PhysAddr::new(start))
    }

    #[inline]
    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.free[size.shift() as usize].push(frame);
    }
}

impl<const WALKERS: bool> DirectMap<WALKERS> {
    #[inline]
    fn at<T>(self, addr: PhysAddr) -> *mut T {
        with_exposed_provenance_mut(self.0.wrapping_add(addr.get() as usize))
    }
}

/// Defines a read and a write of one size. They are plain, or atomic with relaxed order if walkers
/// run.
macro_rules! accesses {
    ($($read:ident $write:ident $value:ty, $atomic:ty;)*) => {$(
        #[inline]
        fn $read(&self, addr: PhysAddr) -> $value {
            if WALKERS {
                // SAFETY: as said at the implementation.
                return unsafe { &*self.at::<$atomic>(addr) }.load(Relaxed);
            }
            // SAFETY: as said at the implementation.
            unsafe { self.at::<$value>(addr).read() }
        }

        #[inline]
        fn $write(&mut self, addr: PhysAddr, value: $value) {
            if WALKERS {
                // SAFETY: as said at the implementation.
                return unsafe { &*self.at::<$atomic>(addr) }.store(value, Relaxed);
            }
            // SAFETY: as said at the implementation.
            unsafe { self.at::<$value>(addr).write(value) }
        }
    )*};
}

/// Defines the exchanges of one size. They use locked instructions if walkers run.
macro_rules! exchanges {
    ($($swap:ident $invert:ident $compare:ident $read:ident $write:ident $value:ty, $atomic:ty;)*)
    => {$(
        #[inline]
        fn $swap(&mut self, addr: PhysAddr, new: $value) -> $value {
            if WALKERS {
                // SAFETY: as said at the implementation.
                return unsafe { &*self.at::<$atomic>(addr) }.swap(new, Relaxed);
            }
            let found = self.$read(addr);
            self.$write(addr, new);
            found
        }

        #[inline]
        fn $invert(&mut self, addr: PhysAddr, bits: $value) -> $value {
            if WALKERS {
                // SAFETY: as said at the implementation.
                return unsafe { &*self.at::<$atomic>(addr) }.fetch_xor(bits, Relaxed);
            }
            let found = self.$read(addr);
            self.$write(addr, found ^ bits);
            found
        }

        #[inline]
        fn $compare(
            &mut self,
            addr: PhysAddr,
            current: $value,
            new: $value,
        ) -> Result<(), $value> {
            if WALKERS {
                // SAFETY: as said at the implementation.
                let entry = unsafe { &*self.at::<$atomic>(addr) };
                return entry.compare_exchange(current, new, Relaxed, Relaxed).map(|_| ());
            }
            let found = self.$read(addr);
            if found != current {
                return Err(found);
            }
            self.$write(addr, new);
            Ok(())
        }
    )*};
}

/// Page tables access only the frames that they were given, all of which are in the arena, and each
/// access is aligned to its size.
impl<const WALKERS: bool> Memory for DirectMap<WALKERS> {
    accesses! {
        read_u64 write_u64 u64, AtomicU64;
        read_u32 write_u32 u32, AtomicU32;
        read_u8 write_u8 u8, AtomicU8;
    }

    exchanges! {
        swap_u64 invert_u64 compare_exchange_u64 read_u64 write_u64 u64, AtomicU64;
        swap_u32 invert_u32 compare_exchange_u32 read_u32 write_u32 u32, AtomicU32;
    }

    #[inline]
    fn write_upper_u64(&mut self, addr: PhysAddr, value: u64) {
        if WALKERS {
            return self.write_u32(addr.wrapping_add(4), (value >> 32) as u32);
        }
        self.write_u64(addr, value);
    }

    #[inline]
    fn read_halves_u64(&self, addr: PhysAddr) -> u64 {
        if WALKERS {
            let upper = self.read_u32(addr.wrapping_add(4));
            return u64::from(upper) << 32 | u64::from(self.read_u32(addr));
        }
        self.read_u64(addr)
    }

    #[inline]
    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        // SAFETY: as explained at this implementation; no walker reaches a table that is being
        // initialised.
        unsafe { self.at::<u8>(start).write_bytes(0, bytes as usize) }
    }
}
