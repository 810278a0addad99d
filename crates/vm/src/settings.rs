use core::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
};

use addr::PageSize;

use crate::{hashed::Hashed, object::FileKey, replacement::POLICIES, thp::Thp};

/// How memory is managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings<'a> {
    /// The sizes of pages that may be loaded, ascending; the first is the base page, which frames and
    /// swap are counted in.
    pub sizes: &'a [PageSize],
    /// Which of them a fault loads: the name of one of [`FAULT_POLICIES`](crate::FAULT_POLICIES); `base` loads base
    /// pages alone.
    pub sizing: &'static str,
    /// Whether both pages of a pair, as an entry of the TLB maps them, must have one size (G98
    /// section 3).
    pub paired: bool,
    /// Which page leaves memory: the name of one of [`POLICIES`].
    pub replacement: &'static str,
    /// How uses of a page are seen.
    pub reference: Reference,
    /// Pages that swap has room for.
    pub swap_pages: u32,
    /// When pages leave memory; with [`Marks::default`] where nothing is free.
    pub marks: Marks,
    /// How base pages get their places in the allocator's reservations; `None`: they get none.
    pub reserving: Option<Reserving>,
    /// NUMA nodes that memory has; 1 for memory that is one.
    pub nodes: u8,
    /// Cache colours that base pages have, by their place in the address space; 1 where none is asked
    /// for.
    pub colors: u32,
    /// Large pages of anonymous memory as Linux has them, in place of [`sizing`](Settings::sizing); `None`: none.
    pub thp: Option<Thp>,
    /// Which frames anonymous pages may have by their addresses; `None`: any.
    pub hashed: Option<Hashed>,
}

/// Base pages of 4 KiB for one node, replaced by the clock algorithm where hardware sets accessed bits; no swap and no
/// free frames kept back.
impl Default for Settings<'_> {
    fn default() -> Self {
        Settings {
            sizes: &[PageSize::SIZE_4K],
            sizing: "base",
            paired: false,
            replacement: "clock",
            reference: Reference::Hardware,
            swap_pages: 0,
            marks: Marks::default(),
            reserving: None,
            nodes: 1,
            colors: 1,
            thp: None,
            hashed: None,
        }
    }
}

/// How base pages are placed where the allocator has reservations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reserving {
    /// Whether a reservation may reach beyond what its object has, so that even small files have
    /// one that never fills (B10 section 6.5.1).
    pub eager: bool,
}

/// How the uses of a page are seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference {
    /// Hardware sets a bit in the page-table entry.
    Hardware,
    /// A page that is asked about is unloaded, and a minor fault tells of its next use.
    ValidBit,
}

/// Free frames at which something is done, in pages.
///
/// ```text
///   0 ....... min ............ low ............ high ......... all
///   tables     | no page gets   | pages leave    | ... until so many frames are free
///   only       | a frame before | from here on   |
///              | some have left |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// These are kept for page tables.
    pub min: u64,
    /// Below this, pages leave memory at the next [`Kernel::tick`](crate::Kernel::tick) ...
    pub low: u64,
    /// ... until so many frames are free.
    pub high: u64,
}

impl Marks {
    /// As Linux sets them for `pages` pages of `base`: min is the square root of 16 times the
    /// memory in KiB, in KiB (`init_per_zone_wmark_min`), low a quarter of that more and high a
    /// half; but min a sixteenth of memory at most, as Linux's own minimum of 128 KiB is for no
    /// memory as small as ours can be.
    pub fn of(pages: u64, base: PageSize) -> Marks {
        let kib = pages.saturating_mul(base.bytes() >> 10);
        let min = (kib.saturating_mul(16).isqrt() << 10) >> base.shift();
        let min = min.min(pages / 16);
        Marks { min, low: min + min / 4, high: min + min / 2 }
    }

    /// Whether they ascend and `pages` pages of memory can reach them.
    pub(crate) fn check(self, pages: u64) -> Result<(), SettingsError> {
        let in_order = self.min <= self.low && self.low <= self.high && self.high <= pages;
        if in_order { Ok(()) } else { Err(SettingsError::Marks) }
    }
}

/// Marks as they are now, which an operation under way may see change.
#[derive(Debug)]
pub(crate) struct MarksNow([AtomicUsize; 3]);

impl MarksNow {
    pub(crate) fn new(marks: Marks) -> MarksNow {
        let now = MarksNow(Default::default());
        now.set(marks);
        now
    }

    pub(crate) fn set(&self, Marks { min, low, high }: Marks) {
        // They are at most the pages of memory, whose frames are numbered by 32 bits.
        let marks = [min, low, high].map(|mark| mark as usize);
        self.0.iter().zip(marks).for_each(|(now, mark)| now.store(mark, Ordering::Relaxed));
    }

    #[inline]
    pub(crate) fn min(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed) as u64
    }

    pub(crate) fn low(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed) as u64
    }

    pub(crate) fn high(&self) -> u64 {
        self.0[2].load(Ordering::Relaxed) as u64
    }
}

/// Pages in memory by what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// Anonymous pages of spaces.
    pub anon: u64,
    /// Pages of files.
    pub file: u64,
    /// Pages of memory that spaces share.
    pub shared: u64,
}

/// What a new region has behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Zeros of its own.
    Anonymous,
    /// Zeros that a child of a fork goes on sharing.
    SharedMemory,
    /// A file from its page `first` on.
    File {
        /// Which.
        key: FileKey,
        /// Its page that the region begins with.
        first: u64,
        /// Whether stores change the file.
        shared: bool,
    },
}

/// Why memory cannot be managed so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingsError {
    /// No policy has this name.
    Replacement,
    /// No policy of page sizes has this name.
    Sizing,
    /// There is no page size, or they do not ascend.
    Sizes,
    /// The marks are not in their order, or memory has not so many frames.
    Marks,
    /// More of swap is in use than there is to be.
    SwapInUse {
        /// Pages that are there.
        used: u64,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::Replacement => {
                f.write_str("there is no such replacement: choose ")?;
                let names = POLICIES.iter().map(|(name, _)| name);
                names.enumerate().try_for_each(|(place, name)| {
                    write!(f, "{}{name}", if place == 0 { "" } else { ", " })
                })
            }
            SettingsError::Sizing => f.write_str("there is no such policy of page sizes"),
            SettingsError::Sizes => f.write_str("page sizes must ascend from the base page"),
            SettingsError::Marks => {
                f.write_str("min, low and high must ascend, and be at most the frames of memory")
            }
            SettingsError::SwapInUse { used } => {
                write!(f, "{used} pages are in swap: it cannot be smaller than that")
            }
        }
    }
}

impl core::error::Error for SettingsError {}
