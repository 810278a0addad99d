//! What the OS half needs from the world: bytes of physical memory, and frames to own.
//!
//! ```text
//!   page table, HAT layer, VM   --- read, write --->  Memory    a simulated one, a kernel's
//!             |                                                 direct map, a recording wrapper
//!             +------------- allocate, free ------->  Frames    who owns which frame
//! ```
//!
//! Both stand here because a page table uses them and an allocator of frames provides one of
//! them, while neither knows the other.

use core::fmt;

use crate::{PageSize, PhysAddr};

/// Physical memory as bytes, little-endian, by 1, 4 or 8 at a time.
///
/// An address is a multiple of the bytes accessed and lies inside the memory; anything else is
/// a defect of the caller, and an implementation may panic. A frame that nobody has written
/// reads as zeros on a host; a kernel must not rely on that, and no page table here does.
///
/// The exchanges (`swap`, `invert`, `compare_exchange`) exist for entries that a hardware walker
/// changes behind the OS's back (accessed and dirty bits). Where walkers run at the same time they must be
/// atomic, and plain reads and writes must not tear. They have no default, since one made of a read
/// and a write loses bits there; a memory with one user at a time says so by
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

    /// Where a host keeps the 8 bytes at `addr`, so that it can have their line fetched before they are read;
    /// `None` where that is not its own memory.
    #[inline]
    fn word(&self, _addr: PhysAddr) -> Option<&u64> {
        None
    }

    /// Writes `new` to the 8 bytes at `addr`; what they were.
    fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64;
    /// Writes `new` to the 4 bytes at `addr`; what they were.
    fn swap_u32(&mut self, addr: PhysAddr, new: u32) -> u32;
    /// Inverts the bits of the 8 bytes at `addr` that `bits` has; what they were.
    fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64;
    /// Inverts the bits of the 4 bytes at `addr` that `bits` has; what they were.
    fn invert_u32(&mut self, addr: PhysAddr, bits: u32) -> u32;
    /// Writes `new` to the 8 bytes at `addr` if they are `current`; `Err` has what they are.
    fn compare_exchange_u64(&mut self, addr: PhysAddr, current: u64, new: u64) -> Result<(), u64>;
    /// Writes `new` to the 4 bytes at `addr` if they are `current`; `Err` has what they are.
    fn compare_exchange_u32(&mut self, addr: PhysAddr, current: u32, new: u32) -> Result<(), u32>;

    /// Writes the upper half of `value` to the upper 4 of the 8 bytes at `addr`, whose lower half
    /// is that of `value` but for bits that a walker has set there meanwhile.
    ///
    /// As provided it writes the upper 4. A memory that has no write of 4 bytes beside a walker, such as one of
    /// atomic words of 8, replaces it. A memory with one user at a time may write all 8: a processor delays a read of 8 bytes that
    /// follows a write of 4 of them.
    #[inline]
    fn write_upper_u64(&mut self, addr: PhysAddr, value: u64) {
        self.write_u32(addr.wrapping_add(4), (value >> 32) as u32);
    }

    /// The 8 bytes at `addr`, of which [`Memory::write_upper_u64`] may just have written the upper
    /// half: read so that the processor does not delay it, by halves if written by halves. As provided it reads
    /// all 8, which is right for every memory.
    #[inline]
    fn read_halves_u64(&self, addr: PhysAddr) -> u64 {
        self.read_u64(addr)
    }

    /// Clears `bytes` bytes from `start`, both multiples of 8: how a new table is initialised.
    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        for offset in (0..bytes).step_by(8) {
            self.write_u64(start.wrapping_add(offset), 0);
        }
    }
}

/// The exchanges of a [`Memory`] that has one user at a time, and no walker beside it: each a read and a
/// write. It stands among the methods of the implementation.
///
/// On a memory that hardware walks it loses accessed and dirty bits.
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

/// Who hands out frames and takes them back.
pub trait Frames {
    /// A frame of `size`, aligned to it, that belongs to the caller until it is freed; its
    /// contents are arbitrary. A size below the allocator's smallest gets a smallest frame.
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames>;

    /// Takes back a frame that [`Frames::allocate`] gave out for the same `size`.
    ///
    /// # Panics
    /// If that frame is not out at that size: two owners would have it next.
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

/// No frame of that size is free: reclaim some memory, or fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfFrames {
    /// What was asked for.
    pub size: PageSize,
    /// Bytes that are free in smaller pieces.
    pub free_bytes: u64,
}

impl fmt::Display for OutOfFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of physical memory: no frame of {} is free", self.size)?;
        match self.free_bytes {
            0 => Ok(()),
            bytes => write!(f, " ({bytes} bytes are, in smaller pieces)"),
        }
    }
}

impl core::error::Error for OutOfFrames {}
