use core::fmt;

use addr::{Rights, VirtAddr};
use hat::HatSpace;

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
        }
    }
}

impl core::error::Error for Error {}

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
