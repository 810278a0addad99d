use alloc::collections::TryReserveError;
use core::fmt;

use addr::{
    Attributes, MemoryType, OutOfFrames, Page, PageSize, PhysAddr, RangeError, Rights, VirtAddr,
};

use crate::Space;

/// Why an operation was refused. The table is as it was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// A page that is to be mapped is already mapped, completely or in part.
    AlreadyMapped {
        /// The first mapped page among the addresses.
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
        /// The size of which `addr` must be a multiple.
        size: PageSize,
    },
    /// The range ends inside a superpage, which would have to be split first.
    Splits {
        /// The superpage.
        page: Page,
    },
    /// The start and length do not make a range.
    Range(RangeError),
    /// The format cannot express what was requested.
    Unfit(Unfit),
    /// A table is needed and no frame is free for it.
    OutOfFrames(OutOfFrames),
    /// The space never existed or has ended.
    NoSpace(Space),
    /// The heap has no memory left for data that the table keeps outside its frames.
    NoMemory,
}

/// A request that a format cannot express.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// A page size for which the format has no entry.
    PageSize(PageSize),
    /// A virtual address that the format cannot map.
    Virtual(VirtAddr),
    /// A frame whose address does not fit into the format's entries.
    Physical(PhysAddr),
    /// The frame allocated for a table has an address that does not fit into the entries that lead
    /// to tables.
    Table {
        /// The frame that was allocated.
        frame: PhysAddr,
        /// The physical address below which tables must end.
        end: PhysAddr,
    },
    /// A combination of rights that entries cannot express.
    Rights(Rights),
    /// A global page, for which entries have no bit.
    Global,
    /// A memory type that entries cannot express.
    Memory(MemoryType),
    /// A protection key, for which entries have no bits.
    Key(u8),
    /// One more space than this number, which is the largest number of spaces that tags can
    /// distinguish.
    Spaces(u64),
}

impl Unfit {
    /// Checks, for a format without attribute bits, that `attributes` are those of ordinary memory.
    #[inline]
    pub fn unless_normal(attributes: Attributes) -> Result<(), Unfit> {
        match attributes {
            Attributes::NORMAL => Ok(()),
            Attributes { memory: MemoryType::WriteBack, key } => Err(Unfit::Key(key)),
            Attributes { memory, .. } => Err(Unfit::Memory(memory)),
        }
    }
}

/// Why a page table cannot be built with the requested parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Geometry {
    /// A parameter that must be a power of two.
    NotPowerOfTwo {
        /// The name of the parameter.
        what: &'static str,
        /// The value of the parameter.
        value: u64,
    },
    /// A parameter outside the supported range.
    OutOfRange {
        /// The name of the parameter.
        what: &'static str,
        /// The value of the parameter.
        value: u64,
        /// The smallest supported value.
        min: u64,
        /// The largest supported value.
        max: u64,
    },
}

impl Geometry {
    /// Checks that `value` is a power of two from `min` to `max`.
    pub(crate) fn power_of_two(
        what: &'static str,
        value: u64,
        min: u64,
        max: u64,
    ) -> Result<(), Geometry> {
        if !value.is_power_of_two() {
            return Err(Geometry::NotPowerOfTwo { what, value });
        }
        Geometry::in_range(what, value, min, max)
    }

    /// Checks that `value` is from `min` to `max`.
    pub(crate) fn in_range(
        what: &'static str,
        value: u64,
        min: u64,
        max: u64,
    ) -> Result<(), Geometry> {
        if value < min || value > max {
            return Err(Geometry::OutOfRange { what, value, min, max });
        }
        Ok(())
    }

    /// Checks that `bytes` is a power of two from `min` to `max`, and returns it as a page size.
    pub(crate) fn size(
        what: &'static str,
        bytes: u64,
        min: u64,
        max: u64,
    ) -> Result<PageSize, Geometry> {
        Geometry::power_of_two(what, bytes, min, max)?;
        PageSize::from_bytes(bytes).ok_or(Geometry::NotPowerOfTwo { what, value: bytes })
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Geometry::NotPowerOfTwo { what, value } => {
                write!(f, "the number of {what} is {value}, but must be a power of two")
            }
            Geometry::OutOfRange { what, value, min, max } => {
                write!(f, "the number of {what} is {value}, but must be from {min} to {max}")
            }
        }
    }
}

impl core::error::Error for Geometry {}

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
            Error::NoMemory => {
                f.write_str("the heap has no memory left for the data of a page table")
            }
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
            Unfit::Table { frame, end } => write!(
                f,
                "one of its tables in the frame at {frame}, as its pointers reach only addresses \
                 below {end}: it needs free memory below that address"
            ),
            Unfit::Rights(rights) => write!(f, "the rights {rights}"),
            Unfit::Global => write!(f, "pages that all spaces share"),
            Unfit::Memory(memory) => write!(f, "pages of {memory} memory"),
            Unfit::Key(key) => write!(f, "the protection key {key}"),
            Unfit::Spaces(max) => write!(f, "more than {max} spaces"),
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

impl From<TryReserveError> for Error {
    fn from(_: TryReserveError) -> Error {
        Error::NoMemory
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
