//! The two interfaces between a machine and the crates below it: bytes of physical memory, and
//! frames to allocate.
//!
//! ```text
//!   page table, HAT layer, VM   --- read, write --->  Memory    a simulated one, a kernel's
//!             |                                                 direct map, a recording wrapper
//!             +------------- allocate, free ------->  Frames    who owns which frame
//! ```
//!
//! Both are in this crate because a page table uses both and an allocator of frames implements
//! `Frames`, while neither crate depends on the other.

use core::fmt;

use crate::{PageSize, PhysAddr};

/// Physical memory as little-endian bytes, accessed 1, 4 or 8 bytes at a time.
///
/// The address of an access must be a multiple of the number of bytes accessed, and must lie inside
/// the memory. Anything else is a defect of the caller, and an implementation may panic. Memory
/// that has never been written reads as zeros on a simulated host. A kernel must not rely on that,
/// and no page table here does.
///
/// The exchanges (`swap`, `invert`, `compare_exchange`) exist for entries in which a hardware walker sets
/// accessed and dirty bits while the OS changes them. Where walkers run at the same time, the exchanges
/// must be atomic, and plain reads and writes must not tear. The exchanges have no default, since a read
/// followed by a write would lose bits. A memory that has one user at a time implements them with
/// [`exchanges_of_one_user!`](crate::exchanges_of_one_user).
pub trait Memory {
    /// The 8 bytes at `addr`.
    fn read_u64(&self, addr: PhysAddr) -> u64;
    /// The 4 bytes at `addr`.
    fn read_u32(&self, addr: PhysAddr) -> u32;
    /// The byte at `addr`.
    fn read_u8(&self, addr: PhysAddr) -> u8;
    /// Replaces the 8 bytes at `addr`.
    fn write_u64(&mut self, addr: PhysAddr, value: u64);
    /// Replaces the 4 bytes at `addr`.
    fn write_u32(&mut self, addr: PhysAddr, value: u32);
    /// Replaces the byte at `addr`.
    fn write_u8(&mut self, addr: PhysAddr, value: u8);

    /// A reference to the 8 bytes at `addr`, with which a host can prefetch their cache line before
    /// they are read. `None` if the simulated bytes are not stored in ordinary memory of the host.
    #[inline]
    fn word(&self, _addr: PhysAddr) -> Option<&u64> {
        None
    }

    /// Writes `new` to the 8 bytes at `addr` and returns the old value.
    fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64;
    /// Writes `new` to the 4 bytes at `addr` and returns the old value.
    fn swap_u32(&mut self, addr: PhysAddr, new: u32) -> u32;
    /// Inverts those bits of the 8 bytes at `addr` that are set in `bits`, and returns the old
    /// value.
    fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64;
    /// Inverts those bits of the 4 bytes at `addr` that are set in `bits`, and returns the old
    /// value.
    fn invert_u32(&mut self, addr: PhysAddr, bits: u32) -> u32;
    /// Writes `new` to the 8 bytes at `addr` if their value is `current`; otherwise `Err` has their
    /// value.
    fn compare_exchange_u64(&mut self, addr: PhysAddr, current: u64, new: u64) -> Result<(), u64>;
    /// Writes `new` to the 4 bytes at `addr` if their value is `current`; otherwise `Err` has their
    /// value.
    fn compare_exchange_u32(&mut self, addr: PhysAddr, current: u32, new: u32) -> Result<(), u32>;

    /// Writes the upper half of `value` to the upper 4 of the 8 bytes at `addr`. The lower half of
    /// `value` must be equal to the lower 4 bytes in memory, except for bits that a walker has set
    /// there since the caller read them.
    ///
    /// The default writes the upper 4 bytes. An implementation overrides this function if it has no
    /// 4-byte write that is safe while a walker runs, for example an implementation with atomic
    /// 8-byte words. A memory with one user at a time may write all 8 bytes: a processor stalls an
    /// 8-byte read that follows a 4-byte write to a half of these bytes.
    #[inline]
    fn write_upper_u64(&mut self, addr: PhysAddr, value: u64) {
        self.write_u32(addr.wrapping_add(4), (value >> 32) as u32);
    }

    /// Reads the 8 bytes at `addr` after [`Memory::write_upper_u64`] may have written their upper half. An
    /// implementation that writes halves reads halves here, so that the processor can forward the store to
    /// the read. The default reads all 8 bytes, which is correct for every memory.
    #[inline]
    fn read_halves_u64(&self, addr: PhysAddr) -> u64 {
        self.read_u64(addr)
    }

    /// Clears `bytes` bytes from `start`, to initialise a new table. Both numbers are multiples of
    /// 8.
    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        for offset in (0..bytes).step_by(8) {
            self.write_u64(start.wrapping_add(offset), 0);
        }
    }
}

/// Implements the exchanges of a [`Memory`] as a read followed by a write, for a memory that has
/// one user at a time and no walker. Use it inside `impl Memory for`.
///
/// If a hardware walker accesses the memory at the same time, these exchanges lose accessed and
/// dirty bits.
///
/// ```
/// use addr::{Memory, PhysAddr};
///
/// struct Words(Vec<u64>);
///
/// impl Memory for Words {
///     fn read_u64(&self, addr: PhysAddr) -> u64 {
///         self.0[addr.get() as usize / 8]
///     }
///     fn write_u64(&mut self, addr: PhysAddr, value: u64) {
///         self.0[addr.get() as usize / 8] = value;
///     }
///     // No format in use has entries of 4 bytes or of one.
///     fn read_u32(&self, _: PhysAddr) -> u32 { unimplemented!() }
///     fn write_u32(&mut self, _: PhysAddr, _: u32) { unimplemented!() }
///     fn read_u8(&self, _: PhysAddr) -> u8 { unimplemented!() }
///     fn write_u8(&mut self, _: PhysAddr, _: u8) { unimplemented!() }
///     addr::exchanges_of_one_user!();
/// }
///
/// let mut words = Words(vec![0; 512]);
/// words.write_u64(PhysAddr::new(8), 3);
/// assert_eq!(words.invert_u64(PhysAddr::new(8), 1), 3);
/// assert_eq!(words.compare_exchange_u64(PhysAddr::new(8), 2, 7), Ok(()));
/// ```
#[macro_export]
macro_rules! exchanges_of_one_user {
    () => {
        $crate::exchanges_of_one_user! { @each
            swap_u64 invert_u64 compare_exchange_u64 read_u64 write_u64 u64;
            swap_u32 invert_u32 compare_exchange_u32 read_u32 write_u32 u32;
        }
    };
    (@each $($swap:ident $invert:ident $compare:ident $read:ident $write:ident $value:ty;)*) => {$(
        #[inline]
        fn $swap(&mut self, addr: $crate::PhysAddr, new: $value) -> $value {
            let found = self.$read(addr);
            self.$write(addr, new);
            found
        }

        #[inline]
        fn $invert(&mut self, addr: $crate::PhysAddr, bits: $value) -> $value {
            let found = self.$read(addr);
            self.$write(addr, found ^ bits);
            found
        }

        #[inline]
        fn $compare(
            &mut self,
            addr: $crate::PhysAddr,
            current: $value,
            new: $value,
        ) -> ::core::result::Result<(), $value> {
            let found = self.$read(addr);
            if found != current {
                return Err(found);
            }
            self.$write(addr, new);
            Ok(())
        }
    )*};
}

/// An allocator of physical frames.
pub trait Frames {
    /// Allocates a frame of `size`, aligned to its size, which belongs to the caller until it is
    /// freed. Its contents are arbitrary. If `size` is smaller than the allocator's smallest frame,
    /// the result is a smallest frame.
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames>;

    /// Frees a frame that [`Frames::allocate`] returned for this `size`.
    ///
    /// # Panics
    /// Panics if `frame` is not allocated with that size, because the frame could otherwise get two
    /// owners.
    fn free(&mut self, frame: PhysAddr, size: PageSize);
}

impl<F: Frames + ?Sized> Frames for &mut F {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        (**self).allocate(size)
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        (**self).free(frame, size);
    }
}

/// No frame of the requested size is free: the caller has to reclaim memory or to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfFrames {
    /// The size of the frame that was requested.
    pub size: PageSize,
    /// Free memory in frames of other sizes, in bytes.
    pub free_bytes: u64,
}

impl fmt::Display for OutOfFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of physical memory: no frame of {} is free", self.size)?;
        match self.free_bytes {
            0 => Ok(()),
            bytes => write!(f, " ({bytes} bytes are free in smaller pieces)"),
        }
    }
}

impl core::error::Error for OutOfFrames {}
