use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pages that a TLB may have room for whose accesses are counted.
pub const SURE_PAGES_MAX: usize = 128;

/// Which page of a full set makes room for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Replaces {
    /// The one that was used longest ago.
    Lru = 0,
    /// The one that came in longest ago.
    Fifo = 1,
    /// One at a place that is drawn.
    Random = 2,
}

impl Replaces {
    /// That of the number.
    pub const fn from_bits(bits: u32) -> Option<Replaces> {
        match bits {
            0 => Some(Replaces::Lru),
            1 => Some(Replaces::Fifo),
            2 => Some(Replaces::Random),
            _ => None,
        }
    }
}

/// What is at one place of a TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nothing.
    Empty,
    /// An entry that does not serve the process which asks.
    Other,
    /// The page that begins there.
    Page(u64),
}

impl Place {
    /// No page begins at these.
    const EMPTY: u64 = 0;
    const OTHER: u64 = 1;
    const PAGE: u64 = 2;

    /// As a word.
    pub const fn bits(self) -> u64 {
        match self {
            Place::Empty => Place::EMPTY,
            Place::Other => Place::OTHER,
            Place::Page(start) => start | Place::PAGE,
        }
    }

    /// What the word stands for.
    pub const fn from_bits(bits: u64) -> Place {
        match bits {
            Place::EMPTY => Place::Empty,
            Place::OTHER => Place::Other,
            page => Place::Page(page & !Place::PAGE),
        }
    }
}

/// What the first TLBs hold, as the host tells a process that asks.
///
/// ```text
///   process   asked = 7, waits ........................... | goes on
///   host              what came before | contents | answered = 7
/// ```
#[repr(C)]
pub struct Contents {
    /// How often the process has asked, and which of these questions was answered last.
    pub asked: AtomicU32,
    /// See [`Contents::asked`].
    pub answered: AtomicU32,
    /// 1 if the answer is what follows; else it is not known.
    pub is_known: AtomicU32,
    /// Nothing.
    pub pad: u32,
    /// Where the sequence is by which places are drawn, for fetches and for data.
    pub sequences: [AtomicU64; 2],
    /// [`Place::bits`] of the places of the TLBs for fetches and for data, those of each set behind those of the one
    /// before: in the order in which they are drawn from, or else in which pages came in.
    pub places: [[AtomicU64; SURE_PAGES_MAX]; 2],
}

impl Contents {
    /// A question of a process is to be answered.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire) != self.answered.load(Ordering::Relaxed)
    }

    /// Asks; only the process itself may call it.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Release);
    }

    /// Answers what was asked last; `is_known` if the answer is here.
    pub fn answer(&self, is_known: bool) {
        self.is_known.store(is_known.into(), Ordering::Relaxed);
        self.answered.store(self.asked.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Whether what was asked last is answered, and is known; `None` if there is no answer yet.
    pub fn answered(&self) -> Option<bool> {
        let is_answered =
            self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Relaxed);
        is_answered.then(|| self.is_known.load(Ordering::Relaxed) != 0)
    }
}
