use alloc::collections::TryReserveError;
use core::fmt;

use addr::{Attributes, PhysAddr, Rights, VirtAddr};
use hat::HatSpace;

use crate::{platform::Store, sorted::NoMemory};

/// Why an operation was refused. Partial effects of a refused operation are undone or harmless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// No region has this address.
    NoRegion(VirtAddr),
    /// The region does not allow the access.
    Denied {
        /// The address of the access.
        addr: VirtAddr,
        /// The rights of the region.
        rights: Rights,
    },
    /// No frame can be freed: the pages in memory are wired, or swap has no room for them.
    OutOfMemory {
        /// The number of wired frames.
        wired: u64,
        /// The number of pages that swap still has room for.
        swap_free: u64,
    },
    /// Page tables have used up their share of memory, and no other space has tables that could be
    /// taken from it.
    TableMemory,
    /// The page table does not support the request.
    Table(pagetable::Error),
    /// There is no such space.
    NoSpace(HatSpace),
    /// The kernel's allocator has no memory for the manager's own data.
    NoMemory,
    /// The operation is for pages of the manager, but the region at this address maps frames that
    /// the kernel gave to it.
    Given(VirtAddr),
    /// The kernel cannot give this frame to a region: it is free, or it holds a page of the manager.
    NotGiven(PhysAddr),
    /// A frame is mapped already, with other attributes.
    Attributes {
        /// The frame.
        frame: PhysAddr,
        /// The attributes of the frame's present mappings.
        known: Attributes,
        /// The attributes that were requested.
        asked: Attributes,
    },
    /// The frame is wired as many times as its descriptor can count.
    PinLimit(PhysAddr),
    /// The disk could not read or write this page. A page that could not be written is still dirty.
    Io(Store),
}

/// A memory type, and the protection key if it is not 0.
struct Shown(Attributes);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attributes { memory, key } = self.0;
        match key {
            0 => memory.fmt(f),
            key => write!(f, "{memory} with protection key {key}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoRegion(addr) => write!(f, "no region contains {addr}"),
            Error::Denied { addr, rights } => write!(
                f,
                "access to {addr} denied: its region \
                                                         allows only {rights}"
            ),
            Error::OutOfMemory { wired, swap_free } => write!(
                f,
                "out of memory, and no page can be evicted: {wired} frames are wired, and swap has \
                  room for {swap_free} pages"
            ),
            Error::TableMemory => f.write_str("no memory is left for a page table"),
            Error::Table(error) => error.fmt(f),
            Error::NoSpace(space) => write!(f, "there is no space {}", space.0),
            Error::NoMemory => {
                f.write_str("the kernel's allocator has no memory left for the memory manager")
            }
            Error::Given(addr) => write!(
                f,
                "the region at {addr} maps frames that were given to it, such as those of a device: \
                 they cannot be pinned, accessed by the manager or extended"
            ),
            Error::NotGiven(frame) => write!(
                f,
                "the frame at {frame} is free or holds a page of the memory manager: allocate it \
                 for the kernel before it is mapped"
            ),
            Error::Attributes { frame, known, asked } => write!(
                f,
                "the frame at {frame} is mapped as {}, and cannot also be mapped as {}: use the same \
                 attributes, or unmap it first",
                Shown(*known),
                Shown(*asked)
            ),
            Error::PinLimit(frame) => {
                write!(f, "the frame at {frame} is wired 65535 times: give pins back first")
            }
            Error::Io(Store::File(key, page)) => write!(
                f,
                "the disk could not transfer page {page} of file {} of device {}",
                key.inode, key.device
            ),
            Error::Io(Store::Swap(slot)) => {
                write!(f, "the disk could not transfer the page in place {} of swap", slot.0)
            }
        }
    }
}

impl core::error::Error for Error {}

impl Error {
    /// The error of an operation that a page table has refused with `error`.
    pub(crate) fn of_table(error: pagetable::Error) -> Error {
        match error {
            pagetable::Error::NoMemory => Error::NoMemory,
            other => Error::Table(other),
        }
    }
}

impl From<TryReserveError> for Error {
    fn from(_: TryReserveError) -> Error {
        Error::NoMemory
    }
}

impl From<NoMemory> for Error {
    fn from(_: NoMemory) -> Error {
        Error::NoMemory
    }
}

/// Why an attempt to handle a fault ended; a fault may need several attempts.
pub(crate) enum Stop {
    /// A frame is needed and none is free.
    Full,
    /// Further attempts would fail too.
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Refused(error)
    }
}

impl From<TryReserveError> for Stop {
    fn from(error: TryReserveError) -> Stop {
        Stop::Refused(error.into())
    }
}
