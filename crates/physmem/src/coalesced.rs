//! The coalescing daemon of IRIX: which chunks of memory it would empty (G98 section 6.4.3).
//!
//! ```text
//!   pass      weak   mild   weak   mild   ...   strong      after passes that made nothing
//!   chunk     all free: join                                            weak
//!             few in use, up to a threshold of its size: migrate those  mild
//!             whatever is in use                                        strong
//! ```
//!
//! It works on chunks of each page size, as far as their watermarks want more, and goes on where it
//! stopped. How many migrations a chunk would take are the clear bits of the allocator's bitmap. It
//! knows no owner of a page: whether a page can move is seen when it is to be moved.

use alloc::vec::Vec;
use core::ops::Range;

use crate::frame::FrameId;

/// How far it goes for a large page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// No page is moved.
    Weak,
    /// Up to a threshold of pages per chunk is moved.
    Mild,
    /// All pages of a chunk are moved.
    Strong,
}

impl Level {
    /// All of them, in their order.
    pub const ALL: [Level; 3] = [Level::Weak, Level::Mild, Level::Strong];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Weak => "weak",
            Level::Mild => "mild",
            Level::Strong => "strong",
        }
    }
}

/// What the daemon remembers from one pass to the next.
#[derive(Clone, Debug)]
pub struct Coalesced {
    frames: Range<u32>,
    classes: Vec<Class>,
    /// Passes that make nothing, after which one is strong.
    strong_after: u32,
    fruitless: u32,
    /// The most that it goes to by itself.
    level_max: Level,
    passes: [u64; Level::ALL.len()],
    made: [u64; Level::ALL.len()],
}

#[derive(Clone, Copy, Debug)]
struct Class {
    order: u32,
    /// Migrations per chunk that a mild pass makes at most.
    threshold: u64,
    cursor: u32,
}

/// What a scan has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scanned {
    /// Chunks that were looked at.
    pub chunks: u64,
    /// The chunk to empty, by its first frame, and its frames in use; `None`: no more in this pass.
    pub found: Option<(FrameId, u64)>,
}

impl Coalesced {
    /// A daemon over `frames` for pages of `2^order` base frames each, with the migrations that a mild
    /// pass makes at most for one of them. Passes are weak and mild in turn; after `strong_after` of
    /// them that made nothing, one is strong.
    pub fn new(frames: Range<u32>, thresholds: &[(u32, u64)], strong_after: u32) -> Coalesced {
        let class = |&(order, threshold): &(u32, u64)| Class { order, threshold, cursor: 0 };
        let mut classes: Vec<Class> = thresholds.iter().map(class).collect();
        // A large page that is found needs no smaller ones.
        classes.sort_by_key(|class| core::cmp::Reverse(class.order));
        let (passes, made) = ([0; Level::ALL.len()], [0; Level::ALL.len()]);
        let level_max = Level::Strong;
        Coalesced { frames, classes, strong_after, fruitless: 0, level_max, passes, made }
    }

    /// This daemon, restricted to passes of at most `level` unless a process waits for a page.
    pub fn at_most(mut self, level: Level) -> Coalesced {
        self.level_max = level;
        self
    }

    /// Passes by level, and the large free pages that were made in them.
    pub fn passes(&self) -> impl Iterator<Item = (Level, u64, u64)> + '_ {
        Level::ALL
            .into_iter()
            .map(|level| (level, self.passes[level as usize], self.made[level as usize]))
    }

    /// The level of the pass that begins.
    pub fn next_level(&self) -> Level {
        let done: u64 = self.passes.iter().sum();
        let level = match self.fruitless >= self.strong_after {
            true => Level::Strong,
            false if done % 2 == 1 => Level::Mild,
            false => Level::Weak,
        };
        level.min(self.level_max)
    }

    /// The orders of its pages, the largest first.
    pub fn orders(&self) -> Vec<u32> {
        self.classes.iter().map(|class| class.order).collect()
    }

    /// How many chunks of `2^order` frames there are.
    pub fn chunks(&self, order: u32) -> u64 {
        u64::from((self.frames.end >> order).saturating_sub(self.first(order) >> order))
    }

    /// Looks for the next chunk of `2^order` frames that `level` would empty, through `chunks` chunks at
    /// most, which are counted down, and with at most `moves_max` migrations. `in_use` counts a chunk's
    /// frames in use, no further than asked.
    pub fn scan(
        &mut self,
        order: u32,
        level: Level,
        chunks: &mut u64,
        moves_max: u64,
        mut in_use: impl FnMut(FrameId, u64) -> u64,
    ) -> Scanned {
        let (first, end) = (self.first(order), self.frames.end >> order << order);
        let mut scanned = Scanned { chunks: 0, found: None };
        let Some(class) = self.classes.iter_mut().find(|class| class.order == order) else {
            return scanned;
        };
        let enough = match level {
            Level::Weak => 0,
            Level::Mild => class.threshold,
            // A chunk of which all is in use would take as many frames elsewhere as it gives.
            Level::Strong => (1 << order) - 1,
        };
        let enough = enough.min(moves_max);
        while *chunks > 0 && first < end {
            if class.cursor < first || class.cursor >= end {
                class.cursor = first;
            }
            let at = FrameId(class.cursor);
            class.cursor += 1 << order;
            *chunks -= 1;
            scanned.chunks += 1;
            let count = in_use(at, enough + 1);
            if count <= enough {
                scanned.found = Some((at, count));
                return scanned;
            }
        }
        scanned
    }

    /// A pass is over that made `made` large free pages; `missing` are wanted still.
    pub fn passed(&mut self, level: Level, made: u64, missing: u64) {
        self.passes[level as usize] += 1;
        self.made[level as usize] += made;
        let fruitless = made == 0 && missing > 0 && level != Level::Strong;
        self.fruitless = if fruitless { self.fruitless + 1 } else { 0 };
    }

    fn first(&self, order: u32) -> u32 {
        self.frames.start.next_multiple_of(1 << order)
    }
}
