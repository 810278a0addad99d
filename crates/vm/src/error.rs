use core::fmt;

use addr::{Rights, VirtAddr};
use hat::HatSpace;

/// Why an operation was refused. What it had begun is undone, or harmless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// No region has this address.
    NoRegion(VirtAddr),
    /// The region does not allow the access.
    Denied {
        /// The address.
        addr: VirtAddr,
        /// What its region allows.
        rights: Rights,
    },
    /// No frame can be had: what is in memory is wired, or has no room in swap.
    OutOfMemory {
        /// Frames that are wired.
        wired: u64,
        /// Pages that swap has room for.
        swap_free: u64,
    },
    /// Page tables have used up the share of memory that is theirs, and no space had any left to lose.
    TableMemory,
    /// The page table cannot do it.
    Table(pagetable::Error),
    /// There is no such space.
    NoSpace(HatSpace),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoRegion(addr) => write!(f, "no region has {addr}"),
            Error::Denied { addr, rights } => write!(f, "the region of {addr} is {rights}"),
            Error::OutOfMemory { wired, swap_free } => write!(
                f,
                "no page can be evicted: {wired} frames are wired, and swap has room for \
                 {swap_free} pages"
            ),
            Error::TableMemory => f.write_str("no memory is left for a page table"),
            Error::Table(error) => error.fmt(f),
            Error::NoSpace(space) => write!(f, "there is no space {}", space.0),
        }
    }
}

impl core::error::Error for Error {}

/// Why an attempt at a fault ended: more than one may be needed.
pub(crate) enum Stop {
    /// A frame was needed and there is none to be given.
    Full,
    /// No attempt will do better.
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Refused(error)
    }
}
