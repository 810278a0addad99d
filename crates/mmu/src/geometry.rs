use core::fmt;

use addr::PageSize;

/// Why a structure cannot be built with the given parameters. The message gives the accepted
/// values; the caller adds the structure and the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeometryError {
    /// A structure without entries.
    Empty,
    /// More entries than [`crate::SetArray::ENTRIES_MAX`].
    TooLarge {
        /// The requested number of entries.
        entries: u64,
    },
    /// The ways do not divide the entries.
    Ways {
        /// Entries of the structure.
        entries: u64,
        /// The requested number of ways.
        ways: u32,
    },
    /// A TLB without an array.
    NoArrays,
    /// An array that holds no page size.
    NoPageSizes,
    /// A page size that is listed twice, in two arrays or in one.
    PageSizeTwice(PageSize),
    /// A TLB whose entries would map both pairs and blocks.
    PairsAndBlocks,
    /// A number of pages per block that an entry cannot represent.
    BlockPages {
        /// The requested number of pages.
        pages: u32,
    },
    /// A line size that is not a power of two, or less than 4 bytes.
    Line {
        /// The line size in bytes.
        bytes: u32,
    },
    /// A size that is not a whole number of lines.
    Size {
        /// The cache size in bytes.
        bytes: u64,
        /// The line size in bytes.
        line_bytes: u32,
    },
    /// A cache whose lines are shorter than those of a cache in front of it.
    ShorterLine {
        /// The cache's line size in bytes.
        bytes: u32,
        /// The line size, in bytes, of the cache in front.
        front_bytes: u32,
    },
    /// The cache at which the walker enters does not exist.
    NoSuchCache(&'static str),
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GeometryError::Empty => f.write_str("it has no entries: give it at least one"),
            GeometryError::TooLarge { entries } => write!(
                f,
                "{entries} entries are too many to simulate: give it at most {}",
                crate::SetArray::ENTRIES_MAX
            ),
            GeometryError::Ways { entries, ways: 0 } => {
                write!(f, "0 ways hold nothing: write 1 to {entries}")
            }
            GeometryError::Ways { entries, ways } => {
                write!(f, "{entries} entries do not divide into sets of {ways} ways")
            }
            GeometryError::NoArrays => f.write_str("the TLB has no array: give it one"),
            GeometryError::NoPageSizes => {
                f.write_str("the array holds no page size: name at least one")
            }
            GeometryError::PageSizeTwice(size) => {
                write!(f, "the page size {size} is named twice: name each size once")
            }
            GeometryError::PairsAndBlocks => {
                f.write_str("an entry maps either a pair or a block: leave paired or blocks out")
            }
            GeometryError::BlockPages { pages } => write!(
                f,
                "a block of {pages} pages: write a power of two from 2 to {}",
                crate::BlockParams::PAGES_MAX
            ),
            GeometryError::Line { bytes } => {
                write!(f, "a line of {bytes} bytes: write a power of two from 4")
            }
            GeometryError::Size { bytes, line_bytes } => {
                write!(f, "{bytes} bytes are not a whole number of {line_bytes}-byte lines")
            }
            GeometryError::ShorterLine { bytes, front_bytes } => write!(
                f,
                "its lines of {bytes} bytes are shorter than the lines of {front_bytes} bytes of a \
                 cache in front of it"
            ),
            GeometryError::NoSuchCache(name) => {
                write!(f, "the walker reads first from {name}, but there is no such cache")
            }
        }
    }
}

impl core::error::Error for GeometryError {}
