use core::fmt;

use addr::{OutOfFrames, Page, PageSize, PhysAddr, RangeError, Rights, VirtAddr};

use crate::Space;

/// Why an operation was refused. The table is as it was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// A page that would be mapped is there already, whole or in part.
    AlreadyMapped {
        /// The first mapped page that is in the way.
        page: Page,
    },
    /// The operation needs a page at this address, and there is none.
    NotMapped {
        /// The address.
        addr: VirtAddr,
    },
    /// An end of the range or a frame is not a multiple of the page size.
    Misaligned {
        /// The virtual or physical address.
        addr: u64,
        /// What it should be a multiple of.
        size: PageSize,
    },
    /// The range ends inside a superpage, which would have to be split first.
    Splits {
        /// The superpage.
        page: Page,
    },
    /// The range itself is none.
    Range(RangeError),
    /// This format cannot hold it.
    Unfit(Unfit),
    /// A table was needed and no frame is free for it.
    OutOfFrames(OutOfFrames),
    /// The space does not exist (any more).
    NoSpace(Space),
}

/// What it is that a format cannot hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// A page size that it has no entry for.
    PageSize(PageSize),
    /// A virtual address outside the space it covers.
    Virtual(VirtAddr),
    /// A frame outside the physical memory it can name.
    Physical(PhysAddr),
    /// A combination of rights that it cannot express.
    Rights(Rights),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AlreadyMapped { page } => {
                write!(f, "the {} page at {} is already mapped", page.size(), page.start())
            }
            Error::NotMapped { addr } => write!(f, "no page is mapped at {addr}"),
            Error::Misaligned { addr, size } => {
                write!(f, "{addr:#x} is not a multiple of the page size {size}")
            }
            Error::Splits { page } => write!(
                f,
                "the range ends inside the {} page at {}; unmap all of it or split it first",
                page.size(),
                page.start()
            ),
            Error::Range(error) => error.fmt(f),
            Error::Unfit(unfit) => unfit.fmt(f),
            Error::OutOfFrames(error) => error.fmt(f),
            Error::NoSpace(space) => write!(f, "address space {} does not exist", space.id()),
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this page table cannot hold ")?;
        match self {
            Unfit::PageSize(size) => write!(f, "pages of {size}"),
            Unfit::Virtual(addr) => write!(f, "the virtual address {addr}"),
            Unfit::Physical(addr) => write!(f, "the frame at {addr}"),
            Unfit::Rights(rights) => write!(f, "the rights {rights}"),
        }
    }
}

impl core::error::Error for Error {}
impl core::error::Error for Unfit {}

impl From<OutOfFrames> for Error {
    fn from(error: OutOfFrames) -> Error {
        Error::OutOfFrames(error)
    }
}

impl From<RangeError> for Error {
    fn from(error: RangeError) -> Error {
        Error::Range(error)
    }
}

impl From<Unfit> for Error {
    fn from(unfit: Unfit) -> Error {
        Error::Unfit(unfit)
    }
}
