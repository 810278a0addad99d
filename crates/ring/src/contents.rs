use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The largest number of entries that a TLB may have if its hits are to be counted instead of
/// recorded.
pub const SURE_PAGES_MAX: usize = 128;

/// The replacement policy: which entry of a full set is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Replaces {
    /// The least recently used entry.
    Lru = 0,
    /// The oldest entry.
    Fifo = 1,
    /// A random entry.
    Random = 2,
}

impl Replaces {
    /// The policy with this number.
    pub const fn from_bits(bits: u32) -> Option<Replaces> {
        match bits {
            0 => Some(Replaces::Lru),
            1 => Some(Replaces::Fifo),
            2 => Some(Replaces::Random),
            _ => None,
        }
    }
}

/// The contents of one entry of a TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// No translation.
    Empty,
    /// A translation that is not for the process that requested the contents.
    Other,
    /// The translation of the page that begins at this address.
    Page(u64),
}

impl Place {
    /// An address at which no page begins.
    const EMPTY: u64 = 0;
    const OTHER: u64 = 1;
    const PAGE: u64 = 2;

    /// The contents as a word.
    pub const fn bits(self) -> u64 {
        match self {
            Place::Empty => Place::EMPTY,
            Place::Other => Place::OTHER,
            Place::Page(start) => start | Place::PAGE,
        }
    }

    /// The contents that a word represents.
    pub const fn from_bits(bits: u64) -> Place {
        match bits {
            Place::EMPTY => Place::Empty,
            Place::OTHER => Place::Other,
            page => Place::Page(page & !Place::PAGE),
        }
    }
}

/// The entries of the first-level TLBs, which the host reports to a process that requests them.
///
/// ```text
///   process   asked = 7, waits ........................... | goes on
///   host              what came before | contents | answered = 7
/// ```
#[repr(C)]
pub struct Contents {
    /// The number of requests that the process has made. `answered` has the number of the last
    /// request that was answered.
    pub asked: AtomicU32,
    /// See [`Contents::asked`].
    pub answered: AtomicU32,
    /// 1 if the fields below hold the answer; otherwise the contents are unknown.
    pub is_known: AtomicU32,
    /// Unused.
    pub pad: u32,
    /// For the TLB for fetches and the TLB for data: the state of the pseudo-random sequence that
    /// chooses entries to replace.
    pub sequences: [AtomicU64; 2],
    /// For the TLB for fetches and the TLB for data: the [`Place::bits`] of their entries, set by
    /// set. With random replacement, the entries of a set are in the order in which it numbers
    /// them. With other policies, they are in the order from the oldest to the newest.
    pub places: [[AtomicU64; SURE_PAGES_MAX]; 2],
}

impl Contents {
    /// Whether a request has not been answered yet.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire) != self.answered.load(Ordering::Relaxed)
    }

    /// Requests the contents; only the process itself may call this function.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Release);
    }

    /// Answers the last request. `is_known` says whether the contents have been stored here.
    pub fn answer(&self, is_known: bool) {
        self.is_known.store(is_known.into(), Ordering::Relaxed);
        self.answered.store(self.asked.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Whether the answer to the last request has known contents; `None` if the request has not
    /// been answered yet.
    pub fn answered(&self) -> Option<bool> {
        let is_answered =
            self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Relaxed);
        is_answered.then(|| self.is_known.load(Ordering::Relaxed) != 0)
    }
}
