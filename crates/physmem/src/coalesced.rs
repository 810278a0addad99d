//! The coalescing daemon of IRIX: it chooses the chunks of memory to be emptied for large pages
//! (G98 section 6.4.3).
//!
//! ```text
//!   pass      weak   mild   weak   mild   ...   strong      after passes that made nothing
//!   chunk     all free: join                                            weak
//!             few in use, up to a threshold of its size: migrate those  mild
//!             whatever is in use                                        strong
//! ```
//!
//! The daemon processes the chunks of each page size that has fewer free pages than its watermark,
//! and continues where the last pass stopped. The number of migrations that a chunk needs is the
//! number of clear bits in the allocator's bitmap. The daemon does not know the owner of a page:
//! whether a page can be moved is known only when the migration is tried.

use alloc::{collections::TryReserveError, vec::Vec};
use core::ops::Range;

use crate::frame::FrameId;

/// How much the daemon may move to free a large page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// No page is moved.
    Weak,
    /// A chunk is emptied if it has at most a threshold of pages in use.
    Mild,
    /// A chunk is emptied however many pages are in use.
    Strong,
}

impl Level {
    /// All levels, in their order.
    pub const ALL: [Level; 3] = [Level::Weak, Level::Mild, Level::Strong];

    /// The name of this level in results.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Weak => "weak",
            Level::Mild => "mild",
            Level::Strong => "strong",
        }
    }
}

/// The state of the daemon between passes.
#[derive(Clone, Debug)]
pub struct Coalesced {
    frames: Range<u32>,
    classes: Vec<Class>,
    /// After this number of passes that made no large page, one pass is strong.
    strong_after: u32,
    fruitless: u32,
    /// The highest level at which the daemon runs unless a process waits for a page.
    level_max: Level,
    passes: [u64; Level::ALL.len()],
    made: [u64; Level::ALL.len()],
}

#[derive(Clone, Copy, Debug)]
struct Class {
    order: u32,
    /// The largest number of migrations per chunk that a mild pass makes.
    threshold: u64,
    cursor: u32,
}

/// The result of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scanned {
    /// The number of chunks examined.
    pub chunks: u64,
    /// The chunk to empty, as its first frame and its number of frames in use; `None` if this pass
    /// finds no further chunk.
    pub found: Option<(FrameId, u64)>,
}

impl Coalesced {
    /// A daemon that coalesces free memory in `frames`. Each element of `thresholds` is a page size
    /// (log2 of base frames) and the largest number of migrations that a mild pass makes for one
    /// page of this size. Passes are alternately weak and mild. After `strong_after` passes that
    /// made no large page, one pass is strong.
    pub fn new(frames: Range<u32>, thresholds: &[(u32, u64)], strong_after: u32) -> Coalesced {
        let made = Coalesced::try_new(frames, thresholds, strong_after);
        made.expect("there is memory for a list of page sizes")
    }

    /// Like [`Coalesced::new`], but returns an error if no memory is left.
    ///
    /// # Errors
    /// Fails if no memory is left for the list of page sizes.
    pub fn try_new(
        frames: Range<u32>,
        thresholds: &[(u32, u64)],
        strong_after: u32,
    ) -> Result<Coalesced, TryReserveError> {
        let class = |&(order, threshold): &(u32, u64)| Class { order, threshold, cursor: 0 };
        let mut classes: Vec<Class> = Vec::new();
        classes.try_reserve_exact(thresholds.len())?;
        for class in thresholds.iter().map(class) {
            // The largest size comes first: if a large page is found, its parts need not be
            // searched for smaller pages.
            let place = classes.partition_point(|other| other.order >= class.order);
            classes.insert(place, class);
        }
        let (passes, made) = ([0; Level::ALL.len()], [0; Level::ALL.len()]);
        let level_max = Level::Strong;
        Ok(Coalesced { frames, classes, strong_after, fruitless: 0, level_max, passes, made })
    }

    /// This daemon, restricted to passes of at most `level` unless a process waits for a page.
    pub fn at_most(mut self, level: Level) -> Coalesced {
        self.level_max = level;
        self
    }

    /// For each level: the level, the number of passes, and the large free pages that they made.
    pub fn passes(&self) -> impl Iterator<Item = (Level, u64, u64)> + '_ {
        Level::ALL
            .into_iter()
            .map(|level| (level, self.passes[level as usize], self.made[level as usize]))
    }

    /// The level of the next pass.
    pub fn next_level(&self) -> Level {
        let done: u64 = self.passes.iter().sum();
        let level = match self.fruitless >= self.strong_after {
            true => Level::Strong,
            false if done % 2 == 1 => Level::Mild,
            false => Level::Weak,
        };
        level.min(self.level_max)
    }

    /// The page sizes that the daemon makes, as log2 of base frames, the largest first.
    pub fn orders(&self) -> impl Iterator<Item = u32> + '_ {
        self.classes.iter().map(|class| class.order)
    }

    /// The number of chunks of `2^order` frames.
    pub fn chunks(&self, order: u32) -> u64 {
        u64::from((self.frames.end >> order).saturating_sub(self.first(order) >> order))
    }

    /// Searches for the next chunk of `2^order` frames that a pass of `level` empties. It examines
    /// at most `chunks` chunks, subtracts the number of examined chunks from `chunks`, and accepts
    /// a chunk that needs at most `moves_max` migrations. `in_use` counts the frames in use in a
    /// chunk; it stops counting at the number that is passed to it.
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
            // Emptying a chunk that is completely in use would need as many frames elsewhere as it
            // frees.
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

    /// Reports the end of a pass that made `made` large free pages when `missing` more are wanted.
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
