use core::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
};

use addr::{Attributes, PageSize, PhysAddr};

use crate::{groups::Limits, hashed::Hashed, object::FileKey, replacement::POLICIES, thp::Thp};

/// The settings of the memory manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings<'a> {
    /// The page sizes that may be loaded, ascending. The first is the base page, which is the unit
    /// of frames and swap.
    pub sizes: &'a [PageSize],
    /// The policy that chooses the page size at a fault: the name of one of
    /// [`FAULT_POLICIES`](crate::FAULT_POLICIES). `base` loads only base pages.
    pub sizing: &'static str,
    /// Whether both pages of a pair, which share an entry of the TLB, must have the same size (G98
    /// section 3).
    pub paired: bool,
    /// The replacement policy: the name of one of [`POLICIES`].
    pub replacement: &'static str,
    /// How uses of a page are detected.
    pub reference: Reference,
    /// The number of pages that swap has room for.
    pub swap_pages: u32,
    /// The numbers of free frames at which pages are evicted. With [`Marks::default`], pages are
    /// evicted only when no frame is free.
    pub marks: Marks,
    /// How base pages are placed in the allocator's reservations; `None` if no page is placed in
    /// them.
    pub reserving: Option<Reserving>,
    /// The number of NUMA nodes of memory, at least 1.
    pub nodes: u8,
    /// The number of cache colours, which base pages have by their address; 1 if colours are not
    /// used.
    pub colors: u32,
    /// Linux's large pages of anonymous memory, in place of [`sizing`](Settings::sizing); `None` if
    /// they are not used.
    pub thp: Option<Thp>,
    /// The limits of groups of processes, from group 1 on; empty if there are none.
    pub groups: &'a [Limits],
    /// The frames that anonymous pages may have because of their addresses; `None` means any
    /// frames.
    pub hashed: Option<Hashed>,
}

/// Base pages of 4 KiB on one node; the clock policy, with accessed bits set by hardware; no swap and no free
/// frames kept in reserve.
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
            groups: &[],
            hashed: None,
        }
    }
}

/// How base pages are placed if the allocator has reservations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reserving {
    /// Whether a reservation may extend beyond the end of its object, so that even small files have
    /// a reservation, which never becomes full (B10 section 6.5.1).
    pub eager: bool,
}

/// How uses of a page are detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference {
    /// Hardware sets a bit in the page-table entry.
    Hardware,
    /// When the policy examines a page, the page is unloaded, and a minor fault reports its next
    /// use.
    ValidBit,
}

/// The watermarks of free memory, in base pages.
///
/// ```text
///   0 ....... min ............ low ............ high ......... all
///   tables     | no page gets   | pages leave    | ... until so many frames are free
///   only       | a frame before | from here on   |
///              | some have left |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// The number of frames that are kept free for page tables.
    pub min: u64,
    /// Below this number of free frames, pages are evicted at the next
    /// [`Kernel::tick`](crate::Kernel::tick).
    pub low: u64,
    /// Eviction ends when this many frames are free.
    pub high: u64,
}

impl Marks {
    /// The marks that Linux sets for `pages` pages of `base`. min is the square root of 16 times
    /// the memory in KiB, in KiB (`init_per_zone_wmark_min`); low is 1.25 times min and high 1.5
    /// times min. min is limited to a sixteenth of memory, because Linux's own minimum of 128 KiB
    /// does not suit memories as small as those simulated here.
    pub fn of(pages: u64, base: PageSize) -> Marks {
        let kib = pages.saturating_mul(base.bytes() >> 10);
        let min = (kib.saturating_mul(16).isqrt() << 10) >> base.shift();
        let min = min.min(pages / 16);
        Marks { min, low: min + min / 4, high: min + min / 2 }
    }

    /// Checks that the marks ascend and that a memory of `pages` pages can reach them.
    pub(crate) fn check(self, pages: u64) -> Result<(), SettingsError> {
        let in_order = self.min <= self.low && self.low <= self.high && self.high <= pages;
        if in_order { Ok(()) } else { Err(SettingsError::Marks) }
    }
}

/// The current marks, which may change during an operation.
#[derive(Debug)]
pub(crate) struct MarksNow([AtomicUsize; 3]);

impl MarksNow {
    pub(crate) fn new(marks: Marks) -> MarksNow {
        let now = MarksNow(Default::default());
        now.set(marks);
        now
    }

    pub(crate) fn set(&self, Marks { min, low, high }: Marks) {
        // The marks are at most the number of pages in memory, and frames have 32-bit numbers.
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

/// Counts of pages in memory by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// Anonymous pages of spaces.
    pub anon: u64,
    /// Pages of files.
    pub file: u64,
    /// Pages of shared memory.
    pub shared: u64,
}

/// The source of the contents of a new region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Zeros; stores are private to the space.
    Anonymous,
    /// Zeros that the child of a fork shares.
    SharedMemory,
    /// A file, from its page `first` on.
    File {
        /// The file.
        key: FileKey,
        /// The page of the file with which the region begins.
        first: u64,
        /// Whether stores change the file.
        shared: bool,
    },
    /// Adjacent frames that the caller gives: registers of a device, a framebuffer, or memory that the
    /// kernel has allocated for itself. They are loaded when the region is mapped. They are never
    /// evicted, copied or counted as pages of the space, and a fork shares them.
    Frames {
        /// The address of the first frame.
        first: PhysAddr,
        /// How the memory is accessed. Two mappings of a frame must agree about this.
        attributes: Attributes,
    },
}

/// Why the settings are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingsError {
    /// No policy has this name.
    Replacement,
    /// No policy of page sizes has this name.
    Sizing,
    /// There is no page size, or the page sizes do not ascend.
    Sizes,
    /// The marks are not in order, or memory has too few frames for them.
    Marks,
    /// More places in swap are in use than the new size provides.
    SwapInUse {
        /// The number of places in use.
        used: u64,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::Replacement => {
                f.write_str("there is no such replacement policy: choose ")?;
                let names = POLICIES.iter().map(|(name, _)| name);
                names.enumerate().try_for_each(|(place, name)| {
                    write!(f, "{}{name}", if place == 0 { "" } else { ", " })
                })
            }
            SettingsError::Sizing => f.write_str("there is no such page-size policy"),
            SettingsError::Sizes => f.write_str("page sizes must ascend from the base page"),
            SettingsError::Marks => {
                f.write_str("min, low and high must ascend, and be at most the frames of memory")
            }
            SettingsError::SwapInUse { used } => {
                write!(
                    f,
                    "{used} pages are in swap, and the new size has no room for them: write a \
                     larger size"
                )
            }
        }
    }
}

impl core::error::Error for SettingsError {}
